"""The values that podslice sets outside its root: their record, their restoration and their trial.

`apply --confirm` restores the old values of reserved slices unless the new ones are confirmed. A systemd timer that runs nothing but systemctl restores them, so that it works without podslice,
Python or the network.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, count
from typing import TypeGuard

from podslice.errors import HostError, SystemdError
from podslice.kernel.host import read_possible
from podslice.model.desired import Desired, PendingTrial, ReservedValues, TrialState, Values
from podslice.model.properties import PROPERTIES
from podslice.model.unit import ListedUnit, Observed, TransientUnit, UnitKind, UnitName
from podslice.plan import Plan, SetProperties, Step
from podslice.plan.make import make_plan
from podslice.plan.restore import fail_trial, record_steps, restore_values, settle_steps, try_steps
from podslice.reconcile.act import OnResult, act
from podslice.reconcile.report import Outcome, Report, StepResult, describe_unconfirmed
from podslice.reconcile.world import LiveWorld, World
from podslice.store.store import Store
from podslice.systemd.client import Client

_STEM = "podslice-rollback"
_PATTERN = f"{_STEM}*"
_TIMER = f".{UnitKind.TIMER}"
_ACCURACY_USEC = 100_000
_RUNNING = ("activating", "deactivating")
RESTORE_PATIENCE_SEC = 10.0
"""How long the restoration of old values may take once begun; normally milliseconds."""
_POLL_SEC = 0.02

Take = Callable[[Plan], Awaitable[list[StepResult]]]
"""Takes the steps of a plan."""


def is_reserved(step: Step) -> TypeGuard[SetProperties]:
    """Return whether a step changes a slice outside the root."""
    return isinstance(step, SetProperties) and not step.unit.owned


def leave_reserved(plan: Plan) -> Plan:
    """Return a plan without its steps on reserved slices."""
    return replace(plan, steps=tuple(step for step in plan.steps if not is_reserved(step)))


async def confirm_implicitly(world: LiveWorld) -> bool:
    """Confirm the values of an earlier trial; return whether there were any."""
    before = await pending(world.store, world.client)
    if before is None:
        return False
    await end_trial(world.store, world.client)
    if before.state is TrialState.ARMED:
        world.on_note("apply without --confirm confirms the values that were not confirmed yet")
    return True


async def on_trial(
    world: LiveWorld, plan: Plan, seconds: int, take: Take, on_result: OnResult
) -> list[StepResult]:
    """Take the steps of a plan; arm the timer before those that change reserved slices.

    These come last, since a stop may take longer than the timer.
    """
    results = await take(leave_reserved(plan))
    steps = tuple(step for step in plan.steps if is_reserved(step))
    if not steps:
        world.on_note("no reserved slice changes; nothing to confirm")
        return results
    try:
        armed = await arm(world.store, world.client, steps, seconds)
    except (HostError, SystemdError) as error:
        why = f"nothing would restore the old values: {error}"
        left = [StepResult(step=step, outcome=Outcome.NOT_TRIED, error=why) for step in steps]
        for result in left:
            on_result(result)
        return [*results, *left]
    tried = await take(replace(plan, steps=steps))
    unset = {result.step.name for result in tried if result.outcome is not Outcome.DONE}
    if unset:
        world.store.save_reserved(fail_trial(recorded(world.store), unset))
    world.on_note("; ".join(describe_unconfirmed(armed)))
    return [*results, *tried]


async def arm(
    store: Store, client: Client, steps: Iterable[SetProperties], seconds: int
) -> PendingTrial:
    """Start the timer that restores the old values of reserved slices.

    Values that are still unconfirmed join the new trial, with their original old values.

    Raises:
        HostError: systemctl was not found, or the record can't be written.
        SystemdError: the timer can't be started; nothing will be restored.
    """
    systemctl = shutil.which("systemctl")
    if systemctl is None:
        raise HostError("systemctl, which restores the old values, was not found in PATH")
    before, record = await pending(store, client), recorded(store)
    joins = before is not None and before.state is not TrialState.RETURNED
    # The clock of OnActiveSec=, which all processes of a boot share and which cannot be set.
    until_usec = time.monotonic_ns() // 1000 + seconds * 10**6
    tried = try_steps(record, steps, until_usec, joins=joins)
    values = tried.unconfirmed
    if values is None:
        raise HostError("no value would be restored")
    listed = await client.list_units([_PATTERN])
    taken = {unit.name.rpartition(".")[0] for unit in listed}
    names = chain([_STEM], (f"{_STEM}-{number}" for number in count(2)))
    # Another name than that of an armed timer, which is stopped only after this one is started.
    stem = next(name for name in names if name not in taken)
    # Before the timer: a crash in between leaves a record that reads as stopped, whereas a timer
    # without a record would restore values that could not be confirmed.
    store.save_reserved(tried)
    try:
        await client.start_timer(
            _timer(UnitName(f"{stem}.timer"), seconds),
            _service(UnitName(f"{stem}.service"), systemctl, values.old),
        )
    except BaseException:
        store.save_reserved(record)
        raise
    # only now, so that there is a timer at all times
    await _stop_timers(client, listed)
    return PendingTrial(values=values, state=TrialState.ARMED, remaining_sec=seconds)


async def halt(client: Client) -> None:
    """Stop the timer. No lock is required: its holder might take longer than the timer."""
    await _stop_timers(client, await client.list_units([_PATTERN]))


async def confirm(store: Store, client: Client) -> PendingTrial | None:
    """Confirm the new values; return their state, None where there was nothing to confirm.

    Where the old values are already restored, nothing changes. The caller holds the lock.
    """
    await halt(client)
    await _await_return(client)
    # Only now can the values no longer change: no timer is armed, and no restoration is running.
    found = await pending(store, client)
    if found is not None and found.state is not TrialState.RETURNED:
        store.save_reserved(recorded(store).confirmed())
    return found


async def end_trial(store: Store, client: Client) -> None:
    """End a trial in any state: nothing is restored, nothing remains to be confirmed."""
    await halt(client)
    await _await_return(client)
    store.save_reserved(recorded(store).confirmed())


def recorded(store: Store) -> ReservedValues:
    """Return the recorded values outside the root; none where the record is damaged."""
    return store.reserved() or ReservedValues()


async def pending(store: Store, client: Client) -> PendingTrial | None:
    """Return the unconfirmed values and the state of their trial."""
    values = recorded(store).unconfirmed
    if values is None:
        return None
    if any(map(_is_armed, await client.list_units([_PATTERN]))):
        left_usec = values.until_usec - time.monotonic_ns() // 1000
        remaining_sec = max(-(-left_usec // 10**6), 0)
        return PendingTrial(values=values, state=TrialState.ARMED, remaining_sec=remaining_sec)
    observed = {
        unit.name: {
            key: each for key, each in unit.properties.items() if isinstance(each, int | str)
        }
        for unit in await client.observe(sorted(values.old))
    }
    has_returned = values.at_old(observed)
    standing = TrialState.RETURNED if has_returned else TrialState.STOPPED
    return PendingTrial(values=values, state=standing)


def _timer(name: UnitName, seconds: int) -> TransientUnit:
    return TransientUnit(
        name=name,
        properties={
            "Description": "Restore the old values of reserved slices unless the new ones are confirmed",
            # no dependency may delay or stop it
            "DefaultDependencies": False,
            "CollectMode": "inactive-or-failed",
            "TimersMonotonic": (("OnActiveSec", seconds * 10**6),),
            # systemd's default is one minute
            "AccuracyUSec": _ACCURACY_USEC,
            "RemainAfterElapse": False,
        },
    )


def _service(name: UnitName, systemctl: str, old: Values) -> TransientUnit:
    return TransientUnit(
        name=name,
        properties={
            "Description": "Restore the old values of reserved slices",
            "DefaultDependencies": False,
            "CollectMode": "inactive-or-failed",
            "Type": "oneshot",
            # system.slice may be short of resources now
            "Slice": "-.slice",
            "OOMScoreAdjust": -1000,
            # failures are ignored, so that the others are tried
            "ExecStart": tuple(
                (systemctl, (systemctl, *_arguments(unit, values)), True)
                for unit, all_values in sorted(old.items())
                for values in _in_turn(all_values)
            ),
        },
    )


def _in_turn(values: Mapping[str, int | str]) -> Iterator[Mapping[str, int | str]]:
    """Yield the values of one unit in the order in which they are set.

    CPUs that become unset are all possible ones before: the kernel refuses an empty list for a
    control group with processes, which would keep its limit.

    Source: Linux, kernel/cgroup/cpuset.c, validate_change.
    """
    unset = {name: read_possible(name) for name, value in values.items() if value == ""}
    if any(unset.values()):
        yield {name: text for name, text in unset.items() if text}
    yield values


def _arguments(unit: UnitName, values: Mapping[str, int | str]) -> Iterator[str]:
    """Yield the arguments with which systemctl sets values as read on the bus.

    Source: tried with systemd 252 and 257: `infinity` lifts MemoryMax= and TasksMax=, an empty
    value CPUWeight=, which takes no `infinity`, and `idle` is the weight that reads 0.
    """
    yield from ("set-property", "--runtime", unit)
    for name, value in sorted(values.items()):
        row = PROPERTIES[name]
        yield f"{row.key}={row.format(value)}"


def _is_armed(unit: ListedUnit) -> bool:
    return unit.name.endswith(_TIMER) and unit.active_state == "active"


async def _stop_timers(client: Client, listed: Iterable[ListedUnit]) -> None:
    for unit in listed:
        if unit.name.endswith(_TIMER):
            await client.stop(unit.name)


async def _await_return(client: Client) -> None:
    """Wait for the end of a restoration that has begun."""
    deadline = asyncio.get_running_loop().time() + RESTORE_PATIENCE_SEC
    while any(unit.active_state in _RUNNING for unit in await client.list_units([_PATTERN])):
        if asyncio.get_running_loop().time() > deadline:
            raise HostError(
                "the restoration of the old values does not finish; see: systemctl status"
                f" '{_PATTERN}'"
            )
        await asyncio.sleep(_POLL_SEC)


def note(world: World, held: ReservedValues, plan: Plan) -> None:
    """Record the values that a plan is about to set.

    The record is written before the steps are taken: after a crash both values are known.
    """
    steps = filter(is_reserved, plan.steps)
    world.store.save_reserved(record_steps(held, steps, world.config.cgroup_root))


def settle_values(world: World, held: ReservedValues, results: Iterable[StepResult]) -> None:
    """Record the values that were set; `held` was recorded before `note`."""
    results = tuple(results)

    def of(outcome: Outcome) -> list[SetProperties]:
        return [each.step for each in results if each.outcome is outcome and is_reserved(each.step)]

    now = recorded(world.store)
    if now:
        done, not_tried = of(Outcome.DONE), of(Outcome.NOT_TRIED)
        world.store.save_reserved(settle_steps(now, held, done, not_tried))


async def restore_all(world: LiveWorld) -> Report:
    """Restore every value outside the root, and change nothing else. The caller holds the lock.

    Raises:
        ForeignRoot: the root belongs to a kubelet; nothing was changed.
        HostError: the record can't be written.
    """
    client = world.client
    if not recorded(world.store):
        return Report()
    await world.claim(world.client)
    await end_trial(world.store, client)
    values = recorded(world.store)
    units = await client.observe(sorted(values.units))
    observed = Observed(caps=await client.caps(), units={unit.name: unit for unit in units})
    returning = restore_values(Desired(root=world.tree.root), observed, values)
    plan = make_plan(returning.desired, observed)
    note(world, returning.held, plan)
    results = await act(plan, client)
    settle_values(world, returning.held, results)
    return Report(results=tuple(results), skipped=(*plan.skipped, *returning.skipped))
