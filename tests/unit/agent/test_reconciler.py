import asyncio
import shutil
from dataclasses import replace

import pytest

from podslice.agent import manifests
from podslice.agent.drift import CONTESTED_TIMES
from podslice.agent.reconciler import Reconciler
from podslice.errors import BusUnavailable, HostError, JobFailed
from podslice.model.config import Enforce, WeightMapping
from podslice.model.event import Kind
from podslice.model.node_state import SIZE_LIMIT, Condition
from podslice.model.unit import INFINITY, TransientUnit, UnitName
from podslice.reconcile import converge
from podslice.reconcile.assess import OngoingTerminations, readmit
from podslice.store.adopted_services import AdoptedService
from podslice.store.store import Store
from podslice.systemd import caching_client
from tests.unit.agent.fakes import until, write_group
from tests.unit.agent.reconciled import BATCH, POD_STEPS, WEB, Node
from tests.unit.builders import amounts, burstable, config, node
from tests.unit.reconcile.test_guard import RECORDED, start_units_of_a_kubelet
from tests.unit.reconcile.test_hugepages import hugetlb_files


@pytest.fixture
def here(tmp_path):
    return Node(tmp_path)


@pytest.fixture
async def two(here):
    """A settled node with two pods."""
    here.put("web", {"cpu": "500m", "memory": "256Mi"})
    here.put("batch")
    await here.settle()
    return here


# Manifests.


async def test_a_manifest_becomes_a_slice_and_a_record(here):
    here.put("web", {"memory": "256Mi"})
    result = await here.run_round()
    assert (result.acted, result.is_settled) == (True, True)
    assert (await here.slices())[WEB]["MemoryLow"] == 2**28
    records = here.context.world.store.load()
    assert records.sources == {"web": str(here.directory / "web.yaml")}
    assert here.reported(*POD_STEPS) == [("pod-applied", "default/web")]


async def test_a_round_that_leaves_manifests_unread_is_followed_by_another(two, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(manifests, "REFUSALS_MAX", 0)
        two.put("batch", {"memory": "128Mi"})
        result = await two.run_round()
        assert (result.acted, result.is_settled) == (False, False)
    assert (await two.run_round()).acted


async def test_a_round_without_changes_writes_and_reports_nothing(two):
    two.memory.calls.clear()
    result = await two.run_round()
    assert (result.acted, result.is_settled) == (False, True)
    assert two.memory.calls == {"list_units": 1}
    assert not two.context.events.journal.all


async def test_a_changed_manifest_changes_the_pod_and_is_not_drift(two):
    two.put("web", {"cpu": "500m", "memory": "128Mi"})
    await two.run_round()
    assert (await two.slices())[WEB]["MemoryLow"] == 2**27
    assert two.reported(Kind.DRIFT_REPAIRED, *POD_STEPS) == [("pod-changed", "default/web")]


async def test_a_pod_is_removed_with_its_manifest(two):
    two.drop("web")
    await two.run_round()
    assert (await two.slices()).keys() == {BATCH}
    assert two.records == {"batch"}
    assert two.reported(*POD_STEPS) == [("pod-removed", "default/web")]


@pytest.fixture
def adopted(monkeypatch):
    """The adopted services: a list, empty at first."""
    found = []
    monkeypatch.setattr(manifests, "read_adopted", lambda _: tuple(found))
    return found


def service(slice_):
    unit = UnitName("lg.service")
    return AdoptedService(unit=unit, pod="default/web", container="lg", slice=slice_, text="")


async def test_a_pod_in_which_services_start_outlasts_its_manifest(two, adopted):
    adopted.append(service(WEB))
    two.drop("web")
    for _ in range(2):
        result = await two.run_round()
        assert (result.acted, result.is_settled) == (False, True)
    assert (await two.slices()).keys() == {WEB, BATCH}
    (problem,) = two.context.status.problems
    assert problem.message == (
        "pod default/web is no longer in it, but services start in the pod: lg.service"
    )
    assert problem.hint == "to remove it: podslice delete default/web --restart"
    (text,) = two.texts(Kind.AGENT_NOTED)
    assert "lg.service" in text
    adopted.clear()
    await two.run_round()
    assert (await two.slices()).keys() == {BATCH}
    assert not two.context.status.problems


async def test_a_pod_in_which_services_start_keeps_its_class(two, adopted):
    adopted.append(service(WEB))
    two.put("web")
    result = await two.run_round()
    assert (result.acted, result.is_settled) == (False, True)
    assert (await two.slices()).keys() == {WEB, BATCH}
    (problem,) = two.context.status.problems
    assert problem.message == (
        "pod default/web would be BestEffort, but services start in its present slice: lg.service"
    )
    assert problem.hint == (
        "systemctl stop lg.service && podslice apply && systemctl start lg.service"
    )
    two.put("web", {"cpu": "500m", "memory": "128Mi"})
    await two.run_round()
    assert (await two.slices())[WEB]["MemoryLow"] == 2**27
    assert not two.context.status.problems


async def test_a_pod_applied_again_is_reported_each_time(two):
    for _ in range(2):
        two.drop("web")
        await two.settle()
        two.put("web", {"memory": "256Mi"})
        await two.run_round()
        assert two.reported(*POD_STEPS) == [("pod-applied", "default/web")]


async def test_a_broken_file_affects_no_pod_and_is_reported_once(two):
    two.write("web", "kind: Pod\nmetadata: {name: web\n")
    two.put("late")
    await two.run_round()
    await two.run_round()
    assert two.records == {"web", "batch", "late"}
    (text,) = two.texts(Kind.MANIFEST_BROKEN)
    assert "web.yaml" in text
    assert two.context.counters.broken_manifests == 1


async def test_each_file_is_valid_again_by_itself(two):
    two.write("web", "[")
    two.write("batch", "[")
    await two.settle()
    two.put("web", {"memory": "256Mi"})
    await two.run_round()
    (event,) = two.texts(Kind.MANIFEST_VALID)
    assert "web.yaml" in event
    two.drop("batch")
    await two.run_round()
    assert "batch.yaml" in two.texts(Kind.MANIFEST_VALID)[1]


async def test_a_pod_with_invalid_limits_is_reported_and_unchanged(two):
    two.put("web", {"memory": "256Mi"}, {"memory": "1Mi"})
    await two.run_round()
    assert two.records == {"web", "batch"}
    assert (await two.slices())[WEB]["MemoryLow"] == 2**28
    (text,) = two.texts(Kind.MANIFEST_BROKEN)
    assert "web.yaml" in text


async def test_a_file_with_another_uid_replaces_its_pod(two):
    two.put("web", {"memory": "256Mi"}, uid="other")
    first = await two.run_round()
    assert not first.is_settled  # the old pod is removed, the new one is not created yet
    await two.settle()
    assert (await two.slices()).keys() == {BATCH, "kubepods-burstable-podother.slice"}
    assert two.records == {"web", "batch"}


async def test_a_renamed_pod_with_the_same_uid_blocks_no_other(two):
    two.put("shop", {"memory": "256Mi"}, uid="web", file="web")
    two.put("late")
    await two.run_round()
    await two.settle()
    assert two.records == {"shop", "batch", "late"}
    assert WEB in await two.slices()


# Pods applied by hand.


async def test_pods_applied_by_hand_stay(here):
    await here.apply_by_hand(burstable("web"))
    here.put("batch")
    await here.settle()
    here.drop("batch")
    await here.settle()
    assert here.records == {"web"}


async def test_a_pod_applied_by_hand_conflicts_with_its_manifest_only(here):
    await here.apply_by_hand(burstable("web", uid="handmade"))
    here.put("web", {"memory": "1Mi"})
    here.put("batch")
    await here.run_round()
    assert (await here.slices()).keys() == {BATCH, "kubepods-burstable-podhandmade.slice"}
    (text,) = here.texts(Kind.MANIFEST_BROKEN)
    assert "uid handmade, which was applied by hand" in text
    assert "podslice delete -n default web" in text


async def test_a_pod_without_a_record_conflicts_with_its_manifest_only(here):
    await here.apply_by_hand(burstable("web", uid="handmade"))
    here.context.world.store.remove("handmade")
    here.put("web", {"memory": "1Mi"})
    here.put("batch")
    await here.run_round()
    assert BATCH in await here.slices()
    (text,) = here.texts(Kind.MANIFEST_BROKEN)
    assert "uid handmade" in text


async def test_a_pod_applied_by_hand_while_the_agent_waits_stays(two):
    two.drop("web")
    taking = None
    with Store(two.context.world.store.root).lock():
        taking = asyncio.create_task(two.run_round())
        await asyncio.sleep(0.05)
        await two.apply_by_hand(burstable("web", "cpu=500m,memory=256Mi"))
    await taking
    assert two.records == {"web", "batch"}
    assert WEB in await two.slices()


async def test_lost_records_are_written_again(two):
    for uid in ("web", "batch"):
        two.context.world.store.remove(uid)
    await two.settle()
    assert two.records == {"web", "batch"}
    assert set(two.context.world.store.load().sources) == {"web", "batch"}


# Admission.


async def test_a_refusal_is_reported_once_per_reason(here):
    here.put("large", {"cpu": "100"})
    for _ in range(2):
        assert (await here.run_round()).is_settled
    assert here.reported(Kind.POD_REFUSED) == [("pod-refused", "default/large")]
    here.put("large", {"memory": "100Gi"})
    await here.run_round()
    assert "OutOfcpu" in here.texts(Kind.POD_REFUSED)[0]
    assert "OutOfmemory" in here.texts(Kind.POD_REFUSED)[1]
    assert here.context.counters.refused == 1


async def test_new_pods_wait_while_the_node_is_under_pressure(two):
    two.context.status.set_conditions(frozenset({Condition.MEMORY}))
    two.put("late")
    two.put("fine", {"memory": "1Mi"})
    await two.run_round()
    assert two.records == {"web", "batch", "fine"}
    two.context.status.set_conditions(frozenset())
    await two.run_round()
    assert two.records == {"web", "batch", "fine", "late"}


# Evicted pods.


@pytest.mark.parametrize(("name", "unit"), [("web", WEB), ("batch", BATCH)])
async def test_an_evicted_pod_has_no_record_and_is_not_started(two, name, unit):
    await two.evict(name, unit)
    await two.settle()
    await two.settle()
    assert unit not in await two.slices()
    assert two.records == {"web", "batch"} - {name}


async def test_an_evicted_pod_causes_no_further_events(two):
    await two.evict("batch", BATCH)
    for _ in range(3):
        await two.run_round()
    assert not two.context.events.journal.all


async def test_an_eviction_by_the_service_of_a_volume_is_counted_once(two):
    """The evictor counts its own, and those before the first round belong to an earlier agent."""
    counted = two.context.counters.evictions
    await two.evict("web", WEB, SIZE_LIMIT)
    await two.evict("batch", BATCH)
    for _ in range(2):
        await two.run_round()
    assert counted == {SIZE_LIMIT: 1}
    two.reconciler = Reconciler(two.context, two.manifests(), two.client, two.terminations)
    await two.run_round()
    assert counted == {SIZE_LIMIT: 1}


async def test_a_readmitted_pod_is_started_and_is_not_drift(two):
    await two.evict("web", WEB)
    await two.settle()
    readmit(two.context.world.store, None)
    await two.run_round()
    assert WEB in await two.slices()
    assert [event.kind.label for event in two.context.events.journal.all] == [
        "pod-readmitted",
        "pod-applied",
    ]


async def test_a_changed_manifest_readmits_the_pod(two):
    await two.evict("web", WEB)
    await two.settle()
    two.put("web", {"cpu": "500m", "memory": "64Mi"})
    await two.settle()
    assert WEB in await two.slices()
    assert not two.context.world.store.load().evicted


async def test_an_unwritten_mark_is_in_force_and_written_later(two, monkeypatch):
    def no_space(*_):
        raise HostError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "mark_evicted", no_space)
        await two.evict("web", WEB)
        for _ in range(3):
            await two.run_round()
        assert WEB not in await two.slices()
        assert two.records == {"batch"}
        assert len(two.texts(Kind.AGENT_FAILED)) == 1
    await two.run_round()
    assert [mark.pod for mark in two.context.world.store.load().evicted] == ["default/web"]


# Drift.


async def test_an_external_change_is_repaired(two):
    await two.memory.set_properties(WEB, {"CPUWeight": 77})
    two.client.forget(WEB)
    await two.run_round()
    assert (await two.slices())[WEB]["CPUWeight"] != 77
    (event,) = two.context.events.journal.all
    assert (event.kind, event.pod, event.unit) == (Kind.DRIFT_REPAIRED, "default/web", WEB)
    assert "changed externally, restored: set" in event.message
    assert "was 77" in event.message
    assert two.context.counters.drift_repaired == 1


async def test_an_external_change_with_a_reload_of_systemd_states_it(two):
    for change, fields in (
        (two.memory.reload_externally, {"PODSLICE_REASON": "daemon-reload"}),
        (None, {}),
    ):
        await two.memory.set_properties(WEB, {"CPUWeight": 77})
        if change:
            change()
        two.client.forget(None)
        await two.run_round()
        assert two.context.events.journal.all[-1].fields == fields
    first, second = two.texts(Kind.DRIFT_REPAIRED)
    assert "changed externally or by a daemon-reload, restored: set" in first
    assert "changed externally, restored: set" in second


async def test_an_externally_stopped_slice_is_started_again(two):
    await two.memory.stop(WEB)
    await two.run_round()
    assert WEB in await two.slices()
    assert "stopped externally, restored: started" in two.texts(Kind.DRIFT_REPAIRED)[0]


async def test_a_stopped_slice_is_one_repair_with_its_limits_of_huge_pages(tmp_path):
    """These are files of the new control group, whose limits are a step of their own."""
    here = Node(tmp_path, on=replace(node("cpu=8,memory=32Gi"), hugepage_sizes=(2**21,)))
    hugetlb_files(tmp_path)
    pages = {"hugetlb_2MB.max": "max", "hugetlb_2MB.rsvd.max": "max"}
    for name in (WEB, "kubepods-burstable.slice"):
        write_group(here.context, name, cgroup_subtree_control="", **pages)
    (tmp_path / "cgroup/cgroup.controllers").write_text("cpu hugetlb")
    here.put("web", {"cpu": "500m", "memory": "256Mi"})
    await here.settle()
    await here.memory.stop(WEB)
    await here.run_round()
    (text,) = here.texts(Kind.DRIFT_REPAIRED)
    assert "stopped externally, restored: started" in text
    (text,) = here.texts(Kind.POD_CHANGED)
    assert "hugetlb.2MB.max=0" in text


async def test_a_slice_stopped_by_the_agent_is_not_drift(two):
    await two.memory.stop(WEB)
    two.reconciler.forget("default/web", WEB)
    await two.run_round()
    assert two.reported(Kind.DRIFT_REPAIRED, *POD_STEPS) == [("pod-applied", "default/web")]


async def test_a_failing_unit_does_not_make_other_changes_drift(two):
    await two.memory.stop(BATCH)
    two.memory.refuse(BATCH, JobFailed("no", result="failed"))
    for memory in ("128Mi", "64Mi"):
        two.put("web", {"cpu": "500m", "memory": memory})
        assert not (await two.run_round()).is_settled
    assert not two.texts(Kind.DRIFT_REPAIRED)
    assert two.reported(Kind.POD_CHANGED) == [("pod-changed", "default/web")] * 2
    assert len(two.texts(Kind.STEP_FAILED)) == 1


async def test_a_contested_unit_is_reported_once_and_paused(two):
    for _ in range(CONTESTED_TIMES + 3):
        await two.memory.set_properties(WEB, {"CPUWeight": 77})
        two.client.forget(WEB)
        result = await two.run_round()
    assert (result.acted, result.is_settled) == (False, False)
    assert (await two.slices())[WEB]["CPUWeight"] == 77
    assert len(two.texts(Kind.DRIFT_REPAIRED)) == CONTESTED_TIMES
    assert two.reported(Kind.DRIFT_CONTESTED) == [("drift-contested", None)]
    # a contested unit does not block others
    two.put("late")
    await two.run_round()
    assert "late" in two.records


@pytest.fixture
async def written(two, monkeypatch):
    """A node whose systemd writes each property to the control group, even if unchanged."""
    set_it = two.memory.set_properties

    async def set_properties(name, properties):
        await set_it(name, properties)
        if "CPUWeight" in properties:
            write_group(two.context, WEB, cpu_weight=1)
        if "TasksMax" in properties:
            write_group(two.context, WEB, pids_max="max")

    monkeypatch.setattr(two.memory, "set_properties", set_properties)
    write_group(two.context, WEB, cpu_weight=1, pids_max="max")
    two.client.forget(None)
    await two.settle()
    two.memory.calls.clear()
    return two


async def edit(two, weight):
    """Write to a file of the control group without systemd."""
    write_group(two.context, WEB, cpu_weight=weight)
    two.client.verify()
    return await two.run_round()


async def test_an_external_write_to_the_kernel_is_restored(written):
    await edit(written, 77)
    assert written.memory.calls["set_properties"] == 1
    assert written.reported(Kind.DRIFT_REPAIRED) == [("drift-repaired", "default/web")]
    (text,) = written.texts(Kind.DRIFT_REPAIRED)
    assert "was changed externally" in text
    assert text.endswith(" CPUWeight=1 (was 77)")


async def test_a_late_write_of_systemd_is_not_external(written, monkeypatch):
    async def set_properties(name, properties):
        """Do nothing: the kernel has the value already."""

    monkeypatch.setattr(written.memory, "set_properties", set_properties)
    assert (await edit(written, 77)).is_settled
    assert not written.reported(Kind.DRIFT_REPAIRED)


async def test_controllers_that_come_and_go_are_not_drift(written):
    """systemd and runtimes enable them for the first child that needs one; the file has a default."""
    group = write_group(written.context, WEB, cpuset_cpus="", memory_low="0")
    written.client.verify()
    assert (await written.run_round()).is_settled
    for file in ("cpuset.cpus", "memory.low", "pids.max"):
        (group / file).unlink()
    written.client.verify()
    assert (await written.run_round()).is_settled
    assert not written.memory.calls["set_properties"]
    assert not written.reported(Kind.DRIFT_REPAIRED)


async def test_all_cpus_are_as_none_listed(written, monkeypatch):
    """systemd writes the empty list, which allows all, once a slice has no processes."""
    monkeypatch.setattr(caching_client, "read_possible", {"AllowedCPUs": "0-3"}.get)
    for cpus in ("", "0-3", ""):
        write_group(written.context, WEB, cpuset_cpus=cpus)
        written.client.verify()
        assert (await written.run_round()).is_settled
    assert not written.memory.calls["set_properties"]
    write_group(written.context, WEB, cpuset_cpus="0-2")
    written.client.verify()
    await written.run_round()
    assert written.memory.calls["set_properties"] == 1


async def test_values_that_systemd_is_writing_are_not_drift(written, monkeypatch):
    """A file of a new controller has the kernel's default until systemd has written the value."""
    list_units = written.memory.list_units

    async def reply(patterns):
        if WEB in patterns:
            write_group(written.context, WEB, cpu_weight=1)
        return await list_units(patterns)

    monkeypatch.setattr(written.memory, "list_units", reply)
    assert (await edit(written, 100)).is_settled
    assert not written.reported(Kind.DRIFT_REPAIRED)


async def test_only_what_was_written_externally_is_restored(written, monkeypatch):
    """Other properties may have a value that the kernel refuses now, or need another controller."""
    requested = []
    set_it = written.memory.set_properties

    async def set_properties(name, properties):
        requested.append((name, properties))
        await set_it(name, properties)

    monkeypatch.setattr(written.memory, "set_properties", set_properties)
    write_group(written.context, WEB, pids_max="5")
    await edit(written, 77)
    assert requested == [(WEB, {"CPUWeight": 50, "TasksMax": INFINITY})]
    write_group(written.context, WEB, pids_max="6")
    await edit(written, 1)
    assert requested[1:] == [(WEB, {"TasksMax": INFINITY})]
    assert len(written.texts(Kind.DRIFT_REPAIRED)) == 2


@pytest.mark.parametrize("call", ["set_properties", "observe"])
async def test_an_external_write_during_a_restoration_is_restored_too(written, monkeypatch, call):
    inner, writes, groups = getattr(written.memory, call), [5], []

    async def write_once(*arguments):
        result = await inner(*arguments)
        if written.memory.calls["set_properties"] and writes:
            groups.append(write_group(written.context, WEB, pids_max=str(writes.pop())))
        return result

    monkeypatch.setattr(written.memory, call, write_once)
    await edit(written, 77)
    written.client.verify()  # the kernel reports the write
    await written.run_round()
    assert not writes
    (group,) = groups
    assert (group / "pids.max").read_text() == "max\n"
    ends = [text.rpartition(": ")[2] for text in written.texts(Kind.DRIFT_REPAIRED)]
    assert [each.partition("=")[0] for each in ends] == ["CPUWeight", "TasksMax"]


async def test_an_external_write_after_a_change_during_the_observation_is_restored(
    written, monkeypatch
):
    """The watcher forgets a unit when systemd writes its files, which it does in a restoration."""
    observe = written.memory.observe

    async def change(patterns):
        found = await observe(patterns)
        if written.memory.calls["set_properties"]:
            written.client.forget(WEB)
        return found

    monkeypatch.setattr(written.memory, "observe", change)
    await edit(written, 77)
    monkeypatch.setattr(written.memory, "observe", observe)
    group = write_group(written.context, WEB, pids_max=5)
    written.client.verify()
    await written.run_round()
    assert (group / "pids.max").read_text() == "max\n"
    assert len(written.texts(Kind.DRIFT_REPAIRED)) == 2


async def test_a_failed_restoration_is_retried(written):
    written.memory.refuse(WEB, JobFailed("not now", result="failed"))
    with pytest.raises(JobFailed):
        await edit(written, 77)
    written.memory.refuse(WEB, None)
    await written.run_round()
    assert written.reported(Kind.DRIFT_REPAIRED) == [("drift-repaired", "default/web")]


async def test_repeated_external_writes_are_contested(written):
    for weight in range(50, 70):
        result = await edit(written, weight)
    assert written.memory.calls["set_properties"] == CONTESTED_TIMES
    assert len(written.texts(Kind.DRIFT_CONTESTED)) == 1
    assert not result.is_settled


# Failures.


async def test_a_failed_step_is_reported_once_and_retried(here):
    here.memory.refuse(WEB, JobFailed("masked", result="failed"))
    here.put("web", {"memory": "1Mi"})
    for _ in range(3):
        result = await here.run_round()
        assert (result.acted, result.is_settled) == (True, False)
    (event,) = here.context.events.journal.of(Kind.STEP_FAILED)
    assert (event.pod, event.unit) == ("default/web", WEB)
    here.memory.refuse(WEB, None)
    assert (await here.run_round()).is_settled


async def test_successful_steps_are_reported_even_if_others_fail(here):
    here.put("web", {"memory": "1Mi"})
    start_it = here.memory.start

    async def start(unit):
        await start_it(unit)
        if unit.name == WEB:
            here.memory.break_after(0)

    here.memory.start = start
    with pytest.raises(BusUnavailable):
        await here.run_round()
    assert here.reported(*POD_STEPS) == [("pod-applied", "default/web")]


async def test_a_step_without_effect_is_not_reported_in_every_round(here):
    async def no_effect(unit: TransientUnit):
        """Report success without effect."""

    here.put("web", {"memory": "1Mi"})
    here.memory.start = no_effect
    for _ in range(4):
        assert not (await here.run_round()).is_settled
    assert here.reported(*POD_STEPS) == [("pod-applied", "default/web")]


async def test_without_space_for_a_record_the_assessment_is_still_shared(two, monkeypatch):
    def no_space(*_):
        raise HostError("No space left on device")

    two.context.assessment = None
    two.put("late")
    monkeypatch.setattr(Store, "save", no_space)
    with pytest.raises(HostError):
        await two.run_round()
    assert {pod.pod.name for pod in two.context.assessment.desired.pods} >= {"web", "batch"}


async def test_a_new_file_does_not_take_over_an_applied_pod(here):
    """Neither by the name nor by the uid, although the file sorts first."""
    here.put("web", {"memory": "8Mi"}, file="z")
    await here.settle()
    here.put("web", {"memory": "1Mi"}, uid="another", file="a")
    here.put("api", uid="web", file="b")
    assert (await here.run_round()).is_settled
    assert (await here.slices())[WEB]["MemoryLow"] == 8 * 2**20
    assert len(await here.slices()) == 1
    assert [problem.message for problem in here.context.status.problems] == [
        f"the name default/web is used by a pod of {here.directory}/z.yaml",
        f"the uid web is used by a pod of {here.directory}/z.yaml",
    ]


# The configuration.


async def test_a_changed_configuration_is_not_drift(two):
    world = two.context.world
    two.context.world = replace(world, config=config(cpu_weight_mapping=WeightMapping.KUBELET))
    two.reconciler.reload(two.manifests())
    assert (await two.run_round()).acted
    assert not two.texts(Kind.DRIFT_REPAIRED)


# Beside a kubelet.


async def test_beside_a_kubelet_rounds_change_nothing_and_report_it_once(two):
    await start_units_of_a_kubelet(two.memory)
    two.put("late")
    two.drop("web")
    await two.memory.set_properties(BATCH, {"CPUWeight": 77})
    before = await two.memory.observe(["*"])
    for _ in range(3):
        result = await two.run_round()
        assert (result.acted, result.is_settled) == (False, False)
    assert await two.memory.observe(["*"]) == before
    assert two.records == {"web", "batch"}
    (text,) = two.texts(Kind.AGENT_FAILED)
    assert "belongs to a kubelet" in text
    (problem,) = two.context.status.failures
    assert problem.message == text


async def test_rounds_continue_after_the_kubelet_is_removed(two):
    await start_units_of_a_kubelet(two.memory)
    await two.run_round()
    for name in RECORDED:
        if "pod" in name.removeprefix("kubepods"):
            await two.memory.stop(name)
    two.put("late")
    assert (await two.run_round()).is_settled
    assert "late" in two.records
    assert two.texts(Kind.AGENT_NOTED) == [
        "kubepods.slice no longer belongs to a kubelet; podslice manages it again"
    ]
    assert not two.context.status.failures


# Outside the root.


async def test_values_outside_the_root_are_restored_when_no_longer_configured(here):
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
    # an external value set at the same moment stays
    here.context.world = replace(here.context.world, config=config())
    here.reconciler.reload(here.manifests())
    await here.memory.set_properties("podruntime.slice", {"TasksMax": 50})
    assert (await here.run_round()).is_settled
    (unit,) = await here.memory.observe(["podruntime.slice"])
    assert (unit.properties["MemoryMax"], unit.properties["TasksMax"]) == (INFINITY, 50)
    assert not here.context.world.store.reserved()
    returned, kept = sorted(here.texts(Kind.AGENT_NOTED))
    assert returned.startswith("set MemoryMax=unset (was 64Mi; restores the former value)")
    assert kept.startswith("skipped TasksMax of podruntime.slice: podslice set it to 100")


# What other processes show: pods that do not run as wanted.


def pending(node):
    node.context.publish()
    state = node.context.world.store.agent.read()
    return [(each.pod, each.reason, each.is_applied) for each in state.pending]


async def test_pending_pods_are_unknown_before_the_first_round(here):
    here.context.publish()
    assert here.context.world.store.agent.read().pending is None


async def test_refused_pods_are_pending_until_they_fit(two):
    assert pending(two) == []
    two.put("big", {"cpu": "100"})
    two.put("web", {"cpu": "50"})
    await two.run_round()
    assert pending(two) == [("default/big", "OutOfcpu", False), ("default/web", "OutOfcpu", True)]
    two.drop("big")
    two.put("web", {"cpu": "1"})
    await two.run_round()
    assert pending(two) == []


async def test_an_evicted_pod_is_pending_and_after_readmission_while_memory_is_short(two):
    await two.evict("batch", BATCH)
    await two.settle()
    assert pending(two) == [("default/batch", "Evicted", False)]
    two.context.status.set_conditions(frozenset({Condition.MEMORY}))
    readmit(two.context.world.store, None)
    await two.run_round()
    assert pending(two) == [("default/batch", "MemoryPressure", False)]
    (found,) = two.context.pending
    assert (found.qos, found.source) == ("BestEffort", str(two.directory / "batch.yaml"))
    two.context.status.set_conditions(frozenset())
    await two.settle()
    assert pending(two) == []


async def test_a_pod_waits_for_the_end_of_another_of_its_name(two):
    two.context.terminating = OngoingTerminations(in_progress={"web"})
    two.put("web", {"cpu": "1"}, uid="new")
    await two.run_round()
    assert pending(two) == [("default/web", "NameInUse", True)]
    (found,) = two.context.pending
    assert found.message == (
        "waits until pod default/web, uid web is removed: it has the name or the uid of this pod"
    )


async def test_a_stuck_pod_is_published_until_it_is_removed(two, monkeypatch):
    monkeypatch.setattr(converge, "REMOVAL_PATIENCE_SEC", 0.0)
    group = write_group(two.context, BATCH, memory_current=0)
    (group / "cgroup.procs").write_text("")
    two.drop("batch")
    await two.run_round()
    (stuck,) = two.context.stuck
    assert (stuck.pod, stuck.hint) == (
        "default/batch",
        "to retry: podslice delete -n default batch",
    )
    shutil.rmtree(group)
    await two.settle()
    await two.run_round()
    assert two.context.stuck == ()


async def test_the_slices_above_a_terminated_pod_are_observed_again(here):
    """They had its processes, and are stopped with the last pod."""
    here.put("batch")
    await here.settle()
    properties = {"Slice": BATCH, "PIDs": (7,)}
    await here.memory.start(TransientUnit(name="x.scope", properties=properties))
    here.client.forget(None)
    await here.run_round()
    here.drop("batch")
    await here.run_round()
    await until(lambda: not here.context.terminating.in_progress)
    await here.settle()
    assert await here.memory.observe(["kubepods*"]) == ()
