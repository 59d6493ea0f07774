"""Results of the steady state as tables, aims and plots."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from tests.bench.bring_up_tables import Round, column, ratio
from tests.bench.result import Aim, Plot, Point, Table, spread

APPLY, CHANGED, STATUS = "second apply", "one pod changed", "status"
LIST, READ = "C: list", "C: list and read"
IMPORTS_APPLY, IMPORTS_STATUS = "imports of apply", "imports of status"
READING = "reading of podslice"
BASES = {APPLY: IMPORTS_APPLY, CHANGED: IMPORTS_APPLY, STATUS: IMPORTS_STATUS}
"""The interpreter that each verb is compared with."""
AIM_PODS = 500
IMPORTS_AIM, READING_AIM = 2.0, 40.0
"""Relative to the interpreter with its imports; µs. Source: issue 7."""


def commands(taken: list[Round], pods: int) -> Table:
    """Return a row for each command."""
    rows = []
    for name in (*BASES, *dict.fromkeys(BASES.values()), LIST, READ):
        figures = [
            spread(column(taken, name, pods, key)).show()
            for key in ("wall", "client_cpu", "pid1_cpu", "bus_cpu")
        ]
        base = BASES.get(name)
        beside = ratio(taken, name, pods, "wall", base).show(2) if base else ""
        rows.append((name, figures[0], beside, *figures[1:]))
    rounds = len(column(taken, APPLY, pods, "wall"))
    return Table(
        title=f"{pods:,} running pods: milliseconds, median (least to most)",
        columns=("command", "wall", "/ imports", "its CPU", "PID 1's CPU", "bus's CPU"),
        rows=tuple(rows),
        note=f"{rounds} rounds. `/ imports` is the wall time as a multiple of the interpreter's with"
        " the same imports, which finalizes at exit. podslice does not.",
    )


def reading(taken: list[Round]) -> Table:
    """Return the cost of reading a slice, besides the list."""
    rows = tuple(
        (
            f"{pods:,}",
            spread(_values(taken, READ, pods, "list_ms")).show(1),
            spread(_values(taken, READING, pods, "list_ms")).show(1),
            spread(_floor_reading(taken, pods)).show(),
            spread(_reading(taken, pods)).show(),
        )
        for pods in _sizes(taken)
    )
    return Table(
        title="Reading every slice, with the bus open",
        columns=(
            "pods",
            "list in C, ms",
            "list in podslice, ms",
            "each slice in C, µs",
            "each slice in podslice, µs",
        ),
        rows=rows,
        note="A slice's time is that of reading all, beside the list, by the number of slices.",
    )


def aims(taken: list[Round]) -> tuple[Aim, ...]:
    """Return the aims of the issue, at 500 pods or, in a quick run, at the largest number."""
    sizes = _sizes(taken)
    pods = AIM_PODS if AIM_PODS in sizes else sizes[-1]
    writes = max(int(str(each["writes"])) for each in taken if each["what"] == APPLY)
    whole = (
        Aim(
            text=f"{name}, {pods:,} pods, ratio to the interpreter with its imports",
            value=ratio(taken, name, pods, "wall", base).middle,
            limit=IMPORTS_AIM,
        )
        for name, base in BASES.items()
    )
    return (
        Aim(text="writes to systemd of a second apply, any round", value=writes, limit=0),
        Aim(
            text=f"reading a slice beside the list, {pods:,} pods",
            value=spread(_reading(taken, pods)).middle,
            limit=READING_AIM,
            unit="µs",
        ),
        *whole,
    )


def plots(taken: list[Round]) -> tuple[Plot, ...]:
    """Return a plot of wall time by the number of pods."""
    series = {
        name: tuple(
            Point(x=pods, y=spread(column(taken, name, pods, "wall"))) for pods in _sizes(taken)
        )
        for name in (*BASES, IMPORTS_APPLY, READ)
    }
    return (
        Plot(
            name="steady",
            title="When all pods are up: wall time of the whole command",
            x="pods",
            y="ms",
            kind="lines",
            series=series,
        ),
    )


def _sizes(taken: Iterable[Round]) -> list[int]:
    return sorted({int(str(each["pods"])) for each in taken})


def _rounds(taken: Iterable[Round], what: str, pods: int) -> list[dict[str, Any]]:
    return [each for each in taken if each["what"] == what and each["pods"] == pods]


def _values(taken: Iterable[Round], what: str, pods: int, key: str) -> list[float]:
    """Return a figure of each round: the median if a round has several."""
    found = (each[key] for each in _rounds(taken, what, pods))
    return [statistics.median(each if isinstance(each, list) else [each]) for each in found]


def _reading(taken: list[Round], pods: int) -> list[float]:
    """Return podslice's microseconds for each slice, besides the list; each round's median."""
    return [
        1000
        * statistics.median(
            read - listed for read, listed in zip(each["observe_ms"], each["list_ms"], strict=True)
        )
        / each["units"]
        for each in _rounds(taken, READING, pods)
    ]


def _floor_reading(taken: list[Round], pods: int) -> list[float]:
    return [1000 * each["read_ms"] / each["units"] for each in _rounds(taken, READ, pods)]
