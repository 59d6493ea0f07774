"""Running processes move into a container: who may, the move itself, and whether they arrived."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath

from podslice.errors import BadProperty, HostError, JobFailed, NoSuchUnit, UnitExists, printable
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
from podslice.model.manager import Manager
from podslice.model.pod import ContainerKind
from podslice.model.unit import ObservedUnit, UnitName, Value
from podslice.processes.location import PodMap
from podslice.processes.target import Place, find_place, is_inside, scope_of
from podslice.reconcile.assess import assess
from podslice.reconcile.guard import refuse
from podslice.reconcile.world import LiveWorld
from podslice.systemd.client import PIDFDS_MAX, Client

_TRIES = 5
"""So often all are moved at once, each time without those that have ended; then one by one."""

# a process or the unit itself has ended, or the unit has come, since somebody looked
_OVERTAKEN = (BadProperty, JobFailed, NoSuchUnit, UnitExists)

_SPARE_FDS = 64  # open for other things than processes
_LISTED = 10  # so many processes are named in a note


class AdoptionOutcome(StrEnum):
    """What became of a process that was to move."""

    ADOPTED = "adopted"
    THERE = "already there"
    ENDED = "ended"
    REFUSED = "refused"
    NOT_MOVED = "not moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """One process, and what became of it."""

    pid: int
    name: str
    outcome: AdoptionOutcome
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """What became of all."""

    unit: UnitName
    control_group: str
    processes: tuple[Adoption, ...]

    @property
    def exit_code(self) -> int:
        """0 when every process is there now."""
        there = (AdoptionOutcome.ADOPTED, AdoptionOutcome.THERE)
        return int(not all(each.outcome in there for each in self.processes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A process that may move, as it was before."""

    process: Process
    handle: PidFd
    is_there: bool

    @property
    def pid(self) -> int:
        return self.process.pid


async def adopt(
    world: LiveWorld, key: str, container: str | None, pids: Iterable[int], root: Path = Path("/")
) -> Adopted:
    """Move processes into a container. The lock is the caller's.

    Raises:
        HostError: the pod is not there, or the container's unit can't take any process.
        InputError: the pod has no such container.
    """
    client = world.client
    state = await assess(world)
    refuse(state.foreign)
    place = find_place(state, key, container)
    gate = _Gate(place, PodMap(state), root, world.manager)
    wanted = tuple(dict.fromkeys(pids))
    _allow_descriptors(len(wanted))
    with ExitStack() as open_handles:
        examined = [gate.examine(pid, open_handles) for pid in wanted]
        candidates = [each for each in examined if isinstance(each, _Candidate)]
        moving = [each for each in candidates if not each.is_there]
        errors = await _move(client, place, moving)
        unit = await _unit(client, place)
        group = unit.control_group if unit else f"{gate.slice_group}/{place.container.scope}"
        adopted = Adopted(
            unit=unit.name if unit else place.container.scope,
            control_group=group,
            processes=tuple(
                each if isinstance(each, Adoption) else _look_again(each, group, errors, root)
                for each in examined
            ),
        )
        arrived = {
            each.pid for each in adopted.processes if each.outcome is AdoptionOutcome.ADOPTED
        }
        newcomers = [each for each in moving if each.pid in arrived]
        for told in _settle(place, newcomers, group, root):
            world.on_note(told)
    return adopted


def _allow_descriptors(count: int) -> None:
    """Have room for one open descriptor for each process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if count + _SPARE_FDS > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + _SPARE_FDS, hard), hard))


class _Gate:
    """Who may not move, and why."""

    def __init__(self, place: Place, pods: PodMap, root: Path, manager: Manager) -> None:
        """Get to know the place.

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
                f"{there.name} holds {place.full_name}, but in {there.control_group}, not in the"
                f" slice of the pod; stop it first: systemctl stop {there.name}"
            )

    def examine(self, pid: int, handles: ExitStack) -> _Candidate | Adoption:
        """Take hold of a process, and find out whether it may move."""
        try:
            handle = PidFd(pid)
        except OSError as error:
            return self._unopened(pid, error)
        handles.callback(handle.close)
        process = read_process(pid, self._root)
        if process is None:
            return _adoption(pid, "?", AdoptionOutcome.ENDED)
        why = self._objection(process) or self._of_another(process)
        if why:
            return _adoption(pid, process.name, AdoptionOutcome.REFUSED, why)
        home = self._pods.home(process.control_group)
        is_there = home is not None and home.container == self._place.container.name
        return _Candidate(process=process, handle=handle, is_there=is_there)

    def _unopened(self, pid: int, error: OSError) -> Adoption:
        process = read_process(pid, self._root)
        if process is None:
            return _adoption(pid, "?", AdoptionOutcome.REFUSED, "there is no such process")
        why = error.strerror or str(error)
        if process.leader != pid:
            leader = f"{process.leader} ({process_name(process.leader, self._root)})"
            why = f"it is a thread of process {leader}; adopt that one, with all its threads"
        return _adoption(pid, process.name, AdoptionOutcome.REFUSED, why)

    def _objection(self, process: Process) -> str:
        """What there is against moving a process anywhere."""
        if process.is_kernel_thread:
            return "it is a kernel thread; it stays in the kernel's own group"
        if process.pid == 1 or PurePosixPath(process.control_group).name == "init.scope":
            return "it is a service manager; everything would be below the pod's limits with it"
        if process.state in ENDED_STATES:
            parent = f"{process.parent} ({process_name(process.parent, self._root)})"
            return f"it has ended already; its parent {parent} has yet to take notice"
        if process.pid in self._own:
            return (
                "it is podslice itself, or has started it; adopt it from another shell, or start"
                " the command with podslice run"
            )
        if self._uid not in (None, process.uid):
            return f"it runs as user {process.uid}; --user moves your own processes only"
        return ""

    def _of_another(self, process: Process) -> str:
        """Why a process that is in a pod, or in another container of this one, stays there."""
        pods, group = self._pods, process.control_group
        home = pods.home(group)
        pod, container = (home.pod, home.container) if home else pods.owner(group)
        here = self._place.pod.pod.key
        if pod is None and pods.root and is_inside(group, pods.root):
            return f"it is in {printable(group)}, which is of no applied pod"
        if pod in (None, here) and container in (None, self._place.container.name):
            return ""
        where = f"container {container} of pod {pod}" if container else f"pod {pod}"
        return (
            f"it is in {where}; processes do not change pods or containers: end it there, and start"
            f" it with podslice run {here} -c {self._place.container.name} -- COMMAND"
        )


async def _move(client: Client, place: Place, wanted: Sequence[_Candidate]) -> dict[int, str]:
    """Move all who live; the ids of those that systemd would not move, with what it says."""
    for _ in range(_TRIES):
        wanted = [each for each in wanted if not each.handle.has_ended]
        try:
            await _move_at_once(client, place, wanted)
        except _OVERTAKEN:
            continue
        return {}
    errors = {}
    for each in wanted:
        try:
            await _move_at_once(client, place, [each])
        except _OVERTAKEN as error:
            errors[each.pid] = str(error)
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
            else {"PIDs": tuple(each.pid for each in first)}
        )
        await client.start(scope_of(place, processes))
        wanted = wanted[len(first) :]
    if wanted:
        await client.attach(name, [each.pid for each in wanted])


async def _unit(client: Client, place: Place) -> ObservedUnit | None:
    """The unit that holds the container now.

    Raises:
        HostError: it is on its way out.
    """
    for unit in await client.observe((place.container.scope, place.service)):
        if unit.active_state == "deactivating":
            raise HostError(f"{unit.name} is being stopped; wait until it has ended")
        if unit.active_state not in ("inactive", "failed"):
            return unit
    return None


def _look_again(candidate: _Candidate, group: str, errors: dict[int, str], root: Path) -> Adoption:
    """What has become of a process."""
    before = candidate.process
    # in this order: a process that has not ended by now is the one that was read
    now = read_process(before.pid, root)
    if candidate.handle.has_ended or now is None:
        return _adoption(before.pid, before.name, AdoptionOutcome.ENDED)
    if is_inside(now.control_group, group):
        if candidate.is_there:
            return _adoption(now.pid, now.name, AdoptionOutcome.THERE)
        why = f"from {printable(before.control_group)}"
        return _adoption(now.pid, now.name, AdoptionOutcome.ADOPTED, why)
    still = f"it is still in {printable(now.control_group)}"
    said = errors.get(now.pid)
    return _adoption(
        now.pid, now.name, AdoptionOutcome.NOT_MOVED, f"{still}: {said}" if said else still
    )


def _adoption(pid: int, name: str, outcome: AdoptionOutcome, why: str = "") -> Adoption:
    return Adoption(pid=pid, name=name, outcome=outcome, why=why)


def _settle(place: Place, newcomers: Sequence[_Candidate], group: str, root: Path) -> Iterator[str]:
    """Give those who have arrived their oom_score_adj; what the operator should know of them."""
    refused: dict[str, int] = {}
    for each in newcomers:
        try:
            set_oom_score_adj(each.pid, place.container.oom_score_adj, root)
        except OSError as error:
            reason = error.strerror or str(error)
            refused[reason] = refused.get(reason, 0) + 1
    for reason, count in refused.items():
        what = "1 process keeps its" if count == 1 else f"{count} processes keep their"
        yield f"{what} oom_score_adj, not {place.container.oom_score_adj}: {reason}"
    key = place.pod.pod.key
    services = {PurePosixPath(each.process.control_group).name for each in newcomers}
    for service in sorted(each for each in services if each.endswith(".service")):
        yield (
            f"{printable(service)} starts its processes anew where its unit says, not in the pod;"
            f" to have them there for good, see: podslice cgroup-parent {key} -o systemd"
        )
    left = tuple(_left_behind(newcomers, group, root))
    if left:
        named = ", ".join(f"{pid} {process_name(pid, root)}" for pid in left[:_LISTED])
        more = f" and {len(left) - _LISTED} more" if len(left) > _LISTED else ""
        yield f"what they had started before stays where it is; adopt it, too, if wanted: {named}{more}"
    if place.initializing and place.container.kind is ContainerKind.APP and newcomers:
        yield (
            f"pod {key} is in its init phase; its own limits bind once that is over:"
            f" podslice phase {key} --set running"
        )


def _left_behind(newcomers: Iterable[_Candidate], group: str, root: Path) -> Iterator[int]:
    """The descendants of processes that are not where these are."""
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
