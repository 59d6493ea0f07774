"""`status` and `tree`, which share what they observe."""

import asyncio
import json
import re

import pytest

from podslice.cli import overview
from podslice.kernel.proc import read_process as read
from podslice.model.unit import GENERATED, TransientUnit, UnitName, control_group_of
from podslice.store.store import Store
from podslice.systemd import journal
from podslice.usage import location, runtimes
from podslice.usage.runtimes import RuntimeContainer
from tests.unit.builders import make_files, manifest
from tests.unit.usage.invented import processes

STATUS = """\
NAME                         QOS        STATE        WEIGHT  QUOTA  MEM LOW  MEM MAX  USED  CPU TIME  TASKS
kubepods.slice               -          active          800      -  256 MiB   32 GiB     -         -      -
  kubepods-burstable.slice   -          active           75      -  256 MiB        -     -         -      -
    shop/web                 Burstable  active           75   125%  256 MiB        -     -         -      -
      main                   -          not started       -      -        -        -     -         -      -
  kubepods-besteffort.slice  -          active            1      -        -        -     -         -      -
"""

TREE = """\
NAME                          USED  PROPERTIES
kubepods.slice                -     CPUWeight=800 MemoryLow=256Mi MemoryMax=32Gi
├─ kubepods-burstable.slice   -     CPUWeight=75 MemoryLow=256Mi
│  └─ shop/web Burstable      -     CPUQuota=125% CPUWeight=75 MemoryLow=256Mi
│     └─ main                 -     not started
└─ kubepods-besteffort.slice  -     CPUWeight=1
"""

POD = "kubepods-burstable-podweb.slice"
SCOPE = "podslice-podweb-main.scope"
GROUP = f"/kubepods.slice/kubepods-burstable.slice/{POD}"
LIBPOD = f"libpod-{'0123456789abcdef' * 4}.scope"


@pytest.fixture
def web(podslice, files, memory):
    """A pod that is applied."""
    files(
        {
            "web.json": manifest(
                "web", {"cpu": "750m", "memory": "256Mi"}, {"cpu": "1250m"}
            ).replace('"name": "web"', '"name": "web", "namespace": "shop", "uid": "web"')
        }
    )
    assert podslice("apply", "-f", "web.json").code == 0


def test_status_of_nothing(podslice, memory):
    assert podslice("status") == (0, "no pods\n", "")
    assert podslice("tree") == (0, "no pods\n", "")
    assert podslice("status", "-o", "name") == (0, "", "")


def test_status(podslice, web):
    assert podslice("status") == (0, f"{STATUS}\n1 pod, no problems\n", "")


def test_tree(podslice, web):
    assert podslice("tree") == (0, TREE, "")


def test_the_last_line_of_status_counts_pods_and_problems(podslice, many, memory):
    assert podslice("status").out.endswith("\n\n3 pods, no problems\n")
    assert podslice("status", "-o", "wide").out.endswith("\n\n3 pods, no problems\n")
    assert podslice("status", "-n", "shop").out.endswith("\n\n1 pod, no problems\n")
    asyncio.run(memory.set_properties("kubepods-besteffort.slice", {"CPUWeight": 9}))
    assert podslice("status").out.endswith("\n\n3 pods, 1 problem\n")
    assert podslice("status", "--problems").out.endswith("\n\n1 problem\n")
    assert "no problems" not in podslice("tree").out


@pytest.mark.parametrize("verb", ["status", "tree", "top"])
def test_pods_are_in_the_natural_order_of_their_names(podslice, files, memory, here, verb):
    names = ["shop2-1", "shop10-1", "shop-6", "shop-54", "shop-60"]
    files({f"{name}.json": manifest(name) for name in names})
    podslice("apply", "-f", ".")
    for name in podslice("status", "-o", "name").out.split():
        group = here / f"cgroup{control_group_of(UnitName(name))}"
        group.mkdir(parents=True, exist_ok=True)
    options = ["--once", "--interval=100ms", "--sort=name"] if verb == "top" else []
    words = podslice(verb, *options).out.split()
    assert [each for each in words if "shop" in each] == [f"default/{name}" for name in names]


TWO = """\
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "two", "uid": "two"}, "spec": {
  "initContainers": [{"name": "setup"}], "containers": [{"name": "main"}, {"name": "side"}],
  "volumes": [{"name": "cache", "emptyDir": {"medium": "Memory"}}]}}
"""


@pytest.fixture
def two(podslice, files, memory, here):
    """A pod of which one container runs, which was started three times, an hour after its slice."""
    files({"two.json": TWO})
    assert podslice("apply", "-f", "two.json").code == 0
    assert podslice("phase", "two", "running").code == 0
    assert podslice("run", "two", "-c", "main", "--detach", "--", "sh").code == 0
    for number in (1, 2):
        Store(here / "run-False").histories.save_start("two", "main", number)


def test_the_wide_form_has_names_of_pods_and_what_is_counted_of_them(podslice, two, monkeypatch):
    slice_ = "kubepods-besteffort-podtwo.slice"
    found = json.loads(podslice("status", "-o", "json").out)["units"]
    (pod,) = (each for each in found if each["name"] == slice_)
    assert (pod["containers"], pod["containers_ready"], pod["restarts"]) == (2, 1, 2)
    assert (pod["requests"], pod["limits"]) == ({}, {})
    at_usec = pod["started_usec"] + 3_720_000_000
    monkeypatch.setattr(overview.time, "time_ns", lambda: at_usec * 1000)
    wide = podslice("status", "-o", "wide").out.partition("\n\n")[0]
    head, *rows = (line.split() for line in wide.splitlines())
    assert head[:6] == ["NAME", "QOS", "STATE", "READY", "RESTARTS", "AGE"]
    assert head[-1] == "UNIT"
    (row,) = (row for row in rows if row[0] == "default/two" and row[-1] == slice_)
    assert row[1:7] == ["BestEffort", "active", "1/2", "2", "1h", "2min"]
    (main,) = (row for row in rows if row[0] == "main")
    assert main[1:6] == ["-", "active", "-", "2", "-"]
    (volume,) = (row for row in rows if row[0] == "volume")
    assert volume[1:7] == ["cache", "-", "active", "-", "-", "-"]
    assert "READY" not in podslice("status").out


def test_containers_of_runtimes_are_ready(podslice, web, run, runtimes_hold):
    run(f"{GROUP}/{LIBPOD}/container", 40)
    runtimes_hold.append(podman(f"{GROUP}/{LIBPOD}/container", restarts=3))
    (row,) = (
        line.split()
        for line in podslice("status", "-o", "wide").out.splitlines()
        if line.endswith(f"  {POD}")
    )
    assert row[:5] == ["shop/web", "Burstable", "active", "1/1", "3"]


def test_tree_joins_its_branches(podslice, files, memory):
    limits = {"cpu": 1, "memory": "1Gi"}
    files({"a.yaml": manifest("a", limits=limits), "b.yaml": manifest("b", limits=limits)})
    files({"c.yaml": manifest("c"), "d.yaml": manifest("d")})
    podslice("apply", "-f", ".")
    rows = podslice("tree").out.splitlines()[1:]
    assert [row.partition("  -  ")[0].rstrip() for row in rows] == [
        "kubepods.slice",
        "├─ default/a Guaranteed",
        "│  └─ main",
        "├─ default/b Guaranteed",
        "│  └─ main",
        "├─ kubepods-burstable.slice",
        "└─ kubepods-besteffort.slice",
        "   ├─ default/c BestEffort",
        "   │  └─ main",
        "   └─ default/d BestEffort",
        "      └─ main",
    ]


async def drift(memory):
    await memory.set_properties(POD, {"CPUWeight": 1, "TasksMax": 9})
    await memory.stop("kubepods-besteffort.slice")


@pytest.fixture
def drifted(web, memory):
    """Properties that were changed externally."""
    asyncio.run(drift(memory))


def test_status_lists_every_difference(podslice, drifted):
    ended = podslice("status")
    assert (ended.code, ended.err) == (3, "")
    assert ended.out.splitlines()[-8:-2] == [
        "",
        "PROBLEMS",
        f"{POD}: CPUWeight is 1, should be 75",
        f"{POD}: TasksMax is 9, should be unset",
        "kubepods-besteffort.slice: it is missing",
        "  → to restore it: podslice apply",
    ]
    assert " 1!" in ended.out


def test_tree_marks_differences_and_exits_with_0(podslice, drifted):
    ended = podslice("tree")
    assert ended.code == 0
    assert "CPUWeight=1!" in ended.out
    assert "TasksMax=9!" in ended.out


def test_status_as_json(podslice, drifted):
    ended = podslice("status", "-o", "json")
    assert ended.code == 3
    document = json.loads(ended.out)
    units = {unit["name"]: unit for unit in document["units"]}
    assert document["in_sync"] is False
    assert units[POD]["differs"]
    assert units[POD]["properties"][-1] == {
        "name": "TasksMax",
        "desired": None,
        "systemd": 9,
        "kernel": None,
    }
    assert units["kubepods-besteffort.slice"]["state"] == "missing"
    assert not units["kubepods.slice"]["differs"]
    assert [step["action"] for step in document["steps"]] == ["start", "set"]


def test_status_shows_usage_and_the_kernels_view(podslice, web, here):
    group = f"cgroup/kubepods.slice/kubepods-burstable.slice/{POD}"
    make_files(
        here,
        {
            "cgroup/cgroup.controllers": "",
            f"{group}/cpu.max": "125000 100000\n",
            f"{group}/cpu.stat": "usage_usec 1250000\n",
            f"{group}/memory.current": "1363149\n",
            f"{group}/pids.current": "3\n",
        },
    )
    (row,) = (line for line in podslice("status").out.splitlines() if "shop/web" in line)
    assert row.endswith("  1.3 MiB     1.25s      3")
    wide = podslice("status", "-o", "wide").out
    assert re.search(r"^shop/web +CPUQuota +125% +125% +125000 100000$", wide, re.MULTILINE)
    (unit,) = (
        unit
        for unit in json.loads(podslice("status", "-o", "json").out)["units"]
        if unit["name"] == POD
    )
    assert unit["usage"] == {"memory_bytes": 1363149, "cpu_usec": 1250000, "tasks": 3}


def test_orphaned_slices_are_noted(podslice, web, memory):
    memory.provide("kubepods-podforeign.slice")
    for verb, code in (("status", 3), ("tree", 0)):
        ended = podslice(verb)
        assert (ended.code, ended.err) == (code, "")
        assert ended.out.partition("\nPROBLEMS\n")[2].splitlines()[:2] == [
            (
                "kubepods-podforeign.slice: it is an orphan: not created by podslice, or its pod is"
                " unknown"
            ),
            (
                "  → to see its processes: systemctl status kubepods-podforeign.slice; to end them and"
                " remove it: systemctl stop kubepods-podforeign.slice"
            ),
        ]


def test_a_broken_record_is_a_difference(podslice, web, here):
    record = here / "run-False/pods/other.json"
    record.write_text("{")
    ended = podslice("status")
    assert ended.code == 3
    assert ended.err == f"{record} is not a valid record of a pod; the next apply removes it\n"


def test_status_names_the_units(podslice, web):
    assert podslice("status", "-o", "name").out.splitlines() == [
        "kubepods.slice",
        "kubepods-burstable.slice",
        POD,
        "kubepods-besteffort.slice",
    ]


def test_status_needs_systemd(podslice, no_systemd):
    message = "error: unix:path=/run/dbus: no such file or directory\n"
    assert podslice("status") == (1, "", message)


@pytest.fixture
def run(memory, here, monkeypatch):
    """Let processes run: `run(scope, 3, 4)`; a process of id 3 is called p3."""
    monkeypatch.setattr(location, "process_name", lambda pid, _: f"p{pid}")

    def into(group, *pids):
        listed = "".join(f"{pid}\n" for pid in pids)
        make_files(here, {f"cgroup{group}/cgroup.procs": listed, "cgroup/cgroup.controllers": ""})

    return into


def start_scope(memory, in_slice=POD):
    properties = {"Slice": in_slice, "PIDs": (3,), "CPUWeight": 75, "MemoryLow": 2**28}
    properties |= {"CPUQuotaPerSecUSec": 1_250_000, "Delegate": True}
    asyncio.run(memory.start(TransientUnit(name=UnitName(SCOPE), properties=properties)))


def test_processes_are_in_the_tree(podslice, web, memory, run):
    start_scope(memory)
    run(f"{GROUP}/{SCOPE}/container", *range(3, 16))
    run(f"{GROUP}/other.service", 40)
    ended = podslice("tree")
    assert (ended.code, ended.err) == (0, "")
    rows = [row.partition("  -  ")[0].rstrip() for row in ended.out.splitlines()]
    assert rows[3:] == [
        "│  └─ shop/web Burstable",
        "│     ├─ main",
        *(f"│     │  ├─ {pid} p{pid}" for pid in range(3, 13)),
        "│     │  └─ … and 3 more",
        "│     └─ other.service",
        "│        └─ 40 p40",
        "└─ kubepods-besteffort.slice",
    ]


def test_status_shows_units_of_others_and_processes_if_wide(podslice, web, memory, run, here):
    start_scope(memory)
    run(f"{GROUP}/{SCOPE}", 3, 4)
    run(f"{GROUP}/{LIBPOD}/container", 40)
    make_files(here, {f"cgroup{GROUP}/{LIBPOD}/pids.current": "1\n"})
    ended = podslice("status")
    assert ended.code == 0
    main, other = (line.split() for line in ended.out.splitlines()[4:6])
    assert main[:3] == ["main", "-", "active"]
    assert other == ["libpod-0123456789ab….scope", "-", "other", *"------", "1"]
    wide = podslice("status", "-o", "wide").out.splitlines()
    assert wide[-5].split() == ["NAME", "PROCESSES"]
    assert wide[-4].split() == ["shop/web", "main", "3", "p3,", "4", "p4"]
    assert wide[-3].split() == ["shop/web", LIBPOD, "40", "p40"]


def podman(group, **fields):
    stated = {"pod_key": "shop/web", "pod_uid": None, "container": "main", **fields}
    return RuntimeContainer(
        runtime="podman", id="0123", name="web-main", pid=40, control_group=group, **stated
    )


def test_a_container_that_a_runtime_holds_is_not_empty(podslice, web, run, runtimes_hold):
    run(f"{GROUP}/{LIBPOD}/container", 40)
    runtimes_hold.append(podman(f"{GROUP}/{LIBPOD}/container"))
    ended = podslice("status")
    assert ended.code == 0
    assert ended.out.splitlines()[4].split()[:3] == ["main", "-", "podman"]
    assert "libpod" not in ended.out
    tree = podslice("tree").out.splitlines()
    assert tree[4].split() == ["│", "└─", "main", "-", "podman"]
    assert tree[5].split() == ["│", "└─", "40", "p40"]
    wide = podslice("status", "-o", "wide").out.splitlines()[4].split()
    assert (wide[0], wide[2], wide[-1]) == ("main", "podman", LIBPOD)


def test_containers_are_unknown_while_a_runtime_does_not_answer(
    podslice, web, files, here, monkeypatch
):
    """The services of a pod with quadlets are systemd's, which answers."""
    files({"db.json": manifest("db")})
    assert podslice("apply", "-f", "db.json").code == 0
    text = f"{GENERATED}\n[Unit]\nDescription=Pod default/db\n"
    make_files(here / "etc-False/containers/systemd", {"db.pod": text})
    said = "podman: no answer in 5 s; its containers are unknown"

    async def containers(pods, *, on_note, **_):
        on_note(said)
        return ()

    monkeypatch.setattr(runtimes, "containers", containers)
    ended = podslice("status")
    assert ended.err == f"{said}\n"
    rows = [line.split()[:4] for line in ended.out.splitlines()]
    assert ["main", "-", "unknown", "-"] in rows
    assert ["main", "-", "not", "started"] in rows
    assert "libpod" not in podslice("status", "-o", "name").out


def test_a_podman_pod_without_a_record_is_a_problem(podslice, memory, run, runtimes_hold):
    group = "/podsandbox.slice/libpod-1.scope/container"
    run(group, 40)
    runtimes_hold.append(podman(group, container=None, podman_pod="web"))
    message = f"podman pod web: (40 p40) runs in {group}, and belongs to no applied pod"
    remedy = "  → to remove it: podman pod rm --force web; if that fails, repeat it"
    expected = f"no pods\n\nPROBLEMS\n{message}\n{remedy}\n\n1 problem\n"
    assert podslice("status") == (3, expected, "")


def test_a_container_that_has_ended_in_a_runtime_was_started(
    podslice, web, run, runtimes_hold, monkeypatch
):
    monkeypatch.setattr(journal, "read_events", lambda _: ())
    runtimes_hold.append(podman("", exit_code=3, restarts=2))
    wide = podslice("status", "-o", "wide").out.splitlines()
    assert wide[3].split()[3:5] == ["0/1", "2"]
    assert wide[4].split()[:6] == ["main", "-", "exited", "3", "-", "2"]
    page = podslice("status", "shop/web").out
    assert page.splitlines()[0].endswith("  failed")
    assert "exited with 3, 2 restarts\n" in page
    units = json.loads(podslice("status", "-o", "json").out)["units"]
    (last,) = (each["last_exit"] for each in units if each.get("container"))
    assert (last["exit_code"], last["started_usec"]) == (3, None)
    # another one runs
    run(f"{GROUP}/{LIBPOD}/container", 40)
    runtimes_hold.append(podman(f"{GROUP}/{LIBPOD}/container"))
    assert podslice("status").out.splitlines()[4].split()[2] == "podman"
    assert podslice("status", "-o", "wide").out.splitlines()[3].split()[3:5] == ["1/1", "0"]
    wide = podslice("status", "-o", "wide").out
    assert f"  {LIBPOD}\n" in wide
    (found,) = json.loads(podslice("status", "-o", "json").out)["others"]
    assert found == {
        "unit": LIBPOD,
        "pod": "shop/web",
        "container": "main",
        "runtime": "podman",
        "restarts": 0,
        "processes": [{"pid": 40, "name": "p40"}],
    }


def test_strays_are_listed_with_a_hint(podslice, web, memory, run, runtimes_hold):
    start_scope(memory, in_slice="system.slice")
    run(f"/system.slice/{SCOPE}", 4, 3)
    runtimes_hold.append(podman(f"/machine.slice/{LIBPOD}", container=None))
    ended = podslice("status")
    assert (ended.code, ended.err) == (3, "")
    assert ended.out.splitlines()[4].split()[:3] == ["main", "-", "elsewhere"]
    assert ended.out.splitlines()[-6:-2] == [
        (
            f"pod shop/web: container main: {SCOPE} (3 p3, 4 p4) runs in /system.slice, outside of"
            " the pod"
        ),
        (
            f"  → to stop it: systemctl stop {SCOPE}; then start it again: podslice run shop/web -c"
            " main -- COMMAND"
        ),
        (
            "pod shop/web: podman container web-main (40 p40) runs in"
            " /machine.slice/libpod-0123456789ab….scope, outside of the pod"
        ),
        ("  → start it again with the options of: podslice cgroup-parent shop/web -o podman"),
    ]
    tree = podslice("tree")
    assert tree.code == 0
    assert tree.out.splitlines()[-4:] == ended.out.splitlines()[-6:-2]


def test_a_stray_alone_is_a_difference(podslice, web, run, runtimes_hold):
    runtimes_hold.append(podman("/machine.slice/x.scope"))
    assert podslice("status").code == 3
    document = json.loads(podslice("status", "-o", "json").out)
    assert document["in_sync"]
    assert document["strays"] == [
        {
            "pod": "shop/web",
            "container": "main",
            "what": "podman container web-main",
            "found_by": "podman",
            "pid": 40,
            "name": "p40",
            "control_group": "/machine.slice/x.scope",
            "hint": "start it again with the options of: podslice cgroup-parent shop/web -o podman",
        }
    ]


def test_a_stray_of_no_pod_and_without_processes(podslice, web, memory):
    name = UnitName("podslice-podgone-x.scope")
    properties = {"Slice": "system.slice", "PIDs": (3,)}
    asyncio.run(memory.start(TransientUnit(name=name, properties=properties)))
    assert podslice("status").out.splitlines()[-4:-2] == [
        f"{name}: (no process) runs in /system.slice, and belongs to no applied pod",
        f"  → to stop it: systemctl stop {name}",
    ]
    (stray,) = json.loads(podslice("status", "-o", "json").out)["strays"]
    assert (stray["pod"], stray["pid"], stray["name"]) == (None, None, None)


def test_json_has_the_processes_of_every_container(podslice, web, memory, run):
    start_scope(memory)
    run(f"{GROUP}/{SCOPE}", 4, 3)
    units = json.loads(podslice("status", "-o", "json").out)["units"]
    held = {unit["container"]: unit["processes"] for unit in units if "container" in unit}
    assert held == {"main": [{"pid": 3, "name": "p3"}, {"pid": 4, "name": "p4"}]}


def test_the_init_phase_of_a_pod_is_noted(podslice, files, memory):
    setup = {"name": "setup"}
    files({"a.yaml": manifest("a", {"cpu": 1}, initContainers=[setup])})
    podslice("apply", "-f", "a.yaml")
    message = "pod default/a is in its init phase; see: podslice phase default/a\n"
    assert podslice("status").err == message


@pytest.fixture
def located(monkeypatch, here, tmp_path):
    """Processes: 3 in the container, 4 elsewhere, 1 the first."""
    rows = ({"pid": 3, "group": f"{GROUP}/{SCOPE}"}, {"pid": 4, "name": "cron"}, {"pid": 1})
    make_files(tmp_path / "host", processes(*rows))
    monkeypatch.setattr(location, "read_process", lambda pid, _: read(pid, tmp_path / "host"))


def test_a_process_is_located(podslice, web, memory, located):
    start_scope(memory)
    assert podslice("status", "--pid", "3") == (
        0,
        (
            "PID  NAME   POD       CONTAINER  UNIT\n"
            "3    sleep  shop/web  main       podslice-podweb-main.scope\n"
        ),
        "",
    )
    ended = podslice("status", "--pid", "4", "--pid=9", "--pid", "1")
    assert (ended.code, ended.err) == (3, "")
    assert ended.out.splitlines() == [
        "PID  NAME   POD  CONTAINER  UNIT",
        "4    cron   -    -          /user.slice/session.scope",
        "9    ?      -    -          -",
        "1    sleep  -    -          /user.slice/session.scope",
        "4 cron is not in a pod; to move it into a pod: podslice adopt POD -c CONTAINER 4",
        "process 9 does not exist",
        "1 sleep is not in a pod",
    ]
    assert podslice("status", "--pid", "3", "--pid", "4", "-o", "name").out == f"{SCOPE}\n"
    inside, outside = json.loads(podslice("status", "--pid=3", "--pid=4", "-o", "json").out)[
        "processes"
    ]
    assert inside == {
        "pid": 3,
        "name": "sleep",
        "pod": "shop/web",
        "container": "main",
        "unit": SCOPE,
        "control_group": f"{GROUP}/{SCOPE}",
        "hint": "",
    }
    assert (outside["pod"], outside["unit"]) == (None, None)
    assert outside["hint"] == "podslice adopt POD -c CONTAINER 4"


def test_a_process_has_a_number(podslice, memory):
    for wrong, why in (("0", "the minimum is 1"), ("x", "'x' is not a number")):
        ended = podslice("status", "--pid", wrong)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith(f"error: invalid value for '--pid': {why}; see: ")


@pytest.fixture
def many(podslice, files, memory, monkeypatch):
    """Three pods in two namespaces, one of each class."""
    monkeypatch.setattr(journal, "read_events", lambda _: ())
    monkeypatch.setattr(overview, "INTERVAL_SEC", 0)
    limits = {"cpu": 1, "memory": "1Gi"}
    files({"a.json": manifest("a", limits=limits), "b.json": manifest("b", {"cpu": 1})})
    files({"c.json": manifest("c").replace('"name": "c"', '"name": "c", "namespace": "shop"')})
    podslice("apply", "-f", ".")


def named(text):
    table = text.partition("\n\n")[0]
    return [line.split()[0] for line in table.splitlines()[1:]]


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        (["a"], ["kubepods.slice", "default/a", "main"]),
        (["pod/b"], ["kubepods.slice", "kubepods-burstable.slice", "default/b", "main"]),
        (["-n", "shop"], ["kubepods.slice", "kubepods-besteffort.slice", "shop/c", "main"]),
        (["-n", "shop", "c"], ["kubepods.slice", "kubepods-besteffort.slice", "shop/c", "main"]),
        (
            ["a", "shop/c"],
            [
                *("kubepods.slice", "default/a", "main"),
                *("kubepods-besteffort.slice", "shop/c", "main"),
            ],
        ),
    ],
)
def test_some_pods_are_shown_with_the_slices_above(podslice, many, arguments, rows):
    ended = podslice("status", *arguments)
    if (arguments[0] != "-n" and len(arguments) == 1) or len(arguments) == 3:  # its page
        (key,) = [row for row in rows if "/" in row]
        assert (ended.code, ended.out.split("  ")[0]) == (0, f"pod {key}")
    else:
        assert (ended.code, named(ended.out)) == (0, rows)
    tree = podslice("tree", *arguments)
    assert tree.code == 0
    assert [line.strip("│├└─ ").split()[0] for line in tree.out.splitlines()[1:]] == rows
    document = json.loads(podslice("status", *arguments, "-o", "json").out)
    assert len(document["units"]) == len(rows)


@pytest.mark.parametrize("verb", ["status", "tree"])
def test_a_pod_that_is_shown_must_exist(podslice, many, verb):
    ended = podslice(verb, "c", "a")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "error: default/c: no such pod; did you mean shop/c?\n"
    assert podslice(verb, "-n", "none").out == "no pods\n"


def test_processes_and_pods_cannot_be_combined(podslice, memory):
    ended = podslice("status", "web", "--pid", "3")
    assert (ended.code, ended.out) == (2, "")
    assert (
        ended.err
        == "error: --pid cannot be combined with POD, -n or --problems; leave out one of the two\n"
    )


def test_only_pods_and_slices_with_problems_are_shown(podslice, many, memory):
    assert podslice("status", "--problems") == (0, "no problems\n", "")
    (slice_,) = (
        name for name in podslice("status", "a", "-o", "name").out.split() if "-pod" in name
    )
    asyncio.run(memory.set_properties(UnitName(slice_), {"TasksMax": 9}))
    ended = podslice("status", "--problems")
    assert (ended.code, named(ended.out)[:3]) == (3, ["kubepods.slice", "default/a", "main"])
    assert ended.out.splitlines()[4:] == [
        "",
        "PROBLEMS",
        f"{slice_}: TasksMax is 9, should be unset",
        "  → to restore it: podslice apply",
        "",
        "1 pod, 1 problem",
    ]
    assert podslice("tree", "--problems").out.splitlines()[-1] == ended.out.splitlines()[-3]
    # the problem of another pod is not one of this pod
    assert podslice("status", "b").code == 0
    assert podslice("status", "b", "--problems").out == "no problems\n"
    assert podslice("status", "-n", "shop").code == 0
    asyncio.run(memory.stop("kubepods-besteffort.slice"))
    ended = podslice("status", "b", "--problems")
    assert (ended.code, ended.out.splitlines()[-4:]) == (
        3,
        [
            "kubepods-besteffort.slice: it is missing",
            "  → to restore it: podslice apply",
            "",
            "1 problem",
        ],
    )
