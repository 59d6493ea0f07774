"""The verb that shows what everything uses, live or once: top."""

from __future__ import annotations

import gc
from typing import Annotated

import typer

from podslice.cli import configuration
from podslice.cli.arguments import DONE, Output, Sort
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit
from podslice.cli.session import in_world
from podslice.cli.views import documents
from podslice.errors import InputError, Problem
from podslice.inputs.options.values import read_duration

_INTERVALS_SEC = (0.1, 3600)


@planning_options
def top(
    planning: Planning,
    sort: Annotated[Sort, typer.Option("--sort", help="Sort pods by this column.")] = Sort.CPU,
    interval: Annotated[
        str,
        typer.Option("--interval", metavar="DURATION", help="Time between two measurements."),
    ] = "2s",
    once: Annotated[  # noqa: FBT002 (typer passes it by name)
        bool,
        typer.Option("--once", "-b", help="Print the usage once, also on a terminal."),
    ] = False,
    output: Output = OutputFormat.TABLE,
) -> int:
    """Show the usage of the node and its pods, live on a terminal.

    Elsewhere the usage is printed once. Rates are averages between two measurements.
    """
    from podslice.cli import terminal
    from podslice.cli.top_page import Live, look_twice
    from podslice.cli.views import usage_table

    interval_sec = _interval_sec(interval)
    planning = configuration.tolerate(planning)
    if not once and output in (OutputFormat.TABLE, OutputFormat.WIDE) and terminal.is_able():
        gc.enable()  # it may run for days
        wide = output is OutputFormat.WIDE
        return in_world(planning, lambda world: Live(world, sort, interval_sec, wide=wide).run())
    seen = in_world(planning, lambda world: look_twice(world, interval_sec))
    shown, about = seen.usage.sorted(sort), seen.about

    def lines(wide: bool) -> list[str]:  # noqa: FBT001 - as `emit` calls it
        return [*usage_table.head(shown, about), "", *usage_table.table(shown, wide=wide)]

    emit(
        output,
        document=lambda: documents.document(
            **configuration.document(planning.origin), **usage_table.document(shown, about)
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
