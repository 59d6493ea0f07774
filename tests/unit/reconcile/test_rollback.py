"""Old values of reserved slices, restored unless the new ones are confirmed."""

from dataclasses import replace

import pytest

from podslice.errors import BusUnavailable, HostError, Refused
from podslice.model.config import Enforce
from podslice.model.desired import TrialState, Unconfirmed
from podslice.model.unit import INFINITY, ListedUnit
from podslice.reconcile import rollback
from podslice.reconcile.assess import Request, assess
from podslice.reconcile.report import Outcome
from podslice.reconcile.rollback import confirm, pending
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import amounts, burstable, config, decisions, world
from tests.unit.converged import apply, delete

SLICE = "podruntime.slice"
TIMER = "podslice-rollback.timer"
SECOND = "podslice-rollback-2.timer"
MI = 2**20
OLD = {"CPUWeight": INFINITY, "MemoryMax": INFINITY, "TasksMax": INFINITY}
NEW = {"CPUWeight": 50, "MemoryMax": 64 * MI, "TasksMax": 100}


class Recording(FakeSystemd):
    """A fake systemd that keeps the properties of timers, and can let them elapse."""

    def __init__(self):
        super().__init__()
        self.timers = {}

    async def start_timer(self, timer, service):
        await super().start_timer(timer, service)
        self.timers[timer.name] = (timer.properties, service.properties)

    async def elapse(self, timer=TIMER):
        """Let a timer elapse: set the properties of its systemctl commands, and stop it."""
        for _, (_, verb, runtime, unit, *assignments), _ in self.timers[timer][1]["ExecStart"]:
            assert (verb, runtime) == ("set-property", "--runtime")
            await self.set_properties(unit, dict(map(_read, assignments)))
        await self.stop(timer)


def _read(assignment):
    name, _, text = assignment.partition("=")
    return name, INFINITY if text in ("", "infinity") else int(text)


@pytest.fixture(autouse=True)
def systemctl(tmp_path, monkeypatch):
    """Create a systemctl in PATH that is never executed."""
    path = tmp_path / "bin/systemctl"
    path.parent.mkdir()
    path.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(path.parent))
    return path


@pytest.fixture
def memory():
    client = Recording()
    client.provide(SLICE)
    return client


def reserving(kube="cpu=500m,memory=64Mi,pid=100"):
    return config(
        kube_reserved=amounts(kube),
        kube_reserved_cgroup=f"/{SLICE}",
        enforce_node_allocatable=frozenset({Enforce.PODS, Enforce.KUBE_RESERVED}),
    )


@pytest.fixture
def notes():
    return []


@pytest.fixture
def here(tmp_path, memory, notes):
    """Return a world whose reservations are enforced."""
    found = world(tmp_path, memory, by=reserving(), notes=notes)
    found.store.root.mkdir()
    return found


async def attempt(here, *pods, **how):
    """Apply with 60 s to confirm."""
    candidates = decisions(*pods, on=here.node, by=here.config)
    request = Request(candidates=candidates, by_operator=True)
    return await apply(here, request, confirm_sec=60, **how)


async def keep(here):
    """Apply without a time to confirm."""
    return await apply(here, Request(by_operator=True))


async def values(memory, name=SLICE):
    (unit,) = await memory.observe([name])
    return {key: unit.properties[key] for key in OLD}


async def armed(memory):
    return [
        unit.name
        for unit in await memory.list_units(["podslice-rollback*"])
        if unit.active_state == "active"
    ]


# The timer.


async def test_new_values_come_with_a_timer_for_the_old_ones(here, memory, notes, systemctl):
    report = await attempt(here)
    assert report.exit_code == 0
    assert await values(memory) == NEW
    assert await armed(memory) == [TIMER]
    timer, service = memory.timers[TIMER]
    assert timer["TimersMonotonic"] == (("OnActiveSec", 60_000_000),)
    assert timer["RemainAfterElapse"] is False
    assert service["ExecStart"] == (
        (
            str(systemctl),
            (
                *(str(systemctl), "set-property", "--runtime", SLICE),
                *("CPUWeight=", "MemoryMax=infinity", "TasksMax=infinity"),
            ),
            True,
        ),
    )
    # it must not be in a reserved slice
    assert service["Slice"] == "-.slice"
    assert notes[-1] == (
        f"the old values of {SLICE} are restored in 60 s; to keep the new ones: podslice confirm"
    )


async def test_old_values_set_externally_are_restored(here, memory):
    had = {"CPUWeight": 0, "MemoryMax": 300 * MI, "TasksMax": 500}
    memory.provide(SLICE, **had)
    await attempt(here)
    (_, arguments, _) = memory.timers[TIMER][1]["ExecStart"][0]
    assert arguments[4:] == ("CPUWeight=idle", f"MemoryMax={300 * MI}", "TasksMax=500")
    assert here.store.reserved().unconfirmed.old == {SLICE: had}
    assert here.store.reserved().unconfirmed.new == {SLICE: NEW}


async def test_the_timer_starts_after_all_other_steps_and_before_the_values(here, memory):
    seen = []

    async def start_timer(timer, service):
        units = [unit.name for unit in await memory.observe(["kubepods*"])]
        seen.append((await values(memory), "kubepods-burstable-podweb.slice" in units))

    memory.start_timer = start_timer
    await attempt(here, burstable("web"))
    assert seen == [(OLD, True)]


async def test_no_timer_starts_without_changes_of_reserved_slices(here, memory, notes):
    by = config()
    report = await attempt(replace(here, config=by), burstable("web"))
    assert report.exit_code == 0
    assert memory.calls["start_timer"] == 0
    assert here.store.reserved().unconfirmed is None
    assert notes == ["no reserved slice changes; nothing to confirm"]


@pytest.mark.parametrize("error", [Refused("access denied"), BusUnavailable("lost")])
async def test_without_a_timer_reserved_slices_stay_as_they_are(here, memory, error):
    memory.refuse(TIMER, error)
    results = []
    report = await attempt(here, on_result=results.append)
    assert report.exit_code == 1
    (left,) = [result for result in report.results if result.outcome is not Outcome.DONE]
    assert (left.step.name, left.outcome) == (SLICE, Outcome.NOT_TRIED)
    assert left.error == f"nothing would restore the old values: {error}"
    assert results == list(report.results)
    assert await values(memory) == OLD
    assert here.store.reserved().unconfirmed is None


async def test_without_systemctl_reserved_slices_stay_as_they_are(here, memory, systemctl):
    systemctl.unlink()
    report = await attempt(here)
    assert "was not found in PATH" in report.results[-1].error
    assert await values(memory) == OLD


# A second time.


async def test_a_second_time_keeps_the_oldest_old_values(here, memory):
    await attempt(here)
    again = replace(here, config=reserving("cpu=500m,memory=128Mi,pid=100"))
    await attempt(again)
    assert await values(memory) == NEW | {"MemoryMax": 128 * MI}
    assert await armed(memory) == [SECOND]
    await memory.elapse(SECOND)
    assert await values(memory) == OLD
    await attempt(again)
    assert await armed(memory) == [TIMER]


async def test_a_second_time_without_a_timer_leaves_the_first(here, memory):
    await attempt(here)
    first = here.store.reserved()
    memory.refuse(SECOND, Refused("access denied"))
    await attempt(replace(here, config=reserving("memory=128Mi")))
    assert here.store.reserved() == first
    assert await armed(memory) == [TIMER]


async def test_at_no_time_nothing_would_return_the_values(here, memory):
    await attempt(here)
    first = memory.timers[TIMER]
    timers = []
    start, stop = memory.start_timer, memory.stop

    async def start_timer(timer, service):
        await start(timer, service)
        timers.append(await armed(memory))

    async def stop_timer(name, **how):
        timers.append(await armed(memory))
        await stop(name, **how)

    memory.start_timer, memory.stop = start_timer, stop_timer
    await attempt(replace(here, config=reserving("memory=128Mi")))
    assert timers == [[SECOND, TIMER], [SECOND, TIMER]]
    assert memory.timers[TIMER] is first


async def test_after_a_restoration_the_present_values_are_old(here, memory):
    await attempt(here)
    await memory.elapse()
    await memory.set_properties(SLICE, {"MemoryMax": 200 * MI})
    await attempt(here)
    assert here.store.reserved().unconfirmed.old == {SLICE: OLD | {"MemoryMax": 200 * MI}}


# Confirming, and not confirming.


async def test_confirmed_values_stay(here, memory):
    await attempt(here)
    found = await confirm(here.store, memory)
    assert found.state is TrialState.STOPPED
    assert await values(memory) == NEW
    assert await armed(memory) == []
    assert here.store.reserved().unconfirmed is None
    assert await confirm(here.store, memory) is None


async def test_restored_values_can_not_be_confirmed(here, memory):
    await attempt(here)
    await memory.elapse()
    assert await values(memory) == OLD
    for _ in range(2):
        assert (await confirm(here.store, memory)).state is TrialState.RETURNED
    assert await values(memory) == OLD


async def test_a_return_in_part_is_a_return(here, memory):
    await attempt(here)
    await memory.stop(TIMER)
    await memory.set_properties(SLICE, {"MemoryMax": INFINITY})
    assert (await confirm(here.store, memory)).state is TrialState.RETURNED


async def test_a_return_that_is_under_way_is_waited_for(here, memory):
    await attempt(here)
    running = ListedUnit(name="podslice-rollback.service", active_state="activating")
    listing, listed = memory.list_units, []

    async def list_units(patterns):
        listed.append(patterns)
        if len(listed) == 3:
            await memory.set_properties(SLICE, OLD)
        return (running,) if len(listed) in (2, 3) else await listing(patterns)

    memory.list_units = list_units
    assert (await confirm(here.store, memory)).state is TrialState.RETURNED
    assert len(listed) == 5


async def test_a_restoration_that_does_not_finish_is_an_error(here, memory, monkeypatch):
    await attempt(here)
    monkeypatch.setattr(rollback, "RESTORE_PATIENCE_SEC", 0.0)
    running = ListedUnit(name="podslice-rollback.service", active_state="activating")

    async def list_units(_):
        return (running,)

    memory.list_units = list_units
    with pytest.raises(HostError, match="the restoration of the old values does not finish"):
        await confirm(here.store, memory)
    assert here.store.reserved().unconfirmed is not None


async def test_how_it_stands(here, memory):
    assert await pending(here.store, memory) is None
    await attempt(here)
    found = await pending(here.store, memory)
    assert (found.state, found.remaining_sec) == (TrialState.ARMED, 60)
    await memory.stop(TIMER)
    assert (await pending(here.store, memory)).state is TrialState.STOPPED
    await memory.set_properties(SLICE, OLD)
    assert (await pending(here.store, memory)).state is TrialState.RETURNED


async def test_values_that_could_not_be_set_do_not_count_as_restored(here, memory):
    memory.refuse(SLICE, Refused("access denied"))
    report = await attempt(here)
    assert report.results[-1].outcome is Outcome.FAILED
    assert await armed(memory) == [TIMER]
    memory.refuse(SLICE, None)
    await memory.stop(TIMER)
    assert (await pending(here.store, memory)).state is TrialState.STOPPED


# Other operations.


async def test_unattended_operations_leave_reserved_slices_alone(here, memory):
    await attempt(here)
    await memory.elapse()
    assert not (await assess(here)).plan
    await apply(here, Request(candidates=decisions(burstable("web"), on=here.node, by=here.config)))
    assert await values(memory) == OLD
    assert (await assess(here, Request(by_operator=True))).plan
    assert here.store.reserved().unconfirmed is not None


async def test_with_the_last_pod_a_trial_is_over(here, memory):
    await attempt(here, burstable("web"))
    assert (await delete(here, None)).exit_code == 0
    assert await values(memory) == OLD
    assert await armed(memory) == []
    assert not here.store.root.exists() or not here.store.reserved()


async def test_a_trial_of_other_values_returns_to_those_of_podslice_and_then_to_the_first(
    here, memory
):
    await keep(here)
    again = replace(here, config=reserving("cpu=500m,memory=128Mi,pid=100"))
    await attempt(again)
    await memory.elapse()
    assert await values(memory) == NEW
    await keep(replace(here, config=config()))
    assert await values(memory) == OLD


async def test_a_return_can_be_tried_too(here, memory):
    await keep(here)
    free = replace(here, config=config())
    await attempt(free)
    assert await values(memory) == OLD
    await memory.elapse()
    assert await values(memory) == NEW
    await keep(free)
    assert await values(memory) == OLD
    assert not here.store.reserved()


async def test_a_plain_apply_after_a_return_sets_them(here, memory, notes):
    await attempt(here)
    await memory.elapse()
    notes.clear()
    report = await keep(here)
    assert (report.exit_code, await values(memory)) == (0, NEW)
    assert here.store.reserved().unconfirmed is None
    assert not (await assess(here)).plan
    assert notes == []


async def test_a_plain_apply_confirms(here, memory, notes):
    await attempt(here)
    await keep(here)
    assert await values(memory) == NEW
    assert await armed(memory) == []
    assert here.store.reserved().unconfirmed is None
    assert notes[-1] == "apply without --confirm confirms the values that were not confirmed yet"


async def test_a_plain_apply_waits_for_a_restoration_and_sets_values(here, memory):
    await attempt(here)
    stop = memory.stop

    async def late(name, **how):
        memory.stop = stop
        await memory.elapse()

    memory.stop = late
    report = await keep(here)
    assert (report.exit_code, await values(memory)) == (0, NEW)


def test_only_new_values_show_a_return():
    tried = Unconfirmed(
        old={"a.slice": {"MemoryMax": 1, "TasksMax": 2}, "b.slice": {"MemoryMax": 3}},
        new={"a.slice": {"MemoryMax": 1, "TasksMax": 4}},
        until_usec=0,
    )
    seen = {"a.slice": {"MemoryMax": 1, "TasksMax": 2}, "b.slice": {"MemoryMax": 3}}
    assert tried.at_old(seen) == {("a.slice", "TasksMax")}
    assert not tried.at_old({})
