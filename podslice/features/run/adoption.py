"""Move running processes into a container: checks, the move, and its verification."""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from podslice.errors import BadProperty, HostError, JobFailed, NoSuchUnit, UnitExists, printable
from podslice.features.run.start import save_start
from podslice.features.run.target import Place, find_place, scope_of
from podslice.kernel.proc import (
    ENDED_STATES,
    PidFd,
    Process,
    ancestors,
    children,
    process_name,
    read_process,
    set_oom_score_adj,
)
from podslice.model.pod import ContainerKind
from podslice.model.unit import Manager, ObservedUnit, UnitName, Value, is_inside
from podslice.reconcile.assess import assess
from podslice.reconcile.world import LiveWorld, refuse
from podslice.systemd.client import PIDFDS_MAX, Client
from podslice.usage.location import PodMap

MOVE_TRIES = 5
"""How often all are moved at once, without those that have exited; then one by one."""

# since the last observation a process or the unit has ended, or the unit was started
_RACES = (BadProperty, JobFailed, NoSuchUnit, UnitExists)

_SPARE_FDS = 64  # for other files than processes
_LISTED = 10  # processes named in a note


class AdoptionOutcome(StrEnum):
    """The outcome of an adoption."""

    ADOPTED = "adopted"
    THERE = "already there"
    ENDED = "ended"
    REFUSED = "refused"
    NOT_MOVED = "not moved"


@dataclass(frozen=True, slots=True)
class Adoption:
    """A process and its outcome."""

    pid: int
    name: str
    outcome: AdoptionOutcome
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """The outcomes of all processes."""

    unit: UnitName
    control_group: str
    processes: tuple[Adoption, ...]

    @property
    def exit_code(self) -> int:
        """0 where every process is in the container now."""
        there = (AdoptionOutcome.ADOPTED, AdoptionOutcome.THERE)
        return int(not all(each.outcome in there for each in self.processes))


class _Candidate(NamedTuple):
    """A process that may move, as observed before."""

    process: Process
    handle: PidFd
    is_there: bool


async def adopt(
    world: LiveWorld, key: str, container: str | None, pids: Iterable[int], root: Path = Path("/")
) -> Adopted:
    """Move processes into a container. The caller holds the lock.

    Raises:
        HostError: the pod is not applied, or the container's unit can't take processes.
        InputError: the pod does not have the container.
    """
    client = world.client
    assessment = await assess(world)
    refuse(assessment.foreign)
    place = find_place(assessment, key, container)
    gate = _Gate(place, PodMap(assessment), root, world.manager)
    wanted = tuple(dict.fromkeys(pids))
    allow_descriptors(len(wanted))
    with ExitStack() as open_handles:
        examined = [gate.examine(pid, open_handles) for pid in wanted]
        candidates = [each for each in examined if isinstance(each, _Candidate)]
        moving = [each for each in candidates if not each.is_there]
        errors = await _move(client, place, moving)
        unit = await _unit(client, place)
        if unit and not place.unit:
            save_start(world, place)
        group = unit.control_group if unit else f"{gate.slice_group}/{place.container.scope}"
        adopted = Adopted(
            unit=unit.name if unit else place.container.scope,
            control_group=group,
            processes=tuple(
                each if isinstance(each, Adoption) else _verify(each, group, errors, root)
                for each in examined
            ),
        )
        arrived = {
            each.pid for each in adopted.processes if each.outcome is AdoptionOutcome.ADOPTED
        }
        newcomers = [each.process for each in moving if each.process.pid in arrived]
        for text in _finish(place, newcomers, group, root):
            world.on_note(text)
    return adopted


def allow_descriptors(count: int) -> None:
    """Raise the limit of open files to one for each process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if count + _SPARE_FDS > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + _SPARE_FDS, hard), hard))


class _Gate:
    """Determines which processes may not move, and why."""

    def __init__(self, place: Place, pods: PodMap, root: Path, manager: Manager) -> None:
        """Check the place.

        Raises:
            HostError: its unit is not in the pod's slice.
        """
        self._place, self._pods, self._root = place, pods, root
        self._uid = manager.uid
        self._own = {os.getpid(), *ancestors(os.getpid(), root)}
        self.slice_group = pods.groups[place.pod.pod.key]
        there = place.unit
        if there is not None and not is_inside(there.control_group, self.slice_group):
            raise HostError(
                f"{there.name} contains {place.full_name}, but is in {there.control_group}, not in"
                f" the slice of the pod; stop it first: systemctl stop {there.name}"
            )

    def examine(self, pid: int, handles: ExitStack) -> _Candidate | Adoption:
        """Open a process, and check whether it may move."""
        try:
            handle = PidFd(pid)
        except OSError as error:
            return self._unopened(pid, error)
        handles.callback(handle.close)
        # After the handle: what is read is about this process, as long as it has not ended.
        process = read_process(pid, self._root)
        if process is None:
            return Adoption(pid, "?", AdoptionOutcome.ENDED, "")
        why = self._immovable(process) or self._in_pod(process)
        if why:
            return Adoption(pid, process.name, AdoptionOutcome.REFUSED, why)
        home = self._pods.home(process.control_group)
        is_there = home is not None and home.container == self._place.container.name
        return _Candidate(process=process, handle=handle, is_there=is_there)

    def _unopened(self, pid: int, error: OSError) -> Adoption:
        process = read_process(pid, self._root)
        if process is None:
            return Adoption(pid, "?", AdoptionOutcome.REFUSED, "no such process")
        why = error.strerror or str(error)
        if process.leader != pid:
            leader = f"{process.leader} ({process_name(process.leader, self._root)})"
            why = f"it is a thread of process {leader}; adopt that process, with all its threads"
        return Adoption(pid, process.name, AdoptionOutcome.REFUSED, why)

    def _immovable(self, process: Process) -> str:
        """Return why a process can't move anywhere; empty where it can."""
        if process.is_kernel_thread:
            return "it is a kernel thread, which can't be moved"
        if process.pid == 1 or PurePosixPath(process.control_group).name == "init.scope":
            return "it is a service manager; the pod's limits would apply to everything it runs"
        if process.state in ENDED_STATES:
            parent = f"{process.parent} ({process_name(process.parent, self._root)})"
            return f"it is a zombie: its parent {parent} has not reaped it"
        if process.pid in self._own:
            return (
                "it is podslice itself or an ancestor of it; adopt it from another shell, or start"
                " the command with podslice run"
            )
        if self._uid not in (None, process.uid):
            return (
                f"it runs as user {process.uid}; with --user only your own processes can be moved"
            )
        return ""

    def _in_pod(self, process: Process) -> str:
        """Return why a process of another container or pod can't move; empty where it can."""
        pods, group = self._pods, process.control_group
        home = pods.home(group)
        pod, container = (home.pod, home.container) if home else pods.owner(group)
        here = self._place.pod.pod.key
        if pod is None and pods.root and is_inside(group, pods.root):
            return f"it is in {printable(group)}, which belongs to no applied pod"
        if pod in (None, here) and container in (None, self._place.container.name):
            return ""
        where = f"container {container} of pod {pod}" if container else f"pod {pod}"
        return (
            f"it is in {where}; processes can't change pods or containers: stop it, and start it"
            f" with podslice run {here} -c {self._place.container.name} -- COMMAND"
        )


async def _move(client: Client, place: Place, wanted: Sequence[_Candidate]) -> dict[int, str]:
    """Move all running processes; return the errors of systemd by process id."""
    for _ in range(MOVE_TRIES):
        # One process that has exited makes systemd reject the call for all.
        wanted = [each for each in wanted if not each.handle.has_ended]
        try:
            await _move_at_once(client, place, wanted)
        except _RACES:
            continue
        return {}
    errors = {}
    for each in wanted:
        try:
            await _move_at_once(client, place, [each])
        except _RACES as error:
            errors[each.process.pid] = str(error)
    return errors


async def _move_at_once(client: Client, place: Place, wanted: Sequence[_Candidate]) -> None:
    if not wanted:
        return
    unit = await _unit(client, place)
    name = unit.name if unit else place.container.scope
    if unit is None:
        caps = await client.caps()
        first = wanted[:PIDFDS_MAX] if caps.pidfds else wanted
        processes: dict[str, Value] = (
            {"PIDFDs": tuple(each.handle.fd for each in first)}
            if caps.pidfds
            else {"PIDs": tuple(each.process.pid for each in first)}
        )
        await client.start(scope_of(place, processes))
        wanted = wanted[len(first) :]
    if wanted:
        # This call takes ids only, without descriptors that would identify the processes.
        await client.attach(name, [each.process.pid for each in wanted])


async def _unit(client: Client, place: Place) -> ObservedUnit | None:
    """Return the unit of the container, None where there is none.

    Raises:
        HostError: it is being stopped.
    """
    for unit in await client.observe((place.container.scope, place.service)):
        if unit.active_state == "deactivating":
            raise HostError(f"{unit.name} is being stopped; try again once it is inactive")
        if unit.active_state not in ("inactive", "failed"):
            return unit
    return None


def _verify(candidate: _Candidate, group: str, errors: dict[int, str], root: Path) -> Adoption:
    """Observe a process after the move."""
    before = candidate.process
    # in this order: a process that has not exited afterwards is the one that was read
    now = read_process(before.pid, root)
    if candidate.handle.has_ended or now is None:
        return Adoption(before.pid, before.name, AdoptionOutcome.ENDED, "")
    if is_inside(now.control_group, group):
        if candidate.is_there:
            return Adoption(now.pid, now.name, AdoptionOutcome.THERE, "")
        why = f"from {printable(before.control_group)}"
        return Adoption(now.pid, now.name, AdoptionOutcome.ADOPTED, why)
    still = f"it is still in {printable(now.control_group)}"
    error = errors.get(now.pid)
    why = f"{still}: {error}" if error else still
    return Adoption(now.pid, now.name, AdoptionOutcome.NOT_MOVED, why)


def _finish(place: Place, newcomers: Sequence[Process], group: str, root: Path) -> Iterator[str]:
    """Set the oom_score_adj of moved processes; yield notes for the operator."""
    refused: Counter[str] = Counter()
    for each in newcomers:
        try:
            set_oom_score_adj(each.pid, place.container.oom_score_adj, root)
        except OSError as error:
            refused[error.strerror or str(error)] += 1
    for reason, count in refused.items():
        what = "1 process keeps its" if count == 1 else f"{count} processes keep their"
        yield f"{what} oom_score_adj, not {place.container.oom_score_adj}: {reason}"
    key = place.pod.pod.key
    services = {PurePosixPath(each.control_group).name for each in newcomers}
    for service in sorted(each for each in services if each.endswith(".service")):
        yield (
            f"{printable(service)} starts further processes outside the pod; to configure it to"
            f" start them in the pod, see: podslice cgroup-parent {key} -o systemd"
        )
    left = tuple(_left_behind(newcomers, group, root))
    if left:
        named = ", ".join(f"{pid} {process_name(pid, root)}" for pid in left[:_LISTED])
        more = f" and {len(left) - _LISTED} more" if len(left) > _LISTED else ""
        yield f"their child processes were not moved; adopt them, too, if desired: {named}{more}"
    if place.initializing and place.container.kind is ContainerKind.APP and newcomers:
        yield (
            f"pod {key} is in its init phase; to make its own limits bind:"
            f" podslice phase {key} running"
        )


def _left_behind(newcomers: Iterable[Process], group: str, root: Path) -> Iterator[int]:
    """Yield the descendants of processes that are outside the control group."""
    todo = [each.pid for each in newcomers]
    seen = set(todo)
    while todo:
        for pid in children(todo.pop(), root):
            process = read_process(pid, root)
            if pid in seen or process is None:
                continue
            seen.add(pid)
            todo.append(pid)
            if not is_inside(process.control_group, group):
                yield pid
