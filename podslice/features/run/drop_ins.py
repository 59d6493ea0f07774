"""The drop-ins of adopted services: what they state, and what changes around an apply or a delete.

A running service keeps its control group until it is restarted. A pod with a service that runs is not
removed unless the service may be restarted outside of it.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import ClassVar, Literal

from podslice.cli.views.runtime_options import Parent, drop_in
from podslice.errors import HostError, Severity, SystemdError
from podslice.model.desired import PodDecision
from podslice.model.event import Kind
from podslice.model.naming import SCOPE_PREFIX, podman_service
from podslice.model.unit import Manager, UnitName, control_group_of
from podslice.plan import Action, PodStep, PodSteps
from podslice.reconcile.assess import Assessment
from podslice.reconcile.extension import Extension, PodRequest
from podslice.reconcile.report import PodResult
from podslice.reconcile.world import LiveWorld, World
from podslice.store.adopted_services import (
    SECTION,
    AdoptedService,
    by_pod,
    drop_in_path,
    read_adopted,
    remove_drop_in,
    write_drop_in,
)
from podslice.usage.health import HealthKind, pod_problem, podslice_command

_Done = Literal["written", "removed", "none"]
_ACTIONS: dict[Action, _Done] = {Action.WRITE: "written", Action.REMOVE: "removed"}


@dataclass(frozen=True, kw_only=True)
class ServiceEntry:
    """The drop-in of a service, which a step would write or remove."""

    unit: str
    pod: str
    container: str
    drop_in: str
    """Its path."""
    text: str | None
    action: _Done
    slice: str
    """The slice that the next start uses."""


@dataclass(frozen=True, kw_only=True)
class ServiceResult(ServiceEntry):
    """The same after the step, with the service."""

    control_group: str | None
    """The control group of its processes; None if it does not run."""
    restart_due: bool
    restarted: bool
    error: str | None


ServiceEntries, ServiceResults = tuple[ServiceEntry, ...], tuple[ServiceResult, ...]
"""The changes of drop-ins in a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropIn(PodStep):
    """The drop-in of a service that is written or removed, and the service once that is done."""

    section: ClassVar[str] = "services"
    is_counted: ClassVar[bool] = False
    service: AdoptedService
    """With the drop-in that is written or removed."""
    flag: str
    """The option of a user's service manager, after a space."""
    is_changed: bool = True
    """False: the file is as requested already."""
    slice: str = ""
    """The slice that the next start uses."""
    runs_in: str = ""
    """The control group of its processes; empty if it does not run."""
    is_due: bool = False
    """Whether it runs with other settings than its next start."""
    is_restarted: bool = False

    @property
    def is_end(self) -> bool:
        """Whether the service leaves its pod."""
        return self.action is Action.REMOVE

    @property
    def event(self) -> tuple[Kind, str] | None:
        """The adoption, or the release."""
        if not self.is_changed:
            return None
        text = f"{self.path}: {self.name} starts in {self.slice}"
        if self.action is Action.REMOVE:
            return Kind.SERVICE_RELEASED, f"removed {text}"
        return Kind.SERVICE_ADOPTED, f"wrote {text}"

    @property
    def planned_subject(self) -> str:
        """What would become of the service."""
        if self.action is Action.REMOVE:
            return f"{self.path}: pod {self.pod} is removed"
        return f"{self.path}: {self.name} would start in {self.service.slice}, pod {self.pod}"

    @property
    def subject(self) -> str:
        """What has become of the service."""
        return f"{self.path}: {self.place}"

    @property
    def place(self) -> str:
        """Where the service starts."""
        text = f"{self.name} starts in {self.slice}"
        if self.action is Action.REMOVE:
            return text
        return f"{text}, pod {self.pod}, as container {self.service.container}"

    def describe_rest(self, error: str) -> tuple[str, Severity | None]:
        """Describe where the service runs, if that is not certain."""
        again = f"systemctl{self.flag} restart {self.name}"
        if error:
            text = f"failed to restart {self.name}: {error}; to try again: {again}"
            return text, Severity.ERROR
        if self.is_due:
            where = self.runs_in.removesuffix(f"/{self.name}") or "/"
            return f"{self.name} runs in {where} until it is restarted: {again}", Severity.WARNING
        return (f"restarted {self.name}" if self.is_restarted else ""), None

    def entry(self) -> ServiceEntry:
        """Return the change of the drop-in."""
        return ServiceEntry(
            unit=self.name,
            pod=self.pod,
            container=self.service.container,
            drop_in=self.path,
            text=None if self.action is Action.REMOVE else self.service.text,
            action=_ACTIONS[self.action] if self.is_changed else "none",
            slice=self.slice or self.service.slice,
        )

    def result(self, outcome: str, error: str) -> ServiceResult:
        """Return the service after the step."""
        return ServiceResult(
            **{**vars(self.entry()), "text": self.service.text},
            control_group=self.runs_in or None,
            restart_due=self.is_due,
            restarted=self.is_restarted,
            error=error or None,
        )


def make_step(action: Action, service: AdoptedService, manager: Manager) -> DropIn:
    """Return the step that writes or removes the drop-in of a service."""
    return DropIn(
        action=action,
        pod=service.pod,
        name=service.unit,
        path=str(drop_in_path(service.unit, manager)),
        service=service,
        flag=manager.flag,
    )


def make_service(
    pod: PodDecision, unit: UnitName, container: str, manager: Manager
) -> AdoptedService:
    """Return a service with the drop-in that it should have in a pod."""
    of = next((each for each in pod.scopes if each.name == container), None)
    lines = (
        "# Written by podslice adopt, and again by podslice apply when the pod changes.",
        f"# To remove it: podslice release{manager.flag} {unit}",
        f"[{SECTION}]",
        f"Pod={pod.pod.key}",
        f"Container={container}",
        "",
        *drop_in(Parent(pod=pod, container=of, manager=manager)),
    )
    return AdoptedService(
        unit=unit,
        pod=pod.pod.key,
        container=container,
        slice=pod.slice,
        text="".join(f"{each}\n" for each in lines),
    )


def outdated_services(
    adopted: Iterable[AdoptedService], pods: Iterable[PodDecision], manager: Manager
) -> list[AdoptedService]:
    """Return the services whose drop-ins are not those of their pods, with the right drop-ins.

    A pod whose record is lost has no containers, and its services stay as they are.
    """
    present = by_pod(adopted)
    return [
        service
        for pod in pods
        for each in (present.get(pod.pod.key, ()) if pod.scopes else ())
        if (service := make_service(pod, each.unit, each.container, manager)) != each
    ]


async def find_health(world: LiveWorld, assessment: Assessment) -> Mapping[str, object]:
    """Return the drop-ins that an apply would write again, for `podslice status`."""
    adopted = read_adopted(world.manager)
    command = podslice_command("apply", world.manager.flag)
    return {
        "drop_ins": tuple(
            pod_problem(
                HealthKind.DROP_IN,
                each.pod,
                f"{each.unit} does not start with the slice and the limits of the pod:"
                f" {drop_in_path(each.unit, world.manager)}",
                f"to write it again: {shlex.join(command)}",
                command,
            )
            for each in outdated_services(adopted, assessment.desired.pods, world.manager)
        )
    }


async def change(world: LiveWorld, steps: Sequence[DropIn]) -> list[DropIn]:
    """Write and remove drop-ins, and let systemd read the files; return the services then.

    Raises:
        HostError: a file cannot be written or removed.
        SystemdError: systemd could not read the files.
    """
    changed = [each for each in steps if each.is_changed]
    for each in changed:
        if each.action is Action.WRITE:
            write_drop_in(each.service, world.manager)
        else:
            remove_drop_in(each.service.unit, world.manager)
    if changed:
        await world.client.reload()
    return [await observe(world, each) for each in steps]


async def observe(world: LiveWorld, step: DropIn) -> DropIn:
    """Return a service as systemd has it."""
    now = await world.client.read_definition(step.service.unit)
    due = world.manager.path_of(control_group_of(UnitName(now.slice)))
    runs_in = now.control_group if now.is_running else ""
    is_due = bool(runs_in) and str(PurePosixPath(runs_in).parent) != str(PurePosixPath(due))
    return replace(step, slice=now.slice, runs_in=runs_in, is_due=is_due)


async def restart(world: LiveWorld, step: DropIn) -> tuple[DropIn, str]:
    """Restart a service if that is due; return it as it is then, and the error.

    The lock is not held if it has a drop-in of podslice: a start pulls in podslice-apply.service,
    which takes it.
    """
    if not step.is_due:
        return step, ""
    try:
        await world.client.restart(step.service.unit)
    except SystemdError as error:
        return step, str(error)
    return replace(await observe(world, step), is_restarted=True), ""


class ServiceChanges(Extension):
    """The services of the pods that an apply or a delete changes."""

    section = DropIn.section

    def __init__(self, world: World, request: PodRequest) -> None:
        self._world = world
        self._request = request
        self._is_stranded = False
        """Whether services start in removed slices by other means."""

    @property
    def _live(self) -> LiveWorld:
        assert isinstance(self._world, LiveWorld)  # noqa: S101 - only a plan needs no systemd
        return self._world

    async def check(self, assessment: Assessment) -> None:
        """Refuse the removal of pods with services that run, unless these may be restarted."""
        services = by_pod(read_adopted(self._world.manager))
        removed = sorted(self._removed(assessment, services))
        leaving = [each for key in removed for each in services.get(key, ())]
        if not self._request.may_restart:
            await self._refuse_running(leaving)
        gone = {pod.key for pod in assessment.current}
        gone -= {pod.pod.key for pod in assessment.desired.pods}
        if gone:
            await self._note_others(assessment, gone, leaving)

    async def plan(self, assessment: Assessment, failed: Collection[str] | None = None) -> PodSteps:
        """Return the steps on the drop-ins of removed and of changed pods.

        They precede the change of slices: when a slice is stopped, systemd stops the services that
        start in it, and cancels their starts.
        """
        manager = self._world.manager
        adopted = read_adopted(manager) if isinstance(self._world, LiveWorld) else ()
        if not adopted or failed is not None:
            return PodSteps()
        removed = self._removed(assessment, by_pod(adopted))
        outdated = outdated_services(adopted, assessment.desired.pods, manager)
        return PodSteps(
            before=(
                *(
                    make_step(Action.REMOVE, each, manager)
                    for each in adopted
                    if each.pod in removed
                ),
                *(make_step(Action.WRITE, each, manager) for each in outdated),
            )
        )

    def _removed(self, assessment: Assessment, services: Collection[str]) -> set[str]:
        """Return the pods that are removed; an evicted pod keeps its services, for its return."""
        if self._request.named is None:
            return {*services}
        present = {pod.pod.key for pod in assessment.desired.pods}
        present |= {mark.pod for mark in assessment.evicted}
        gone = {pod.key for pod in assessment.current if pod.key not in present}
        return gone.union(self._request.named)

    async def act(self, steps: Sequence[PodStep]) -> AsyncGenerator[PodResult, None]:
        """Change the drop-ins, and restart the services that leave their pods."""
        placed = await change(self._live, [each for each in steps if isinstance(each, DropIn)])
        results = [PodResult(step=each) for each in placed]
        try:
            for number, step in enumerate(placed):
                # without a drop-in nothing that takes the lock is started before the service
                if step.action is Action.REMOVE:
                    now, error = await restart(self._live, step)
                    results[number] = PodResult(step=now, error=error)
        finally:  # after an interruption, too: the drop-ins have changed
            for result in results:
                yield result

    async def finish(self) -> None:
        """Let systemd forget removed slices in which services start by other means."""
        if self._is_stranded:
            await self._live.client.reload()

    async def _refuse_running(self, leaving: Iterable[AdoptedService]) -> None:
        flag, running = self._world.manager.flag, []
        for each in leaving:
            found = await self._live.client.read_definition(each.unit)
            # One that was not restarted since its adoption still runs elsewhere, and may go on.
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

    async def _note_others(
        self, assessment: Assessment, gone: Collection[str], leaving: Iterable[AdoptedService]
    ) -> None:
        """Note the services that are in slices of removed pods by other means than `adopt`."""
        world = self._live
        tree = world.tree
        slices = {
            slice_: pod.key
            for pod in assessment.current
            if pod.key in gone
            for slice_ in tree.all_of(pod.uid)
        }
        own = {podman_service(key) for key in gone} | {each.unit for each in leaving}
        for unit in await world.client.observe(["*.service"]):
            slice_ = UnitName(str(unit.properties.get("Slice", "")))
            is_own = unit.name in own or unit.name.startswith(f"{SCOPE_PREFIX}-pod")
            if slice_ not in slices or is_own or unit.transient:
                continue
            self._is_stranded = True
            world.on_note(
                f"{unit.name} has Slice={slice_} from a file that podslice has not written: without"
                f" pod {slices[slice_]} it starts without limits; see: systemctl{world.manager.flag}"
                f" cat {unit.name}"
            )
