"""The command line: its verbs, their help, and the errors of usage."""

import json
import os
import re
import sys
from types import SimpleNamespace

import pytest
import typer

from podslice import __version__
from podslice.cli import app as app_module
from podslice.cli.verb_table import VERBS as ROWS
from podslice.cli.verbs import node
from podslice.features import FEATURES
from podslice.inputs.options.table import OPTIONS
from podslice.model.feature import VerbGroup
from tests.unit.builders import manifest
from tests.unit.cli.pods import of_present_verbs

VERBS = [name for name in ROWS if " " not in name and not name.startswith("_")]
SHOWN = [verb for verb in VERBS if not ROWS[verb].is_hidden]
PLANNING = [
    verb for verb in ("check", "explain", "node", "plan", "render", "simulate") if verb in ROWS
]
"""Verbs that answer "what if": they have the options of the configuration."""
FILE_VERBS = ["apply", "explain", "plan", "render"]


def test_every_verb_is_known():
    core = {
        *("agent", "apply", "check", "confirm", "delete", "events", "explain", "logs", "node"),
        *("plan", "readmit", "render", "status", "top", "tree", "version"),
    }
    of_features = {name.partition(" ")[0] for feature in FEATURES for name in feature.verbs}
    assert set(VERBS) == core | {name for name in of_features if not name.startswith("_")}


@pytest.mark.parametrize("verb", FILE_VERBS)
def test_missing_files_are_an_error(podslice, memory, verb):
    ended = podslice(verb, "-f", "nowhere.yaml")
    assert ended.code == 2
    assert "error: nowhere.yaml: no such file or directory\n" in (ended.err or ended.out)


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
    assert json.loads(ended.out) == {
        "version": 1,
        "podslice": __version__,
        "systemd": systemd_version,
        "python": ".".join(map(str, sys.version_info[:3])),
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "verbs": sorted(name for name in ROWS if not name.startswith("_")),
    }


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(
    "path", [[], *([verb] for verb in VERBS), *of_present_verbs([["node", "init"]])]
)
def test_the_help_fits_the_terminal(podslice, monkeypatch, width, path):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = podslice(*path, "--help").out.splitlines()
    assert [line for line in lines if len(line) > width] == []


def test_the_help_lists_verbs_in_groups_with_whole_sentences(podslice, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    listed = podslice("--help").out
    groups = [each.value for each in VerbGroup if each is not VerbGroup.INTERNAL]
    assert re.findall("^╭─ ([A-Z][a-z ]+) ─", listed, re.MULTILINE) == ["Options", *groups]
    summaries = dict(re.findall(r"^│ ([a-z][a-z-]*)  +(.*?) +│$", listed, re.MULTILINE))
    assert summaries == {verb: ROWS[verb].summary for verb in SHOWN}
    assert [text for text in summaries.values() if not text.endswith(".")] == []
    assert "Start here: podslice new, podslice apply, podslice status." in listed


@pytest.mark.parametrize("verb", PLANNING)
def test_the_options_of_the_configuration_come_last_in_one_line_each(podslice, monkeypatch, verb):
    monkeypatch.setenv("COLUMNS", "80")
    head, _, last = podslice(verb, "--help").out.partition("Configuration options")
    keys = [row.key for row in OPTIONS if not row.is_agent_only]
    shown = re.findall(r"^│ --([a-z-]+)…? +VALUE  \S", last, re.MULTILINE)
    assert len(shown) == len(keys)
    assert [key for key, name in zip(keys, shown, strict=True) if not key.startswith(name)] == []
    assert "--set" in head


def test_without_a_verb_there_is_help(podslice):
    ended = podslice()
    assert (ended.code, ended.err) == (0, "")
    assert ended == podslice("--help") == podslice("-h")
    assert all(f" {verb} " in ended.out for verb in SHOWN)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_is_short_and_has_examples(podslice, monkeypatch, verb):
    """Configuration options are where one asks "what if"; the other verbs have `--set`."""
    monkeypatch.setenv("COLUMNS", "80")
    ended = podslice(verb, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert f"Usage: podslice {verb} [OPTIONS]" in ended.out
    assert "Examples:" in ended.out
    assert ended.out.partition("Examples:")[2].count("podslice ") >= 2
    has_flags = "--memory-protection" in ended.out
    assert has_flags == (verb in {*PLANNING, "agent"})
    assert has_flags or ended.out.count("\n") <= 45


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
    monkeypatch.setattr(app_module, "make_app", lambda: SimpleNamespace(main=lambda *_, **__: None))
    assert app_module.run(["check"]) == 0
