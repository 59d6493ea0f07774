"""The parameters that a command line may state are those that typer gets."""

import inspect
from typing import Annotated

import pytest
import typer

from podslice.cli.app import VERBS, function_of
from podslice.cli.stated import asks_help, flags_of_verb, with_stated


def verb(
    pod: Annotated[str, typer.Argument(metavar="POD")],
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...")] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n")] = None,
    prune: Annotated[bool, typer.Option("--prune")] = False,  # noqa: FBT002
    capacity: Annotated[str, typer.Option("--capacity", "--size")] = "all",
) -> int:
    return f"{pod} {names} {namespace} {prune} {capacity}"


def stated(*words):
    kept = inspect.signature(with_stated(verb, words, names=1)).parameters
    return [name for name in kept if name != "pod"]


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ([], []),
        (["web"], ["names"]),
        (["-"], ["names"]),
        (["--", "-x"], ["names"]),
        (["--unknown"], []),
        (["--name"], []),
        (["--namespace"], ["namespace"]),
        (["--namespace=a"], ["namespace"]),
        (["-n", "a"], ["names", "namespace"]),
        (["-na"], ["namespace"]),
        (["-xn"], ["namespace"]),
        (["--prune"], ["prune"]),
        (["--size=1", "--prune"], ["prune", "capacity"]),
    ],
)
def test_a_parameter_is_left_out_if_no_word_may_state_it(words, kept):
    assert stated("verb", *words) == kept


def test_what_is_left_out_has_the_default_of_the_function():
    assert with_stated(verb, ["verb"], names=1)(pod="web") == "web None None False all"


def test_without_words_nothing_is_left_out():
    assert with_stated(verb, None) is verb


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["status", "-oh"], ["--", "--help"]])
def test_words_that_may_ask_for_help(words):
    assert asks_help(words)


@pytest.mark.parametrize("words", [[], ["help"], ["status", "--hel", "-o", "json"]])
def test_words_that_do_not(words):
    assert not asks_help(words)


def test_all_flags_of_a_verb_are_known_also_without_words():
    assert flags_of_verb(verb) == ["-n", "--namespace", "--prune", "--capacity", "--size"]


@pytest.mark.parametrize("name", VERBS)
def test_each_flag_of_a_verb_keeps_its_parameter(name):
    real = function_of(name)
    known = inspect.signature(real).parameters
    for flag in flags_of_verb(real):
        kept = with_stated(real, [name, flag], names=1)
        assert flag in flags_of_verb(kept), flag
        assert inspect.signature(kept).parameters.keys() <= known.keys()
