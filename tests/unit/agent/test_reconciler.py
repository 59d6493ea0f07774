import asyncio
from dataclasses import replace

import pytest

from podslice.agent import manifest_files
from podslice.agent.drift import CONTESTED_TIMES
from podslice.agent.reconciler import RoundResult
from podslice.errors import BusUnavailable, HostError, JobFailed
from podslice.model.config import Enforce, WeightMapping
from podslice.model.event import Kind
from podslice.model.node_state import Condition
from podslice.model.unit import INFINITY, TransientUnit
from podslice.reconcile.readmission import readmit
from podslice.store import Store
from tests.unit.agent.agents import write_group
from tests.unit.agent.kept import BATCH, DEEDS, WEB, Node
from tests.unit.builders import amounts, burstable, config
from tests.unit.reconcile.test_guard import RECORDED, start_units_of_a_kubelet


@pytest.fixture
def here(tmp_path):
    return Node(tmp_path)


@pytest.fixture
async def two(here):
    """A node with two pods on which everything is as it should be."""
    here.put("web", {"cpu": "500m", "memory": "256Mi"})
    here.put("batch")
    await here.settle()
    return here


# ManifestDirectories.


async def test_a_manifest_becomes_a_slice_and_a_record(here):
    here.put("web", {"memory": "256Mi"})
    taken = await here.take()
    assert (taken.acted, taken.is_settled) == (True, True)
    assert (await here.there())[WEB]["MemoryLow"] == 2**28
    records = here.context.world.store.load()
    assert records.sources == {"web": str(here.directory / "web.yaml")}
    assert here.told(*DEEDS) == [("pod-applied", "default/web")]


async def test_a_round_that_leaves_manifests_unread_is_followed_by_another(two, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(manifest_files, "REFUSALS_MAX", 0)
        two.put("batch", {"memory": "128Mi"})
        taken = await two.take()
        assert (taken.acted, taken.is_settled) == (False, False)
    assert (await two.take()).acted


async def test_a_round_in_which_nothing_is_due_writes_and_tells_nothing(two):
    two.memory.calls.clear()
    taken = await two.take()
    assert (taken.acted, taken.is_settled) == (False, True)
    assert two.memory.calls == {"list_units": 1}
    assert not two.context.events.journal.all


async def test_a_changed_manifest_changes_the_pod_and_is_no_drift(two):
    two.put("web", {"cpu": "500m", "memory": "128Mi"})
    await two.take()
    assert (await two.there())[WEB]["MemoryLow"] == 2**27
    assert two.told(Kind.DRIFT_REPAIRED, *DEEDS) == [("pod-changed", "default/web")]


async def test_a_pod_goes_with_its_manifest(two):
    two.drop("web")
    await two.take()
    assert (await two.there()).keys() == {BATCH}
    assert two.records == {"batch"}
    assert two.told(*DEEDS) == [("pod-removed", "default/web")]


async def test_a_pod_that_comes_goes_and_comes_again_is_told_each_time(two):
    for _ in range(2):
        two.drop("web")
        await two.settle()
        two.put("web", {"memory": "256Mi"})
        await two.take()
        assert two.told(*DEEDS) == [("pod-applied", "default/web")]


async def test_a_broken_file_touches_nobody_and_is_told_once(two):
    two.write("web", "kind: Pod\nmetadata: {name: web\n")
    two.put("late")
    await two.take()
    await two.take()
    assert two.records == {"web", "batch", "late"}
    (text,) = two.texts(Kind.MANIFEST_BROKEN)
    assert "web.yaml" in text
    assert two.context.counters.broken_manifests == 1


async def test_each_file_is_mended_by_itself(two):
    two.write("web", "[")
    two.write("batch", "[")
    await two.settle()
    two.put("web", {"memory": "256Mi"})
    await two.take()
    (mended,) = two.texts(Kind.MANIFEST_VALID)
    assert "web.yaml" in mended
    two.drop("batch")
    await two.take()
    assert "batch.yaml" in two.texts(Kind.MANIFEST_VALID)[1]


async def test_a_pod_whose_limits_are_wrong_is_told_and_stays_as_it_was(two):
    two.put("web", {"memory": "256Mi"}, {"memory": "1Mi"})
    await two.take()
    assert two.records == {"web", "batch"}
    assert (await two.there())[WEB]["MemoryLow"] == 2**28
    (text,) = two.texts(Kind.MANIFEST_BROKEN)
    assert "web.yaml" in text


async def test_a_file_with_another_uid_replaces_its_pod(two):
    two.put("web", {"memory": "256Mi"}, uid="other")
    first = await two.take()
    assert not first.is_settled  # the old one has gone, the new one has still to come
    await two.settle()
    assert (await two.there()).keys() == {BATCH, "kubepods-burstable-podother.slice"}
    assert two.records == {"web", "batch"}


async def test_a_file_with_another_name_and_the_same_uid_holds_nobody_up(two):
    two.put("shop", {"memory": "256Mi"}, uid="web", file="web")
    two.put("late")
    await two.take()
    await two.settle()
    assert two.records == {"shop", "batch", "late"}
    assert WEB in await two.there()


# What others have applied.


async def test_what_was_applied_by_hand_stays(here):
    await here.by_hand(burstable("web"))
    here.put("batch")
    await here.settle()
    here.drop("batch")
    await here.settle()
    assert here.records == {"web"}


async def test_a_pod_of_that_name_by_hand_is_in_the_way_of_the_manifest_only(here):
    await here.by_hand(burstable("web", uid="handmade"))
    here.put("web", {"memory": "1Mi"})
    here.put("batch")
    await here.take()
    assert (await here.there()).keys() == {BATCH, "kubepods-burstable-podhandmade.slice"}
    (text,) = here.texts(Kind.MANIFEST_BROKEN)
    assert "uid handmade, which was applied by hand" in text
    assert "podslice delete -n default web" in text


async def test_a_pod_without_a_record_is_in_the_way_of_the_manifest_only(here):
    await here.by_hand(burstable("web", uid="handmade"))
    here.context.world.store.remove("handmade")
    here.put("web", {"memory": "1Mi"})
    here.put("batch")
    await here.take()
    assert BATCH in await here.there()
    (text,) = here.texts(Kind.MANIFEST_BROKEN)
    assert "uid handmade" in text


async def test_who_applies_it_by_hand_while_the_agent_waits_keeps_it(two):
    two.drop("web")
    taking = None
    with Store(two.context.world.store.root).lock():
        taking = asyncio.create_task(two.take())
        await asyncio.sleep(0.05)
        await two.by_hand(burstable("web", "cpu=500m,memory=256Mi"))
    await taking
    assert two.records == {"web", "batch"}
    assert WEB in await two.there()


async def test_lost_records_are_written_again(two):
    for uid in ("web", "batch"):
        two.context.world.store.remove(uid)
    await two.settle()
    assert two.records == {"web", "batch"}
    assert set(two.context.world.store.load().sources) == {"web", "batch"}


# Admission.


async def test_a_refusal_is_told_once_for_each_reason(here):
    here.put("large", {"cpu": "100"})
    for _ in range(2):
        assert (await here.take()).is_settled
    assert here.told(Kind.POD_REFUSED) == [("pod-refused", "default/large")]
    here.put("large", {"memory": "100Gi"})
    await here.take()
    assert "OutOfcpu" in here.texts(Kind.POD_REFUSED)[0]
    assert "OutOfmemory" in here.texts(Kind.POD_REFUSED)[1]
    assert here.context.counters.refused == 1


async def test_new_pods_wait_while_the_node_is_short(two):
    two.context.status.set_conditions(frozenset({Condition.MEMORY}))
    two.put("late")
    two.put("fine", {"memory": "1Mi"})
    await two.take()
    assert two.records == {"web", "batch", "fine"}
    two.context.status.set_conditions(frozenset())
    await two.take()
    assert two.records == {"web", "batch", "fine", "late"}


# Evicted pods.


@pytest.mark.parametrize(("name", "unit"), [("web", WEB), ("batch", BATCH)])
async def test_an_evicted_pod_has_no_record_and_stays_away(two, name, unit):
    await two.evict(name, unit)
    await two.settle()
    await two.settle()
    assert unit not in await two.there()
    assert two.records == {"web", "batch"} - {name}


async def test_of_an_evicted_pod_nothing_more_is_told(two):
    await two.evict("batch", BATCH)
    for _ in range(3):
        await two.take()
    assert not two.context.events.journal.all


async def test_who_may_come_back_does_and_that_is_no_drift(two):
    await two.evict("web", WEB)
    await two.settle()
    readmit(two.context.world.store, None)
    await two.take()
    assert WEB in await two.there()
    assert [event.kind.label for event in two.context.events.journal.all] == [
        "pod-readmitted",
        "pod-applied",
    ]


async def test_another_manifest_brings_it_back(two):
    await two.evict("web", WEB)
    await two.settle()
    two.put("web", {"cpu": "500m", "memory": "64Mi"})
    await two.settle()
    assert WEB in await two.there()
    assert not two.context.world.store.load().evicted


async def test_a_mark_that_cannot_be_written_keeps_it_away_and_is_written_later(two, monkeypatch):
    def no_space(*_):
        raise HostError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "mark_evicted", no_space)
        await two.evict("web", WEB)
        for _ in range(3):
            await two.take()
        assert WEB not in await two.there()
        assert two.records == {"batch"}
        assert len(two.texts(Kind.AGENT_FAILED)) == 1
    await two.take()
    assert [mark.pod for mark in two.context.world.store.load().evicted] == ["default/web"]


# Drift.


async def test_what_somebody_changes_is_repaired(two):
    await two.memory.set_properties(WEB, {"CPUWeight": 77})
    two.client.forget(WEB)
    await two.take()
    assert (await two.there())[WEB]["CPUWeight"] != 77
    (event,) = two.context.events.journal.all
    assert (event.kind, event.pod, event.unit) == (Kind.DRIFT_REPAIRED, "default/web", WEB)
    assert "changed externally, restored: set" in event.message
    assert "was 77" in event.message
    assert two.context.counters.drift_repaired == 1


async def test_what_somebody_stops_is_made_again(two):
    await two.memory.stop(WEB)
    await two.take()
    assert WEB in await two.there()
    assert "stopped externally, restored: started" in two.texts(Kind.DRIFT_REPAIRED)[0]


async def test_what_the_agent_stops_itself_is_no_drift(two):
    await two.memory.stop(WEB)
    two.reconciler.forget("default/web", WEB)
    await two.take()
    assert two.told(Kind.DRIFT_REPAIRED, *DEEDS) == [("pod-applied", "default/web")]


async def test_one_unit_that_fails_makes_no_drift_of_the_others_changes(two):
    await two.memory.stop(BATCH)
    two.memory.refuse(BATCH, JobFailed("no", result="failed"))
    for memory in ("128Mi", "64Mi"):
        two.put("web", {"cpu": "500m", "memory": memory})
        assert not (await two.take()).is_settled
    assert not two.texts(Kind.DRIFT_REPAIRED)
    assert two.told(Kind.POD_CHANGED) == [("pod-changed", "default/web")] * 2
    assert len(two.texts(Kind.STEP_FAILED)) == 1


async def test_a_fight_is_told_once_and_left_alone_for_a_while(two):
    for _ in range(CONTESTED_TIMES + 3):
        await two.memory.set_properties(WEB, {"CPUWeight": 77})
        two.client.forget(WEB)
        taken = await two.take()
    assert (taken.acted, taken.is_settled) == (False, False)
    assert (await two.there())[WEB]["CPUWeight"] == 77
    assert len(two.texts(Kind.DRIFT_REPAIRED)) == CONTESTED_TIMES
    assert two.told(Kind.DRIFT_CONTESTED) == [("drift-contested", None)]
    # whoever fights holds nobody else up
    two.put("late")
    await two.take()
    assert "late" in two.records


@pytest.fixture
async def written(two, monkeypatch):
    """The node, whose systemd writes to the files of a control group whatever it is told to set."""
    set_it = two.memory.set_properties

    async def set_properties(name, properties):
        await set_it(name, properties)
        write_group(two.context, WEB, cpu_weight=1)

    monkeypatch.setattr(two.memory, "set_properties", set_properties)
    write_group(two.context, WEB, cpu_weight=1)
    two.client.forget(None)
    await two.settle()
    two.memory.calls.clear()
    return two


async def edit(two, weight):
    """Write to the kernel's file of the control group, behind systemd's back."""
    write_group(two.context, WEB, cpu_weight=weight)
    two.client.verify()
    return await two.take()


async def test_what_is_written_to_the_kernel_is_written_again(written):
    await edit(written, 77)
    assert written.memory.calls["set_properties"] == 1
    assert written.told(Kind.DRIFT_REPAIRED) == [("drift-repaired", "default/web")]
    assert "was changed externally" in written.texts(Kind.DRIFT_REPAIRED)[0]


async def test_what_systemd_has_written_late_is_nobodys_edit(written, monkeypatch):
    async def set_properties(name, properties):
        """The kernel has it already."""

    monkeypatch.setattr(written.memory, "set_properties", set_properties)
    assert (await edit(written, 77)).is_settled
    assert not written.told(Kind.DRIFT_REPAIRED)


async def test_what_could_not_be_written_again_is_tried_again(written):
    written.memory.refuse(WEB, JobFailed("not now", result="failed"))
    with pytest.raises(JobFailed):
        await edit(written, 77)
    written.memory.refuse(WEB, None)
    await written.take()
    assert written.told(Kind.DRIFT_REPAIRED) == [("drift-repaired", "default/web")]


async def test_who_writes_to_the_kernel_again_and_again_is_left_alone(written):
    for weight in range(50, 70):
        taken = await edit(written, weight)
    assert written.memory.calls["set_properties"] == CONTESTED_TIMES
    assert len(written.texts(Kind.DRIFT_CONTESTED)) == 1
    assert not taken.is_settled


# Failures.


async def test_a_step_that_fails_is_told_once_and_tried_again(here):
    here.memory.refuse(WEB, JobFailed("masked", result="failed"))
    here.put("web", {"memory": "1Mi"})
    for _ in range(3):
        taken = await here.take()
        assert (taken.acted, taken.is_settled) == (True, False)
    (event,) = here.context.events.journal.of(Kind.STEP_FAILED)
    assert (event.pod, event.unit) == ("default/web", WEB)
    here.memory.refuse(WEB, None)
    assert (await here.take()).is_settled


async def test_what_was_done_is_told_even_if_the_rest_fails(here):
    here.put("web", {"memory": "1Mi"})
    start_it = here.memory.start

    async def start(unit):
        await start_it(unit)
        if unit.name == WEB:
            here.memory.break_after(0)

    here.memory.start = start
    with pytest.raises(BusUnavailable):
        await here.take()
    assert here.told(*DEEDS) == [("pod-applied", "default/web")]


async def test_what_comes_to_nothing_is_not_told_in_every_round(here):
    async def no_effect(unit: TransientUnit):
        """It says that it is done."""

    here.put("web", {"memory": "1Mi"})
    here.memory.start = no_effect
    for _ in range(4):
        assert not (await here.take()).is_settled
    assert here.told(*DEEDS) == [("pod-applied", "default/web")]


async def test_without_room_for_a_record_the_others_know_how_it_is(two, monkeypatch):
    def no_space(*_):
        raise HostError("No space left on device")

    two.context.assessment = None
    two.put("late")
    monkeypatch.setattr(Store, "save", no_space)
    with pytest.raises(HostError):
        await two.take()
    assert {pod.pod.name for pod in two.context.assessment.desired.pods} >= {"web", "batch"}


async def test_a_new_file_does_not_take_over_an_applied_pod(here):
    """Neither by the name nor by the uid, though its name sorts first."""
    here.put("web", {"memory": "8Mi"}, file="z")
    await here.settle()
    here.put("web", {"memory": "1Mi"}, uid="another", file="a")
    here.put("api", uid="web", file="b")
    assert (await here.take()).is_settled
    assert (await here.there())[WEB]["MemoryLow"] == 8 * 2**20
    assert len(await here.there()) == 1
    assert [problem.message for problem in here.context.status.problems] == [
        f"the name default/web is used by a pod of {here.directory}/z.yaml",
        f"the uid web is used by a pod of {here.directory}/z.yaml",
    ]


# The configuration.


async def test_another_configuration_is_no_drift(two):
    world = two.context.world
    two.context.world = replace(world, config=config(cpu_weight_mapping=WeightMapping.KUBELET))
    two.reconciler.reload(two.manifests())
    assert (await two.take()).acted
    assert not two.texts(Kind.DRIFT_REPAIRED)


# Beside a kubelet.


async def test_beside_a_kubelet_rounds_change_nothing_and_say_so_once(two):
    await start_units_of_a_kubelet(two.memory)
    two.put("late")
    two.drop("web")
    await two.memory.set_properties(BATCH, {"CPUWeight": 77})
    before = await two.memory.observe(["*"])
    for _ in range(3):
        assert await two.take() == RoundResult(is_settled=False, acted=False)
    assert await two.memory.observe(["*"]) == before
    assert two.records == {"web", "batch"}
    (text,) = two.texts(Kind.AGENT_FAILED)
    assert "belongs to a kubelet" in text
    (problem,) = two.context.status.failures
    assert problem == text


async def test_rounds_go_on_when_the_kubelet_and_its_units_are_gone(two):
    await start_units_of_a_kubelet(two.memory)
    await two.take()
    for name in RECORDED:
        if "pod" in name.removeprefix("kubepods"):
            await two.memory.stop(name)
    two.put("late")
    assert (await two.take()).is_settled
    assert "late" in two.records
    assert two.texts(Kind.AGENT_NOTED) == [
        "kubepods.slice no longer belongs to a kubelet; podslice manages it again"
    ]
    assert not two.context.status.failures


# Outside the root.


async def test_values_outside_the_root_return_when_the_configuration_drops_them(here):
    here.memory.provide("podruntime.slice")
    enforcing = config(
        kube_reserved=amounts("memory=64Mi,pid=100"),
        kube_reserved_cgroup="/podruntime.slice",
        enforce_node_allocatable=frozenset({Enforce.PODS, Enforce.KUBE_RESERVED}),
    )
    here.context.world = replace(here.context.world, config=enforcing)
    here.reconciler.reload(here.manifests())
    await here.settle()
    assert here.context.world.store.reserved()
    # what somebody else sets at the same moment stays
    here.context.world = replace(here.context.world, config=config())
    here.reconciler.reload(here.manifests())
    await here.memory.set_properties("podruntime.slice", {"TasksMax": 50})
    assert (await here.take()).is_settled
    (unit,) = await here.memory.observe(["podruntime.slice"])
    assert (unit.properties["MemoryMax"], unit.properties["TasksMax"]) == (INFINITY, 50)
    assert not here.context.world.store.reserved()
    returned, kept = sorted(here.texts(Kind.AGENT_NOTED), reverse=True)
    assert returned.startswith("set MemoryMax=unset (was 64Mi; as before podslice set it)")
    assert kept.startswith("left out TasksMax of podruntime.slice: podslice set it to 100")
