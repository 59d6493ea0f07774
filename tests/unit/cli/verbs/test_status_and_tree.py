"""`status` and `tree`, which share what they observe."""

import asyncio
import json

import pytest

from podslice.cli import overview
from podslice.kernel.proc import read_process as read
from podslice.model.unit import GENERATED, TransientUnit, UnitName, control_group_of
from podslice.store.store import Store
from podslice.systemd import journal
from podslice.usage import location, runtimes
from tests.unit.builders import make_files, manifest
from tests.unit.cli.pods import podman_container
from tests.unit.usage.invented import processes

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
    runtimes_hold.append(podman_container(f"{GROUP}/{LIBPOD}/container", restarts=3))
    (row,) = (
        line.split()
        for line in podslice("status", "-o", "wide").out.splitlines()
        if line.endswith(f"  {POD}")
    )
    assert row[:5] == ["shop/web", "Burstable", "active", "1/1", "3"]


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


def test_a_container_that_a_runtime_holds_is_not_empty(podslice, web, run, runtimes_hold):
    run(f"{GROUP}/{LIBPOD}/container", 40)
    runtimes_hold.append(podman_container(f"{GROUP}/{LIBPOD}/container"))
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


def test_a_container_that_has_ended_in_a_runtime_was_started(
    podslice, web, run, runtimes_hold, monkeypatch
):
    monkeypatch.setattr(journal, "read_events", lambda _: ())
    runtimes_hold.append(podman_container("", exit_code=3, restarts=2))
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
    runtimes_hold.append(podman_container(f"{GROUP}/{LIBPOD}/container"))
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
