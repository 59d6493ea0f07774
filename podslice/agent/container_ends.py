"""Records the ends of containers without a parent that does it, and reports failures and restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple, NoReturn

from podslice.agent.context import AgentContext
from podslice.agent.oom_kills import OomdMonitor
from podslice.errors import FORMAT_ERRORS, HostError, SystemdError, printable
from podslice.kernel.files import read_present
from podslice.model.container_exit import OOM_KILL, UNKNOWN, ContainerExit, exit_of_runtime
from podslice.model.desired import ContainerDecision, PodDecision
from podslice.model.event import Kind
from podslice.model.naming import SCOPE_PREFIX, podman_service, service_name
from podslice.model.unit import TOP_SLICE, ObservedUnit, UnitKind, UnitName, parent_slice
from podslice.reconcile.assess import Assessment
from podslice.reconcile.observe import control_group
from podslice.store.adopted_services import AdoptedService, read_adopted
from podslice.store.histories import save_observed_end, save_oomd_kill
from podslice.systemd.client import Client
from podslice.usage.location import PodService, observe_adopted, observe_placed
from podslice.usage.runtimes import podman_storage

_FAILED = "failed"
_UNKNOWN_MAX = 1000
"""Services with exits to keep, of which most are not in pods."""


class _Running(NamedTuple):
    """The running containers of a pod, and the OOM kills in it so far."""

    containers: frozenset[str]
    oom_kills: int


_NONE = _Running(containers=frozenset(), oom_kills=0)


class _Service(NamedTuple):
    """A service in a pod, as it was observed last."""

    pod: PodDecision
    container: str
    unit: ObservedUnit
    last_exit: ContainerExit | None = None
    """The last known exit of its main process, also while it runs again."""
    stated_exit: ContainerExit | None = None
    """The exit that was stated as the reason of a restart."""


class ContainerEnds:
    """Notices containers whose unit is gone, has failed or was restarted since the last round."""

    def __init__(self, context: AgentContext, oomd: OomdMonitor) -> None:
        """`oomd` has followed the containers in this round."""
        self._context = context
        self._oomd = oomd
        self._running: Mapping[str, _Running] = {}
        """By the uids of their pods."""
        self._services: dict[UnitName, _Service] | None = None
        """None before the first round."""
        self._exits: dict[UnitName, list[ContainerExit]] = {}
        """The exits of services since the last round that had the service, in order."""
        self._noticed: set[UnitName] = set()
        self._due: set[UnitName] = set()
        """The units that were noticed before the round began."""
        self._handled: dict[tuple[str, str], int] = {}
        """The start whose end was handled, by the uid of the pod and the container."""

    def notice(self, name: UnitName) -> None:
        """Have `follow` look for the end of a unit that has changed.

        A container may start and end between two rounds.
        """
        self._noticed.add(name)

    def notice_exit(self, name: UnitName, last: ContainerExit) -> None:
        """Keep an exit of a service, which may run again when it is observed."""
        exits = self._exits.setdefault(name, [])
        if last not in exits:
            exits.append(last)

    def begin(self) -> None:
        """Begin a round, whose assessment is newer than what was noticed until now."""
        self._due |= self._noticed
        self._noticed = set()

    def follow(self, others: Iterable[PodService] = ()) -> None:
        """Handle the ends since the last call; ends of removed pods are ignored.

        `others` are the services of other programs in pods.
        """
        assessment = self._context.assessment
        if assessment is None:
            return
        before, self._running = self._running, self._observe(assessment)
        earlier = self._services
        self._services = {
            name: self._with_exit(service, (earlier or {}).get(name))
            for name, service in _services(assessment, others)
        }
        if earlier is None:
            self._handle_earlier(assessment)
        left: set[UnitName] = set()
        for pod in assessment.desired.pods if before or self._due else ():
            left |= self._follow_pod(pod, before.get(pod.pod.uid), assessment)
        self._due = left
        if self._handled:
            uids = {pod.pod.uid for pod in assessment.desired.pods}
            self._handled = {key: at for key, at in self._handled.items() if key[0] in uids}
        if earlier is not None:
            for name, service in list(self._services.items()):
                if self._compare(service, earlier.get(name)):
                    self._services[name] = service._replace(stated_exit=service.last_exit)
        # a service that is not known to be in a pod may be found there
        unknown = {} if len(self._exits) > _UNKNOWN_MAX else self._exits
        self._exits = {name: each for name, each in unknown.items() if name not in self._services}

    def report_crash(
        self, pod: PodDecision, container: str, last: ContainerExit, *, unit: UnitName
    ) -> None:
        """Report the crash of a container of a runtime, unless its pod is being stopped."""
        if not self._is_leaving(pod):
            self._report_failure(pod, container, last, unit=unit)

    def _handle_earlier(self, assessment: Assessment) -> None:
        """Leave out the ends before the first round."""
        self._due.clear()
        for pod in assessment.desired.pods:
            uid = pod.pod.uid
            for name, history in self._context.world.store.histories(uid).items():
                if history.has_ended:
                    self._handled[uid, name] = history.started_usec

    def _follow_pod(
        self, pod: PodDecision, was: _Running | None, assessment: Assessment
    ) -> set[UnitName]:
        """Handle the ends in a pod; return the noticed units whose end is not recorded yet."""
        uid = pod.pod.uid
        noticed = {each.name: found for each in pod.scopes if (found := self._due & _units(each))}
        before = was.containers if was else frozenset()
        ended = (before | noticed.keys()) - self._running.get(uid, _NONE).containers
        if not ended:
            return set()
        is_oom = was is not None and self._count_oom_kills(pod, assessment) > was.oom_kills
        left: set[UnitName] = set()
        for container in sorted(ended):
            if container in before:
                self._record(uid, container, is_oom=is_oom)
            if not self._handle_end(pod, container):
                left |= noticed.get(container, set())
        return left

    def _record(self, uid: str, container: str, *, is_oom: bool) -> None:
        is_oomd = self._oomd.take(uid, container)
        store = self._context.world.store
        history = store.histories(uid).get(container)
        if history is None or (history.has_ended and not is_oomd):
            return
        try:
            path = store.end_path(uid, container, history.started_usec)
            if is_oomd:
                save_oomd_kill(path)
            else:
                save_observed_end(path, OOM_KILL if is_oom else UNKNOWN)
        except HostError as error:
            self._context.events.note(f"the end of {container} could not be recorded: {error}")

    def _handle_end(self, pod: PodDecision, container: str) -> bool:
        """Report the end of a container whose unit is gone, if it has failed.

        Return whether its record is complete: `podslice run` writes that of the start last.
        """
        key = (pod.pod.uid, container)
        history = self._context.world.store.histories(pod.pod.uid).get(container)
        if history is None or not history.has_ended:
            return False
        if self._handled.get(key) == history.started_usec:
            return False
        self._handled[key] = history.started_usec
        last = history.last_exit
        if last is not None and last.is_failure and not self._is_leaving(pod):
            scope = next(each.scope for each in pod.scopes if each.name == container)
            self._report_failure(pod, container, last, unit=service_name(scope))
        return True

    def _compare(self, now: _Service, had: _Service | None) -> bool:
        """Report what has happened to a service that is loaded; return whether it was restarted."""
        was_failed = had is not None and had.unit.active_state == _FAILED
        new = self._new_exits(now, had)
        has_failed = now.unit.active_state == _FAILED and (not was_failed or bool(new))
        if had is None and now.unit.main_exit is not None and not new:
            has_failed = False
        restarts = now.unit.restarts > had.unit.restarts if had else bool(new and now.unit.restarts)
        failures = [each for each in new if each.is_oom or each.is_oomd]
        if not (failures or has_failed or restarts) or self._is_leaving(now.pod):
            return False
        if has_failed and now.unit.main_exit not in failures:
            self._report_failure(now.pod, now.container, now.unit.main_exit, unit=now.unit.name)
        for each in failures:
            self._report_failure(now.pod, now.container, each, unit=now.unit.name)
        if restarts:
            self._report_restart(now)
        return restarts

    def _with_exit(self, now: _Service, had: _Service | None) -> _Service:
        """Return a service with its last known exit."""
        exits = self._exits_of(now)
        before, stated = (had.last_exit, had.stated_exit) if had else (None, None)
        last = now.unit.main_exit or (exits[-1] if exits else before)
        return now._replace(last_exit=last, stated_exit=stated)

    def _exits_of(self, service: _Service) -> list[ContainerExit]:
        """Return the exits since the last round; the records of `podslice run` have its exits."""
        is_recorded = service.unit.transient and service.container != service.unit.name
        return [] if is_recorded else list(self._exits.get(service.unit.name, ()))

    def _new_exits(self, now: _Service, had: _Service | None) -> list[ContainerExit]:
        """Return the exits since the last round, in order."""
        exits = self._exits_of(now)
        if had is None:
            return exits  # without a signal, it was before the service was in the pod
        if now.unit.main_exit is not None and now.unit.main_exit not in exits:
            exits.append(now.unit.main_exit)
        return [each for each in exits if each != had.last_exit]

    def _report_failure(
        self, pod: PodDecision, container: str, last: ContainerExit | None, *, unit: UnitName
    ) -> None:
        is_killed = last is not None and (last.is_oom or last.is_oomd)
        cause = last.cause or last.result if last else "its service has failed"
        how = "was killed for lack of memory" if is_killed else "has failed"
        self._context.events.report(
            Kind.CONTAINER_OOM_KILLED if is_killed else Kind.CONTAINER_FAILED,
            f"container {container} of pod {pod.pod.key} {how}: {cause}",
            pod=pod.pod.key,
            unit=unit,
            fields={"CONTAINER": container, **_fields(last)},
        )

    def _report_restart(self, service: _Service) -> None:
        unit, key = service.unit, service.pod.pod.key
        last = service.last_exit if service.last_exit != service.stated_exit else None
        after = f" after {last.cause}" if last and last.cause else ""
        count = "1 restart" if unit.restarts == 1 else f"{unit.restarts} restarts in a row"
        self._context.events.report(
            Kind.CONTAINER_RESTARTED,
            f"container {service.container} of pod {key} was restarted{after}: {count}",
            pod=key,
            unit=unit.name,
            fields={
                "CONTAINER": service.container,
                "RESTARTS": str(unit.restarts),
                **_fields(last),
            },
        )

    def _is_leaving(self, pod: PodDecision) -> bool:
        """Return whether a pod is being stopped, by the agent or by a verb."""
        if pod.pod.uid in self._context.terminating.in_progress:
            return True
        changes = self._context.world.store.manual_changes.load()
        return any(pod.pod.key in each.pods and not each.is_over for each in changes)

    def _observe(self, assessment: Assessment) -> dict[str, _Running]:
        """Return the pods with running containers."""
        units = assessment.observed.units
        found = {}
        for pod in assessment.desired.pods:
            running = [
                each.name
                for each in pod.scopes
                if each.scope in units or service_name(each.scope) in units
            ]
            if running:
                kills = self._count_oom_kills(pod, assessment)
                found[pod.pod.uid] = _Running(containers=frozenset(running), oom_kills=kills)
        return found

    def _count_oom_kills(self, pod: PodDecision, assessment: Assessment) -> int:
        group = control_group(pod.slice, assessment.observed)
        return self._context.world.cgroups.events(group).get("oom_kill", 0)


def _units(container: ContainerDecision) -> set[UnitName]:
    """Return the units that a container may have."""
    return {container.scope, service_name(container.scope)}


def _services(
    assessment: Assessment, others: Iterable[PodService]
) -> Iterator[tuple[UnitName, _Service]]:
    """Yield the services in pods."""
    units = assessment.observed.units
    pods = {pod.pod.key: pod for pod in assessment.desired.pods}
    for pod in pods.values():
        for container in pod.scopes:
            name = service_name(container.scope)
            if name in units:
                yield name, _Service(pod=pod, container=container.name, unit=units[name])
    for each in others:
        if each.pod in pods:
            name = each.unit.name
            yield name, _Service(pod=pods[each.pod], container=each.container, unit=each.unit)


def _fields(last: ContainerExit | None) -> dict[str, str]:
    """Return the values of an exit for programs."""
    if last is None:
        return {}
    status = last.signal if last.exit_code is None else str(last.exit_code)
    return {"RESULT": last.result, **({"EXIT_STATUS": status} if status else {})}


_ID = frozenset("0123456789abcdef")
_ID_CHARS = 64
_BYTES_MAX = 4 * 2**20


class PodmanExits:
    """Handles the exits of podman's containers that are not in services.

    conmon writes the exit code of a container to a file with its id as soon as the container has
    ended, and podman removes the file afterwards.

    Source: conmon(8), --exit-dir and --persist-dir; podman 5.4, libpod/oci_conmon_common.go.
    """

    def __init__(
        self, context: AgentContext, ends: ContainerEnds, on_exit: Callable[[], None], root: Path
    ) -> None:
        """`on_exit` is called when a container has crashed, which `follow` is to report."""
        self._context = context
        self._ends = ends
        self._on_exit = on_exit
        self._root = root
        self._crashes: list[tuple[str, ContainerExit]] = []
        """The crashes of containers that may be in pods, by their ids."""

    def notice(self, name: str) -> None:
        """Read a file that conmon has written, before podman removes it."""
        if len(name) != _ID_CHARS or not _ID.issuperset(name):
            return
        manager = self._context.world.manager
        directory = self._root / manager.podman_exits_directory.lstrip("/")
        with suppress(OSError, ValueError):
            content = read_present(directory / name, limit_bytes=_BYTES_MAX)
            places = (directory.parent / "persist" / name, *self._places(f"{name}/userdata"))
            is_oom = any((place / "oom").exists() for place in places)
            crash = exit_of_runtime(int(content or b""), is_oom=is_oom)
            if crash is not None and crash.is_failure:
                self._crashes.append((name, crash))
                self._on_exit()

    def follow(self) -> None:
        """Report the crashes of containers in pods."""
        crashes, self._crashes = self._crashes, []
        assessment = self._context.assessment
        if assessment is None or not crashes:
            return
        pods = {pod.slice: pod for pod in assessment.desired.pods}
        for id_, crash in crashes:
            pod = self._find_pod(id_, pods)
            if pod is not None:
                unit = UnitName(f"libpod-{id_}.scope")
                self._ends.report_crash(pod, self._find_name(id_), crash, unit=unit)

    def _find_pod(self, id_: str, pods: Mapping[UnitName, PodDecision]) -> PodDecision | None:
        """Return the pod in whose slice a container was started, also below a podman pod's."""
        for place in self._places(f"{id_}/userdata/config.json"):
            slice_, _, rest = _read_group(place).partition(":")
            while rest and slice_.endswith(".slice") and slice_ != TOP_SLICE:
                if slice_ in pods:
                    return pods[UnitName(slice_)]
                slice_ = parent_slice(UnitName(slice_))
        return None

    def _find_name(self, id_: str) -> str:
        """Return the name of a container; its short id if it was removed.

        Source: containers/storage, containers.go, containers.json and volatile-containers.json.
        """
        for place in self._places("*containers.json"):
            with suppress(OSError, *FORMAT_ERRORS):
                for each in json.loads(read_present(place, limit_bytes=_BYTES_MAX) or b"[]"):
                    if each["id"] == id_ and each["names"]:
                        return printable(str(each["names"][0]))
        return id_[:12]

    def _places(self, path: str) -> list[Path]:
        """Return the existing paths below the containers of any storage driver."""
        return sorted(podman_storage(self._root).glob(f"*-containers/{path}"))


def _read_group(path: Path) -> str:
    """Return the `cgroupsPath` of a container's configuration; empty if it cannot be read.

    Source: OCI runtime specification, config-linux.md, Control groups.
    """
    with suppress(OSError, *FORMAT_ERRORS):
        found = json.loads(read_present(path, limit_bytes=_BYTES_MAX) or b"{}")
        return str(found["linux"]["cgroupsPath"])
    return ""


_SERVICE = f".{UnitKind.SERVICE}"
_CONTAINER = f"{SCOPE_PREFIX}-pod"
_ELSEWHERE_MAX = 4096
"""Names of services outside of pods to keep; transient ones have new names at each start."""


class ServicesInPods:
    """Keeps the services of other programs in pods as systemd has them.

    An adopted service has a drop-in of podslice. Another one is found when systemd signals a change
    of it, or by its control group.
    """

    def __init__(self, context: AgentContext, client: Client, on_found: Callable[[], None]) -> None:
        """`client` has no cache; `on_found` is called when a service is found in a pod."""
        self._context = context
        self._client = client
        self._on_found = on_found
        self.services: tuple[PodService, ...] = ()
        """As of the last round."""
        self._adopted: tuple[AdoptedService, ...] = ()
        self._pods: dict[UnitName, PodDecision] = {}
        """By their slices."""
        self._placed: frozenset[UnitName] = frozenset()
        """The services that state the slice of a pod."""
        self._elsewhere: set[UnitName] = set()
        self._unknown: set[UnitName] = set()
        self._has_unknown = asyncio.Event()
        self._is_stale = True

    @property
    def names(self) -> frozenset[UnitName]:
        """Return the names of the services."""
        return self._placed.union(each.unit for each in self._adopted)

    def notice(self, name: UnitName | None) -> None:
        """Observe a service again that has changed; with None any may have changed."""
        if name is None:
            self._is_stale = True
            self._elsewhere.clear()
        elif name in self.names:
            self._is_stale = True
        elif self.may_have(name):
            self._look_for([name])

    def may_have(self, name: UnitName) -> bool:
        """Return whether a service is in a pod, or may be found in one."""
        if name in self.names:
            return True
        return bool(self._pods) and name not in self._elsewhere and _may_be_placed(name)

    async def run(self) -> NoReturn:
        """Find out which of the unknown services are in pods."""
        while True:
            await self._has_unknown.wait()
            self._has_unknown.clear()
            names, self._unknown = self._unknown, set()
            try:
                found = await observe_placed(self._client, self._pods.values(), names)
            except SystemdError:
                continue  # after a lost connection any service may have changed
            own = {podman_service(pod.pod.key) for pod in self._pods.values()}
            placed = {each.unit.name for each in found} - own - self.names
            if len(self._elsewhere) > _ELSEWHERE_MAX:
                self._elsewhere.clear()
            self._elsewhere |= names - placed
            if placed:
                self._placed |= placed
                self._is_stale = True
                self._on_found()

    async def follow(self) -> None:
        """Observe the services after an assessment, where they may have changed."""
        assessment = self._context.assessment
        if assessment is None:
            return
        before, self._pods = self._pods, {pod.slice: pod for pod in assessment.desired.pods}
        if self._pods.keys() != before.keys():
            self._is_stale = True
        if new := self._pods.keys() - before.keys():
            self._elsewhere.clear()
            groups = (control_group(slice_, assessment.observed) for slice_ in new)
            self._look_for(name for group in groups for name in self._running_in(group))
        try:
            await self._observe()
        except (HostError, SystemdError) as error:
            self._is_stale = True
            self._context.status.fail("services", str(error))
        else:
            self._context.status.recover("services")

    async def _observe(self) -> None:
        keys = {pod.pod.key for pod in self._pods.values()}
        adopted = read_adopted(self._context.world.manager) if keys else ()
        adopted = tuple(each for each in adopted if each.pod in keys)
        if adopted == self._adopted and not self._is_stale:
            return
        self._adopted, self._is_stale = adopted, False
        others = self._placed.difference(each.unit for each in adopted)
        placed = await observe_placed(self._client, self._pods.values(), others)
        self._placed -= others.difference(each.unit.name for each in placed)
        self.services = (*await observe_adopted(self._client, adopted), *placed)

    def _look_for(self, names: Iterable[UnitName]) -> None:
        self._unknown.update(names)
        if self._unknown:
            self._has_unknown.set()

    def _running_in(self, group: str) -> Iterable[UnitName]:
        """Return the services with processes in a pod that podslice has not started."""
        cgroups = self._context.world.cgroups
        for each in cgroups.processes(group) if cgroups.exists(group) else ():
            name = PurePosixPath(each).relative_to(group).parts[:1]
            if name and _may_be_placed(name[0]):
                yield UnitName(name[0])


def _may_be_placed(name: str) -> bool:
    """Return whether a unit is a service that podslice has not started."""
    return name.endswith(_SERVICE) and not name.startswith(_CONTAINER)
