"""Hints for unknown verbs and options."""

import pytest
from podslice.cli.command_tree import read_app

from podslice.cli.app import VERBS, make_app
from podslice.cli.suggestions import (
    DESTRUCTIVE,
    EQUIVALENTS,
    OPTION_EQUIVALENTS,
    suggest_option,
    suggest_verb,
)
from podslice.inputs.options.table import OPTIONS

TREE = {verb.name: verb for verb in read_app(make_app()).walk()}
FLAGS = {
    name: [flag for each in verb.options for flag in each.flags] for name, verb in TREE.items()
}
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
    given |= {*WORDS, *OWN} - {*FLAGS[verb]}
    hints = {suggest_option(verb, each, FLAGS[verb]) for each in given}
    assert {flag for hint in hints for flag in DESTRUCTIVE if flag in hint} == set()


def test_every_option_that_stops_pods_is_known_as_destructive():
    """Options whose help states that something is removed, killed or skipped."""
    helps = {option.name: option.help for verb in TREE.values() for option in verb.options}
    words = ("remove", "delete", "kill", "skip", "every applied", "even below")
    found = {name for name, text in helps.items() if any(word in text.lower() for word in words)}
    about_others = {"--eviction-hard", "--oom-policy", "--oomd-memory-pressure-limit"}
    assert found - about_others - {"--oomd-tiers", "--filename"} == DESTRUCTIVE


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
    assert suggest_option(verb, given, FLAGS[verb]) == hint


@pytest.mark.parametrize("given", [*EQUIVALENTS.values(), *OPTION_EQUIVALENTS.values()])
def test_equivalents_exist(given):
    words = given.removeprefix("podslice ").split()
    verb = "" if words[0].startswith("-") else words[0]
    if verb:
        assert verb in VERBS
    flags = [word for word in words if word.startswith("-") and word != "--"]
    assert set(flags) <= (EVERY if verb == "" else {*FLAGS[verb]}) - DESTRUCTIVE


def test_the_verbs_of_others_are_not_verbs_here():
    assert not EQUIVALENTS.keys() & {*VERBS}
    assert all(flag not in FLAGS[verb] for verb, flag in OPTION_EQUIVALENTS)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("aply", "did you mean: podslice apply? see: podslice --help"),
        ("evnets", "did you mean: podslice events? see: podslice --help"),
        ("get", "use: podslice status"),
        ("gett", "use: podslice status"),
        ("describ", "use: podslice status POD"),
        ("describe", "use: podslice status POD"),
        ("rm", "use: podslice delete POD"),
        ("exec", "use: podslice run POD -c CONTAINER -- CMD"),
        ("stats", "use: podslice top"),
        ("xyzzy", ""),
    ],
)
def test_verbs(given, hint):
    assert suggest_verb(given, [verb for verb in VERBS if not verb.startswith("_")]) == hint


def test_hidden_verbs_are_not_suggested(podslice):
    assert "__" not in podslice("init_done").err
    assert podslice("get", "pods") == (
        2,
        "",
        "error: no such command 'get'; use: podslice status\n",
    )


def test_verbs_below_a_verb(podslice):
    for given in (["node", "inti"], ["node", "-o", "json", "inti"]):
        hint = "did you mean: podslice node init? see: podslice node --help"
        assert podslice(*given) == (2, "", f"error: no such command 'inti'; {hint}\n")
    assert (
        podslice("node", "get").err == "error: no such command 'get'; see: podslice node --help\n"
    )


def test_the_hint_of_an_option_is_printed(podslice, web):
    assert podslice("apply", "--dry-run", "-f", web).err == (
        "error: no such option: --dry-run; use: podslice plan -f FILE\n"
    )
    assert podslice("node", "--outptu").err == (
        "error: no such option: --outptu; did you mean: --output? see: podslice node --help\n"
    )
