"""Follows services and containers in pods, and records and reports their ends.

`podslice run` and systemd record the ends of what they started. The others are noticed here: of
adopted processes, of services of other programs, and of podman's containers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple, NoReturn

from podslice.agent.context import AgentContext, AgentPart
from podslice.agent.oom_kills import OomdMonitor
from podslice.errors import FORMAT_ERRORS, HostError, SystemdError, printable
from podslice.kernel.files import read_present
from podslice.model.container_exit import OOM_KILL, UNKNOWN, ContainerExit, exit_of_runtime
from podslice.model.desired import PodDecision
from podslice.model.event import Kind
from podslice.model.naming import SCOPE_PREFIX, podman_service, service_name
from podslice.model.unit import TOP_SLICE, ObservedUnit, UnitKind, UnitName, parent_slice
from podslice.store.adopted_services import AdoptedService, read_adopted
from podslice.store.histories import save_observed_end, save_oomd_kill
from podslice.systemd.client import Client
from podslice.usage.location import PodService, observe_adopted, observe_placed
from podslice.usage.runtimes import podman_storage

_SERVICE = f".{UnitKind.SERVICE}"
_CONTAINER = f"{SCOPE_PREFIX}-pod"
_FAILED = "failed"
_ELSEWHERE_MAX = 4096
"""Names of services outside of pods to keep; transient ones have new names at each start."""
_UNKNOWN_MAX = 1000
"""Services with exits to keep, of which most are not in pods."""


class ServicesInPods(AgentPart):
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
            # podman's service of a pod is the pod, not a container in it
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
        self._is_stale |= self._pods.keys() != before.keys()
        if new := self._pods.keys() - before.keys():
            self._elsewhere.clear()
            self._look_for(name for slice_ in new for name in self._running_in(slice_))
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
        # before the calls: what changes meanwhile makes the result stale again
        self._adopted, self._is_stale = adopted, False
        others = self._placed.difference(each.unit for each in adopted)
        placed = await observe_placed(self._client, self._pods.values(), others)
        self._placed -= others.difference(each.unit.name for each in placed)
        self.services = (*await observe_adopted(self._client, adopted), *placed)

    def _look_for(self, names: Iterable[UnitName]) -> None:
        self._unknown.update(names)
        if self._unknown:
            self._has_unknown.set()

    def _running_in(self, slice_: UnitName) -> Iterator[UnitName]:
        """Yield the services with processes in a pod that podslice has not started."""
        group, cgroups = self._context.group(slice_), self._context.world.cgroups
        for each in cgroups.processes(group) if cgroups.exists(group) else ():
            name = PurePosixPath(each).relative_to(group).parts[:1]
            if name and _may_be_placed(name[0]):
                yield UnitName(name[0])


def _may_be_placed(name: str) -> bool:
    """Return whether a unit is a service that podslice has not started."""
    return name.endswith(_SERVICE) and not name.startswith(_CONTAINER)


class _Service(NamedTuple):
    """A service in a pod, as it was observed last."""

    pod: PodDecision
    container: str
    unit: ObservedUnit
    last_exit: ContainerExit | None = None
    """The last known exit of its main process, also while it runs again."""
    stated_exit: ContainerExit | None = None
    """The exit that was stated as the reason of a restart."""


class ContainerEnds(AgentPart):
    """Notices containers whose unit is gone, has failed or was restarted since the last round."""

    def __init__(self, context: AgentContext, oomd: OomdMonitor, others: ServicesInPods) -> None:
        """`oomd` and `others`, the services of other programs, follow each round before this."""
        self._context = context
        self._oomd = oomd
        self._others = others
        self._running: dict[str, set[str]] | None = None
        """The running containers by the uids of their pods; None before the first round."""
        self._kills: dict[str, int] = {}
        """The OOM kills so far in these pods."""
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

    async def follow(self) -> None:
        """Handle the ends since the last call; ends of removed pods are ignored."""
        if self._context.assessment is not None:
            pods = self._context.assessment.desired.pods
            self._follow_containers(pods)
            self._follow_services({pod.pod.key: pod for pod in pods})

    def report_failure(
        self, pod: PodDecision, container: str, last: ContainerExit | None, unit: UnitName
    ) -> None:
        """Report the failure of a container, unless its pod is being stopped."""
        if self._is_leaving(pod):
            return
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

    def _is_leaving(self, pod: PodDecision) -> bool:
        """Return whether a pod is being stopped, by the agent or by a verb."""
        if pod.pod.uid in self._context.terminating.in_progress:
            return True
        changes = self._context.world.store.manual_changes.load()
        return any(pod.pod.key in each.pods and not each.is_over for each in changes)

    # Containers that have a record: their unit is gone with their processes.

    def _follow_containers(self, pods: Iterable[PodDecision]) -> None:
        context = self._context
        before, kills, running = self._running, self._kills, dict[str, set[str]]()
        for pod, container, _ in context.containers():
            running.setdefault(pod.pod.uid, set()).add(container.name)
        self._running = running
        self._kills = {
            pod.pod.uid: context.oom_kills(pod.slice) for pod in pods if pod.pod.uid in running
        }
        due, self._due = self._due, set()
        if before is None:
            # what has ended before the first round is not reported
            self._handled = {
                (pod.pod.uid, name): history.started_usec
                for pod in pods
                for name, history in context.world.store.histories.read(pod.pod.uid).items()
                if history.has_ended
            }
            return
        for pod in pods:
            uid = pod.pod.uid
            for container in pod.scopes:
                ran, noticed = container.name in before.get(uid, ()), due & {*container.units}
                if container.name in running.get(uid, ()) or not (ran or noticed):
                    continue
                if ran:
                    # The container's count of OOM kills is gone with its control group; the pod's count
                    # includes it.
                    is_oom = context.oom_kills(pod.slice) > kills[uid]
                    self._record(uid, container.name, is_oom=is_oom)
                # The record of this run is not complete yet: the next round looks again.
                if not self._handle_end(pod, container.name, service_name(container.scope)):
                    self._due |= noticed
        uids = {pod.pod.uid for pod in pods}
        self._handled = {key: at for key, at in self._handled.items() if key[0] in uids}

    def _record(self, uid: str, container: str, *, is_oom: bool) -> None:
        """Record the end of a container, unless its parent has; add a kill by systemd-oomd."""
        is_oomd = self._oomd.take(uid, container)
        store = self._context.world.store
        history = store.histories.read(uid).get(container)
        if history is None or (history.has_ended and not is_oomd):
            return
        try:
            path = store.histories.end_path(uid, container, history.started_usec)
            if is_oomd:
                save_oomd_kill(path)
            else:
                save_observed_end(path, OOM_KILL if is_oom else UNKNOWN)
        except HostError as error:
            self._context.events.note(f"the end of {container} could not be recorded: {error}")

    def _handle_end(self, pod: PodDecision, container: str, unit: UnitName) -> bool:
        """Report the end of a container whose unit is gone, if it has failed.

        Return whether its record is complete: `podslice run` writes that of the start last.
        """
        key = (pod.pod.uid, container)
        history = self._context.world.store.histories.read(pod.pod.uid).get(container)
        if history is None or not history.has_ended:
            return False
        if self._handled.get(key) == history.started_usec:
            return False
        self._handled[key] = history.started_usec
        if history.last_exit is not None and history.last_exit.is_failure:
            self.report_failure(pod, container, history.last_exit, unit)
        return True

    # Services, which systemd keeps after they have failed, and starts again.

    def _follow_services(self, pods: Mapping[str, PodDecision]) -> None:
        earlier, self._services = self._services, {}
        found = {
            unit.name: _Service(pod, container.name, unit)
            for pod, container, unit in self._context.containers()
            if unit.name.endswith(_SERVICE)
        }
        for each in self._others.services:
            if each.pod in pods:
                found[each.unit.name] = _Service(pods[each.pod], each.container, each.unit)
        for name, seen in found.items():
            had = earlier.get(name) if earlier else None
            exits = self._exits.pop(name, [])
            if seen.unit.transient and seen.container != name:
                exits = []  # the records of `podslice run` have its exits
            before, stated = (had.last_exit, had.stated_exit) if had else (None, None)
            # systemd forgets the exit when it starts the service again
            last = seen.unit.main_exit or (exits[-1] if exits else before)
            now = seen._replace(last_exit=last, stated_exit=stated)
            is_restarted = earlier is not None and self._compare(now, had, exits)
            self._services[name] = now._replace(stated_exit=last) if is_restarted else now
        # a service that is not known to be in a pod may be found there
        if len(self._exits) > _UNKNOWN_MAX:
            self._exits.clear()

    def _compare(self, now: _Service, had: _Service | None, new: list[ContainerExit]) -> bool:
        """Report what has happened to a service that is loaded; return whether it was restarted.

        `new` are its exits since the last round.
        """
        unit, last = now.unit, now.unit.main_exit
        if had is None:
            # without a signal, an exit was before the service was in the pod
            has_failed = unit.active_state == _FAILED and (last is None or bool(new))
            is_restarted = bool(new) and unit.restarts > 0
        else:
            new = [*new, *([last] if last is not None and last not in new else [])]
            new = [each for each in new if each != had.last_exit]
            was_failed = had.unit.active_state == _FAILED
            has_failed = unit.active_state == _FAILED and (not was_failed or bool(new))
            is_restarted = unit.restarts > had.unit.restarts
        failures = [each for each in new if each.is_oom or each.is_oomd]
        if has_failed and last not in failures:
            self.report_failure(now.pod, now.container, last, unit.name)
        for each in failures:
            self.report_failure(now.pod, now.container, each, unit.name)
        if not is_restarted or self._is_leaving(now.pod):
            return False
        self._report_restart(now)
        return True

    def _report_restart(self, service: _Service) -> None:
        unit, key = service.unit, service.pod.pod.key
        last = service.last_exit if service.last_exit != service.stated_exit else None
        after = f" after {last.cause}" if last and last.cause else ""
        count = "1 restart" if unit.restarts == 1 else f"{unit.restarts} restarts in a row"
        fields = {"CONTAINER": service.container, "RESTARTS": str(unit.restarts), **_fields(last)}
        self._context.events.report(
            Kind.CONTAINER_RESTARTED,
            f"container {service.container} of pod {key} was restarted{after}: {count}",
            pod=key,
            unit=unit.name,
            fields=fields,
        )


def _fields(last: ContainerExit | None) -> dict[str, str]:
    """Return the values of an exit for programs."""
    if last is None:
        return {}
    status = last.signal if last.exit_code is None else str(last.exit_code)
    return {"RESULT": last.result, **({"EXIT_STATUS": status} if status else {})}


_ID = frozenset("0123456789abcdef")
_ID_CHARS = 64
_BYTES_MAX = 4 * 2**20


class PodmanExits(AgentPart):
    """Reports containers of podman in pods that fail, except those in services.

    The agent has no access to podman itself. conmon writes the exit code of a container to a file
    with its id as soon as the container has ended, and podman removes the file afterwards.

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
        # The name becomes a part of paths: a name that no container can have is ignored.
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

    async def follow(self) -> None:
        """Report the crashes of containers in pods."""
        crashes, self._crashes = self._crashes, []
        assessment = self._context.assessment
        if assessment is None or not crashes:
            return
        pods = {pod.slice: pod for pod in assessment.desired.pods}
        for id_, crash in crashes:
            if (pod := self._find_pod(id_, pods)) is not None:
                unit = UnitName(f"libpod-{id_}.scope")
                self._ends.report_failure(pod, self._find_name(id_), crash, unit)

    def _find_pod(self, id_: str, pods: Mapping[UnitName, PodDecision]) -> PodDecision | None:
        """Return the pod in whose slice a container was started, also below a podman pod's.

        Source: OCI runtime specification, config-linux.md, Control groups.
        """
        for place in self._places(f"{id_}/userdata/config.json"):
            with suppress(OSError, *FORMAT_ERRORS):
                config = json.loads(read_present(place, limit_bytes=_BYTES_MAX) or b"{}")
                # With systemd's driver the path is SLICE:PREFIX:NAME.
                slice_, _, rest = str(config["linux"]["cgroupsPath"]).partition(":")
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
