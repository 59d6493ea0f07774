"""The command line: its verbs, their help, and the errors of usage."""

import json
import os
import re
import sys

import pytest
import typer
from podslice.cli.command_tree import read_app

from podslice import __version__
from podslice.cli import app as app_module
from podslice.cli.app import VERB_GROUPS, make_app
from podslice.cli.verbs import node
from podslice.features import FEATURES
from podslice.inputs.options.table import OPTIONS
from podslice.model.feature import VerbGroup
from tests.unit.builders import manifest
from tests.unit.cli.pods import of_present_verbs

VERBS = sorted(
    [
        *(
            each.name or each.callback.__name__.replace("_", "-")
            for each in make_app().registered_commands
            if not each.hidden
        ),
        *(group.name for group in make_app().registered_groups),
    ]
)
NO_PLAN = ["audit", "confirm", "events", "new", "version"]
"""Verbs without configuration options."""
FILE_VERBS = ["apply", "explain", "plan", "render"]


def test_every_verb_is_known():
    core = {
        *("agent", "apply", "check", "confirm", "delete", "events", "explain", "logs", "node"),
        *("plan", "readmit", "render", "status", "top", "tree", "version"),
    }
    rows = (item for feature in FEATURES for item in feature.verbs.items())
    of_features = {
        name.partition(" ")[0] for name, row in rows if row.group is not VerbGroup.HIDDEN
    }
    assert set(VERBS) == core | of_features


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bogus"], "error: no such option: --bogus; see: podslice --help"),
        (["xyzzy"], "error: no such command 'xyzzy'; see: podslice --help"),
        (["node", "--xyzzy"], "error: no such option: --xyzzy; see: podslice node --help"),
        (["check", "-f"], "error: option '-f' requires an argument; see: podslice --help"),
        (["version", "\x1b[31m"], "error: got unexpected extra argument"),
        (["--\x1b[31m"], "error: no such option: --\\x1b[31m; see: podslice --help"),
        (["\x1b[31m"], "error: no such command '\\x1b[31m'; see: podslice --help"),
        (
            ["node", "-o", "xml"],
            (
                "error: invalid value for '--output' / '-o': 'xml' is not one of 'table', 'wide',"
                " 'json', 'yaml', 'name'; see: podslice node --help"
            ),
        ),
        (["node", "--cgroup-driver=cgroupfs"], "error: --cgroup-driver: "),
        (["node", "--rules=seeds"], "error: --rules: must be one of proposal, kubernetes"),
        (["node", "--kube-reserved=cpu=1core"], "error: --kube-reserved.cpu: '1core' is not a"),
        (["node", "--config=nowhere.toml"], "error: nowhere.toml: no such file or directory"),
        (["node", "--output", "js"], "error: invalid value for '--output' / '-o': 'js' is not"),
    ],
)
def test_a_wrong_command_line_is_an_error_with_code_2(podslice, arguments, message):
    ended = podslice(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(message)
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("verb", sorted({*FILE_VERBS} - {"apply", "plan"}))
def test_verbs_of_files_need_files(podslice, verb):
    alternative = ", or the name of an applied pod" if verb == "explain" else ""
    assert podslice(verb) == (
        2,
        "",
        f"error: missing option '--filename' / '-f'{alternative}; see: podslice {verb} --help\n",
    )


@pytest.mark.parametrize("verb", FILE_VERBS)
def test_missing_files_are_an_error(podslice, memory, verb):
    ended = podslice(verb, "-f", "nowhere.yaml")
    assert ended.code == 2
    assert "error: nowhere.yaml: no such file or directory\n" in (ended.err or ended.out)


def test_options_are_not_abbreviated(podslice):
    assert podslice("node", "--rule=proposal").code == 2


def test_every_invalid_option_is_reported(podslice):
    ended = podslice("node", "--rules=x", "--cpu-weight-mapping=y")
    assert ended.code == 2
    assert [line.partition(" ")[2].partition(":")[0] for line in ended.err.splitlines()] == [
        "--rules",
        "--cpu-weight-mapping",
    ]


def test_the_version(podslice):
    text = f"podslice {__version__}\n"
    assert podslice("--version") == podslice("version") == (0, text, "")


@pytest.fixture(params=["memory", "no_systemd"])
def systemd_version(request):
    """The version of systemd; None where there is none."""
    request.getfixturevalue(request.param)
    return 257 if request.param == "memory" else None


def test_the_version_as_json(podslice, systemd_version):
    ended = podslice("version", "-o", "json")
    assert (ended.code, ended.err) == (0, "")
    declared = read_app(make_app(), with_options=False)
    assert json.loads(ended.out) == {
        "version": 1,
        "podslice": __version__,
        "systemd": systemd_version,
        "python": ".".join(map(str, sys.version_info[:3])),
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "verbs": sorted(verb.name for verb in declared.walk() if verb.name),
    }


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(
    "path", [[], *([verb] for verb in VERBS), *of_present_verbs([["node", "init"]])]
)
def test_the_help_fits_the_terminal(podslice, monkeypatch, width, path):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = podslice(*path, "--help").out.splitlines()
    assert [line for line in lines if len(line) > width] == []


def test_the_help_lists_verbs_in_groups_with_whole_sentences(podslice):
    listed = podslice("--help").out.partition("\nOptions:")[0]
    assert re.findall("^([A-Z][a-z]+):$", listed, re.MULTILINE) == list(VERB_GROUPS)
    summaries = re.findall(r"^  [a-z-]+  +(.*)$", listed, re.MULTILINE)
    assert len(summaries) == len(VERBS)
    assert [text for text in summaries if not text.endswith(".")] == []


def test_the_options_of_the_configuration_come_last(podslice):
    head, _, last = podslice("apply", "--help").out.partition("Configuration options")
    keys = [row.key for row in OPTIONS if not row.is_agent_only]
    assert re.findall(r"^  --([a-z-]+)", last, re.MULTILINE)[0] == keys[0]
    assert [key for key in keys if f"--{key} " not in last or f"--{key} " in head] == []
    assert head.index("\nOptions:") < head.index("--prune") < head.index("\nCommon options:")


def test_without_a_verb_there_is_help(podslice):
    ended = podslice()
    assert (ended.code, ended.err) == (0, "")
    assert ended == podslice("--help") == podslice("-h")
    assert all(f"  {verb} " in ended.out for verb in VERBS)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in NO_PLAN])
def test_the_help_of_a_verb_has_its_options(podslice, verb):
    """Every setting is an option of every verb that plans, but for those of the agent."""
    ended = podslice(verb, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert f"Usage: podslice {verb} [OPTIONS]" in ended.out
    rows = [row for row in OPTIONS if not row.is_agent_only or verb == "agent"]
    names = [name for row in rows for name in (row.key, *row.aliases)]
    assert [name for name in (*names, "user", "config") if f"--{name}" not in ended.out] == []
    others = [f"--{row.key} " for row in OPTIONS if row not in rows]
    assert [option for option in others if option in ended.out] == []


def test_the_configuration_file_is_read_and_flags_win(podslice, files, here):
    files({"own.toml": 'capacity = {cpu = "4"}\n'})
    make = here / "etc/podslice"
    make.mkdir(parents=True)
    (make / "podslice.toml").write_text('capacity = {cpu = "2"}\n')

    def cpus(*arguments):
        return podslice("node", *arguments).out.splitlines()[1].split()[1]

    assert cpus() == "2"
    assert cpus("--config", "own.toml") == "4"
    assert cpus("--config", "own.toml", "--capacity=cpu=6") == "6"


def test_an_interruption_is_reported_without_a_traceback(podslice, monkeypatch):
    def interrupt(*_, **__):
        raise typer.Abort

    monkeypatch.setattr(node, "load_node", interrupt)
    assert podslice("node") == (130, "", "interrupted: nothing was changed\n")


def test_an_interruption_by_hand(podslice, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(node, "load_node", interrupt)
    assert podslice("node").code == 130


def test_what_came_from_a_hostile_file_does_not_reach_the_terminal(podslice, memory, files):
    """Escape sequences, C1 controls and marks that turn the direction of the text."""
    evil = "\x1b[31m\x9b31m\u202e\x07"
    texts = {
        "name.yaml": manifest(f"a{evil}"),
        "uid.yaml": manifest("a").replace('"name": "a"', f'"name": "a", "uid": "{evil!a}"'),
        "cpu.yaml": manifest("b", {"cpu": evil}),
        "resource.yaml": manifest("c", {evil: 1}),
        "container.yaml": manifest("d").replace('"main"', '"\\u001b[31m"'),
        f"{evil}.yaml": "kind: [",
    }
    files(texts)
    for verb in ("check", "explain", "render", "plan", "apply", "delete"):
        for format_ in ("table", "wide", "json", "yaml", "name"):
            ended = podslice(verb, "-f", ".", "-o", format_)
            bad = [c for c in ended.out + ended.err if not (c.isprintable() or c == "\n")]
            assert not bad, (verb, format_)


def test_a_file_name_that_is_not_utf8_is_an_error(podslice):
    ended = podslice("check", "-f", "\udcff.yaml", "-o", "json")
    assert ended.code == 2
    assert ended.out.isascii()


def test_exit_codes_that_are_not_numbers_are_success(monkeypatch):
    monkeypatch.setattr(app_module, "make_app", lambda *_: lambda *_, **__: None)
    assert app_module.run(["check"]) == 0


def test_exits_that_are_raised_are_taken(monkeypatch):
    def leave(*_, **__):
        raise typer.Exit(5)

    monkeypatch.setattr(app_module, "make_app", lambda *_: leave)
    assert app_module.run(["check"]) == 5
