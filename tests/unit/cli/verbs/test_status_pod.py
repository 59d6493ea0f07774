"""`status POD`: the page of one pod, and its JSON."""

import asyncio
import json
import os
import re
import time
from dataclasses import replace

import pytest

from podslice.cli import overview
from podslice.cli.views.status_view import duration, exit_sentence, exit_summary
from podslice.errors import HostError
from podslice.kernel.programs import NoAnswerError
from podslice.model.container_exit import ContainerExit
from podslice.store import histories
from podslice.store.store import Store
from podslice.systemd import journal
from podslice.systemd.journal import Entry
from podslice.usage import runtimes
from podslice.usage.runtimes import PublishedPort, RuntimeContainer
from tests.unit.builders import make_files

SHOP = """\
apiVersion: v1
kind: Pod
metadata: {name: shop, uid: u-1}
spec:
  terminationGracePeriodSeconds: 7
  resources: {limits: {cpu: 500m, memory: 64Mi}}
  initContainers: [{name: fetch}]
  containers:
  - {name: app, resources: {requests: {cpu: 250m, memory: 8Mi}}}
  - {name: log}
  volumes:
  - {name: page-cache, emptyDir: {medium: Memory, sizeLimit: 16Mi}}
"""
SLICE = "kubepods-burstable-podu_1.slice"
GROUP = f"kubepods.slice/kubepods-burstable.slice/{SLICE}"
SERVICE = "podslice-podu_1-app.service"
START = 1_700_000_000_000_000
EVENT = Entry(
    time_usec=START,
    kind="pod-oom",
    level="warning",
    pod="default/shop",
    unit=SLICE,
    message="the kernel OOM-killed a process of pod default/shop",
    fields={},
)
COUNTERS = {
    "cpu.stat": ("usage_usec 1000000\nnr_periods 200\nnr_throttled 50\nthrottled_usec 61000000\n"),
    "cpu.pressure": "some avg10=12.50 avg60=1.00 avg300=0.00 total=5\n",
    "memory.current": f"{60 * 2**20}\n",
    "memory.stat": f"inactive_file {12 * 2**20}\n",
    "memory.events": "low 0\noom_kill 3\n",
    "pids.current": "5\n",
}


@pytest.fixture
def events(monkeypatch):
    """The events of the pod, in a list that may be changed; a second measurement is immediate."""
    found = [EVENT]
    monkeypatch.setattr(journal, "read_events", lambda query: found[-query.lines :])
    monkeypatch.setattr(overview, "INTERVAL_SEC", 0)
    return found


@pytest.fixture
def shop(here, podslice, files, memory, events):
    """The pod is applied; a container runs and has ended twice before."""
    files({"shop.yaml": SHOP})
    assert podslice("apply", "-f", "shop.yaml").code == 0
    assert podslice("phase", "shop", "running").code == 0
    assert podslice("run", "shop", "-c", "app", "--detach", "--", "sh").code == 0
    for group in (GROUP, f"{GROUP}/{SERVICE}"):
        directory = here / "cgroup" / group
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in COUNTERS.items():
            (directory / name).write_text(content)
    (here / "cgroup/cgroup.controllers").write_text("cpu memory pids\n")
    (here / "cgroup" / GROUP / SERVICE / "cgroup.procs").write_text("7000001\n7000002\n")
    kept = Store(here / "run-False").histories
    kept.save_start("u-1", "app", START)
    end = kept.end_path("u-1", "app", START)
    result = {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "7"}
    histories.save_end(end, result)
    os.utime(end, ns=(0, (START + 90_000_000) * 1000))
    kept.save_start("u-1", "app", START + 91_000_000)


@pytest.fixture
def check_pod(podslice, golden, monkeypatch):
    """Compare the page of the pod, and its document, with golden texts; times of this run apart."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    def check(name):
        for format_, file in (("table", f"{name}.txt"), ("json", f"{name}.json")):
            ended = podslice("status", "shop", "-o", format_)
            assert (ended.code, ended.err) == (0, "")
            text = re.sub(r"(?m)^(  started +).*", r"\1TIME", ended.out)
            golden(file, re.sub(r'("started_usec": )(?!17000000)\d+', r"\1TIME", text))

    yield check
    monkeypatch.undo()
    time.tzset()


def test_everything_about_a_pod_is_on_one_page(shop, check_pod):
    check_pod("pod")


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_the_page_fits_the_terminal(shop, podslice, monkeypatch, events, width):
    events.append(replace(EVENT, message=f"{EVENT.message} " * 5))
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    lines = podslice("status", "shop").out.splitlines()
    assert [line for line in lines if len(line) > max(width, 40)] == []
    assert sum(line.strip() == "CONTAINERS" for line in lines) == 1


def test_the_pod_started_when_its_slice_did(shop, podslice, memory):
    document = json.loads(podslice("status", "shop", "-o", "json").out)
    (slice_,) = asyncio.run(memory.observe([SLICE]))
    assert document["pod"]["started_usec"] == slice_.started_usec


LIBPOD = f"{GROUP}/libpod-0123.scope"


@pytest.fixture
def with_podman(shop, here, runtimes_hold, messages):
    """podman runs the other container of the pod."""
    make_files(
        here,
        {
            f"cgroup/{LIBPOD}/cgroup.procs": "7000003\n",
            f"cgroup/{LIBPOD}/io.stat": "254:0 rbytes=1048576 wbytes=2048\n7:0 rbytes=1048576\n",
            f"cgroup/{GROUP}/io.stat": "254:0 rbytes=3145728 wbytes=4096\n",
        },
    )
    port = {"host_port": 8080, "container_port": 80, "count": 1, "protocol": "tcp"}
    runtimes_hold.append(
        RuntimeContainer(
            runtime="podman",
            id="0123",
            name="shop_log",
            pid=7000003,
            pod_key="default/shop",
            pod_uid=None,
            container="log",
            control_group=f"/{LIBPOD}",
            image="docker.io/library/nginx:1",
            ports=(PublishedPort(host_ip="127.0.0.1", **port), PublishedPort(host_ip="", **port)),
            restarts=4,
        )
    )
    messages["0123"] = [replace(EVENT, message=f"line {n}") for n in range(7)]
    messages[SERVICE] = [replace(EVENT, message="of the service")]


def test_the_page_shows_what_a_runtime_and_the_journal_know(with_podman, check_pod):
    check_pod("pod-in-podman")


def test_messages_of_docker_are_those_that_docker_keeps(
    with_podman, podslice, runtimes_hold, monkeypatch
):
    runtimes_hold[:] = [each._replace(runtime="docker") for each in runtimes_hold]
    answers = [(replace(EVENT, message="of docker"),), NoAnswerError("no such container")]

    async def docker_messages(*_):
        answer = answers.pop(0)
        if isinstance(answer, NoAnswerError):
            raise answer
        return answer

    monkeypatch.setattr(runtimes, "docker_messages", docker_messages)
    page = podslice("status", "shop").out
    assert "of docker" in page
    assert "line 6" not in page
    assert "line 6" in podslice("status", "shop").out


def test_messages_that_cannot_be_read_are_not_an_error(shop, podslice, monkeypatch):
    def refuse(_):
        raise HostError("permission to read the journal denied")

    monkeypatch.setattr(journal, "read_messages", refuse)
    text = "log: permission to read the journal denied"
    ended = podslice("status", "shop")
    assert ended.code == 0
    assert ended.out.count(text) == 1
    found = json.loads(podslice("status", "shop", "-o", "json").out)["pod"]
    assert found["log_problem"] == "permission to read the journal denied"
    # the section of events states the same reason
    monkeypatch.setattr(journal, "read_events", refuse)
    assert text not in podslice("status", "shop").out


def test_only_the_last_ten_events_are_shown(shop, podslice, events):
    events[:] = [replace(EVENT, message=f"number {n}") for n in range(12)]
    listed = podslice("status", "shop").out.partition("\nEVENTS\n")[2].splitlines()[1:]
    assert [line.rpartition(" ")[2] for line in listed] == [str(n) for n in range(2, 12)]
    events.clear()
    assert podslice("status", "shop").out.endswith("\nEVENTS\n  none\n")


def test_events_that_cannot_be_read_are_not_an_error(shop, podslice, monkeypatch):
    def refuse(_):
        raise HostError("permission to read the journal denied")

    monkeypatch.setattr(journal, "read_events", refuse)
    ended = podslice("status", "shop")
    assert ended.code == 0
    assert ended.out.endswith("\nEVENTS\n  permission to read the journal denied\n")


def test_a_pod_without_processes_is_not_running(shop, podslice, here, memory):
    def phase():
        found = podslice("status", "shop")
        (document,) = [json.loads(podslice("status", "shop", "-o", "json").out)]
        assert found.out.startswith(f"pod default/shop  Burstable  {document['pod']['phase']}\n")
        return found.code, document["pod"]["phase"]

    assert phase() == (0, "running")
    (here / "cgroup" / GROUP / SERVICE / "cgroup.procs").write_text("")
    asyncio.run(memory.stop(SERVICE))
    assert phase() == (0, "exited")
    kept = Store(here / "run-False").histories
    result = {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "7"}
    histories.save_end(kept.end_path("u-1", "app", START + 91_000_000), result)
    assert phase() == (3, "failed")
    kept.discard("u-1")
    assert phase() == (0, "not started")


def test_differences_and_the_init_phase_are_on_the_page(shop, podslice, memory):
    podslice("phase", "shop", "init")
    assert podslice("status", "shop").out.startswith(
        "pod default/shop  Burstable  init phase: 0 of 1 init containers are done\n"
    )
    asyncio.run(memory.set_properties(SLICE, {"CPUWeight": 1}))
    ended = podslice("status", "shop")
    assert ended.code == 3
    assert re.search(r"^  pod +CPUWeight +\d+ +1! ", ended.out, re.MULTILINE)


def test_a_pod_without_a_slice_has_a_page(shop, podslice, memory):
    asyncio.run(memory.stop(SLICE))
    ended = podslice("status", "shop")
    assert ended.code == 3
    assert ended.out.startswith("pod default/shop  Burstable  its slice is missing\n")


def exit_(result, **fields):
    return ContainerExit(result=result, started_usec=START, ended_usec=START + 5_000_000, **fields)


@pytest.mark.parametrize(
    ("last", "short", "how"),
    [
        (exit_("success", exit_code=0), "exited 0", "exited with 0"),
        (exit_("exit-code", exit_code=7), "exited 7", "exited with 7"),
        (exit_("signal", signal="SIGHUP"), "killed SIGHUP", "killed by SIGHUP"),
        (exit_("success", signal="SIGTERM"), "killed SIGTERM", "killed by SIGTERM"),
        (exit_("timeout", signal="SIGKILL"), "killed SIGKILL", "killed by SIGKILL (timeout)"),
        (exit_("oom-kill", signal="SIGKILL", is_oom=True), "OOM-killed", "OOM-killed (SIGKILL)"),
        (exit_("oom-kill", exit_code=137, is_oom=True), "OOM-killed", "OOM-killed (exit code 137)"),
        (
            exit_("oomd-kill", signal="SIGKILL"),
            "killed by systemd-oomd",
            "killed by systemd-oomd (SIGKILL)",
        ),
        (exit_("resources"), "resources", "resources"),
    ],
)
def test_the_end_of_a_container_in_words(last, short, how):
    assert exit_summary(last) == short
    assert exit_sentence(last, 0).partition(" at 2")[0] == how
    assert exit_sentence(last, 0).endswith(" after 5s")
    assert exit_sentence(last, 1).endswith(" after 5s, 1 restart")
    unknown = replace(last, ended_usec=None)
    assert exit_sentence(unknown, 0) == how


def test_the_unrecorded_end_of_a_container_in_words():
    last = exit_("unknown")
    assert exit_summary(last) == "exited"
    assert exit_sentence(last, 0).startswith("ended at 2")
    assert exit_sentence(last, 2).endswith(" after 5s, exit status not recorded, 2 restarts")
    assert exit_sentence(replace(last, ended_usec=None), 0) == "ended, exit status not recorded"


@pytest.mark.parametrize(
    ("sec", "text"),
    [
        (0.45, "450ms"),
        (12, "12s"),
        (60, "1min"),
        (200, "3min 20s"),
        (3 * 3600 + 59, "3h"),
        (5 * 3600 + 120, "5h 2min"),
        (2 * 86_400 + 3 * 3600, "2d 3h"),
    ],
)
def test_durations(sec, text):
    assert duration(int(sec * 1_000_000)) == text
