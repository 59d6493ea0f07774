"""Pods, desired units and the node as lines, tables and JSON. Pure: values in, lines or JSON out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from podslice.cli.report import AmountsEntry, Document, amounts_entry
from podslice.cli.views.layout import Align, Column, Shorten, fold, table
from podslice.cli.views.problem_lines import problem_line
from podslice.cli.views.style import Display
from podslice.cli.views.text_width import ljust, width_of
from podslice.model.desired import PodDecision
from podslice.model.node import Allocation
from podslice.model.pod import ContainerKind, Pod
from podslice.model.properties import PROPERTIES, format_value
from podslice.model.quantity import format_bytes, human_bytes
from podslice.model.resources import (
    PIDS,
    Amounts,
    format_amount,
    format_amounts,
    is_bytes,
)
from podslice.model.unit import PropertyValue
from podslice.policy.allocatable import unrequested
from podslice.policy.decide import Difference

Cells = Sequence[str]


def columns(rows: Iterable[Cells], *, indent: str = "") -> Iterator[str]:
    """Yield rows as lines, with each column as wide as its widest cell."""
    rows = list(rows)
    made = [Column(title="")] * max(map(len, rows), default=0)
    return table(made, rows, Display(), indent=indent, has_head=False)


def separated(blocks: Iterable[Iterable[str]], separator: str = "") -> Iterator[str]:
    """Yield blocks of lines with a line between them."""
    for index, block in enumerate(blocks):
        if index:
            yield separator
        yield from block


def list_first(names: Sequence[str], most: int) -> str:
    """Return the first names, and the number of the others: `a, b and 3 more`."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def format_property(stated: PropertyValue) -> str:
    """`CPUQuota=11%`, as a unit file has it."""
    return f"{PROPERTIES[stated.name].key}={format_value(stated.name, stated.value)}"


def explanation(decision: PodDecision, display: Display) -> Iterator[str]:
    """Yield the decision about a pod, line by line; sentences are broken between words."""
    pod: Pod = decision.pod
    yield from fold(f"pod {pod.key}  {decision.qos}", display, hanging="    ")
    head = [
        ("slice", decision.slice),
        ("requests", format_amounts(decision.requests) or "none"),
        ("limits", format_amounts(decision.limits) or "none"),
        ("grace", f"{pod.grace_period_sec}s"),
    ]
    yield from columns(head, indent="  ")
    for note in decision.notes:
        yield from fold(note, display, indent="  ", hanging="    ")
    yield from _reasons(decision.properties, "  ", display)
    if decision.init_properties is not None:
        yield "  until the init containers have finished:"
        yield from _reasons(decision.init_properties, "    ", display)
    for container in decision.scopes:
        yield f"  {_KINDS[container.kind]} {container.name}"
        text = f"{container.scope}  oom_score_adj {container.oom_score_adj}"
        yield from fold(text, display, indent="    ", hanging="      ")
        yield from _reasons(container.properties, "    ", display)
    for volume in decision.volumes:
        yield f"  volume {volume.name}"
        size = "no size" if volume.size_bytes is None else f"size={format_bytes(volume.size_bytes)}"
        yield f"    {volume.path}"
        yield from fold(f"{size}  {volume.why}", display, indent="    ", hanging="      ")
    for found in decision.problems:
        yield from fold(problem_line(found), display, indent="  ", hanging="    ")


def _reasons(properties: Iterable[PropertyValue], indent: str, display: Display) -> Iterator[str]:
    """Yield properties with their reasons beside them, which continue below their beginning."""
    rows = [(format_property(each), each.why) for each in properties]
    width = max((width_of(stated) for stated, _ in rows), default=0)
    hanging = f"{indent}{' ' * (width + 2)}"
    if display.width is not None and width_of(hanging) > display.width // 2:
        hanging = f"{indent}    "
    for stated, why in rows:
        yield from fold(f"{ljust(stated, width)}  {why}", display, indent=indent, hanging=hanging)


_KINDS = {
    ContainerKind.APP: "container",
    ContainerKind.INIT: "init container",
    ContainerKind.SIDECAR: "sidecar container",
    ContainerKind.OVERHEAD: "helper container",
}


def differences_of_rules(
    decision: PodDecision, found: Sequence[Difference], display: Display
) -> Iterator[str]:
    """Yield the differences of the rule sets for a pod: a table of values, then of severities."""
    yield f"pod {decision.pod.key}"
    if not found:
        yield "  no differences"
        return
    values = [each for each in found if not each.is_problem]
    rows = [
        (each.what, _value(each, each.proposal), _value(each, each.kubernetes)) for each in values
    ]
    if rows:
        titles = ("", "PROPOSAL", "KUBERNETES")
        heads = [Column(title=each, min_width=20, shorten=Shorten.FOLD) for each in titles]
        yield from table(heads, rows, display, indent="  ")
    for each in found:
        if each.is_problem:
            text = f"{each.what}: {each.proposal} (proposal), {each.kubernetes} (kubernetes)"
            yield from fold(text, display, indent="  ", hanging="    ")


def _value(difference: Difference, text: str) -> str:
    """Format the value of a property, and leave other text unchanged."""
    name = difference.property
    return format_value(name, int(text)) if name is not None and text.isdigit() else text


_DROPPED_FROM_NODE = ("KUBE", "SYSTEM", "EVICTION", "HUGEPAGES", "CAPACITY")
"""The columns that a narrow terminal does not show, in this order."""


def node(allocation: Allocation, requested: Amounts, display: Display) -> Iterator[str]:
    """Yield a table of the node's capacity, reservations and requests."""
    parts = {
        "CAPACITY": allocation.capacity,
        "KUBE": allocation.kube_reserved,
        "SYSTEM": allocation.system_reserved,
        "EVICTION": allocation.eviction,
        **({"HUGEPAGES": allocation.hugepages} if allocation.hugepages else {}),
        "ALLOCATABLE": allocation.allocatable,
        "REQUESTED": requested,
    }
    order = {title: number for number, title in enumerate(_DROPPED_FROM_NODE)}
    heads = [Column(title="RESOURCE", min_width=10)]
    heads += [Column(title=title, drop=order.get(title), align=Align.RIGHT) for title in parts]
    rows = [
        [name, *(_amount(name, part.get(name), display) for part in parts.values())]
        for name in sorted(allocation.capacity)
    ]
    yield from table(heads, rows, display)
    if allocation.counts_hugepages:
        text = "Huge pages count as memory on this node; memory limits include them."
        yield from fold(text, display)


def _amount(resource: str, milli: int | None, display: Display) -> str:
    """Format an amount in readable units, or exactly with `-o wide`."""
    if milli is None:
        return "-"
    is_exact = display.is_exact or not is_bytes(resource)
    return format_amount(resource, milli) if is_exact else human_bytes(milli // 1000)


@dataclass(frozen=True, kw_only=True)
class ReservedEntry:
    """What is not for pods, by the reason."""

    kube: AmountsEntry
    system: AmountsEntry
    eviction: AmountsEntry
    hugepages: AmountsEntry
    """Memory that is set aside as huge pages."""


@dataclass(frozen=True, kw_only=True)
class DivisionEntry:
    """The node's capacity, reservations and allocatable."""

    capacity: AmountsEntry
    reserved: ReservedEntry
    allocatable: AmountsEntry


@dataclass(frozen=True, kw_only=True)
class NodeEntry(DivisionEntry):
    """The node's capacity, reservations, allocatable and requests."""

    requested: AmountsEntry
    free: AmountsEntry
    memory_hugetlb_accounting: bool


def division_entry(allocation: Allocation) -> DivisionEntry:
    """Return the node's capacity, reservations and allocatable."""
    return DivisionEntry(
        capacity=amounts_entry(allocation.capacity),
        reserved=ReservedEntry(
            kube=amounts_entry(allocation.kube_reserved),
            system=amounts_entry(allocation.system_reserved),
            eviction=amounts_entry(allocation.eviction),
            hugepages=amounts_entry(allocation.hugepages),
        ),
        allocatable=amounts_entry(allocation.allocatable),
    )


def node_entry(allocation: Allocation, requested: Amounts) -> NodeEntry:
    """Return the node's capacity, reservations, allocatable and requests."""
    free = unrequested(allocation, requested)
    return NodeEntry(
        **vars(division_entry(allocation)),
        requested=amounts_entry(requested),
        free=amounts_entry({name: max(milli, 0) for name, milli in free.items()}),
        memory_hugetlb_accounting=allocation.counts_hugepages,
    )


def node_status(allocation: Allocation) -> Document:
    """Return capacity and allocatable as a Kubernetes Node object."""

    def quantities(stated: Amounts) -> dict[str, str]:
        return {name: format_amount(name, stated[name]) for name in sorted(stated) if name != PIDS}

    return {
        "apiVersion": "v1",
        "kind": "Node",
        "status": {
            "capacity": quantities(allocation.capacity),
            "allocatable": quantities(allocation.allocatable),
        },
    }
