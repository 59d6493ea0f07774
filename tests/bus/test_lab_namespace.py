"""The lab's own promises, for namespaces (and for the local machine where they apply)."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab import fixtures, keeper, state
from tests.lab.machine import START_SERVICE, CommandError, CommandTimeout, Machine
from tests.lab.namespace import Namespace
from tests.lab.paths import run_dir, source_dir

only_on_host = pytest.mark.skipif(fixtures.IS_LOCAL, reason="makes machines, is inside one")


def test_run_keeps_the_streams_apart(machine: Machine) -> None:
    result = machine.run("sh", "-c", "cat; echo wrong >&2; exit 3", input="hello", check=False)
    assert (result.exit_code, result.stdout, result.stderr) == (3, "hello", "wrong\n")


def test_run_raises_with_both_streams(machine: Machine) -> None:
    with pytest.raises(CommandError, match=r"(?s)exit code 7.*out.*err"):
        machine.run("sh", "-c", "echo out; echo err >&2; exit 7")


def test_run_passes_the_environment(machine: Machine) -> None:
    assert machine.run("sh", "-c", "echo $COLOUR", env={"COLOUR": "red"}).stdout == "red\n"


def test_run_counts_signals_as_a_shell(machine: Machine) -> None:
    assert machine.run("sh", "-c", "kill -TERM $$", check=False).exit_code == 128 + signal.SIGTERM


def test_run_kills_commands_at_the_time_limit(machine: Machine) -> None:
    with pytest.raises(CommandTimeout) as caught:
        machine.run("sh", "-c", "echo begun; sleep 1000 & wait", timeout_sec=2.0)
    assert caught.value.result.stdout == "begun\n"


def test_run_of_an_unknown_command(machine: Machine) -> None:
    with pytest.raises(FileNotFoundError):
        machine.run("no-such-command")


def test_run_transfers_megabytes(machine: Machine) -> None:
    text = "0123456789abcdef" * (1 << 18)
    assert machine.run("cat", input=text).stdout == text


def test_commands_are_in_the_machines_own_tree(machine: Machine) -> None:
    cgroup = machine.run("cat", "/proc/self/cgroup").stdout
    agent = machine.run("systemctl", "show", "podlab-agent.service", "-P", "ControlGroup").stdout
    if not fixtures.IS_LOCAL:
        assert agent == "/podlab.slice/podlab-agent.service\n"
        assert agent.strip() in cgroup


def test_files_go_in_and_out(machine: Machine) -> None:
    machine.put("/run/lab-test/deep/file", b"\0\xff", mode=0o600)
    assert machine.get("/run/lab-test/deep/file") == b"\0\xff"
    assert machine.run("stat", "-c", "%a", "/run/lab-test/deep/file").stdout == "600\n"
    machine.run("rm", "-r", "/run/lab-test")
    with pytest.raises(FileNotFoundError):
        machine.get("/run/lab-test/deep/file")


def test_push_replaces_a_tree_and_leaves_caches_out(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "package/__pycache__").mkdir(parents=True)
    (tmp_path / "package/module.py").write_text("x = 1\n")
    (tmp_path / "package/__pycache__/module.pyc").write_text("")
    machine.put("/run/lab-push/old", "")
    machine.push(tmp_path, "/run/lab-push")
    found = machine.run("find", "/run/lab-push", "-type", "f").stdout
    machine.run("rm", "-r", "/run/lab-push")
    assert found == "/run/lab-push/package/module.py\n"


def test_spawn_is_killed_with_all_it_started(machine: Machine) -> None:
    process = machine.spawn("sh", "-c", "echo ready; sleep 1234 & wait")
    process.kill()
    assert process.wait().exit_code == 128 + signal.SIGKILL
    # the last process may still be exiting
    machine.run(
        "timeout", "110", "sh", "-c", "while pgrep -f '[s]leep 1234' >/dev/null; do sleep 0.1; done"
    )


def test_spawn_reads_later_output(machine: Machine) -> None:
    process = machine.spawn("cat")
    machine.run("true")  # another command meanwhile
    process.write("one ")
    process.write("two")
    process.close_stdin()
    assert process.wait().stdout == "one two"


def test_facts_fit_the_cgroup_tree(machine: Machine) -> None:
    assert machine.systemd_version >= 252
    is_unified = machine.run("test", "-e", "/sys/fs/cgroup/cgroup.controllers", check=False)
    assert machine.cgroup_version == (2 if is_unified.exit_code == 0 else 1)


def test_memory_max_reaches_the_kernel(clean_machine: Machine) -> None:
    if not clean_machine.has_controllers:
        pytest.skip("this machine has no memory controller")
    machine = clean_machine
    machine.run("systemctl", "set-property", "--runtime", "kubepods.slice", "MemoryMax=64M")
    machine.run("systemctl", "start", "kubepods.slice")
    file = {
        1: "/sys/fs/cgroup/memory/kubepods.slice/memory.limit_in_bytes",
        2: "/sys/fs/cgroup/kubepods.slice/memory.max",
    }[machine.cgroup_version]
    assert machine.get(file) == b"67108864\n"


def test_clean_removes_everything(clean_machine: Machine) -> None:
    machine = clean_machine
    machine.run("systemctl", "set-property", "--runtime", "kubepods.slice", "CPUWeight=50")
    machine.run("systemctl", "set-property", "--runtime", "system.slice", "CPUWeight=50")
    machine.run(
        *("systemd-run", "--scope", "--slice=kubepods-burstable-pod1.slice"),
        *("--unit=podslice-pod1-a.scope", "sh", "-c", "sleep 1000 >/dev/null 2>&1 &"),
    )
    machine.put("/run/podslice/pods/1.json", "{}")
    assert len(state.find_leftovers(machine)) >= 6
    state.clean(machine)
    assert state.find_leftovers(machine) == []
    assert machine.run("pgrep", "-f", "sleep 1000", check=False).stdout == ""


def test_clean_makes_stopped_transient_slices_loadable_again(clean_machine: Machine) -> None:
    machine = clean_machine
    machine.run(*START_SERVICE, "--slice=kubepods.slice", "--unit=podslice-a", "sleep", "1000")
    start = ("busctl", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1")
    manager = "org.freedesktop.systemd1.Manager"
    slice_ = ("kubepods-burstable.slice", "fail", "0", "0")
    machine.run(*start, manager, "StartTransientUnit", "ssa(sv)a(sa(sv))", *slice_)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "stop", "podslice-a.service", "kubepods.slice")
    state.clean(machine)
    assert state.find_leftovers(machine) == []
    machine.run("systemctl", "start", "kubepods-burstable.slice")


def test_user_lab_can_have_its_own_manager(machine: Machine) -> None:
    if fixtures.IS_LOCAL:
        pytest.skip("lingering would outlast the test")
    machine.run("loginctl", "enable-linger", "lab")
    machine.run("systemctl", "start", "user@1000.service")
    state_now = machine.run(
        *("runuser", "-u", "lab", "--", "systemctl", "--user", "is-system-running", "--wait"),
        env={"XDG_RUNTIME_DIR": "/run/user/1000"},
    )
    machine.run("loginctl", "disable-linger", "lab")
    assert state_now.stdout == "running\n"


@only_on_host
def test_host_is_seen_read_only_and_only_where_bound(machine: Machine) -> None:
    assert machine.root is not None
    assert (machine.root / "src/tests/lab/namespace.py").is_file()
    assert machine.run("touch", "/src/written", check=False).exit_code == 1
    assert machine.run("sh", "-c", "echo 1 > /proc/sys/vm/swappiness", check=False).exit_code != 0
    assert machine.run("date", "-s", "@0", check=False).exit_code == 1


@only_on_host
def test_no_cgroups_outside_of_its_own(machine: Machine) -> None:
    assert cgroups_of(f"podlab-ns-{os.getpid()}-")
    strays = [path for path in cgroups_of("/podlab.slice") if "/podlab-ns-" not in path]
    assert strays == []


@only_on_host
def test_two_at_once_do_not_see_each_other(machine: Machine) -> None:
    with Namespace() as second:
        second.run("systemctl", "start", "kubepods-pod1.slice")
        assert machine.run("systemctl", "is-active", "kubepods-pod1.slice", check=False).exit_code
        second.put("/etc/only-here", "")
        with pytest.raises(FileNotFoundError):
            machine.get("/etc/only-here")


@only_on_host
def test_close_leaves_nothing(machine: Machine) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    second = Namespace()
    pid, name = second.pid, second.name
    assert cgroups_of(name)
    second.run("systemctl", "start", "kubepods-pod1.slice")
    second.close()
    second.close()
    assert not Path(f"/proc/{pid}").exists()
    assert cgroups_of(name) == []
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert not (run_dir() / name).exists()


OWNER_SCRIPT = """
import sys
from tests.lab.namespace import Namespace
machine = Namespace()
machine.run("systemctl", "start", "a-b.slice")
print(machine.pid, machine.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owner(machine: Machine) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER_SCRIPT],
        cwd=source_dir(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


@only_on_host
def test_nothing_outlives_an_owner_which_is_killed(owner: subprocess.Popen[str]) -> None:
    pid, name = read_machine(owner)
    assert Path(f"/proc/{pid}").exists()
    owner.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    wait_until(lambda: cgroups_of(name) == [])
    wait_until(lambda: not (run_dir() / name).exists())


@only_on_host
def test_sweep_removes_what_a_killed_keeper_left(owner: subprocess.Popen[str]) -> None:
    pid, name = read_machine(owner)
    os.kill(parent_of(pid), signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert cgroups_of(name)
    assert name not in keeper.sweep(run_dir().iterdir())  # its owner lives
    owner.kill()
    owner.wait()
    assert name in keeper.sweep(run_dir().iterdir())
    assert cgroups_of(name) == []
    assert not (run_dir() / name).exists()


def read_machine(owner: subprocess.Popen[str]) -> tuple[int, str]:
    assert owner.stdout
    pid, name = owner.stdout.readline().split()
    return int(pid), name


def parent_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])


def wait_until(is_so: Callable[[], bool], timeout_sec: float = 10.0) -> None:
    """Poll processes and cgroups of the host, whose end is not reported as an event."""
    deadline = time.monotonic() + timeout_sec
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def cgroups_of(name: str) -> list[str]:
    """Cgroups of this host with that in their path; others come and go meanwhile."""
    return [path for path, _, _ in os.walk("/sys/fs/cgroup") if name in path]
