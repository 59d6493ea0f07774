"""The division of a node's resources as bars. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from podslice.cli.views.style import Role
from podslice.cli.views.tables import human_bytes
from podslice.model.quantity import format_milli
from podslice.model.resources import CPU, PIDS, is_extended
from podslice.policy.allocatable import unrequested

if TYPE_CHECKING:
    from podslice.cli.views.style import Display
    from podslice.model.node import Allocation
    from podslice.model.resources import Amounts

_WIDTH, _WIDTH_MIN = 40, 10
_GAP = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part of a resource, and how it is drawn."""

    name: str
    char: str
    role: Role | None


_RESERVED = _Part(name="reserved", char="▓", role=Role.DIM)
_EVICTION = _Part(name="eviction", char="▒", role=Role.WARNING)
_REQUESTED = _Part(name="requested", char="█", role=Role.GOOD)
_FREE = _Part(name="free", char="░", role=None)
_PARTS = (_RESERVED, _EVICTION, _REQUESTED, _FREE)


def node_bars(allocation: Allocation, requested: Amounts, display: Display) -> Iterator[str]:
    """Yield a legend and a bar for each resource: reserved, eviction, requested and free."""
    names = [name for name in sorted(allocation.capacity) if allocation.capacity[name]]
    free = unrequested(allocation, requested)
    shares = {name: _shares(name, allocation, requested) for name in names}
    texts = {name: _describe(name, shares[name], free[name], allocation) for name in names}
    indent = max(map(len, names), default=0)
    width, has_text = _bar_width(display, indent, max(map(len, texts.values()), default=0))
    if names:
        legend = _GAP.join(f"{part.char} {part.name}" for part in _PARTS)
        room = len(legend) + indent + len(_GAP) if display.width is None else display.width
        painted = (display.paint(part.char, part.role) + f" {part.name}" for part in _PARTS)
        yield " " * min(indent + len(_GAP), max(0, room - len(legend))) + _GAP.join(painted)
    for name in names:
        line = f"{name.ljust(indent)}{_GAP}{_bar(shares[name], width, display)}"
        role = Role.ERROR if free[name] < 0 else None
        yield f"{line}{_GAP}{display.paint(texts[name], role)}" if has_text else line


def _shares(name: str, allocation: Allocation, requested: Amounts) -> tuple[int, ...]:
    """Return the amounts of `_PARTS`; eviction is what the thresholds take from allocatable."""
    reserved = sum(
        part.get(name, 0)
        for part in (allocation.kube_reserved, allocation.system_reserved, allocation.hugepages)
    )
    allocatable = allocation.allocatable.get(name, 0)
    eviction = max(allocation.capacity[name] - reserved - allocatable, 0)
    used = requested.get(name, 0)
    return reserved, eviction, used, max(allocatable - used, 0)


def _describe(name: str, shares: Sequence[int], free: int, allocation: Allocation) -> str:
    reserved, eviction, used, _ = shares
    stated = [(reserved, "reserved"), (eviction, "eviction"), (used, "requested")]
    parts = [f"{_amount(name, milli)} {what}" for milli, what in stated if milli]
    over = f"requested above allocatable: {_amount(name, -free)}"
    parts.append(over if free < 0 else f"{_amount(name, free)} free")
    return f"{', '.join(parts)} of {_amount(name, allocation.capacity[name])}"


def _amount(name: str, milli: int) -> str:
    """Format an amount for people; the table has the exact ones."""
    if name in (CPU, PIDS) or is_extended(name):
        return format_milli(milli)
    return human_bytes(-(-milli // 1000))


def _bar_width(display: Display, indent: int, text: int) -> tuple[int, bool]:
    """Return the width of the bars, and whether the texts fit beside them."""
    if display.width is None:
        return _WIDTH, True
    room = display.width - indent - len(_GAP)
    beside = room - len(_GAP) - text
    if beside >= _WIDTH_MIN:
        return min(beside, _WIDTH), True
    return max(min(room, _WIDTH), 1), False


def _bar(shares: Sequence[int], width: int, display: Display) -> str:
    """Draw the parts; one that is not empty has a character, and the largest gives it."""
    whole = sum(shares)
    sizes = [max(round(share * width / whole), share > 0) if whole else 0 for share in shares]
    sizes[sizes.index(max(sizes))] += width - sum(sizes)
    return "".join(
        display.paint(part.char * size, part.role) for part, size in zip(_PARTS, sizes, strict=True)
    )
