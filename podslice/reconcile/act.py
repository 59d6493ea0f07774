"""Take the steps of a plan, stage by stage, concurrently where their order allows."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple, TypeVar, assert_never

from podslice.errors import HostError, SystemdError, UnitExists
from podslice.model.naming import SCOPE_PREFIX
from podslice.model.properties import MEMORY_HIGH
from podslice.model.resources import MEMORY, human_amounts
from podslice.model.unit import INFINITY, ObservedUnit, TransientUnit, UnitName, parent_slice
from podslice.plan import (
    Change,
    Plan,
    SetHugepages,
    SetProperties,
    Stage,
    StartUnit,
    Step,
    StopUnit,
    depth_of,
    order_of,
    stage_of,
    transient_unit,
)
from podslice.reconcile.report import Outcome, StepResult
from podslice.systemd.client import Client, run_concurrently

BATCH_MIN = 4
"""Below it one call per unit is as fast as a batch."""
BATCH_MAX = 64
"""Units per batch. Source: measured, batches of 50 to 100 are best."""
BATCHES_IN_FLIGHT = 2
"""While systemd works on one batch, the next is encoded."""

RECLAIM_PATIENCE_SEC = 10.0
"""How long the memory of a unit may take to fall to a lower limit."""
STALLED_SEC = 2.0
"""How long it may stay constant before that."""
POLL_SEC = 0.1
_KILLED_PATIENCE_SEC = 10.0
"""How long killed processes may take to exit."""
_STOP_PATIENCE_SEC = 60.0
"""How long the job of a stop may take beyond the grace period."""

OnResult = Callable[[StepResult], None]
Before = Callable[[Sequence[Step]], Awaitable[None]]
"""Awaited with steps before they are taken; what it raises ends the operation."""
LimitHugepages = Callable[[str, Mapping[str, int]], None]
"""Takes a control group and the limits by file; raises `HostError`."""
StepT = TypeVar("StepT", StartUnit, StopUnit)
AnyStepT = TypeVar("AnyStepT", bound=Step)


async def nothing(_: Sequence[Step]) -> None:
    """Do nothing before steps."""


def _no_hugepages(control_group: str, _: Mapping[str, int]) -> None:
    raise HostError(f"{control_group}: huge pages can't be limited by this operation")


async def act(
    plan: Plan,
    client: Client,
    on_result: OnResult = lambda _: None,
    *,
    before: Before = nothing,
    limit_hugepages: LimitHugepages = _no_hugepages,
) -> list[StepResult]:
    """Take every step that can be taken; return the results in the order of the plan.

    Steps that are independent of each other are taken concurrently: `on_result` receives each
    result when its step is complete. After a failure the later steps on that unit, and on units
    below it, are "not tried"; all others continue.
    """
    results: list[StepResult] = []
    failed: set[UnitName] = set()

    def note(result: StepResult) -> None:
        if result.outcome is not Outcome.DONE:
            failed.add(result.step.name)
        results.append(result)
        on_result(result)

    edges = _Edges(
        client=client, before=before, note=note, failed=failed, limit_hugepages=limit_hugepages
    )
    for turn, group in groupby(plan.steps, key=_turn_of):
        if turn == _SLICES:
            await _start_slices([step for step in group if isinstance(step, StartUnit)], edges)
        else:
            await _take(edges.ready(group), edges)
    position = {id(step): place for place, step in enumerate(plan.steps)}
    return sorted(results, key=lambda result: position[id(result.step)])


async def act_alone(step: Step, client: Client) -> StepResult:
    """Take a single step."""
    (result,) = await act(Plan(steps=(step,)), client)
    return result


class _Edges(NamedTuple):
    """The destinations of effects, and what has failed."""

    client: Client
    before: Before
    note: OnResult
    failed: set[UnitName]
    limit_hugepages: LimitHugepages

    def ready(self, steps: Iterable[AnyStepT]) -> list[AnyStepT]:
        """Return the steps that no failure prevents; report the others."""
        ready: list[AnyStepT] = []
        for step in steps:
            culprit = _culprit(step, self.failed)
            if culprit is None:
                ready.append(step)
            else:
                why = f"a step on {culprit} failed"
                self.note(StepResult(step=step, outcome=Outcome.NOT_TRIED, error=why))
        return ready


_SLICES = (Stage.START, 0)
"""The turn in which slices of any depth are started."""


def _turn_of(step: Step) -> tuple[Stage, int]:
    """Return the turn of a step: the one of the plan, except that all slices start in one."""
    is_start = isinstance(step, StartUnit) and step.name.endswith(".slice")
    return _SLICES if is_start else stage_of(step)


def _culprit(step: Step, failed: set[UnitName]) -> UnitName | None:
    """Return the unit whose failure prevents a step; a slice is stopped after the units in it."""
    if isinstance(step, StopUnit):
        inside = f"{step.name.removesuffix('.slice')}-"
        return min((name for name in failed if name.startswith(inside)), default=None)
    # Only the name of a slice contains its parents; a scope or a mount names its slice separately.
    name = step.name
    while name != "-.slice":
        if name in failed:
            return name
        name = step.unit.parent if name == step.name else parent_slice(name)
    return None


async def _start_slices(steps: Sequence[StartUnit], edges: _Edges) -> None:
    """Start slices: parents before what is in them, and of the others the deepest first.

    At each start systemd checks the active units of every slice above. So the slices directly
    below the root, which are checked at every start, come last. Source: systemd,
    src/core/cgroup.c, unit_add_family_to_cgroup_realize_queue.
    """
    parents = {step.unit.parent for step in steps}
    above = [step for step in steps if step.name in parents]
    inside = [step for step in steps if step.name not in parents]
    if len(inside) < BATCH_MIN:
        for turn in _levels(steps):
            await _start_batches(edges.ready(turn), edges)
        return
    inside.sort(key=lambda step: -depth_of(step.name))
    # Parents and children may be in one transaction: systemd orders a slice after its parent.
    # Source: systemd.slice(5), "Automatic Dependencies".
    room = max(BATCH_MAX - len(above), 0) if above else 0
    if room:  # one call instead of one for each level
        await _start_batches(edges.ready((*above, *inside[:room])), edges)
    else:
        for turn in _levels(above):
            await _start_batches(edges.ready(turn), edges)
    await _start_batches(edges.ready(inside[room:]), edges)


def _levels(steps: Iterable[AnyStepT]) -> Iterator[list[AnyStepT]]:
    """Yield steps in turns, starts of units after those of the units that contain them."""
    left = list(steps)
    while left:
        names = {step.name for step in left if isinstance(step, StartUnit)}
        turn: list[AnyStepT] = []
        later: list[AnyStepT] = []
        for step in left:
            waits = isinstance(step, StartUnit) and step.unit.parent in names
            (later if waits else turn).append(step)
        yield turn
        left = later


async def _take(steps: list[Step], edges: _Edges) -> None:
    """Take steps that are independent of each other."""
    # All steps of a turn have the same stage, so at most one of these kinds is present.
    stops = [step for step in steps if isinstance(step, StopUnit)]
    idle = [step for step in stops if not step.takes_time]
    await _start_batches([step for step in steps if isinstance(step, StartUnit)], edges)
    client = edges.client
    await _in_batches(idle, lambda batch: client.stop_batch([step.name for step in batch]), edges)
    # a batch would take as long as its slowest stop
    await _singly([step for step in stops if step.takes_time], edges)
    others = [step for step in steps if isinstance(step, SetProperties | SetHugepages)]
    await _singly(others, edges)


async def _start_batches(steps: Sequence[StartUnit], edges: _Edges) -> None:
    client = edges.client
    await _in_batches(
        steps, lambda batch: client.start_batch([_transient(step) for step in batch]), edges
    )


async def _in_batches(
    steps: Sequence[StepT], call: Callable[[Sequence[StepT]], Awaitable[None]], edges: _Edges
) -> None:
    """Call in batches where there are many; singly after a failed batch, to find the culprit."""
    gate = asyncio.Semaphore(BATCHES_IN_FLIGHT)

    async def take(batch: Sequence[StepT]) -> None:
        async with gate:
            await edges.before(batch)
            try:
                await call(batch)
            except SystemdError:
                # One invalid property or existing name rejects the whole call, and nothing was
                # started; after a failed job the other units of the batch may be up.
                await _one_by_one(batch, edges)
            else:
                for step in sorted(batch, key=order_of):
                    edges.note(StepResult(step=step, outcome=Outcome.DONE))

    batches = [steps[start : start + BATCH_MAX] for start in range(0, len(steps), BATCH_MAX)]
    await run_concurrently(take(batch) for batch in batches if len(batch) >= BATCH_MIN)
    small = [step for batch in batches if len(batch) < BATCH_MIN for step in batch]
    await _one_by_one(small, edges)


async def _one_by_one(steps: Sequence[StepT], edges: _Edges) -> None:
    """Take steps with a call for each, level by level."""
    for turn in _levels(steps):
        await _singly(edges.ready(turn), edges)


async def _singly(steps: Sequence[Step], edges: _Edges) -> None:
    await edges.before(steps)
    await run_concurrently(_one(step, edges) for step in steps)


async def _one(step: Step, edges: _Edges) -> None:
    client = edges.client
    try:
        match step:
            case StartUnit():
                await _start(step, client)
            case SetProperties() if step.reclaim_bytes is not None:
                await _come_down(step, step.reclaim_bytes, client)
            case SetProperties():
                await client.set_properties(step.name, _values(step.changes))
            case SetHugepages():
                limits = {change.name: int(change.new) for change in step.changes}
                edges.limit_hugepages(step.unit.control_group, limits)
            case StopUnit():
                await _stop(step, client)
            case _:
                assert_never(step)
    except (SystemdError, HostError) as error:
        edges.note(StepResult(step=step, outcome=Outcome.FAILED, error=str(error)))
    else:
        edges.note(StepResult(step=step, outcome=Outcome.DONE))


async def _start(step: StartUnit, client: Client) -> None:
    try:
        await client.start(_transient(step))
    except UnitExists:
        # it was started since the observation, or by a batch that failed in part
        if step.changes:
            await client.set_properties(step.name, _values(step.changes))


async def _come_down(step: SetProperties, target_bytes: int, client: Client) -> None:
    """Let the kernel reclaim memory above a limit, and set the limit once no kill would follow.

    Raises:
        HostError: the memory can't be reclaimed; the unit is unchanged.
    """
    before = await _observed(step.name, client)
    high = INFINITY if before is None else before.properties.get(MEMORY_HIGH, INFINITY)
    is_down = False
    # Above MemoryHigh the kernel reclaims and throttles, and never kills; a MemoryMax below the
    # usage would invoke the OOM killer for what cannot be reclaimed.
    await client.set_properties(step.name, {MEMORY_HIGH: target_bytes})
    try:
        used = await _least_memory(step.name, client, target_bytes)
        is_down = used <= target_bytes
    finally:
        # also after an interruption: MemoryHigh would throttle the processes permanently
        values = _values(step.changes) if is_down else {}
        # The step may change MemoryHigh as well: its value then replaces the former one.
        await client.set_properties(step.name, {MEMORY_HIGH: high, **values})
    if not is_down:
        shown, limit = human_amounts(MEMORY, used * 1000, target_bytes * 1000)
        raise HostError(
            f"{shown} are in use and can't be reclaimed, above the limit of"
            f" {limit}; reduce the pod's memory usage, or use --force: the"
            " kernel may then OOM-kill its processes"
        )


async def _least_memory(name: UnitName, client: Client, enough_bytes: int) -> int:
    """Return the memory usage of a unit once it is low enough or has stopped falling."""
    now = asyncio.get_running_loop().time
    least, deadline = INFINITY, now() + RECLAIM_PATIENCE_SEC
    progress_by = deadline
    while True:
        unit = await _observed(name, client)
        used = 0 if unit is None else unit.memory_bytes or 0
        if used < least:
            least, progress_by = used, now() + STALLED_SEC
        if used <= enough_bytes or now() >= min(deadline, progress_by):
            return used
        await asyncio.sleep(POLL_SEC)


async def _stop(step: StopUnit, client: Client) -> None:
    """Stop a unit; its processes are killed after the grace period."""
    if not step.takes_time:
        await client.stop(step.name)
        return
    grace_sec = step.grace_sec or 0
    if step.signals:
        is_whole = step.name in step.signals  # the slice itself, with everything in it
        others = set() if is_whole else set(step.occupants.units).difference(step.signals)
        signalled = (_signal(name, client, grace_sec) for name in step.signals)
        stopped = (_stop_in_time(name, client, grace_sec) for name in sorted(others))
        await run_concurrently([*signalled, *stopped])
        await client.stop(step.name)
    else:
        # a released service belongs to another slice, but runs in the slice of the pod until it restarts
        services = [unit for unit in step.occupants.units if _is_service_of_others(unit)]
        units = (step.name, *services)
        await run_concurrently(_stop_in_time(name, client, grace_sec) for name in units)
    # killed units have failed, and would keep the slice loaded
    await run_concurrently(client.reset_failed(unit) for unit in step.occupants.units)


def _is_service_of_others(unit: UnitName) -> bool:
    return unit.endswith(".service") and not unit.startswith(f"{SCOPE_PREFIX}-")


async def _stop_in_time(name: UnitName, client: Client, grace_sec: float) -> None:
    ended = asyncio.Event()

    async def end() -> None:
        try:
            await client.stop(name, timeout_sec=grace_sec + _STOP_PATIENCE_SEC)
        finally:
            ended.set()

    async def kill_late() -> None:
        try:
            async with asyncio.timeout(grace_sec):
                await ended.wait()
        except TimeoutError:
            # This grace period may be shorter than the TimeoutStopUSec of the unit.
            await client.kill(name, signal.SIGKILL)

    await run_concurrently([end(), kill_late()])


async def _signal(name: UnitName, client: Client, grace_sec: float) -> None:
    """Terminate the processes of a unit before it is stopped."""
    if name.endswith(".slice"):
        # a slice that is started again adopts the control group that it left behind
        with suppress(UnitExists):
            await client.start(TransientUnit(name=name, properties={"DefaultDependencies": False}))
    await client.kill(name, signal.SIGTERM)
    if not await _is_empty(name, client, grace_sec):
        await client.kill(name, signal.SIGKILL)
        await _is_empty(name, client, _KILLED_PATIENCE_SEC)


async def _is_empty(name: UnitName, client: Client, patience_sec: float) -> bool:
    """Wait for the processes of a unit to exit; return whether they have."""
    deadline = asyncio.get_running_loop().time() + patience_sec
    while (unit := await _observed(name, client)) is not None and unit.tasks:
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(POLL_SEC)
    return True


async def _observed(name: UnitName, client: Client) -> ObservedUnit | None:
    return next(iter(await client.observe([name])), None)


def _transient(step: StartUnit) -> TransientUnit:
    return transient_unit(step.unit, _values(step.changes))


def _values(changes: Iterable[Change]) -> dict[str, int | str]:
    return {change.name: change.new for change in changes}
