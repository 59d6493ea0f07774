"""The services of other programs in pods, as systemd has them."""

from __future__ import annotations

from collections.abc import Iterable

from podslice.model.desired import PodDecision
from podslice.model.pod_service import PodService
from podslice.model.unit import ObservedUnit, UnitName
from podslice.reconcile.world import LiveWorld
from podslice.store.adopted_services import AdoptedService, read_adopted
from podslice.systemd.client import Client


async def observe_services(world: LiveWorld, pods: Iterable[str]) -> tuple[PodService, ...]:
    """Return the adopted services of these pods, also those that have no processes.

    Raises:
        HostError: a drop-in cannot be read.
    """
    keys = frozenset(pods)
    adopted = [each for each in read_adopted(world.manager) if each.pod in keys]
    return await observe_adopted(world.client, adopted)


async def observe_adopted(
    client: Client, adopted: Iterable[AdoptedService]
) -> tuple[PodService, ...]:
    """Return adopted services, inactive where systemd has not loaded them."""
    services = {each.unit: each for each in adopted}
    found = {unit.name: unit for unit in await client.observe(list(services))}
    return tuple(
        PodService(
            pod=each.pod,
            container=each.container,
            unit=found.get(name)
            or ObservedUnit(name=name, active_state="inactive", transient=False),
        )
        for name, each in services.items()
    )


async def observe_placed(
    client: Client, pods: Iterable[PodDecision], names: Iterable[UnitName]
) -> tuple[PodService, ...]:
    """Return the services that state the slice of a pod by other means than `adopt`."""
    keys = {pod.slice: pod.pod.key for pod in pods}
    return tuple(
        PodService(pod=keys[slice_], container=unit.name, unit=unit)
        for unit in await client.observe(sorted(names))
        if (slice_ := UnitName(str(unit.properties.get("Slice", "")))) in keys
    )
