"""Hints for unknown verbs and options."""

import re

import pytest

from podslice.cli.app import VERBS, command_of
from podslice.cli.suggestions import (
    DESTRUCTIVE,
    EQUIVALENTS,
    OPTION_EQUIVALENTS,
    VERB_OPTIONS,
    suggest_option,
)
from podslice.inputs.options.table import OPTIONS

TREE = {name: command_of(*name.split()) for name in VERBS if not name.startswith("_")}
FLAGS = {name: [flag for each in verb.params for flag in each.opts] for name, verb in TREE.items()}
EVERY = {flag for flags in FLAGS.values() for flag in flags}
WORDS = [
    "--evict",
    "--purge",
    "--delete",
    "--remove",
    "--wipe",
    "--drop",
    "--kill",
    "--now",
    "--yes",
    "--overwrite",
    "--replace",
    "--recreate",
    "--cascade",
    "--grace",
    "--dry-run",
    "--noop",
    "--recursive",
    "--everything",
    "--forced",
]


OWN = {flag for flag in EVERY if flag.removeprefix("--") not in {row.key for row in OPTIONS}}


@pytest.mark.parametrize("verb", TREE)
def test_no_suggestion_names_a_destructive_option(verb):
    """Misspelled ones, the options of other verbs, and words for destruction."""
    given = {f"{flag[:at]}{flag[at + 1 :]}" for flag in DESTRUCTIVE for at in (2, 4, len(flag) - 1)}
    given |= {*WORDS, *OWN} - {*FLAGS[verb]} - {flag for name, flag in VERB_OPTIONS if name == verb}
    hints = {suggest_option(verb, each, FLAGS[verb], f"podslice {verb}") for each in given}
    assert {flag for hint in hints for flag in DESTRUCTIVE if flag in hint} == set()


def test_every_option_that_stops_pods_is_known_as_destructive():
    """Options whose help states that something is removed, killed or skipped."""
    helps = [
        (flag, option.help or "")
        for verb in TREE.values()
        for option in verb.params
        for flag in option.opts
        if flag.startswith("--") and flag.removeprefix("--") not in {row.key for row in OPTIONS}
    ]
    words = ("remove", "delete", "kill", "skip", "every applied", "below the memory", "restart")
    found = {name for name, text in helps if any(word in text.lower() for word in words)}
    assert found - {"--filename"} == DESTRUCTIVE - {"--collect-orphans"}


@pytest.mark.parametrize(
    ("verb", "given", "hint"),
    [
        ("apply", "--dry-run", "use: podslice plan -f FILE"),
        ("apply", "--dry-run=client", "use: podslice plan -f FILE"),
        ("apply", "--pruen", ""),
        ("apply", "--namespce", "did you mean: --namespace?"),
        ("delete", "--al", ""),
        ("events", "-w", "use: --follow"),
        ("node", "--kube-resrved", "did you mean: --kube-reserved?"),
    ],
)
def test_options(verb, given, hint):
    hint = f"{hint} " if hint and hint.startswith("did") else hint
    see = "" if hint.startswith("use") else f"see: podslice {verb} --help"
    assert suggest_option(verb, given, FLAGS[verb], f"podslice {verb}") == f"{hint}{see}"


@pytest.mark.parametrize(
    "hint", [*EQUIVALENTS.values(), *OPTION_EQUIVALENTS.values(), *VERB_OPTIONS.values()]
)
def test_verbs_and_options_of_hints_exist(hint):
    for words in re.findall(r"podslice ([a-z][a-z-]*(?: init| reset)?)", hint):
        assert words in VERBS or words in {"does not", "returns", "VERB"} or words == "does"
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", hint))
    assert flags <= EVERY | {"--now", "--version", "--help"}


def test_the_verbs_of_others_are_not_verbs_here():
    assert not EQUIVALENTS.keys() & {*VERBS}
    assert all(flag not in FLAGS[verb] for verb, flag in VERB_OPTIONS)


def test_hidden_verbs_are_not_suggested(podslice):
    assert "__" not in podslice("init_done").err
