from dataclasses import replace

import pytest

from podslice.kernel.cgroup import CgroupFs, Usage
from podslice.model.container_exit import ContainerExit, ContainerHistory
from podslice.model.naming import service_name
from podslice.model.pod import MemoryVolume
from podslice.model.unit import INFINITY, UnitKind, UnitName
from podslice.usage.unit_status import MISSING, PropertyStatus, in_tree_order, unit_statuses
from tests.unit.builders import (
    as_observed,
    besteffort,
    burstable,
    config,
    desired,
    desired_for,
    guaranteed,
    make_files,
    observed,
    scope_unit,
    seen,
    slice_unit,
)

WEB = "kubepods-burstable-podweb.slice"
THREE = (besteffort("batch"), burstable("web"), guaranteed("database"))


def statuses(wanted, there, tmp_path):
    return unit_statuses(wanted, there, CgroupFs(mount=tmp_path))


def one(wanted, there, tmp_path):
    (status,) = statuses(wanted, there, tmp_path)
    return status


def test_the_tree_has_guaranteed_pods_before_the_tiers():
    wanted = desired_for(*THREE)
    assert [(depth, unit.name) for depth, unit in in_tree_order(wanted)] == [
        (0, "kubepods.slice"),
        (1, "kubepods-poddatabase.slice"),
        (2, "podslice-poddatabase-main.scope"),
        (1, "kubepods-burstable.slice"),
        (2, WEB),
        (3, "podslice-podweb-main.scope"),
        (1, "kubepods-besteffort.slice"),
        (2, "kubepods-besteffort-podbatch.slice"),
        (3, "podslice-podbatch-main.scope"),
    ]


def test_reserved_slices_stand_beside_the_root():
    by = config(
        system_reserved={"cpu": 500},
        system_reserved_cgroup="/system.slice",
        enforce_node_allocatable=frozenset({"pods", "system-reserved"}),
    )
    depths = {unit.name: depth for depth, unit in in_tree_order(desired_for(*THREE, by=by))}
    assert depths["system.slice"] == depths["kubepods.slice"] == 0


def test_nothing_differs_when_all_values_are_set(tmp_path):
    wanted = desired_for(*THREE)
    found = statuses(wanted, as_observed(wanted), tmp_path)
    assert [unit.name for unit in found] == [unit.name for _, unit in in_tree_order(wanted)]
    assert not any(unit.differs for unit in found)
    assert {unit.state for unit in found} == {"active"}


def test_containers_without_processes_are_empty_and_differ_in_nothing(tmp_path):
    wanted = desired_for(*THREE)
    found = statuses(wanted, as_observed(wanted, scopes=False), tmp_path)
    scopes = [unit for unit in found if unit.kind is UnitKind.SCOPE]
    assert [(unit.label, unit.state, unit.differs) for unit in scopes] == [
        ("main", "not started", False)
    ] * 3


def test_a_container_outside_of_its_pod_is_elsewhere(tmp_path):
    wanted = desired_for(burstable("web"))
    there = as_observed(wanted)
    scope = UnitName("podslice-podweb-main.scope")
    group = f"/system.slice/{scope}"
    units = {**there.units, scope: replace(there.units[scope], control_group=group)}
    found = statuses(wanted, replace(there, units=units), tmp_path)
    states = {unit.name: (unit.state, unit.differs, unit.control_group) for unit in found}
    assert states[scope] == ("elsewhere", True, group)
    assert states[WEB][:2] == ("active", False)


def test_a_container_that_failed_is_not_elsewhere(tmp_path):
    wanted = desired_for(burstable("web"))
    there = as_observed(wanted)
    scope = UnitName("podslice-podweb-main.scope")
    failed = replace(there.units[scope], active_state="failed", control_group="")
    found = statuses(wanted, replace(there, units={**there.units, scope: failed}), tmp_path)
    assert [unit.state for unit in found if unit.name == scope] == ["failed"]


def test_a_volume_is_a_unit_of_the_pod_and_missed(tmp_path):
    wanted = desired_for(burstable("web", volumes=(MemoryVolume(name="cache"),)))
    (volume,) = (
        unit
        for unit in statuses(wanted, as_observed(wanted, scopes=False), tmp_path)
        if unit.kind is UnitKind.MOUNT
    )
    assert (volume.label, volume.pod, volume.state) == ("volume cache", "default/web", "missing")


def test_labels_and_classes_are_those_of_people(tmp_path):
    wanted = desired_for(burstable("web"))
    found = {unit.name: unit for unit in statuses(wanted, as_observed(wanted), tmp_path)}
    assert (found[WEB].label, found[WEB].qos, found[WEB].pod) == (
        "default/web",
        "Burstable",
        "default/web",
    )
    scope = found["podslice-podweb-main.scope"]
    assert (scope.label, scope.qos, scope.pod) == ("main", "", "default/web")
    assert found["kubepods.slice"].label == "kubepods.slice"


def test_a_slice_that_does_not_exist_is_missing(tmp_path):
    wanted = desired(slice_unit("kubepods.slice", CPUWeight=5))
    for there in (observed(), observed(seen("kubepods.slice", active_state="inactive"))):
        status = one(wanted, there, tmp_path)
        assert status.state == MISSING
        assert status.differs
        assert status.usage == Usage()
        assert status.properties == (
            PropertyStatus(name="CPUWeight", desired=5, systemd=None, kernel=None),
        )
        assert not status.properties[0].differs


def test_a_failed_unit_is_reported_as_failed(tmp_path):
    wanted = desired(slice_unit("kubepods.slice"))
    there = observed(seen("kubepods.slice", active_state="failed"))
    assert one(wanted, there, tmp_path).state == "failed"


def test_drift_differs(tmp_path):
    wanted = desired(slice_unit("kubepods.slice", CPUWeight=5))
    there = observed(seen("kubepods.slice", values={"CPUWeight": 6}))
    status = one(wanted, there, tmp_path)
    assert status.differs
    assert status.properties[0].differs


def test_a_value_that_is_not_desired_differs(tmp_path):
    there = observed(seen("kubepods.slice", values={"TasksMax": 6}))
    status = one(desired(slice_unit("kubepods.slice")), there, tmp_path)
    assert status.properties == (
        PropertyStatus(name="TasksMax", desired=None, systemd=6, kernel=None),
    )
    assert status.differs


def test_external_values_of_a_reserved_slice_do_not_differ(tmp_path):
    there = observed(seen("system.slice", values={"TasksMax": 6, "CPUWeight": 5}))
    reserved = slice_unit("system.slice", owned=False, CPUWeight=5)
    status = one(desired(reserved), there, tmp_path)
    assert [property_.name for property_ in status.properties] == ["CPUWeight"]
    assert not status.differs


def test_a_property_that_systemd_does_not_return_does_not_differ(tmp_path):
    there = observed(replace(seen("kubepods.slice"), properties={}))
    status = one(desired(slice_unit("kubepods.slice", MemoryMin=5)), there, tmp_path)
    assert status.properties[0].systemd is None
    assert not status.differs


def test_an_explicit_infinity_is_unset():
    property_ = PropertyStatus(name="MemoryMax", desired=None, systemd=INFINITY, kernel="max")
    assert not property_.differs


def test_the_kernel_is_asked_at_the_units_own_group(tmp_path):
    """For a user's manager, or in a container, groups do not begin at the mount."""
    make_files(
        tmp_path,
        {
            "cgroup.controllers": "",
            "user.slice/kubepods.slice/cpu.weight": "5\n",
            "user.slice/kubepods.slice/pids.current": "7\n",
        },
    )
    there = replace(
        seen("kubepods.slice", values={"CPUWeight": 5}), control_group="/user.slice/kubepods.slice"
    )
    wanted = desired(slice_unit("kubepods.slice", CPUWeight=5))
    status = one(wanted, observed(there), tmp_path)
    assert status.properties[0].kernel == "5"
    assert status.usage.tasks == 7
    assert status.control_group == "/user.slice/kubepods.slice"


def test_the_kernel_has_the_limits_of_input_and_output(tmp_path):
    group = "kubepods.slice/kubepods-poda.slice"
    text = "254:0 rbps=4096 wbps=max riops=max wiops=max\n"
    files = {"cgroup.controllers": "", f"{group}/io.max": text}
    make_files(tmp_path, {**files, f"{group}/memory.zswap.max": "max\n"})
    values = {"IOReadBandwidthMax": "/srv 4096", "MemoryZSwapMax": 8192}
    wanted = desired(slice_unit("kubepods-poda.slice", pod="default/a", **values))
    status = one(wanted, observed(seen("kubepods-poda.slice", values=values)), tmp_path)
    found = {each.name: (each.desired, each.kernel) for each in status.properties}
    assert found == {
        "IOReadBandwidthMax": ("/srv 4096", "254:0 4096"),
        "MemoryZSwapMax": (8192, "max"),
    }


def test_a_scope_takes_its_label_from_its_description(tmp_path):
    scope = scope_unit("podslice-podweb-main.scope", WEB)
    found = statuses(desired(scope), observed(seen(scope.name)), tmp_path)
    assert [status.label for status in found] == ["podslice-podweb-main.scope"]


LAST = ContainerExit(result="exit-code", exit_code=7, started_usec=5, ended_usec=9)


@pytest.mark.parametrize(
    ("history", "main_exit", "shown"),
    [
        (None, None, ("active", 1, None)),
        (None, LAST, ("active", 1, LAST)),
        (ContainerHistory(started_usec=7, restarts=2, last_exit=LAST), None, ("active", 3, LAST)),
        (
            ContainerHistory(started_usec=7, last_exit=LAST),
            replace(LAST, exit_code=3, ended_usec=10),
            ("active", 1, replace(LAST, exit_code=3, ended_usec=10)),
        ),
        (
            ContainerHistory(started_usec=7, last_exit=replace(LAST, ended_usec=11)),
            LAST,
            ("active", 1, replace(LAST, ended_usec=11)),
        ),
    ],
)
def test_the_last_exit_is_recorded_or_that_of_a_loaded_service(tmp_path, history, main_exit, shown):
    wanted = desired_for(burstable("web"))
    there = as_observed(wanted)
    scope = UnitName("podslice-podweb-main.scope")
    unit = replace(there.units[scope], main_exit=main_exit, restarts=1)
    found = unit_statuses(
        wanted,
        replace(there, units={**there.units, scope: unit}),
        CgroupFs(mount=tmp_path),
        {scope: history} if history else {},
    )
    (status,) = [each for each in found if each.name == scope]
    assert (status.state, status.restarts, status.last_exit) == shown


@pytest.mark.parametrize(
    ("main_exit", "tasks", "active_state", "state"),
    [
        (LAST, 0, "active", "exited"),
        (LAST, 1, "active", "active"),
        (None, 0, "active", "active"),
        (LAST, 0, "activating", "activating"),
        (LAST, 0, "inactive", "exited"),
        (LAST, 0, "failed", "failed"),
        (None, 0, "inactive", "not started"),
    ],
)
def test_a_service_may_remain_loaded_when_its_processes_have_ended(
    tmp_path, main_exit, tasks, active_state, state
):
    """As those of podman, of which that of an init container remains active."""
    wanted = desired_for(burstable("web"))
    there = as_observed(wanted)
    name = UnitName("podslice-podweb-main.scope")
    service = service_name(name)
    unit = replace(
        there.units[name], name=service, main_exit=main_exit, tasks=tasks, active_state=active_state
    )
    units = tuple(
        replace(each, name=service) if each.name == name else each for each in wanted.units
    )
    found = unit_statuses(
        replace(wanted, units=units),
        replace(there, units={**there.units, service: unit}),
        CgroupFs(mount=tmp_path),
    )
    (status,) = [each for each in found if each.name == service]
    assert (status.state, status.last_exit) == (state, main_exit)
