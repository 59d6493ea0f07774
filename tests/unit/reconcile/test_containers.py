"""Containers as scopes and services, and the init phase."""

from podslice.errors import Refused
from podslice.model.pod import ContainerKind, InitProgress
from podslice.model.unit import INFINITY, TransientUnit, UnitKind
from podslice.reconcile.assess import assess
from podslice.reconcile.converge import settle
from tests.unit.builders import (
    besteffort,
    burstable,
    container,
    pod,
    resources,
    world,
)
from tests.unit.reconcile.worlds import SCOPE, WEB, assert_settled, put, slices

# Containers, as scopes and as services.


SERVICE = "podslice-podweb-main.service"
COMMAND = (("/bin/true", ("true",), False),)


async def run_service(memory):
    await memory.start(TransientUnit(name=SERVICE, properties={"Slice": WEB, "ExecStart": COMMAND}))


async def test_a_container_is_the_service_that_it_runs_in(here, memory):
    web = burstable("web", "cpu=1,memory=1Gi")
    await put(here, web)
    await run_service(memory)
    state = await assess(here)
    units = {unit.name: unit for unit in state.desired.units}
    assert SCOPE not in units
    assert units[SERVICE].kind is UnitKind.SERVICE
    assert units[SERVICE].control_group.endswith(f"/{WEB}/{SERVICE}")
    assert (await put(here)).exit_code == 0
    assert (await slices(memory))[SERVICE]["MemoryLow"] == 2**30
    await assert_settled(here, web)


async def test_with_a_scope_and_a_service_the_scope_is_the_container(here, memory):
    await put(here, burstable("web"))
    await run_service(memory)
    await memory.start(TransientUnit(name=SCOPE, properties={"Slice": WEB, "PIDs": (7,)}))
    names = {unit.name for unit in (await assess(here)).desired.units}
    assert SCOPE in names
    assert SERVICE not in names


# The init phase.


SHOP = "kubepods-burstable-podshop.slice"


def shop(init="one", **fields):
    containers = (
        container(init, kind=ContainerKind.INIT),
        container("app", "cpu=1,memory=64Mi"),
    )
    limits = fields.pop("limits", "cpu=2,memory=128Mi")
    return pod("shop", containers=containers, resources=resources("", limits), **fields)


async def limit_of(memory):
    return (await slices(memory))[SHOP]["MemoryMax"]


async def test_limits_that_do_not_bind_yet_are_reported_with_the_remedy(tmp_path, memory):
    notes = []
    here = world(tmp_path, memory, notes=notes)
    await put(here, shop())
    assert await limit_of(memory) == INFINITY
    (note,) = set(notes)
    assert note == (
        "pod default/shop: its own limits bind once its init container one exited with 0"
        " (podslice run default/shop -c one -- CMD); to bind them now:"
        " podslice phase default/shop running"
    )
    notes.clear()
    await put(here, besteffort("batch"))
    assert notes == []


async def test_nothing_is_reported_where_the_phase_changes_nothing(tmp_path, memory):
    notes = []
    here = world(tmp_path, memory, notes=notes)
    await put(here, shop(limits=""))
    assert notes == []


async def test_settle_changes_the_units_of_one_pod_only(here, memory):
    await put(here, shop(), burstable("web"))
    here.store.save_progress("shop", InitProgress(over=True))
    await memory.set_properties(WEB, {"CPUWeight": 1})
    report = await settle(here, "default/shop")
    assert report.exit_code == 0
    assert [result.step.name for result in report.results] == [SHOP]
    assert await limit_of(memory) == 2**27
    assert (await slices(memory))[WEB]["CPUWeight"] == 1
    assert (await settle(here, "default/shop")).results == ()


async def test_settle_reports_failures(here, memory):
    await put(here, shop())
    here.store.save_progress("shop", InitProgress(over=True))
    memory.refuse(SHOP, Refused("access denied"))
    report = await settle(here, "default/shop")
    assert report.exit_code == 1
    assert report.results[0].error == "access denied"
