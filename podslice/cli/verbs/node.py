"""`podslice node`; features add the verbs below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import typer
from pydantic import PlainSerializer

from podslice.cli import coroutines
from podslice.cli.arguments import DONE, Output, code_of
from podslice.cli.extensions import node_sections
from podslice.cli.host import load_node, recorded_pods, tolerate
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note_problems
from podslice.cli.report import ConfigurationEntry, configuration_entry, document
from podslice.cli.views import tables
from podslice.cli.views.layout import fold
from podslice.cli.views.style import Display, Role
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Config
from podslice.model.desired import Desired
from podslice.model.naming import Tree
from podslice.model.node import Allocation
from podslice.model.pod import Qos
from podslice.model.properties import MEMORY_MAX
from podslice.model.quantity import format_bytes, format_milli, human_bytes
from podslice.model.resources import CPU, PIDS, Amounts, is_extended
from podslice.model.unit import limit_of
from podslice.policy.allocatable import allocate, threshold_amount, unrequested, validate_node
from podslice.policy.desire import desire
from podslice.reconcile.world import Guard, claims_beside_kubelet


@planning_options
def node(planning: Planning, context: typer.Context, output: Output = OutputFormat.TABLE) -> int:
    """Run `podslice node`.

    Allocatable is the capacity without the reservations and the hard eviction thresholds.

    Examples:
        podslice node
        podslice node --capacity cpu=8,memory=32Gi
    """
    if context.invoked_subcommand is not None:
        return DONE
    planning = tolerate(planning)
    config = planning.config
    host = load_node(config, manager=planning.manager)
    allocation, pods = allocate(host, config), recorded_pods(planning)
    desired = desire((), host, config, current=pods)
    requested, tiers = desired.requested, tier_evictions(desired, config)
    sections = tuple(node_sections(host, config, pods, planning.manager))
    claims = claims_beside_kubelet(Guard(), CgroupFs(), host, config, planning.manager)
    problems = (*validate_node(host, config), *coroutines.run(claims))
    note_problems(problems)
    emit(
        output,
        document=lambda: (
            tables.node_status(allocation)
            if output is OutputFormat.YAML
            else document(
                Report(
                    **vars(tables.node_entry(allocation, requested)),
                    configuration=configuration_entry(planning.origin),
                    eviction_tiers=tiers,
                ),
                **{each.key: each.document for each in sections},
            )
        ),
        lines=lambda display: (
            *tables.node(allocation, requested, display),
            *tier_lines(tiers, display),
            "",
            *node_bars(allocation, requested, display),
            *(line for each in sections for line in ("", *each.lines(display))),
        ),
        names=lambda: sorted(allocation.capacity),
    )
    return code_of(problems)


_WIDTH, _WIDTH_MIN = 40, 10
_GAP = "  "


class _Part(NamedTuple):
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


def _lower(qos: Qos) -> str:
    return qos.lower()


@dataclass(frozen=True, kw_only=True)
class TierEviction:
    """The threshold of a tier."""

    tier: Annotated[Qos, PlainSerializer(_lower)]
    limit_bytes: int
    threshold_bytes: int


def tier_evictions(desired: Desired, config: Config) -> tuple[TierEviction, ...]:
    """Return the thresholds of the tiers that exist, by class."""
    tree = Tree(cgroup_root=config.cgroup_root)
    limits = {
        unit.name: limit
        for unit in desired.units
        if (limit := limit_of(unit.properties, MEMORY_MAX)) is not None
    }
    return tuple(
        TierEviction(
            tier=qos,
            limit_bytes=limits[tree.tier(qos)],
            threshold_bytes=threshold_amount(threshold, limits[tree.tier(qos)] * 1000) // 1000,
        )
        for qos, threshold in sorted(config.eviction_tier.items())
        if tree.tier(qos) in limits
    )


def tier_lines(found: Iterable[TierEviction], display: Display) -> Iterator[str]:
    """Yield a sentence for each tier."""
    show = format_bytes if display.is_exact else human_bytes
    for each in found:
        text = (
            f"{each.tier} pods are evicted when less than {show(each.threshold_bytes)} of the"
            f" {show(each.limit_bytes)} of their tier are available."
        )
        yield from fold(text, display)


@dataclass(frozen=True, kw_only=True)
class Report(tables.NodeEntry):
    """The node. Features add keys, such as its CPUs."""

    configuration: ConfigurationEntry | None = None
    eviction_tiers: tuple[TierEviction, ...] = ()
