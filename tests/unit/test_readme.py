"""The examples in the README work, and its table lists every verb."""

import re
from pathlib import Path

from podslice.cli.app import make_app
from tests.configuration import load_config

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_library_example_runs(capsys):
    (example,) = blocks("python")
    exec(compile(example, "README.md", "exec"), {})  # noqa: S102 - our own text
    out = capsys.readouterr().out
    assert out.startswith("Burstable kubepods-burstable-pod")
    assert "CPUWeight 50 # requests.cpu 500m → 512 shares → ×100/1024\n" in out
    assert "kubepods.slice {'CPUWeight': 800, 'MemoryLow': 1073741824" in out


def test_the_configuration_example_is_valid(tmp_path):
    (example,) = blocks("toml")
    path = tmp_path / "podslice.toml"
    path.write_text(example)
    config = load_config(file=path)
    assert config.kube_reserved == {"cpu": 500, "memory": 512 * 2**20 * 1000}


def test_every_verb_is_in_the_table():
    commands = (each for each in make_app().registered_commands if not each.hidden)
    verbs = {each.callback.__name__.replace("_", "-") for each in commands}
    table = README.partition("## Verbs")[2].partition("##")[0]
    assert {verb for verb in verbs if f"`{verb}" not in table} == set()
