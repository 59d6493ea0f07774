"""`podslice tree`."""

from __future__ import annotations

from functools import partial

from podslice.cli import overview
from podslice.cli.arguments import DONE, Names, OnlyNamespace, OnlyProblems, Output
from podslice.cli.host import tolerate
from podslice.cli.options import Planning, configured
from podslice.cli.output import OutputFormat
from podslice.cli.pods import pod_filter
from podslice.cli.session import in_world


@configured
def tree(
    planning: Planning,
    pod: Names = None,
    namespace: OnlyNamespace = None,
    problems: OnlyProblems = False,  # noqa: FBT002
    output: Output = OutputFormat.TABLE,
) -> int:
    """Run `podslice tree`.

    Examples:
        podslice tree
        podslice tree -n shop
    """
    shown = pod_filter(pod, namespace, only_problems=problems)
    planning = tolerate(planning, is_listed=output.has_lines)
    found = overview.select(in_world(planning, partial(overview.observe_for, output)), shown)
    overview.emit_overview(planning, found, output, shown, as_tree=True)
    return DONE
