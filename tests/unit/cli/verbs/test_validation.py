"""Files that are not what a verb can apply: misspelled fields, other objects, projects, templates."""

import pytest

from tests.unit.cli.pods import WEB

TYPO = WEB.replace("resources:", "resource:", 1)
COMPOSE = "name: shop\nservices:\n  web: {image: a, deploy: !reset {}}\n"
UNKNOWN = "web.yaml: spec.containers[0].resource: unknown field 'resource'; write resources\n"


@pytest.mark.parametrize(
    "verb", ["check", "plan", "apply", "explain", "render", "cgroup-parent web -n shop"]
)
def test_a_typo_is_an_error_of_every_verb(verb, podslice, files, memory):
    check_typo(verb, podslice, files)


def check_typo(verb, podslice, files):
    """An unknown field is an error, a warning or nothing, as --validate states."""
    files({"web.yaml": TYPO})
    words = verb.split()
    ended = podslice(*words, "-f", "web.yaml")
    assert ended.code == 2
    assert f"error: {UNKNOWN}" in ended.err + ended.out
    ended = podslice(*words, "-f", "web.yaml", "--set=validate=warn")
    assert ended.code in (0, 3)
    assert f"warning: {UNKNOWN}" in ended.err + ended.out or verb.startswith("cgroup-parent")
    ended = podslice(*words, "-f", "web.yaml", "--set=validate=ignore")
    assert ended.code in (0, 3)
    assert "resource: " not in ended.err + ended.out
    assert "warning" not in ended.err


@pytest.mark.parametrize("verb", ["apply", "plan", "check", "explain", "render"])
def test_a_compose_project_is_named_as_such(verb, podslice, files, memory):
    check_compose(verb, podslice, files)


def check_compose(verb, podslice, files):
    """The error about a compose project names the verb for it."""
    files({"compose.yaml": COMPOSE})
    ended = podslice(verb, "-f", "compose.yaml")
    assert ended.code == 2
    text = "compose.yaml: this is a compose project; use podslice compose -f compose.yaml\n"
    assert f"error: {text}" in ended.err + ended.out
    assert (ended.err + ended.out).count("error") <= 2  # `check` counts them
