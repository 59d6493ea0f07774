"""What is counted of each pod: its running containers, their restarts, and its start. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from podslice.model.desired import PodDecision
from podslice.model.pod import ContainerKind
from podslice.model.unit import UnitName
from podslice.usage.unit_status import HOLDS_PROCESSES, UnitStatus

_ACTIVE = "active"
_COUNTED = frozenset({ContainerKind.APP, ContainerKind.SIDECAR})


class PodFacts(NamedTuple):
    """The containers of a pod, without init containers and helpers."""

    containers: int
    ready: int
    """The number of those that run."""
    restarts: int
    """Of all of them together."""
    started_usec: int
    """The start of the pod's slice since the epoch; 0 where it was not observed."""


def pod_facts(
    decisions: Iterable[PodDecision],
    units: Iterable[UnitStatus],
    held: Mapping[tuple[str, str | None], int],
    starts: Mapping[UnitName, int],
) -> dict[str, PodFacts]:
    """Return the facts about pods, by key.

    Args:
        decisions: the applied pods.
        units: the status of their units.
        held: the restarts of containers that runtimes run in units of another name, by pod and
            container.
        starts: the starts of slices.
    """
    by_pod: dict[str | None, list[UnitStatus]] = {}
    for unit in units:
        if unit.kind in HOLDS_PROCESSES:
            by_pod.setdefault(unit.pod, []).append(unit)
    found = {}
    for decision in decisions:
        key = decision.pod.key
        left_out = {each.name for each in decision.scopes if each.kind not in _COUNTED}
        counted = [unit for unit in by_pod.get(key, ()) if unit.label not in left_out]
        found[key] = PodFacts(
            containers=len(counted),
            ready=sum(unit.state == _ACTIVE or (key, unit.label) in held for unit in counted),
            restarts=sum(unit.restarts + held.get((key, unit.label), 0) for unit in counted),
            started_usec=starts.get(decision.slice, 0),
        )
    return found
