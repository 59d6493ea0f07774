"""The verbs of the core and of features, with their summaries."""

from __future__ import annotations

from itertools import chain

from podslice.features import FEATURES
from podslice.model.feature import VerbGroup, VerbRow

_CORE = {
    "check": (VerbGroup.AHEAD, 10, "Check the configuration and manifests for problems."),
    "explain": (VerbGroup.AHEAD, 20, "Show each pod's QoS class and values, with reasons."),
    "plan": (VerbGroup.AHEAD, 30, "Show what apply would change, and why."),
    "render": (VerbGroup.AHEAD, 40, "Show the desired units, or write them as unit files."),
    "apply": (VerbGroup.PODS, 10, "Create and change slices as the manifests request."),
    "delete": (VerbGroup.PODS, 20, "Stop pods and remove their slices."),
    "status": (VerbGroup.PODS, 30, "Show the pods and all problems, or a page about one."),
    "tree": (VerbGroup.PODS, 40, "Show the slices as a tree, with limits and usage."),
    "top": (VerbGroup.PODS, 50, "Show the usage of the node and its pods, live."),
    "logs": (VerbGroup.PODS, 60, "Show the output of a pod's containers."),
    "events": (VerbGroup.PODS, 70, "Show what happened to pods, the latest last."),
    "readmit": (VerbGroup.PODS, 80, "Allow evicted pods to run again."),
    "confirm": (VerbGroup.PODS, 90, "Keep the values that apply --confirm has set."),
    "node": (VerbGroup.HOST, 10, "Show the node's capacity, reservations and requests."),
    "agent": (VerbGroup.HOST, 30, "Run the agent, which keeps pods as requested."),
    "version": (VerbGroup.HOST, 50, "Print the version, as JSON with those of the host."),
    "__restore_reserved": (VerbGroup.INTERNAL, 1, "Restore the values of reserved slices."),
}
_HIDDEN = {"confirm", "version"}
_REPORTS = {
    "apply": "podslice.cli.views.changes:ChangesReport",
    "check": "podslice.cli.verbs.check:Report",
    "confirm": "podslice.cli.verbs.confirm:Report",
    "delete": "podslice.cli.views.changes:ChangesReport",
    "events": "podslice.cli.verbs.events:EventsReport",
    "explain": "podslice.cli.verbs.explain:AnyReport",
    "node": "podslice.cli.verbs.node:Report",
    "plan": "podslice.cli.views.changes:PlanReport",
    "readmit": "podslice.cli.verbs.readmit:Report",
    "render": "podslice.cli.verbs.render:Report",
    "status": "podslice.cli.views.status_report:AnyStatusReport",
    "top": "podslice.cli.views.usage_table:Report",
    "tree": "podslice.cli.views.status_report:StatusReport",
    "version": "podslice.cli.verbs.version:Report",
}


def _row(verb: str, group: VerbGroup, rank: int, summary: str) -> VerbRow:
    name = verb.strip("_")
    function = f"podslice.cli.verbs.{name}:{name}"
    return VerbRow(
        group,
        rank,
        function,
        summary,
        is_hidden=verb in _HIDDEN,
        report=_REPORTS.get(verb, ""),
    )


_GROUPS = list(VerbGroup)
VERBS = dict(
    sorted(
        chain(
            ((verb, _row(verb, *values)) for verb, values in _CORE.items()),
            *(feature.verbs.items() for feature in FEATURES),
        ),
        key=lambda item: (_GROUPS.index(item[1].group), item[1].rank),
    )
)
"""Every verb, in the order of the help; one below another has both names: `node init`."""
