"""Tables and paragraphs within the width of a terminal. Pure: cells in, lines out.

A width of None is for pipes: nothing is dropped, shortened or folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import NamedTuple, assert_never

from podslice.cli.views.style import Cell, Display, Role, Styled
from podslice.cli.views.text_width import (
    folded,
    ljust,
    rjust,
    shorten_end,
    shorten_middle,
    width_of,
)
from podslice.errors import PROBLEMS_SHOWN, printable

_GAP = "  "


class Shorten(StrEnum):
    """Where the texts of a column are shortened."""

    END = "end"
    MIDDLE = "middle"
    """For names: they remain different from each other."""
    FOLD = "fold"
    """For sentences: they continue on further lines, below their beginning."""


class Align(StrEnum):
    """The side on which the texts of a column are aligned."""

    LEFT = "left"
    RIGHT = "right"


class Column(NamedTuple):
    """A column of a table, and what happens to it where the table is too wide.

    Columns are shortened to `min_width`, texts before names. If that is not enough, those with
    `drop` are dropped, the lowest number first, and the shortened columns get the room.
    """

    title: str
    drop: int | None = None
    """The order in which it is dropped; None if it is not."""
    min_width: int | None = None
    """None if it is not shortened."""
    width: int = 0
    """Its width before it is shortened, if the widest text is shorter: for rows yet to come."""
    shorten: Shorten = Shorten.END
    align: Align = Align.LEFT


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[Cell]],
    display: Display,
    *,
    indent: str = "",
    has_head: bool = True,
) -> Iterator[str]:
    """Yield a table as lines, the titles first; control characters are escaped."""
    for lines in blocks(columns, rows, display, indent=indent, has_head=has_head):
        yield from lines


def blocks(
    columns: Sequence[Column],
    rows: Iterable[Sequence[Cell]],
    display: Display,
    *,
    indent: str = "",
    has_head: bool = True,
) -> Iterator[list[str]]:
    """Yield the lines of each row of a table: one, or more where a text is folded."""
    rows = list(rows)
    texts = [[printable(text_of(cell)) for cell in row] for row in rows]
    widths = _widths(columns, texts, display, indent=indent, has_head=has_head)
    shown = {
        index: _fitted(columns[index], [row[index] for row in texts], width)
        for index, width in widths.items()
    }
    if has_head:
        titles = [[shorten_end(columns[index].title, width)] for index, width in widths.items()]
        roles: list[Role | None] = [Role.HEADING] * len(titles)
        yield _lines(columns, widths, titles, roles, display, indent)
    for number, row in enumerate(rows):
        cells = [shown[index][number] for index in widths]
        roles = [cell.role if isinstance(cell := row[index], Styled) else None for index in widths]
        yield _lines(columns, widths, cells, roles, display, indent)


def hidden_columns(
    columns: Sequence[Column], rows: Iterable[Sequence[Cell]], display: Display
) -> list[str]:
    """Return the titles of the columns that `table` drops in this width."""
    texts = [[printable(text_of(cell)) for cell in row] for row in rows]
    shown = _widths(columns, texts, display)
    return [column.title for index, column in enumerate(columns) if index not in shown]


def _widths(
    columns: Sequence[Column],
    texts: list[list[str]],
    display: Display,
    *,
    indent: str = "",
    has_head: bool = True,
) -> dict[int, int]:
    """Return the widths of the columns that are shown, by index."""
    heads = [[column.title for column in columns]] if has_head else []
    natural = [
        max(column.width, *map(width_of, (row[index] for row in heads + texts)), 0)
        for index, column in enumerate(columns)
    ]
    room = None if display.width is None else max(1, display.width - width_of(indent))
    return _fit(columns, natural, room)


def text_of(cell: Cell) -> str:
    """Return the text of a cell without its role."""
    return cell.text if isinstance(cell, Styled) else str(cell)


def _fit(columns: Sequence[Column], natural: Sequence[int], room: int | None) -> dict[int, int]:
    """Return the widths of the columns that are shown, by index."""
    shown = dict(enumerate(natural))
    if room is None:
        return shown
    least = {
        index: width if (floor := columns[index].min_width) is None else min(width, floor)
        for index, width in shown.items()
    }
    for _, index in sorted(
        (column.drop, index) for index, column in enumerate(columns) if column.drop is not None
    ):
        if _total(least) <= room or len(least) == 1:
            break
        del least[index]
    while _total(least) > room and len(least) > 1 and _total(dict.fromkeys(least, 1)) > room:
        del least[max(least)]
    return _shrink(columns, {index: natural[index] for index in least}, least, room)


def _total(widths: dict[int, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)


def _shrink(
    columns: Sequence[Column], widths: dict[int, int], least: dict[int, int], room: int
) -> dict[int, int]:
    """Shorten texts before names, the widest first; below the minimum only if nothing else is left."""
    texts = [index for index in widths if columns[index].shorten is not Shorten.MIDDLE]
    for indexes, floors in ((texts, least), (widths, least), (widths, dict.fromkeys(widths, 1))):
        widths = _level(widths, {index: floors[index] for index in indexes}, room)
    return widths


def _level(widths: dict[int, int], floors: dict[int, int], room: int) -> dict[int, int]:
    """Take from the widest of these columns until all fit, or they have their least width."""
    widths = dict(widths)
    while (excess := _total(widths) - room) > 0:
        able = [index for index, floor in floors.items() if widths[index] > floor]
        if not able:
            break
        widest = max(able, key=lambda index: widths[index])
        second = max((widths[index] for index in able if index != widest), default=0)
        step = max(1, widths[widest] - max(second, floors[widest]))
        widths[widest] -= min(step, excess)
    return widths


def _fitted(column: Column, texts: list[str], width: int) -> list[list[str]]:
    """Return the lines of each text in this width: one, unless texts are folded."""
    match column.shorten:
        case Shorten.END:
            return [[shorten_end(text, width)] for text in texts]
        case Shorten.MIDDLE:
            return [[text] for text in shorten_middle(texts, width)]
        case Shorten.FOLD:
            return [[shorten_end(each, width) for each in folded(text, width)] for text in texts]
        case _:
            assert_never(column.shorten)


def _lines(
    columns: Sequence[Column],
    widths: dict[int, int],
    cells: Sequence[list[str]],
    roles: Sequence[Role | None],
    display: Display,
    indent: str,
) -> list[str]:
    """Join cells; spaces around them have no color, and there are none at the end."""
    lines = []
    for parts in zip_longest(*cells, fillvalue=""):
        line, spaces = "", indent
        for index, cell, role in zip(widths, parts, roles, strict=True):
            is_right = columns[index].align is Align.RIGHT
            padded = (rjust if is_right else ljust)(cell, widths[index])
            bare = padded.strip(" ")
            before, _, after = padded.partition(bare) if bare else (padded, "", "")
            if bare:
                line += spaces + before + display.paint(bare, role)
            spaces = (after if bare else spaces + before) + _GAP
        lines.append(line)
    return lines


def fold(
    text: str, display: Display, *, indent: str = "", hanging: str = "", role: Role | None = None
) -> Iterator[str]:
    """Yield a sentence as lines in the color of its role, broken between words where it does not fit.

    The first line begins with `indent`, the others with `hanging`. A word that is longer than a
    line, such as a path to copy, stays whole.
    """
    text = printable(text)
    if display.width is None:
        yield display.paint(indent + text, role)
        return
    first, *others = folded(text, display.width - width_of(indent))
    yield display.paint(indent + first, role)
    if others:
        # further lines have another width
        rest = text[len(first) :].lstrip(" ")
        for line in folded(rest, display.width - width_of(hanging)):
            yield display.paint(hanging + line, role)


def fold_with_head(text: str, head: str, role: Role, display: Display) -> Iterator[str]:
    """Yield a sentence as lines, of which only the first words have the color of the role."""
    first, *others = fold(text, display, hanging="    ")
    yield display.paint(head, role) + first[len(head) :]
    yield from others


def remedy_section(
    title: str, found: Sequence[tuple[str, str]], display: Display, more: str
) -> Iterator[str]:
    """Yield a heading, and the first problems, each with its remedy; one for several is stated once.

    Args:
        title: the heading.
        found: the problems as sentences, and their remedies; without any, there is no section.
        display: the terminal.
        more: follows the number of the problems that are left out.
    """
    if not found:
        return
    yield ""
    yield display.paint(title, Role.HEADING)
    for index, (text, hint) in enumerate(found[:PROBLEMS_SHOWN], start=1):
        yield from fold(text, display, hanging="  ")
        after = found[index][1] if index < len(found) else ""
        if hint and hint != after:
            yield from fold(hint, display, indent="  → ", hanging="    ")
    if len(found) > PROBLEMS_SHOWN:
        yield f"{len(found) - PROBLEMS_SHOWN:,} {more}"
