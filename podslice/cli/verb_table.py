"""The verbs with their summaries, those of the core and those of features."""

from __future__ import annotations

from itertools import chain

from podslice.features import FEATURES
from podslice.model.feature import VerbGroup, VerbRow


def _row(group: VerbGroup, rank: int, verb: str, summary: str = "") -> VerbRow:
    name = verb.strip("_")
    return VerbRow(group, rank, f"podslice.cli.verbs.{name}:{name}", summary)


_CORE = {
    "check": _row(
        VerbGroup.INSPECT,
        40,
        "check",
        "Check the configuration and manifests, and report all problems.",
    ),
    "explain": _row(
        VerbGroup.INSPECT, 50, "explain", "Show each pod's QoS class and values, and their reasons."
    ),
    "render": _row(
        VerbGroup.INSPECT, 60, "render", "Show the desired units, or write them as unit files."
    ),
    "plan": _row(VerbGroup.INSPECT, 80, "plan", "Show what apply would change, and why."),
    "status": _row(
        VerbGroup.INSPECT, 90, "status", "Show the pods and all problems, or one pod in detail."
    ),
    "tree": _row(
        VerbGroup.INSPECT,
        100,
        "tree",
        "Show the slices as a tree, with limits, usage and processes.",
    ),
    "top": _row(
        VerbGroup.INSPECT,
        110,
        "top",
        "Show the usage of the node and its pods, live on a terminal.",
    ),
    "events": _row(
        VerbGroup.INSPECT,
        130,
        "events",
        "Show the events of the agent and of verbs, the latest last.",
    ),
    "logs": _row(VerbGroup.INSPECT, 140, "logs", "Show the messages of a pod in the journal."),
    "apply": _row(
        VerbGroup.CHANGE, 10, "apply", "Create and change slices as the manifests request."
    ),
    "confirm": _row(
        VerbGroup.CHANGE, 20, "confirm", "Keep the values that `apply --confirm` has set."
    ),
    "delete": _row(VerbGroup.CHANGE, 30, "delete", "Stop pods and remove their slices."),
    "readmit": _row(VerbGroup.CHANGE, 40, "readmit", "Allow evicted pods to run again."),
    "node": _row(
        VerbGroup.NODE, 10, "node", "Show the node's capacity, reservations and requests."
    ),
    "version": _row(
        VerbGroup.NODE,
        40,
        "version",
        "Print the version, as JSON with those of systemd and Python.",
    ),
    "agent": _row(
        VerbGroup.AGENT, 10, "agent", "Run the agent, which keeps pods as their manifests request."
    ),
    "__restore_reserved": _row(VerbGroup.HIDDEN, 3, "restore_reserved"),
}

VERBS = dict(
    sorted(
        chain(_CORE.items(), *(each.verbs.items() for each in FEATURES)),
        key=lambda item: (list(VerbGroup).index(item[1].group), item[1].rank),
    )
)
"""Every verb, in the order of the help; one below another has both names: `node init`.

Only the module of the requested verb is imported: the others would be half of a short verb's time,
and some MiB of the agent's memory.
"""
VERB_GROUPS = {
    group.value: tuple(
        name for name, row in VERBS.items() if row.group is group and " " not in name
    )
    for group in VerbGroup
    if group is not VerbGroup.HIDDEN
}
"""The names of verbs by their headings."""
