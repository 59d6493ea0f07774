"""Adopted services as systemd has them."""

from __future__ import annotations

from collections.abc import Iterable

from podslice.model.pod_service import PodService
from podslice.model.unit import ObservedUnit
from podslice.reconcile.world import LiveWorld
from podslice.store.adopted_services import read_adopted


async def observe_services(world: LiveWorld, pods: Iterable[str]) -> tuple[PodService, ...]:
    """Return the services of these pods, also those that have no processes.

    Raises:
        HostError: a drop-in cannot be read.
    """
    keys = frozenset(pods)
    adopted = [each for each in read_adopted(world.manager) if each.pod in keys]
    if not adopted:
        return ()
    found = {
        unit.name: unit for unit in await world.client.observe([each.unit for each in adopted])
    }
    return tuple(
        PodService(
            pod=each.pod,
            container=each.container,
            unit=found.get(each.unit)
            or ObservedUnit(name=each.unit, active_state="inactive", transient=False),
        )
        for each in adopted
    )
