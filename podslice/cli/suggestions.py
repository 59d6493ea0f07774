"""Hints for command lines that podslice does not have: what to use in their place."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

DESTRUCTIVE = frozenset(
    {
        "--all",
        "--collect-orphans",
        "--force",
        "--forget",
        "--grace-period",
        "--no-admission",
        "--prune",
    }
)
"""Options that stop pods or override a check; none is ever suggested."""

EQUIVALENTS = {
    "config": "check",
    "create": "apply -f FILE",
    "describe": "status POD",
    "diff": "plan -f FILE",
    "dry-run": "plan -f FILE",
    "edit": "apply -f FILE",
    "exec": "run POD -c CONTAINER -- CMD",
    "generate": "new NAME",
    "get": "status",
    "help": "--help",
    "inspect": "status POD",
    "journal": "events",
    "kill": "delete POD",
    "lint": "check -f FILE",
    "list": "status",
    "log": "logs POD",
    "ls": "status",
    "monitor": "top",
    "move": "adopt POD -c CONTAINER PID",
    "pods": "status",
    "ps": "tree",
    "remove": "delete POD",
    "replace": "apply -f FILE",
    "rm": "delete POD",
    "show": "status",
    "start": "apply -f FILE",
    "stats": "top",
    "stop": "delete POD",
    "template": "render -f FILE",
    "update": "apply -f FILE",
    "validate": "check -f FILE",
    "watch": "top",
}
"""Verbs of kubectl, docker, podman and systemctl, with the arguments of podslice for the same."""

OPTION_EQUIVALENTS = {
    ("apply", "--check"): "podslice plan -f FILE",
    ("apply", "--diff"): "podslice plan -f FILE",
    ("apply", "--dry-run"): "podslice plan -f FILE",
    ("apply", "--noop"): "podslice plan -f FILE",
    ("apply", "--what-if"): "podslice plan -f FILE",
    ("events", "--tail"): "--lines",
    ("events", "--watch"): "--follow",
    ("events", "-w"): "--follow",
    ("status", "--watch"): "podslice top",
    ("status", "-w"): "podslice top",
    ("tree", "--watch"): "podslice top",
    ("tree", "-w"): "podslice top",
}
"""Options of other programs, by verb, with what does the same."""


def closest(given: str, known: Iterable[str]) -> str | None:
    """Return the known name that is spelled most like a given one; None if none is similar."""
    return next(iter(get_close_matches(given, sorted(known), n=1)), None)


def suggest_verb(given: str, verbs: Collection[str], program: str = "podslice") -> str:
    """Return the hint for an unknown verb: an equivalent, or the verb spelled most like it.

    `program` is what precedes the verb. Misspelled verbs of other programs are recognized as well.
    """
    equivalents = EQUIVALENTS if program == "podslice" else {}
    near = given if given in equivalents else closest(given, {*verbs, *equivalents})
    if near in equivalents:
        return f"use: podslice {equivalents[near]}"
    return f"did you mean: {program} {near}? see: {program} --help" if near else ""


def suggest_option(verb: str, given: str, options: Iterable[str]) -> str:
    """Return the hint for an unknown option of a verb, empty if there is none.

    If the option that is spelled most like it is destructive, nothing is suggested: the next best
    one would be an accident.
    """
    name = given.partition("=")[0]
    if use := OPTION_EQUIVALENTS.get((verb, name)):
        return f"use: {use}"
    near = closest(name, options)
    return f"did you mean: {near}?" if near and near not in DESTRUCTIVE else ""
