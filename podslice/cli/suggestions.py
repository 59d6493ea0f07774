"""Hints for command lines that podslice does not have: what to use in their place."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import SequenceMatcher, get_close_matches

from podslice.inputs.options.table import OPTIONS

KEYS = frozenset(row.key for row in OPTIONS)
DESTRUCTIVE = frozenset(
    {"--all", "--collect-orphans", "--force", "--forget", "--grace-period", "--prune", "--restart"}
)
"""Options that stop pods or override a check; none is ever suggested."""

EQUIVALENTS = {
    "attach": "to see the output of a pod: podslice logs POD --follow",
    "config": "to check the configuration: podslice check; to ask what a key changes: podslice plan",
    "cordon": "to accept no further pods is not possible; see podslice.toml(5) for reservations",
    "cp": "the containers of podman have podman cp",
    "create": "use: podslice apply -f FILE; for a new manifest: podslice new NAME",
    "describe": "use: podslice status POD",
    "diff": "use: podslice plan -f FILE",
    "disable": "for the agent: systemctl disable podslice-agent",
    "down": "use: podslice delete POD",
    "drain": "to stop every pod: podslice delete --all",
    "dry-run": "use: podslice plan -f FILE",
    "edit": "edit the manifest, then: podslice apply -f FILE",
    "enable": "for the agent: systemctl enable --now podslice-agent",
    "exec": (
        "to start a command in a pod: podslice run POD -c CONTAINER -- CMD; the containers of podman"
        " have podman exec"
    ),
    "generate": "use: podslice new NAME, or podslice render -f FILE for units",
    "get": "use: podslice status",
    "help": "use: podslice --help, or podslice VERB --help",
    "info": "use: podslice node",
    "init": "use: podslice node init",
    "inspect": "use: podslice status POD",
    "install": "use: podslice node init",
    "journal": "use: podslice events",
    "kill": "to stop a pod at once: podslice delete POD --grace-period 0",
    "lint": "use: podslice check -f FILE",
    "list": "use: podslice status",
    "ls": "use: podslice status",
    "monitor": "use: podslice top",
    "move": "use: podslice adopt POD PID, or podslice adopt POD UNIT",
    "patch": "edit the manifest, then: podslice apply -f FILE",
    "pods": "use: podslice status",
    "ps": "use: podslice tree",
    "reload": "for the agent: systemctl reload podslice-agent",
    "remove": "use: podslice delete POD",
    "replace": "use: podslice apply -f FILE",
    "reset": "use: podslice node reset",
    "restart": (
        "podslice does not restart containers: systemctl restart UNIT, with the unit that"
        " podslice status POD shows"
    ),
    "rm": "use: podslice delete POD",
    "scale": "set replicas in the manifest, then: podslice apply -f FILE",
    "set": "set limits in the manifest, then: podslice apply -f FILE; for the node: podslice node init",
    "show": "use: podslice status POD",
    "start": "use: podslice apply -f FILE; with --start it runs the containers as well",
    "stats": "use: podslice top",
    "stop": "to stop a pod and remove its slice: podslice delete POD",
    "template": "use: podslice render -f FILE",
    "uncordon": "for evicted pods: podslice readmit POD",
    "uninstall": "use: podslice node reset",
    "up": "use: podslice apply -f FILE; for a compose project: podslice compose",
    "update": "use: podslice apply -f FILE",
    "validate": "use: podslice check -f FILE",
    "wait": "podslice apply returns when everything is as the manifests request",
    "watch": "use: podslice top",
}
"""Verbs of kubectl, docker, podman and systemctl, with what does the same here, or why nothing does."""

_PLAN = "use: podslice plan -f FILE"
_WATCH = "use: podslice top"
_NAMESPACES = "leave it out: without -n the pods of all namespaces are shown"
OPTION_EQUIVALENTS = {
    "--all-namespaces": _NAMESPACES,
    "--dry-run": _PLAN,
    "--file": "use: -f, --filename",
    "--format": "use: -o, --output",
    "--json": "use: -o json",
    "--no-admission": "use: --set admission=false",
    "--recursive": "leave it out: give each directory with -f",
    "--since-time": "use: --since",
    "--version": "use: podslice --version",
    "--yaml": "use: -o yaml",
    "-A": _NAMESPACES,
    "-R": "leave it out: give each directory with -f",
    "-l": "use: -n NAMESPACE, or the names of pods",
    "--selector": "use: -n NAMESPACE, or the names of pods",
}
"""Options of other programs, with what does the same."""

VERB_OPTIONS = {
    ("apply", "--check"): _PLAN,
    ("apply", "--diff"): _PLAN,
    ("apply", "--noop"): _PLAN,
    ("apply", "--timeout"): "to end it: Ctrl-C; the next apply continues",
    ("apply", "--wait"): "leave it out: podslice apply returns when all steps are done",
    ("apply", "--what-if"): _PLAN,
    ("delete", "--cascade"): "leave it out: all that runs in the pod is stopped",
    ("delete", "--now"): "use: --grace-period 0",
    ("delete", "--wait"): "leave it out: podslice delete returns when the pods are gone",
    ("delete", "--ignore-not-found"): "leave it out and ignore exit code 2",
    ("events", "--watch"): "use: --follow",
    ("events", "-w"): "use: --follow",
    ("logs", "--previous"): "leave it out: earlier runs are shown as well",
    ("logs", "-p"): "leave it out: earlier runs are shown as well",
    ("render", "--quadlet"): "use: --format quadlet",
    ("status", "--watch"): _WATCH,
    ("status", "-w"): _WATCH,
    ("top", "--no-stream"): "use: --once",
    ("top", "-d"): "use: --interval",
    ("tree", "--watch"): _WATCH,
    ("tree", "-w"): _WATCH,
}
"""As `OPTION_EQUIVALENTS`, for one verb."""


def closest(given: str, known: Iterable[str]) -> str | None:
    """Return the known name that is spelled most like a given one; None if none is similar."""
    return next(iter(get_close_matches(given, sorted(known), n=1)), None)


def suggest_verb(given: str, verbs: Collection[str], program: str = "podslice") -> str:
    """Return the hint for an unknown verb; empty if there is none.

    The words of other programs count only if they match exactly. `program` precedes the verb.
    """
    if program == "podslice" and given in EQUIVALENTS:
        return EQUIVALENTS[given]
    # a word that a verb begins with is closer to it than the ratio of letters shows
    starts = [verb for verb in verbs if len(given) > 2 and verb.startswith(given)]
    near = starts[0] if len(starts) == 1 else closest(given, verbs)
    return f"did you mean: {program} {near}? see: {program} --help" if near else ""


def suggest_option(verb: str, given: str, options: Collection[str], command: str) -> str:
    """Return the hint for an unknown option of a verb: `command` is `podslice VERB`.

    If the option that is spelled most like it is destructive, nothing is suggested: the next best
    one would be an accident. Single letters have no spelling.
    """
    name = given.partition("=")[0]
    see = f"see: {command} --help"
    use = VERB_OPTIONS.get((verb, name)) or OPTION_EQUIVALENTS.get(name)
    if use:
        return use
    if "--set" in options and name.removeprefix("--") in KEYS:
        return f"use: --set {name.removeprefix('--')}=VALUE"
    near = closest(name, options) if name.startswith("--") else None
    if near is None or near in DESTRUCTIVE or SequenceMatcher(None, name, near).ratio() < 0.7:
        return see
    return f"did you mean: {near}? {see}"


def suggest_argument(extra: str, options: Collection[str], command: str) -> str:
    """Return the hint for an argument that a verb does not take."""
    if "--filename" in options:
        return f"did you mean: -f {extra}?"
    return f"see: {command} --help"
