"""The adopted services of pods, around an apply or a delete.

A pod with a service that runs is not removed unless the service may be restarted outside of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from podslice.cli.placed_services import log_services
from podslice.errors import HostError
from podslice.model.naming import SCOPE_PREFIX, podman_service
from podslice.model.unit import UnitName
from podslice.processes.service_adoption import (
    ServiceAction,
    outdated_services,
    release,
    restart_due,
    update_services,
)
from podslice.store.adopted_services import AdoptedService, by_pod, drop_in_path, read_adopted

if TYPE_CHECKING:
    from podslice.cli.manual_log import ManualLog
    from podslice.model.desired import PodDecision
    from podslice.processes.service_adoption import PlacedService, ServiceAction
    from podslice.reconcile.assessment import Assessment
    from podslice.reconcile.world import LiveWorld


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDropIn:
    """A drop-in of a service that an apply would change."""

    service: AdoptedService
    """With the drop-in as it would be written."""
    path: str
    action: ServiceAction


class PodServices:
    """The services of the pods that an apply or a delete changes."""

    def __init__(
        self,
        world: LiveWorld,
        log: ManualLog | None = None,
        *,
        named: Collection[str] | None = (),
        may_restart: bool = False,
    ) -> None:
        """The pods that are `named` (with None all) are removed, applied or not.

        With `may_restart` services that run in a removed pod are restarted outside of it.
        """
        self._world = world
        self._log = log
        self._named = named
        self._may_restart = may_restart
        self._leaving: tuple[AdoptedService, ...] = ()
        self._pods: tuple[PodDecision, ...] = ()
        self._stranded = False
        self.results: tuple[PlacedService, ...] = ()
        """What was done."""
        self.removed_pods: frozenset[str] = frozenset()
        """The pods whose services were released."""

    @property
    def exit_code(self) -> int:
        """0 after complete success, 1 where a service could not be restarted."""
        return int(any(each.error for each in self.results))

    def plan(self, state: Assessment) -> tuple[PlannedDropIn, ...]:
        """Return the drop-ins that an apply would write and remove.

        Raises:
            HostError: a drop-in cannot be read.
        """
        manager = self._world.manager
        adopted = read_adopted(manager)
        if not adopted:
            return ()

        removed = self._removed(state, by_pod(adopted))
        outdated = outdated_services(adopted, state.desired.pods, manager)
        changes = [(each, ServiceAction.REMOVED) for each in adopted if each.pod in removed]
        changes += [(each, ServiceAction.WRITTEN) for each in outdated]
        return tuple(
            PlannedDropIn(service=each, path=str(drop_in_path(each.unit, manager)), action=action)
            for each, action in changes
        )

    async def check(self, state: Assessment) -> None:
        """Determine the services that leave their pods, before anything is changed.

        Raises:
            HostError: one of them runs, and must not be restarted; it has every one.
        """
        self._pods = state.desired.pods
        services = by_pod(read_adopted(self._world.manager))
        removed = self._removed(state, services)
        self._leaving = tuple(each for key in sorted(removed) for each in services.get(key, ()))
        if not self._may_restart:
            await self._refuse_running()
        gone = {pod.key for pod in state.current} - {pod.pod.key for pod in self._pods}
        if gone:
            await self._note_others(state, gone)

    async def move(self) -> bool:
        """Release the services that leave their pods, and write outdated drop-ins of others again.

        Both precede the change of slices: when a slice is stopped, systemd stops the services that
        start in it, and cancels their starts. Return whether there were some.

        Raises:
            HostError: a drop-in cannot be written or removed.
            SystemdError: systemd could not read the files.
        """
        services = by_pod(read_adopted(self._world.manager))
        pods = [each for each in self._pods if each.pod.key in services]
        if not self._leaving and not pods:
            return False
        released = await release(self._world, self._leaving)
        updated = await update_services(self._world, pods)
        if self._log is not None:
            log_services(self._log, (*released, *updated))
        # without a drop-in nothing that takes the lock is started before the service
        self.results = (*await restart_due(self._world, released), *updated)
        self.removed_pods = frozenset(each.pod for each in self._leaving)
        return bool(self.results)

    async def finish(self) -> None:
        """Let systemd forget removed slices in which services start by other means.

        Raises:
            SystemdError: systemd could not read the files.
        """
        if self._stranded:
            await self._world.client.reload()

    def _removed(self, state: Assessment, services: Collection[str]) -> set[str]:
        """Return the pods that are removed; an evicted pod keeps its services, for its return."""
        if self._named is None:
            return {*services}
        present = {pod.pod.key for pod in state.desired.pods}
        present |= {mark.pod for mark in state.evicted}
        return {pod.key for pod in state.current if pod.key not in present}.union(self._named)

    async def _refuse_running(self) -> None:
        flag, running = self._world.manager.flag, []
        for each in self._leaving:
            found = await self._world.client.read_definition(each.unit)
            if found.is_running and each.slice in found.control_group.split("/"):
                running.append(each)
        if not running:
            return
        pods = " ".join(dict.fromkeys(each.pod for each in running))
        units = " ".join(each.unit for each in running)
        what = ", ".join(f"{each.unit} runs in pod {each.pod}" for each in running)
        raise HostError(
            f"{what}; nothing was changed; to restart it outside of the pod: podslice"
            f" delete{flag} {pods} --restart; to stop it: podslice release{flag} {units} &&"
            f" systemctl{flag} stop {units}"
        )

    async def _note_others(self, state: Assessment, gone: Collection[str]) -> None:
        """Note the services that are in slices of removed pods by other means than `adopt`."""
        world = self._world
        tree = world.tree
        slices = {
            slice_: pod.key
            for pod in state.current
            if pod.key in gone
            for slice_ in tree.all_of(pod.uid)
        }
        own = {podman_service(key) for key in gone} | {each.unit for each in self._leaving}
        for unit in await world.client.observe(["*.service"]):
            slice_ = UnitName(str(unit.properties.get("Slice", "")))
            is_own = unit.name in own or unit.name.startswith(f"{SCOPE_PREFIX}-pod")
            if slice_ not in slices or is_own or unit.transient:
                continue
            self._stranded = True
            world.on_note(
                f"{unit.name} has Slice={slice_} from a file that podslice has not written: without"
                f" pod {slices[slice_]} it starts without limits; see: systemctl{world.manager.flag}"
                f" cat {unit.name}"
            )
