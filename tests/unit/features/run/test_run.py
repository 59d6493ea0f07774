"""`run`: refusals, environment and scopes; tests/host has its behavior on a terminal."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from podslice.errors import JobFailed, UnitExists
from podslice.features.run import run as running
from podslice.systemd import bus
from tests.cases.tables import cases
from tests.fake_systemd import FakeSystemd

SHOP = """\
apiVersion: v1
kind: Pod
metadata: {name: shop, uid: u-1}
spec:
  terminationGracePeriodSeconds: 7
  resources: {limits: {memory: 64Mi}}
  initContainers:
  - {name: fetch, resources: {requests: {memory: 1Mi}}}
  - {name: proxy, restartPolicy: Always}
  containers:
  - {name: app, resources: {requests: {cpu: 250m, memory: 8Mi}, limits: {memory: 16Mi}}}
  - {name: log}
  volumes:
  - {name: page-cache, emptyDir: {medium: Memory}}
"""
SLICE = "kubepods-burstable-podu_1.slice"
GROUP = f"kubepods.slice/kubepods-burstable.slice/{SLICE}"
SCOPE = "podslice-podu_1-app.scope"
SERVICE = "podslice-podu_1-app.service"


class Became(BaseException):
    """The process is the command now."""


class Systemd(FakeSystemd):
    """One that remembers what it was asked to start, and may refuse."""

    def __init__(self):
        super().__init__()
        self.started = []
        self.error = None

    async def start(self, unit):
        if self.error is not None:
            raise self.error
        self.started.append(unit)
        await super().start(unit)


class FakeChild:
    """A child with a given exit status."""

    pid = os.getpid()

    def __init__(self, work):
        self.work = work
        self.message = []
        self.status = 0

    def start(self):
        self.message.append("start")

    def watch(self):
        return self.status

    def abandon(self):
        self.message.append("abandon")


@pytest.fixture
def systemd(here, monkeypatch):
    client = Systemd()
    monkeypatch.setattr(bus, "Bus", lambda *_, **__: client)
    return client


@pytest.fixture
def process(monkeypatch):
    """This process, which is not really moved, and becomes nothing: what happens to it."""
    happened = {}

    def become(command):
        happened["command"] = command
        raise Became

    def set_oom_score_adj(value):
        happened["oom_score_adj"] = value
        return ""

    monkeypatch.setattr(running, "has_arrived", lambda _: True)
    monkeypatch.setattr(running, "set_oom_score_adj", set_oom_score_adj)
    monkeypatch.setattr(running, "become", become)
    return happened


@pytest.fixture
def child(monkeypatch):
    """What is forked."""
    made = []

    def fork(work):
        made.append(FakeChild(work))
        return made[-1]

    monkeypatch.setattr(running, "fork", fork)
    monkeypatch.setattr(running, "exit_like", lambda status: 1000 + status)
    return made


@pytest.fixture
def shop(systemd, podslice, files, process, child):
    """The pod is applied, and its init phase is over."""
    files({"shop.yaml": SHOP})
    assert podslice("apply", "-f", "shop.yaml").code == 0
    assert podslice("phase", "shop", "running").code == 0
    systemd.started.clear()


def fill(here, unit, *pids):
    """Let there be processes in a unit of the pod."""
    group = here / "cgroup" / GROUP / unit
    group.mkdir(parents=True, exist_ok=True)
    (group / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))


def test_the_process_itself_becomes_the_command_in_its_scope(shop, podslice, systemd, process):
    with pytest.raises(Became):
        podslice("run", "shop", "--exec", "-c", "app", "--env", "A=1", "--", "sh", "-c", "exit 3")
    (scope,) = systemd.started
    properties = dict(scope.properties)
    assert scope.name == SCOPE
    assert len(properties.pop("PIDFDs")) == 1
    assert properties == {
        "Description": "Container app of pod default/shop",
        "Slice": SLICE,
        "Delegate": True,
        "CollectMode": "inactive-or-failed",
        "OOMPolicy": "kill",
        # so that they are there until it has ended
        "After": (r"run-podslice-pods-u\x2d1-volumes-page\x2dcache.mount",),
        "TimeoutStopUSec": 7_000_000,
        "CPUAccounting": True,
        "IOAccounting": True,
        "MemoryAccounting": True,
        "TasksAccounting": True,
        "CPUWeight": 25,
        "MemoryLow": 8 * 2**20,
        "MemoryMax": 16 * 2**20,
    }
    command = process["command"]
    assert command.file.endswith("/sh")
    assert command.arguments == ("sh", "-c", "exit 3")
    assert command.environment["A"] == "1"
    assert command.environment["PODSLICE_VOLUME_PAGE_CACHE"].endswith("/u-1/volumes/page-cache")
    assert 3 <= process["oom_score_adj"] <= 999


def test_with_a_terminal_remaining_processes_receive_sighup(shop, podslice, systemd, monkeypatch):
    monkeypatch.setattr(os, "isatty", lambda handle: handle == 0)
    with pytest.raises(Became):
        podslice("run", "shop", "--exec", "-c", "log", "--", "sh")
    assert systemd.started[0].properties["SendSIGHUP"] is True


def test_a_process_that_is_not_in_its_scope_does_not_become_the_command(
    shop, podslice, process, monkeypatch
):
    monkeypatch.setattr(running, "has_arrived", lambda _: False)
    ended = podslice("run", "shop", "--exec", "-c", "app", "--", "sh")
    assert ended.code == 1
    assert ended.err.startswith(f"error: {SCOPE} is active, but this process is not in it;")
    assert process == {}


def test_an_oom_score_that_the_kernel_refuses_is_noted(
    shop, podslice, process, monkeypatch, capsys
):
    monkeypatch.setattr(running, "set_oom_score_adj", lambda _: "oom_score_adj remains 200")
    with pytest.raises(Became):
        podslice("run", "shop", "--exec", "-c", "app", "--", "sh")
    assert capsys.readouterr().err == "oom_score_adj remains 200\n"


@cases
def test_invalid_commands_are_refused_before_anything_is_started(
    shop, podslice, systemd, arguments, code, message
):
    ended = podslice("run", *arguments)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith(message)
    assert ended.err.count("\n") == 1
    assert systemd.started == []


@pytest.mark.parametrize("detach", [(), ("--detach",)])
def test_a_running_container_is_refused_with_a_hint(shop, podslice, systemd, here, detach):
    assert podslice("run", "shop", "-c", "app", "--detach", "--", "sh").code == 0
    fill(here, SERVICE, 7_000_001, 7_000_002)
    ended = podslice("run", "shop", "-c", "app", *detach, "--", "sh")
    assert ended.code == 1
    assert ended.err == (
        f"error: container app of pod default/shop is running: {SERVICE} with ? (7000001),"
        " ? (7000002); to move more processes into it: podslice adopt default/shop -c app PID;"
        f" to stop it: systemctl stop {SERVICE}\n"
    )
    assert len(systemd.started) == 1


def test_a_unit_without_processes_is_replaced(shop, podslice, systemd):
    assert podslice("run", "shop", "-c", "app", "--detach", "--", "sh").code == 0
    with pytest.raises(Became):
        podslice("run", "shop", "--exec", "-c", "app", "--", "sh")
    assert [unit.name for unit in systemd.started] == [SERVICE, SCOPE]


@pytest.mark.parametrize("detach", [(), ("--detach",)])
def test_the_loser_of_a_race_is_refused_with_a_hint(shop, podslice, systemd, detach):
    systemd.error = UnitExists(f"{SCOPE}: Unit {SCOPE} was already loaded")
    ended = podslice("run", "shop", "-c", "app", *detach, "--", "sh")
    unit = SERVICE if detach else SCOPE
    assert ended.code == 1
    assert ended.err.startswith(
        f"error: container app of pod default/shop is running: {unit}; to move more processes into it:"
    )


def test_during_the_init_phase_only_the_containers_of_the_pod_itself_have_to_wait(
    shop, podslice, child
):
    podslice("phase", "shop", "init")
    ended = podslice("run", "shop", "-c", "app", "--", "sh")
    assert ended.code == 1
    assert ended.err == (
        "error: container app of pod default/shop must wait for the pod's init containers;"
        " to list them: podslice phase default/shop; to end the init phase:"
        " podslice phase default/shop running\n"
    )
    with pytest.raises(Became):
        podslice("run", "shop", "--exec", "-c", "proxy", "--", "sh")
    assert podslice("run", "shop", "-c", "fetch", "--", "sh").code == 0


def test_successful_init_containers_are_done_and_the_last_one_ends_the_phase(
    shop, podslice, systemd, child, process
):
    podslice("phase", "shop", "init")
    assert podslice("run", "shop", "-c", "fetch", "--", "sh") == (0, "", "")
    assert systemd.started[0].name == "podslice-podu_1-fetch.scope"
    assert len(systemd.started[0].properties["PIDFDs"]) == 1
    assert child[0].message == ["start"]
    shown = json.loads(podslice("phase", "shop", "-o", "json").out)
    assert shown["phase"] == "running"
    with pytest.raises(Became):
        child[0].work()
    assert process["command"].arguments == ("sh",)


def test_an_init_container_that_fails_is_not_done_and_may_run_again(
    shop, podslice, child, monkeypatch
):
    podslice("phase", "shop", "init")
    monkeypatch.setattr(FakeChild, "watch", lambda _: 3 << 8)
    assert podslice("run", "shop", "-c", "fetch", "--", "sh") == (1000 + (3 << 8), "", "")
    shown = json.loads(podslice("phase", "shop", "-o", "json").out)
    assert (shown["phase"], shown["init_containers"][0]["done"]) == ("init", False)
    monkeypatch.setattr(FakeChild, "watch", lambda _: 0)
    assert podslice("run", "shop", "-c", "fetch", "--", "sh").code == 0


def test_a_child_whose_scope_fails_to_start_exits(shop, podslice, systemd, child):
    systemd.error = JobFailed("the job failed", result="failed")
    assert podslice("run", "shop", "-c", "fetch", "--", "sh").code == 1
    assert child[0].message == ["abandon"]


def test_a_pod_that_is_deleted_meanwhile_has_nothing_to_record(shop, podslice, child, monkeypatch):
    podslice("phase", "shop", "init")
    monkeypatch.setattr(FakeChild, "watch", lambda _: podslice("delete", "--all").code)
    assert podslice("run", "shop", "-c", "fetch", "--", "sh").code == 0


def test_detached_it_is_a_service_that_has_what_it_needs(
    shop, podslice, systemd, monkeypatch, tmp_path
):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    ended = podslice(
        *("run", "shop", "-c", "app", "--detach", "--env", "A=$B", "--", "sh", "-c", "echo $A")
    )
    logs = "podslice logs default/shop -c app"
    assert ended == (0, f"started {SERVICE}; for its output: {logs}\n", "")
    (service,) = systemd.started
    assert service.name == SERVICE
    properties = service.properties
    assert properties["Type"] == "exec"
    # systemd would put in variables of its own
    (command,) = properties["ExecStart"]
    assert command[0] in ("/usr/bin/sh", "/bin/sh")
    assert command[1:] == (("sh", "-c", "echo $$A"), False)
    first, *others = properties["Environment"]
    assert first.startswith("PODSLICE_VOLUME_PAGE_CACHE=")
    assert others == ["PATH=/usr/bin:/bin", "A=$B"]
    assert properties["WorkingDirectory"] == str(tmp_path / "work")
    assert 3 <= properties["OOMScoreAdjust"] <= 999
    assert properties["MemoryMax"] == 16 * 2**20
    ((file, arguments, may_fail),) = properties["ExecStopPost"]
    assert (Path(file).name, may_fail) == ("sed", True)
    *options, script, environ = arguments
    assert (options, environ) == (["sed", "-n", "-z", "-E"], "/proc/self/environ")
    pattern, end = script.split("/w", 1)
    assert pattern == "/^((SERVICE_RESULT|EXIT_CODE|EXIT_STATUS)=|low )"
    assert re.fullmatch(r".*/containers/u-1/app,\d+", end)
    assert "PIDs" not in properties


@pytest.mark.usefixtures("systemd", "process", "child")
@pytest.mark.parametrize(
    ("detach", "unit"),
    [((), "podslice-podu_1-log.scope"), (("--detach",), "podslice-podu_1-log.service")],
)
def test_its_huge_pages_are_limited_before_it_runs(podslice, files, here, detach, unit):
    top, group = here / "cgroup", here / "cgroup" / GROUP / unit
    group.mkdir(parents=True)
    for directory in (group, group.parent):
        (directory / "hugetlb.2MB.max").write_text("max\n")
    for directory in (top, *top.rglob("*.slice")):
        (directory / "cgroup.controllers").write_text("hugetlb\n")
        (directory / "cgroup.subtree_control").write_text("hugetlb\n")
    pages = "{limits: {cpu: 1, hugepages-2Mi: 4Mi}}"
    files({"shop.yaml": SHOP.replace("- {name: log}", f"- {{name: log, resources: {pages}}}")})
    podslice("apply", "-f", "shop.yaml")
    podslice("phase", "shop", "running")
    podslice("run", "shop", "-c", "log", *detach, "--", "sh")
    assert (group / "hugetlb.2MB.max").read_text() == str(4 * 2**20)


def test_a_relative_command_is_found_by_a_service_as_well(shop, podslice, systemd, tmp_path):
    file = tmp_path / "work/tool"
    file.write_text("")
    file.chmod(0o755)
    podslice("run", "shop", "-c", "app", "--detach", "--", "./tool")
    assert systemd.started[0].properties["ExecStart"] == ((str(file), ("./tool",), False),)


@cases
def test_every_output_format_has_the_name_of_the_service(shop, podslice, output, shown):
    assert podslice("run", "shop", "-c", "app", "--detach", "-o", output, "--", "sh").out == shown


def test_a_service_that_fails_to_start_is_an_error_with_a_hint(shop, podslice, systemd):
    systemd.error = JobFailed("systemd's job finished with the result 'failed'", result="failed")
    ended = podslice("run", "shop", "-c", "app", "--detach", "--", "/bin/sh")
    assert ended.code == 1
    assert ended.err == (
        f"error: /bin/sh could not be started in {SERVICE}; see: journalctl -u {SERVICE}\n"
    )


def test_arguments_that_are_not_text_can_not_be_passed_to_systemd(shop, podslice, systemd):
    ended = podslice("run", "shop", "-c", "app", "--detach", "--", "sh", "\udcff")
    assert (ended.code, ended.err) == (2, "error: --detach: '\\udcff' is not UTF-8\n")
    assert systemd.started == []


def test_the_end_of_a_detached_init_container_is_recorded(
    shop, podslice, systemd, monkeypatch, files
):
    monkeypatch.setattr(running.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setenv("PYTHONPATH", "/src")
    files({"conf.toml": ""})
    options = ("--config", "conf.toml", "--set=qos-reserved=memory=50%", "--set=admission=false")
    podslice("phase", "shop", "init")
    assert podslice("run", "shop", "-c", "fetch", "--detach", *options, "--", "true").code == 0
    _, (file, arguments, may_fail) = systemd.started[0].properties["ExecStopPost"]
    assert (file, may_fail) == ("/usr/bin/systemd-run", False)
    mark = arguments.index("--")
    assert arguments[:mark] == (
        *("/usr/bin/systemd-run", "--quiet", "--collect", "--no-block"),
        "--description=End of container fetch of pod default/shop",
        *("--setenv=SERVICE_RESULT", "--setenv=EXIT_CODE", "--setenv=EXIT_STATUS"),
        "--setenv=PYTHONPATH=/src",
    )
    assert arguments[mark + 1 : mark + 6] == (
        *(sys.executable, "-P", "-m", "podslice", "__init_done"),
    )
    recording = arguments[mark + 5 :]
    assert recording[1:] == (
        *(
            "--set=qos-reserved=memory=50%",
            "--set=admission=false",
            f"--config={Path.cwd()}/conf.toml",
        ),
        *("default/shop", "fetch"),
    )
    # and that does record it, when it ended well
    for status, phase in (("1", "init"), ("0", "running")):
        result = {"SERVICE_RESULT": "success", "EXIT_CODE": "exited", "EXIT_STATUS": status}
        for name, value in result.items():
            monkeypatch.setenv(name, value)
        assert podslice(*recording) == (0, "", "")
        assert json.loads(podslice("phase", "shop", "-o", "json").out)["phase"] == phase


def shown_state(podslice, container):
    """Return the state, the restarts and the last exit of a container without its times."""
    units = json.loads(podslice("status", "-o", "json").out)["units"]
    (unit,) = [each for each in units if each.get("container") == container]
    last = unit["last_exit"] and {
        name: value for name, value in unit["last_exit"].items() if not name.endswith("_usec")
    }
    return unit["state"], unit["restarts"], last


def last_exit(result, *, code=None, signal=None, oom=False):
    return {"result": result, "exit_code": code, "signal": signal, "oom_killed": oom}


@pytest.mark.parametrize(
    ("status", "oom_kills", "shown"),
    [
        (0, 0, last_exit("success", code=0)),
        (7 << 8, 0, last_exit("exit-code", code=7)),
        (15, 0, last_exit("signal", signal="SIGTERM")),
        (9, 0, last_exit("signal", signal="SIGKILL")),
        (9, 1, last_exit("oom-kill", signal="SIGKILL", oom=True)),
        (137 << 8, 2, last_exit("oom-kill", code=137, oom=True)),
        (7 << 8, 1, last_exit("exit-code", code=7)),
        (11 | 128, 0, last_exit("core-dump", signal="SIGSEGV")),
        (35, 0, last_exit("signal", signal="SIGRTMIN+1")),
    ],
)
def test_the_end_of_a_command_in_the_foreground_is_recorded(  # noqa: PLR0917 - fixtures and cases
    shop, podslice, systemd, here, monkeypatch, status, oom_kills, shown
):
    def watch(_):
        systemd.set_tasks(SCOPE, 0)
        fill(here, SCOPE)
        (here / "cgroup/cgroup.controllers").write_text("memory\n")
        events = here / "cgroup" / GROUP / SCOPE / "memory.events"
        events.write_text(f"low 0\noom_kill {oom_kills}\n")
        return status

    monkeypatch.setattr(FakeChild, "watch", watch)
    assert shown_state(podslice, "app") == ("not started", 0, None)
    assert podslice("run", "shop", "-c", "app", "--", "sh").code == 1000 + status
    assert shown_state(podslice, "app") == ("exited", 0, shown)
    podslice("run", "shop", "-c", "app", "--", "sh")
    assert shown_state(podslice, "app") == ("exited", 1, shown)


def test_the_end_is_not_recorded_where_the_process_becomes_the_command(
    shop, podslice, systemd, monkeypatch
):
    """It is known that it has ended, from its start."""
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    with pytest.raises(Became):
        podslice("run", "shop", "-c", "app", "--", "sh")
    assert shown_state(podslice, "app") == ("active", 0, None)
    systemd.set_tasks(SCOPE, 0)
    assert shown_state(podslice, "app") == ("exited", 0, last_exit("unknown"))
    assert re.search(r"^      app +- +exited ", podslice("status").out, re.MULTILINE)


def test_a_deleted_pod_has_no_history(shop, podslice, here, files):
    podslice("run", "shop", "-c", "app", "--", "sh")
    assert podslice("delete", "--all").code == 0
    assert list(here.glob("**/containers")) == []
    assert podslice("apply", "-f", "shop.yaml").code == 0
    assert shown_state(podslice, "app") == ("not started", 0, None)


def test_the_internal_verbs_are_hidden(podslice):
    assert "__init_done" not in podslice("--help").out
    assert re.search(r"^│ run ", podslice("--help").out, re.MULTILINE)
