"""`podslice node`; the verbs below it are in `node_init` and `node_recommend`."""

from __future__ import annotations

import typer

from podslice.cli import configuration
from podslice.cli.arguments import DONE, Output, code_of
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.session import load_node, recorded_pods
from podslice.cli.views import documents, pod_documents, tables
from podslice.cli.views.node_bars import node_bars
from podslice.cli.views.problem_lines import problem_lines
from podslice.policy.allocatable import allocate, validate_node
from podslice.policy.desire import desire


@planning_options
def node(planning: Planning, context: typer.Context, output: Output = OutputFormat.TABLE) -> int:
    """Show the node's capacity, reservations and requests.

    Allocatable is the capacity without the reservations and the hard eviction thresholds.
    """
    if context.invoked_subcommand is not None:
        return DONE
    planning = configuration.tolerate(planning)
    config = planning.config
    host = load_node(config)
    allocation = allocate(host, config)
    requested = desire((), host, config, current=recorded_pods(planning)).requested
    problems = validate_node(host, config)
    for line in problem_lines(problems):
        note(line)
    emit(
        output,
        document=lambda: (
            pod_documents.node_status(allocation)
            if output is OutputFormat.YAML
            else documents.document(
                **configuration.document(planning.origin),
                **pod_documents.node(allocation, requested),
            )
        ),
        lines=lambda display: (
            *tables.node(allocation, requested, display),
            "",
            *node_bars(allocation, requested, display),
        ),
        names=lambda: sorted(allocation.capacity),
    )
    return code_of(problems)
