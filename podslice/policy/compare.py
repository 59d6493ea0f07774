"""Differences between the two rule sets for a pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from podslice.model.config import Config, Rules
from podslice.model.desired import PodDecision
from podslice.model.node import Node
from podslice.model.pod import Pod
from podslice.model.quantity import format_bytes
from podslice.model.unit import INFINITY, PropertyValue
from podslice.policy.decide import decide


class Difference(NamedTuple):
    """One value on which the rule sets differ."""

    what: str
    """`qos_class`, `CPUQuotaPerSecUSec of container main`, `spec.resources.limits[cpu]`, …"""
    proposal: str
    kubernetes: str
    property: str | None = None
    """The property whose value differs, if it is one."""
    is_problem: bool = False
    """Whether `what` is a problem, and the values are its severities."""


def compare_rules(pod: Pod, node: Node, config: Config) -> tuple[Difference, ...]:
    """Return every difference, in the order of `explain`; empty if the rules agree."""
    ours = decide(pod, node, replace(config, rules=Rules.PROPOSAL))
    theirs = decide(pod, node, replace(config, rules=Rules.KUBERNETES))
    return tuple(each for each in _pairs(ours, theirs) if each.proposal != each.kubernetes)


_MEANWHILE = " until the init containers have finished"


def _pairs(ours: PodDecision, theirs: PodDecision) -> Iterator[Difference]:
    """Yield everything that may differ, equal values as well."""
    yield Difference("qos_class", proposal=ours.qos, kubernetes=theirs.qos)
    yield Difference("slice", proposal=ours.slice, kubernetes=theirs.slice)
    yield from _properties("", ours.properties, theirs.properties)
    if ours.init_properties is not None:
        yield from _properties(_MEANWHILE, ours.init_properties, theirs.properties)
    for left, right in zip(ours.scopes, theirs.scopes, strict=True):
        of = f" of container {left.name}"
        scores = str(left.oom_score_adj), str(right.oom_score_adj)
        yield Difference(f"oom_score_adj{of}", *scores)
        yield from _properties(of, left.properties, right.properties)
        yield Difference(f"huge pages{of}", _sizes(left.hugepages), _sizes(right.hugepages))
    yield from _problems(ours, theirs)


def _properties(
    of: str, left: tuple[PropertyValue, ...], right: tuple[PropertyValue, ...]
) -> Iterator[Difference]:
    one = {property_.name: property_.value for property_ in left}
    other = {property_.name: property_.value for property_ in right}
    for name in sorted(one.keys() | other.keys()):
        values = _text(one.get(name)), _text(other.get(name))
        yield Difference(f"{name}{of}", *values, property=name)


def _text(value: int | str | None) -> str:
    if value is None:
        return "unset"
    return "infinity" if value == INFINITY else str(value)


def _sizes(hugepages: Mapping[int, int]) -> str:
    sizes = (f"{format_bytes(size)}={format_bytes(limit)}" for size, limit in hugepages.items())
    return ",".join(sizes) or "unlimited"


def _problems(ours: PodDecision, theirs: PodDecision) -> Iterator[Difference]:
    """Yield the severity of each problem under either rule set."""
    one = {(found.where, found.message): found.severity for found in ours.problems}
    other = {(found.where, found.message): found.severity for found in theirs.problems}
    file = f"{ours.pod.where}: "
    for where, message in sorted(one.keys() | other.keys()):
        left, right = one.get((where, message), "fine"), other.get((where, message), "fine")
        what = f"{where.removeprefix(file)}: {message}"
        yield Difference(what=what, proposal=left, kubernetes=right, is_problem=True)
