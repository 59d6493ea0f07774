"""The adopted services of pods: what changes around an apply or a delete, its lines and its JSON.

A pod with a service that runs is not removed unless the service may be restarted outside of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from podslice.cli.manual_log import ManualLog
from podslice.cli.output import OutputFormat, emit
from podslice.cli.views import documents
from podslice.cli.views.documents import Document
from podslice.cli.views.layout import fold, fold_with_head
from podslice.cli.views.style import Display, Role
from podslice.errors import HostError
from podslice.features.run.service_adoption import (
    PlacedService,
    ServiceAction,
    outdated_services,
    release,
    restart_due,
    update_services,
)
from podslice.model.desired import PodDecision
from podslice.model.event import Kind
from podslice.model.naming import SCOPE_PREFIX, podman_service
from podslice.model.unit import Manager, UnitName
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.world import LiveWorld
from podslice.store.adopted_services import AdoptedService, by_pod, drop_in_path, read_adopted


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


def log_services(log: ManualLog, services: Sequence[PlacedService]) -> None:
    """Log the drop-ins that were written or removed."""
    for each in services:
        service = each.service
        if each.action is ServiceAction.WRITTEN:
            kind, did = Kind.SERVICE_ADOPTED, "wrote"
        elif each.action is ServiceAction.REMOVED:
            kind, did = Kind.SERVICE_RELEASED, "removed"
        else:
            continue
        text = f"{did} {each.path}: {service.unit} starts in {each.slice}"
        log.report(kind, text, pod=service.pod, unit=service.unit)


def emit_services(
    services: Sequence[PlacedService],
    manager: Manager,
    output: OutputFormat,
    *,
    with_text: bool = False,
) -> int:
    """Print services, `with_text` with their drop-ins, and return the exit code."""
    emit(
        output,
        document=lambda: documents.document(services=documents.listed(services, service_document)),
        lines=lambda display: service_lines(services, manager.flag, display, with_text=with_text),
        names=lambda: [each.service.unit for each in services],
    )
    return int(any(each.error for each in services))


_HANGING = "    "


def service_lines(
    services: Iterable[PlacedService], flag: str, display: Display, *, with_text: bool = False
) -> Iterator[str]:
    """Yield what was done to services, and what is left to do; `with_text` with the drop-ins.

    `flag` is the option of a user's service manager, after a space.
    """
    for each in services:
        yield from fold(_change(each), display, hanging=_HANGING)
        if with_text:
            yield from (f"{_HANGING}{line}".rstrip() for line in each.service.text.split("\n")[:-1])
        text, role = _state(each, flag)
        if with_text and not text and not each.runs_in:
            text = f"{each.service.unit} is not running"
        if text:
            yield from fold(text, display, hanging=_HANGING, role=role)


def planned_lines(planned: Iterable[PlannedDropIn], display: Display) -> Iterator[str]:
    """Yield what would be done to the drop-ins of services."""
    for each in planned:
        service = each.service
        place = f"{service.unit} would start in {service.slice}, pod {service.pod}"
        if each.action is ServiceAction.REMOVED:
            text = f"would remove {each.path}: pod {service.pod} is removed"
            yield from fold_with_head(text, "would remove", Role.ERROR, display)
        else:
            text = f"would write {each.path}: {place}"
            yield from fold_with_head(text, "would write", Role.WARNING, display)


def services_document(services: Sequence[PlacedService] | Sequence[PlannedDropIn]) -> Document:
    """Return the part of a plan or a report on adopted services, where there are some."""
    if not services:
        return {}

    shown = [
        service_document(each) if isinstance(each, PlacedService) else planned_document(each)
        for each in services
    ]
    return {"changed": True, "services": shown}


def planned_document(each: PlannedDropIn) -> Document:
    """Return a drop-in that would be changed for programs."""
    text = each.service.text if each.action is ServiceAction.WRITTEN else None
    return _drop_in_document(each, text=text, slice_=each.service.slice)


def _change(each: PlacedService) -> str:
    service = each.service
    place = f"{service.unit} starts in {each.slice}"
    if each.action is ServiceAction.REMOVED:
        return f"removed {each.path}: {place}"
    place = f"{place}, pod {service.pod}, as container {service.container}"
    if each.action is ServiceAction.NONE:
        return f"{each.path} is as it should be: {place}"
    return f"wrote {each.path}: {place}"


def _state(each: PlacedService, flag: str) -> tuple[str, Role | None]:
    """Return where a service runs, if that is not certain."""
    unit = each.service.unit
    again = f"systemctl{flag} restart {unit}"
    if each.error:
        return f"failed to restart {unit}: {each.error}; to try again: {again}", Role.ERROR
    if each.is_due:
        where = each.runs_in.removesuffix(f"/{unit}") or "/"
        text = f"{unit} runs in {where} until it is restarted: {again}"
        return text, Role.WARNING
    if each.is_restarted:
        return f"restarted {unit}", None
    return "", None


def service_document(each: PlacedService) -> Document:
    """Return a service for programs."""
    return {
        **_drop_in_document(each, text=each.service.text, slice_=each.slice),
        "control_group": each.runs_in or None,
        "restart_due": each.is_due,
        "restarted": each.is_restarted,
        "error": each.error or None,
    }


def _drop_in_document(
    each: PlacedService | PlannedDropIn, *, text: str | None, slice_: str
) -> Document:
    """Return a service with its drop-in, which was changed or would be."""
    return {
        "unit": each.service.unit,
        "pod": each.service.pod,
        "container": each.service.container,
        "drop_in": each.path,
        "text": text,
        "action": each.action.value,
        "slice": slice_,
    }
