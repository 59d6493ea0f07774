"""`podslice top`."""

from __future__ import annotations

import gc
from typing import Annotated

import typer

from podslice.cli import configuration, terminal
from podslice.cli.arguments import (
    DONE,
    OnlyNamespace,
    OnlyProblems,
    Output,
    PodFilter,
    ShownPods,
    Sort,
    pod_filter,
)
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit
from podslice.cli.session import in_world
from podslice.cli.top_page import LivePage
from podslice.cli.usage_observer import observe_interval
from podslice.cli.views import documents, usage_head, usage_table
from podslice.cli.views.style import Display
from podslice.errors import InputError, Problem
from podslice.inputs.options.values import read_duration

_INTERVALS_SEC = (0.1, 3600)

SortBy = Annotated[Sort, typer.Option("--sort", help="Sort pods by this column.")]
Interval = Annotated[
    str, typer.Option("--interval", metavar="DURATION", help="Time between two measurements.")
]
Once = Annotated[
    bool, typer.Option("--once", "-b", help="Print the usage once, also on a terminal.")
]


@planning_options
def top(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    pod: ShownPods = None,
    namespace: OnlyNamespace = None,
    problems: OnlyProblems = False,  # noqa: FBT002
    sort: SortBy = Sort.CPU,
    interval: Interval = "2s",
    once: Once = False,  # noqa: FBT002
    output: Output = OutputFormat.TABLE,
) -> int:
    """Run `podslice top`.

    Elsewhere the usage is printed once. Rates are averages between two measurements.
    """
    interval_sec = _interval_sec(interval)
    shown = pod_filter(pod, namespace, only_problems=problems)
    planning = configuration.tolerate(planning)
    wide = output is OutputFormat.WIDE
    if not once and (wide or output is OutputFormat.TABLE) and terminal.is_interactive():
        gc.enable()  # it may run for days
        return in_world(
            planning, lambda world: LivePage(world, shown, sort, interval_sec, wide=wide).run()
        )
    return _print_once(planning, shown, sort, interval_sec, output)


def _print_once(
    planning: Planning, pods: PodFilter, sort: Sort, interval_sec: float, output: OutputFormat
) -> int:
    observed = in_world(planning, lambda world: observe_interval(world, pods, interval_sec))
    shown, summary = observed.usage.sorted(sort), observed.summary

    def lines(display: Display) -> list[str]:
        head = usage_head.head(shown, summary, display)
        return [*head, "", *usage_table.table(shown, display)]

    emit(
        output,
        document=lambda: documents.document(
            **configuration.document(planning.origin), **usage_table.document(shown, summary)
        ),
        lines=lines,
        names=lambda: [row.name for row in shown.pods],
    )
    return DONE


def _interval_sec(text: str) -> float:
    least, most = _INTERVALS_SEC
    try:
        seconds = read_duration(text) / 1e6
        if least <= seconds <= most:
            return seconds
        message, hint = f"{text} is not between {least:g}s and 1h", "write 2s, for example"
    except InputError as error:
        raise InputError(each.within("--interval") for each in error.problems) from error
    raise InputError(Problem(where="--interval", message=message, hint=hint))
