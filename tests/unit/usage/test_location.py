"""The location of processes, compared with their containers."""

from dataclasses import replace

import pytest

from podslice.kernel.cgroup import CgroupFs
from podslice.model.unit import UnitName
from podslice.plan import Plan
from podslice.reconcile.assess import Assessment
from podslice.usage.location import Home, Other, PodMap, Running, arrange, locate, read_placement
from podslice.usage.runtimes import RuntimeContainer
from tests.unit.builders import (
    amounts,
    as_observed,
    besteffort,
    burstable,
    container,
    desired_for,
    make_files,
    seen,
)
from tests.unit.usage.invented import hostile_groups, processes

POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podweb.slice"
SCOPE = "podslice-podweb-main.scope"
BATCH = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podbatch.slice"
LIBPOD = "libpod-0123456789abcdef.scope"
PODS = (
    burstable("web", containers=(container("main", "cpu=1"), container("log"))),
    besteffort("batch"),
)


def state(*more, pods=PODS, without=(), prefix=""):
    """Return an assessment with all units, except `without` and with `more`."""
    desired = desired_for(*pods)
    observed = as_observed(desired, scopes=False)
    units = {
        name: replace(unit, control_group=prefix + unit.control_group)
        for name, unit in observed.units.items()
        if name not in without
    }
    units |= {unit.name: unit for unit in more}
    return Assessment(
        current=(), desired=desired, observed=replace(observed, units=units), plan=Plan()
    )


def at(name, group, **fields):
    return replace(seen(name, **fields), control_group=group)


def placed(groups, *runtimes, of=None):
    return arrange(of or state(), groups, runtimes, lambda pid: f"p{pid}")


def running(*pids):
    return tuple(Running(pid=pid, name=f"p{pid}") for pid in pids)


def podman(group, **fields):
    stated = {"pod_key": "default/web", "pod_uid": None, "container": "main", **fields}
    return RuntimeContainer(
        runtime="podman", id="0123", name="web-main", pid=7, control_group=group, **stated
    )


@pytest.mark.parametrize(
    ("group", "home"),
    [
        (f"{POD}/{SCOPE}", ("default/web", "main", SCOPE, f"{POD}/{SCOPE}")),
        (f"{POD}/{SCOPE}/container/deep", ("default/web", "main", SCOPE, f"{POD}/{SCOPE}")),
        (
            f"{POD}/podslice-podweb-log.service",
            (
                "default/web",
                "log",
                "podslice-podweb-log.service",
                f"{POD}/podslice-podweb-log.service",
            ),
        ),
        (f"{POD}/{LIBPOD}/container", ("default/web", None, LIBPOD, f"{POD}/{LIBPOD}")),
        (
            f"{POD}/x-y.slice/a.service/b",
            ("default/web", None, "a.service", f"{POD}/x-y.slice/a.service"),
        ),
        (f"{POD}/0123abcd", ("default/web", None, "0123abcd", f"{POD}/0123abcd")),
        (POD, ("default/web", None, "kubepods-burstable-podweb.slice", POD)),
        (f"{POD}/x.slice", ("default/web", None, "x.slice", f"{POD}/x.slice")),
        (f"{BATCH}/{SCOPE}", ("default/batch", None, SCOPE, f"{BATCH}/{SCOPE}")),
        (f"{POD}x/{SCOPE}", None),
        ("/kubepods.slice/a.scope", None),
        (f"/system.slice/{SCOPE}", None),
        ("/", None),
        ("", None),
    ],
)
def test_a_control_group_is_part_of_a_pod(group, home):
    found = PodMap(state()).home(group)
    assert (found and (found.pod, found.container, found.unit, found.control_group)) == home


def test_a_user_has_the_same_tree_deeper():
    prefix = "/user.slice/user-1000.slice/user@1000.service"
    pods = PodMap(state(prefix=prefix))
    assert pods.home(f"{prefix}{POD}/{SCOPE}") == Home(
        pod="default/web", container="main", unit=SCOPE, control_group=f"{prefix}{POD}/{SCOPE}"
    )
    assert pods.home(f"{POD}/{SCOPE}") is None


def test_processes_are_listed_by_the_unit_of_their_container():
    found = placed({f"{POD}/{SCOPE}": (9, 8), f"{POD}/{SCOPE}/container": (3,), "/a": (1,)})
    assert found.held == {SCOPE: running(3, 8, 9)}
    assert (found.others, found.strays) == ((), ())


def test_a_podman_pod_without_an_applied_pod_is_elsewhere():
    group = "/podsandbox.slice/libpod-1.scope/container"
    infra = podman(group, container=None, podman_pod="old", pod_key="default/old")
    (stray,) = placed({}, infra).strays
    assert (stray.pod, stray.what, stray.control_group) == (None, "podman pod old", group)
    assert stray.processes == running(7)
    assert stray.hint == "to remove it: podman pod rm --force old; if that fails, repeat it"


def test_helpers_have_a_scope_of_their_own():
    pod = burstable("web", overhead=amounts("cpu=10m"))
    scope = "podslice-podweb-overhead.scope"
    assert placed({f"{POD}/{scope}": (1,)}, of=state(pods=[pod])).held == {scope: running(1)}


def test_other_units_in_a_pod_are_listed_with_their_processes():
    found = placed({f"{POD}/{LIBPOD}/container": (5,), f"{POD}/{LIBPOD}": (4,), BATCH: (6,)})
    assert found.held == {}
    assert found.others == (
        Other(
            unit="kubepods-besteffort-podbatch.slice",
            pod="default/batch",
            control_group=BATCH,
            processes=running(6),
        ),
        Other(
            unit=LIBPOD, pod="default/web", control_group=f"{POD}/{LIBPOD}", processes=running(4, 5)
        ),
    )


def test_the_service_of_a_pod_of_quadlets_is_of_podman():
    found = placed({f"{POD}/web-pod.service": (4,), f"{POD}/other-pod.service": (5,)})
    assert [(each.unit, each.container, each.runtime) for each in found.others] == [
        ("other-pod.service", None, None),
        ("web-pod.service", None, "podman"),
    ]


def test_the_container_of_a_unit_comes_from_the_runtime():
    group = f"{POD}/{LIBPOD}"
    found = placed({f"{group}/container": (7,)}, podman(f"{group}/container"))
    (other,) = found.others
    assert (other.container, other.runtime) == ("main", "podman")
    assert found.strays == ()


def test_a_runtime_below_the_own_scope_is_inside():
    found = placed({f"{POD}/{SCOPE}/x": (7,)}, podman(f"{POD}/{SCOPE}/x"))
    assert (found.others, found.strays) == ((), ())


@pytest.mark.parametrize("fields", [{}, {"pod_key": None, "pod_uid": "web", "container": None}])
@pytest.mark.parametrize("group", [f"/machine.slice/{LIBPOD}", f"{BATCH}/{LIBPOD}"])
def test_a_runtimes_container_outside_of_its_pod_is_a_stray(group, fields):
    (stray,) = placed({}, podman(group, **fields)).strays
    assert (stray.pod, stray.found_by, stray.control_group) == ("default/web", "podman", group)
    assert stray.container == fields.get("container", "main")
    assert stray.processes == running(7)
    assert stray.hint.endswith("podslice cgroup-parent default/web -o podman")


def test_containers_of_unknown_pods_are_ignored():
    assert placed({}, podman("/machine.slice/x.scope", pod_key="default/other")).strays == ()
    assert placed({}, podman("/machine.slice/x.scope", pod_key=None)).strays == ()


def test_a_unit_with_a_containers_name_elsewhere_is_a_stray():
    group = f"/system.slice/{SCOPE}"
    (stray,) = placed({f"{group}/a": (3, 2)}, of=state(at(SCOPE, group))).strays
    assert (stray.pod, stray.container, stray.found_by) == ("default/web", "main", "unit name")
    assert (stray.what, stray.control_group, stray.processes) == (SCOPE, group, running(2, 3))
    assert stray.hint == (
        f"to stop it: systemctl stop {SCOPE}; then start it again: podslice run default/web -c main"
        " -- COMMAND"
    )


def test_a_unit_in_another_pod_is_a_stray_and_listed_there():
    group = f"{BATCH}/{SCOPE}"
    found = placed({group: (2,)}, of=state(at(SCOPE, group)))
    assert [stray.control_group for stray in found.strays] == [group]
    assert [(other.pod, other.unit) for other in found.others] == [("default/batch", SCOPE)]


def test_a_stray_of_no_applied_pod_is_listed():
    name = "podslice-podgone-main.service"
    (stray,) = placed({}, of=state(at(name, f"/system.slice/{name}"))).strays
    assert (stray.pod, stray.container, stray.processes) == (None, None, ())
    assert stray.hint == f"to stop it: systemctl stop {name}"


def test_units_in_place_or_without_processes_are_not_strays():
    """A unit of an unknown pod below the root is not a stray: its slice is an orphan."""
    units = (
        at(SCOPE, f"{POD}/{SCOPE}"),
        at("podslice-podweb-log.scope", "", active_state="failed"),
        at("podslice-podweb-gone.scope", f"{POD}/podslice-podweb-gone.scope"),
        at("podslice-podold-main.scope", "/kubepods.slice/kubepods-podold.slice/x"),
    )
    assert placed({}, of=state(*units)).strays == ()


def test_without_its_slice_every_process_of_a_pod_is_a_stray():
    lost = state(at(SCOPE, f"/system.slice/{SCOPE}"), without=("kubepods-burstable-podweb.slice",))
    assert len(placed({}, podman(f"{POD}/x"), of=lost).strays) == 2


def host(tmp_path, groups):
    """Create processes in control groups, as files of the kernel."""
    files = {"cgroup/cgroup.controllers": ""}
    for group, pids in groups.items():
        files[f"cgroup{group}/cgroup.procs"] = "".join(f"{pid}\n" for pid in pids)
        files |= processes(*({"pid": pid, "name": f"p{pid}", "group": group} for pid in pids))
    make_files(tmp_path, files)
    return CgroupFs(mount=tmp_path / "cgroup")


def test_processes_are_read_from_control_groups(tmp_path):
    elsewhere = f"/system.slice/{SCOPE}"
    own = f"{POD}/podslice-podweb-log.scope"
    groups = {elsewhere: (3,), f"{own}/container": (4,), f"{POD}/{LIBPOD}": (5,), "/x.scope": (6,)}
    cgroups = host(tmp_path, groups)
    found = read_placement(state(at(SCOPE, elsewhere)), cgroups, (), tmp_path)
    assert found.held == {"podslice-podweb-log.scope": running(4)}
    assert [other.processes for other in found.others] == [running(5)]
    assert [stray.processes for stray in found.strays] == [running(3)]


def test_nothing_is_read_without_control_groups(tmp_path):
    found = read_placement(state(pods=(), without=("kubepods.slice",)), CgroupFs(mount=tmp_path))
    assert (found.held, found.others, found.strays) == ({}, (), ())


def test_a_process_is_located(tmp_path):
    host(tmp_path, {f"{POD}/{SCOPE}/x": (3,), "/system.slice/cron.service": (4,)})
    inside, outside, gone = locate(state(), [3, 4, 5, 3], tmp_path)
    assert (inside.name, inside.home.container, inside.hint) == ("p3", "main", "")
    assert (outside.home, outside.control_group) == (None, "/system.slice/cron.service")
    assert outside.hint == "podslice adopt POD -c CONTAINER 4"
    assert (gone.name, gone.home, gone.control_group, gone.hint) == ("?", None, "", "")


@pytest.mark.parametrize("group", hostile_groups(f"{POD}/{SCOPE}"))
def test_a_group_that_only_looks_like_a_pods_is_in_no_pod(tmp_path, group):
    make_files(tmp_path, processes({"pid": 3, "group": group}))
    (found,) = locate(state(), [3], tmp_path)
    assert (found.home, found.control_group) == (None, group)
    assert found.hint == "podslice adopt POD -c CONTAINER 3"


def test_nothing_moves_the_first_process_or_the_kernels(tmp_path):
    rows = ({"pid": 1}, {"pid": 2, "flags": 0x200040}, {"pid": 5, "leader": 4})
    make_files(tmp_path, processes(*rows))
    hints = [each.hint for each in locate(state(), [1, 2, 5], tmp_path)]
    assert hints == ["", "", "podslice adopt POD -c CONTAINER 4"]


def test_the_owner_of_a_group_is_that_of_the_unit_around_it():
    pods = PodMap(state(at(SCOPE, f"/system.slice/{SCOPE}")))
    assert pods.owner(f"/system.slice/{SCOPE}/x") == ("default/web", "main")
    assert pods.owner("/system.slice/cron.service") == (None, None)
    assert pods.owner(f"/user.slice/{SCOPE}") == (None, None)
    assert pods.container(UnitName("podslice-podbatch-main.service")) == ("default/batch", "main")
