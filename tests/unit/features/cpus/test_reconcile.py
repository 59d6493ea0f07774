"""CPUs of pods that the slices of the host do not use: set, recorded and restored."""

from dataclasses import replace

import pytest

from podslice.model.config import CpuManagerPolicy, ExclusiveFor
from podslice.model.desired import ReservedValue, ReservedValues
from podslice.model.node import regular_topology
from podslice.plan.restore import keep_stated_cpus
from podslice.policy.desire import desire
from podslice.reconcile import rollback
from podslice.reconcile.assess import Request, assess, list_cpus
from podslice.reconcile.report import describe_skipped, describe_step
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import (
    config,
    container,
    decisions,
    desired,
    guaranteed,
    node,
    observed,
    pod,
    seen,
    slice_unit,
    world,
)
from tests.unit.converged import apply, delete

SYSTEM, USER = "system.slice", "user.slice"
FOUR = regular_topology(sockets=1, numa=1, cores=4, threads=1)


def held(*ours):
    values = {"AllowedCPUs": ReservedValue(before="", ours=ours)}
    return ReservedValues(units={SYSTEM: values})


@pytest.mark.parametrize(
    ("has", "recorded", "stated", "excess"),
    [
        ("", ReservedValues(), {"AllowedCPUs": "0"}, None),
        (None, ReservedValues(), {"AllowedCPUs": "0"}, None),
        ("1", held("1"), {"AllowedCPUs": "0"}, None),
        ("0", ReservedValues(), {}, None),
        ("0-2", ReservedValues(), {}, "1-2"),
        ("0-1", held("0", "1"), {}, "1"),
    ],
    ids=["none", "no slice", "ours", "within", "beyond", "joined by systemd"],
)
def test_a_list_of_cpus_of_an_administrator_is_kept(has, recorded, stated, excess):
    there = observed(*([] if has is None else [seen(SYSTEM, values={"AllowedCPUs": has})]))
    for more in ({}, {"CPUWeight": 50}):
        wanted = slice_unit(SYSTEM, owned=False, AllowedCPUs="0", **more)
        root = slice_unit("kubepods.slice")
        found, skipped = keep_stated_cpus(desired(root, wanted), there, recorded)
        units = {unit.name: unit.values for unit in found.units}
        assert units.pop("kubepods.slice") == {}
        assert units == ({SYSTEM: stated | more} if stated or more else {})
        assert [describe_skipped(each) for each in skipped] == [
            f"skipped AllowedCPUs of system.slice: it has AllowedCPUs={has}, which podslice has not"
            f" set, with CPUs of pods: {excess}; remove it, or set exclusive-for to pods"
            for _ in ([excess] if excess else [])
        ]
        assert all(each.blocks for each in skipped)


def test_other_values_are_not_changed():
    without = desired(slice_unit(SYSTEM, owned=False, CPUWeight=50))
    there = observed(seen(SYSTEM, values={"AllowedCPUs": "3"}))
    assert keep_stated_cpus(without, there, ReservedValues()) == (without, ())


@pytest.fixture
def memory():
    client = FakeSystemd()
    client.provide(SYSTEM)
    client.provide(USER)
    return client


@pytest.fixture
def here(tmp_path, memory):
    by = config(
        cpu_manager_policy=CpuManagerPolicy.STATIC,
        reserved_cpus=frozenset({0}),
        exclusive_for=ExclusiveFor.HOST,
    )
    on = replace(node(), topology=FOUR, cpus=FOUR.all)
    return world(tmp_path, memory, on=on, by=by)


def own(name):
    return guaranteed(name, memory="64Mi")


async def put(here, *pods):
    candidates = decisions(*pods, on=here.node, by=here.config)
    return await apply(here, Request(candidates=candidates, by_operator=True))


async def cpus(memory):
    units = await memory.observe([SYSTEM, USER])
    return {unit.name: unit.properties["AllowedCPUs"] for unit in units}


NONE = {SYSTEM: "", USER: ""}


async def test_the_host_leaves_the_cpus_of_pods(here, memory):
    state = await assess(
        here, Request(candidates=decisions(own("db"), on=here.node, by=here.config))
    )
    steps = [describe_step(each) for each in state.plan.steps]
    assert "set AllowedCPUs=0,2-3 (was unset) on system.slice" in steps
    assert "set AllowedCPUs=0,2-3 (was unset) on user.slice" in steps
    assert (await put(here, own("db"))).exit_code == 0
    assert await cpus(memory) == {SYSTEM: "0,2-3", USER: "0,2-3"}
    await put(here, own("web"))
    assert await cpus(memory) == {SYSTEM: "0,3", USER: "0,3"}
    assert not (await assess(here)).plan
    await delete(here, {"default/db"})
    assert await cpus(memory) == {SYSTEM: "0-1,3", USER: "0-1,3"}
    await delete(here, {"default/web"})
    assert await cpus(memory) == NONE
    assert not here.store.reserved_path.exists()


async def test_a_pod_with_cpus_of_its_own_keeps_its_manifest(here):
    """Its decision is another one than the candidate's, and its manifest may be removed later."""
    (db,) = decisions(own("db"), on=here.node, by=here.config)
    await apply(here, Request(candidates=(db,)), sources={db.pod.uid: "/etc/db.yaml"})
    assert here.store.load().sources == {db.pod.uid: "/etc/db.yaml"}
    large = decisions(guaranteed("db", cpu="9", memory="64Mi"), on=here.node, by=here.config)
    await apply(here, Request(candidates=large), sources={db.pod.uid: "/etc/new.yaml"})
    assert here.store.load().sources == {db.pod.uid: "/etc/db.yaml"}


@pytest.mark.parametrize(
    "fields",
    [{"exclusive_for": ExclusiveFor.PODS}, {"cpu_manager_policy": CpuManagerPolicy.NONE}],
    ids=["for pods", "without the policy"],
)
async def test_the_host_has_all_cpus_again(here, memory, fields):
    await put(here, own("db"))
    other = replace(here, config=replace(here.config, **fields))
    assert (await put(other)).exit_code == 0
    assert await cpus(memory) == NONE
    assert not here.store.reserved_path.exists()


def observed_container_cpus(main, log, kind):
    """A slice of a pod, and two containers that run as units of this kind, with these CPUs."""
    stated = {
        "kubepods-podtwo.slice": "1-2",
        f"podslice-podtwo-main.{kind}": main,
        f"podslice-podtwo-log.{kind}": log,
    }
    return observed(*(seen(name, values={"AllowedCPUs": each}) for name, each in stated.items()))


@pytest.mark.parametrize("kind", ["scope", "service"])
def test_containers_keep_their_cpus_however_they_run(here, kind):
    both = [container(name, limits="cpu=1,memory=64Mi") for name in ("main", "log")]
    now = list_cpus(observed_container_cpus("2", "1", kind))
    pods = [pod("two", containers=both)]
    found = desire((), here.node, here.config, current=pods, stage=here.cpu_stage, cpus=now)
    values = {unit.name: unit.values.get("AllowedCPUs") for unit in found.units}
    assert values["podslice-podtwo-main.scope"] == "2"
    assert values["podslice-podtwo-log.scope"] == "1"


async def test_the_timer_of_a_trial_frees_processes(here, memory, monkeypatch, tmp_path):
    """The kernel refuses an empty list, which does not have all CPUs then."""
    (tmp_path / "systemctl").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(
        rollback, "read_possible", lambda name: {"AllowedCPUs": "0-3"}.get(name, "")
    )
    services = []

    async def start_timer(_, service):
        services.append(service)

    memory.start_timer = start_timer
    candidates = decisions(own("db"), on=here.node, by=here.config)
    request = Request(candidates=candidates, by_operator=True)
    assert (await apply(here, request, confirm_sec=60)).exit_code == 0
    commands = [each for _, (_, *each), _ in services[0].properties["ExecStart"]]
    assert commands == [
        ["set-property", "--runtime", name, f"AllowedCPUs={cpus}"]
        for name in (SYSTEM, USER)
        for cpus in ("0-3", "")
    ]


async def test_the_list_of_an_administrator_stays(here, memory):
    await memory.set_properties(SYSTEM, {"AllowedCPUs": "0-1"})
    report = await put(here, own("db"))
    assert report.exit_code == 1
    assert await cpus(memory) == {SYSTEM: "0-1", USER: "0,2-3"}
    await memory.set_properties(SYSTEM, {"AllowedCPUs": "0"})
    assert (await put(here)).exit_code == 0
    await memory.set_properties(USER, {"AllowedCPUs": "0"})
    assert (await put(here)).exit_code == 0
    await delete(here, None)
    assert await cpus(memory) == {SYSTEM: "0", USER: "0"}
    assert not here.store.reserved_path.exists()
