"""The README: its configuration, figures and pictures; and the tools that run its commands.

tests/packaging/test_upgrade.py runs the commands.
"""

import re
import runpy
import textwrap
from pathlib import Path

import pytest

from podslice.cli.verb_table import VERBS
from podslice.model.feature import VerbGroup
from tests.configuration import load_config
from tests.lab import session
from tests.lab.demo import SECTION
from tests.lab.machine import Result
from tests.lab.session import Step
from tests.readme import terminal_svg

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
SECTIONS = session.sections(README)


def test_it_has_at_most_200_lines():
    assert len(README.splitlines()) <= 200


def test_paragraphs_have_at_most_four_lines():
    text = re.sub(r"^```.*?^```", "", README, flags=re.DOTALL | re.MULTILINE)
    blocks = re.split(r"\n\n|\n(?=- )", re.sub(r"\]\([^)]*\)", "", text))
    long = [each for each in blocks if each[:1] not in "|!" and len(textwrap.wrap(each, 110)) > 4]
    assert long == []


def test_the_library_example_runs(capsys):
    runpy.run_path(str(ROOT / "examples/library.py"))
    out = capsys.readouterr().out
    assert out.startswith("Burstable kubepods-burstable-pod")
    assert "CPUWeight 50 # requests.cpu 500m → 512 shares → ×100/1024\n" in out
    assert "kubepods.slice {'CPUWeight': 800, 'MemoryLow': 1073741824" in out


def test_the_configuration_example_is_valid(tmp_path):
    (example,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    path = tmp_path / "podslice.toml"
    path.write_text(example)
    config = load_config(file=path)
    assert config.kube_reserved == {"cpu": 500, "memory": 512 * 2**20 * 1000}


def test_every_verb_is_in_the_table():
    hidden = {name for name, row in VERBS.items() if row.is_hidden or " " in name}
    verbs = {name for name, row in VERBS.items() if row.group is not VerbGroup.INTERNAL} - hidden
    assert {verb for verb in verbs if f"`{verb}`" not in SECTIONS["Verbs"]} == set()


def test_the_figures_are_those_of_the_results():
    results = (ROOT / "tests/bench/RESULTS.md").read_text()
    text = SECTIONS["What it adds"] + SECTIONS["What it costs"]
    figures = re.findall(r"([\d.]+) (?:ms|MiB of|%)", text)
    assert len(figures) >= 11
    assert [each for each in figures if not re.search(rf"\b{re.escape(each)}\b", results)] == []


def test_pictures_and_linked_files_exist():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len([link for link in links if link.endswith(".svg")]) == 3
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_demo_runs_the_first_session():
    commands = [step.command for step in session.read_steps(SECTIONS[SECTION])]
    assert "sudo podslice apply -f pods" in commands
    # only the manifests that the session itself writes
    assert [each for each in commands if "/" in each and "pods/" not in each] == []


# the tools


def test_a_readme_with_its_own_outputs_is_the_same():
    outputs = [step.output for step in session.read_steps(README)]
    assert session.with_outputs(README, outputs) == README


def test_outputs_are_replaced_where_they_are_shown():
    text = "```console\n$ one\nold\n$ two\n```\n\n```console\n$ three\nold\nold\n```\n"
    assert session.with_outputs(text, [["new"], ["hidden"], ["a", "b", "c"]]) == (
        "```console\n$ one\nnew\n$ two\n```\n\n```console\n$ three\na\nb\nc\n```\n"
    )


def result(stdout, exit_code=0):
    return Result(argv=("x",), exit_code=exit_code, stdout=stdout, stderr="")


@pytest.mark.parametrize(
    ("found", "is_same"),
    [
        ("web  active  0 B      -  10%  ███░  1.5s\n", True),
        ("web  active  2.5 MiB  3  7%  ░░  20ms\n", True),
        ("web  active  1 GiB    3  7%  ░░\n", False),
        ("web  failed  0 B      -  10%  ███░  1.5s\n", False),
        ("web  active  0 B      -  10%  ███░  1.5s\nmore\n", False),
        ("", False),
    ],
)
def test_only_numbers_may_differ(found, is_same):
    step = Step(command="x", output=("web  active  12 KiB  1  3%  █░░░  0.00s",))
    assert (session.differences(step, result(found)) == []) == is_same


def test_a_command_that_fails_is_a_difference():
    step = Step(command="x")
    assert session.differences(step, result("any\n")) == []
    assert session.differences(step, result("any\n", 3)) == ["$ x: exit code 3", "any"]


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("a\r\nb\r\n", "a\nb\n"),
        ("1 of 2\x1b[K\r2 of 2\x1b[K\r\x1b[Kdone\r\n", "done\n"),
        ("long line\rlo", "long line"),
    ],
)
def test_a_redrawn_line_is_shown_once(printed, shown):
    assert session.settled(printed) == shown


def test_a_terminal_is_drawn_with_its_colors():
    drawn = terminal_svg.draw("x", "\x1b[1;31ma<b\x1b[0m  c\n", columns=20)
    assert (
        '<tspan x="16.0" textLength="25.2" fill="#ff7b72" font-weight="bold">a&lt;b</tspan>'
        in drawn
    )
    assert '<tspan x="58.0" fill="#e6edf3">c</tspan>' in drawn
