"""Results of a benchmark: rounds, tables, aims and plots, as text, Markdown and JSON."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

VERSION = 1
"""Of the JSON document."""
Round = dict[str, Any]
"""Plain values of one measurement, with `disturbed` if the machine was busy."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Several rounds of one measurement."""

    low: float
    middle: float
    """The median."""
    high: float

    def show(self, digits: int = 0) -> str:
        """`12 (11 to 15)`."""
        return f"{self.middle:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


def spread(numbers: Iterable[float]) -> Spread:
    """Return the minimum, the median and the maximum.

    Raises:
        ValueError: there are no values.
    """
    known = sorted(numbers)
    if not known:
        raise ValueError("no round at all")
    return Spread(known[0], statistics.median(known), known[-1])


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return ratios round by round, so that other load of the machine affects both values."""
    return spread([one / other for one, other in zip(ours, theirs, strict=True)])


def chosen(rounds: Iterable[Round], **wanted: object) -> list[Round]:
    """Return the rounds with these values."""
    return [each for each in rounds if all(each.get(key) == wanted[key] for key in wanted)]


def values(rounds: Iterable[Round], key: str, **wanted: object) -> list[float]:
    """Return one figure of the rounds with these values, round by round."""
    return [each[key] for each in chosen(rounds, **wanted)]


def show(rounds: Iterable[Round], key: str, digits: int = 0, **wanted: object) -> str:
    """Return the spread of one figure."""
    return spread(values(rounds, key, **wanted)).show(digits)


def ratio(rounds: Iterable[Round], key: str, what: str, base: str, **wanted: object) -> Spread:
    """Return one figure of a measurement as multiples of that of another one, `base`."""
    rounds = chosen(rounds, **wanted)
    return ratios(values(rounds, key, what=what), values(rounds, key, what=base))


def sizes_of(rounds: Iterable[Round]) -> list[int]:
    """Return the numbers of pods that were measured."""
    return sorted({each["pods"] for each in rounds})


def shuffled(names: Iterable[str], pods: int, number: int) -> list[str]:
    """Return the names in a random order, the same for each run of this round."""
    found = list(names)
    random.Random(1000 * pods + number).shuffle(found)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table; the first column names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    """One or two sentences below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """An aim, which is a value at most, and the measured value."""

    text: str
    """`wall time of apply, 500 pods, ratio to the C client`."""
    value: float
    limit: float
    unit: str = ""

    @property
    def is_met(self) -> bool:
        return self.value <= self.limit

    def show(self) -> str:
        """`met: …: 0.71, aim at most 0.8`."""
        word = "met" if self.is_met else "MISSED"
        unit = f" {self.unit}" if self.unit else ""
        return f"{word}: {self.text}: {self.value:.3g}{unit}, aim at most {self.limit:g}{unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A picture with groups of bars."""

    name: str
    """Of the file, without its ending."""
    title: str
    x: str
    y: str
    """With its unit."""
    series: dict[str, dict[str, Spread]]
    """The bars of each color, by group."""
    guide: float
    """The position of a thin horizontal line, for example at a ratio of 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one benchmark."""

    name: str
    """As on the command line: `bring-up`."""
    title: str
    tables: tuple[Table, ...]
    aims: tuple[Aim, ...] = ()
    plots: tuple[Plot, ...] = ()
    rounds: list[Round] = field(default_factory=list)

    @property
    def disturbed(self) -> int:
        """Return the number of disturbed rounds."""
        return sum(bool(each.get("disturbed")) for each in self.rounds)


def to_text(result: Result) -> str:
    """Return text for a terminal."""
    parts = [f"== {result.title}\n", *map(_table_text, result.tables)]
    if result.aims:
        parts.append("".join(f"{aim.show()}\n" for aim in result.aims))
    if result.disturbed:
        parts.append(_disturbed(result) + "\n")
    return "\n".join(parts)


def to_markdown(result: Result, plots: str) -> str:
    """Return a section of RESULTS.md; `plots` is the relative path of the plots."""
    parts = []
    for table in result.tables:
        parts.append(f"**{table.title}**\n")
        head = f"| {' | '.join(table.columns)} |"
        rule = "|---|" + "---:|" * (len(table.columns) - 1)
        rows = [f"| {' | '.join(row)} |" for row in table.rows]
        parts.append("\n".join((head, rule, *rows)) + "\n")
        if table.note:
            parts.append(f"{table.note}\n")
    if result.aims:
        parts.append("\n".join(f"- {aim.show()}" for aim in result.aims) + "\n")
    if result.disturbed:
        parts.append(_disturbed(result) + "\n")
    parts += [f"![{plot.title}]({plots}/{plot.name}.png)\n" for plot in result.plots]
    return "\n".join(parts)


def to_json(machine: dict[str, object], results: Iterable[Result]) -> dict[str, object]:
    """Return the document: version, machine, and the results by name."""
    found = {
        result.name: {
            **asdict(result),
            "aims": [{**asdict(aim), "is_met": aim.is_met} for aim in result.aims],
        }
        for result in results
    }
    return {"version": VERSION, "machine": machine, "results": found}


def _disturbed(result: Result) -> str:
    return (
        f"{result.disturbed} of {len(result.rounds)} rounds were disturbed: something else took"
        " more than a tenth of a processor."
    )


def _table_text(table: Table) -> str:
    rows = [table.columns, *table.rows]
    widths = [max(len(row[index]) for row in rows) for index in range(len(table.columns))]
    lines = [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    note = f"{table.note}\n" if table.note else ""
    return f"{table.title}\n\n" + "\n".join(lines) + f"\n{note}"
