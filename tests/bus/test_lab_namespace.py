"""What other tests rely on in a namespace of the lab, and would not show if it were broken."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab import keeper, state
from tests.lab.machine import START_SERVICE, CommandError, CommandTimeout, Machine
from tests.lab.namespace import Namespace
from tests.lab.paths import run_dir, source_dir


def test_a_command_that_fails_raises_with_its_streams_apart(machine: Machine) -> None:
    script = ("sh", "-c", "cat; echo wrong >&2; exit 3")
    result = machine.run(*script, input="hello", check=False)
    assert (result.exit_code, result.stdout, result.stderr) == (3, "hello", "wrong\n")
    with pytest.raises(CommandError, match=r"(?s)exit code 3.*hello.*wrong"):
        machine.run(*script, input="hello")
    killed = machine.run("sh", "-c", "kill -TERM $$", check=False)
    assert killed.exit_code == 128 + signal.SIGTERM


def test_a_module_that_fails_raises(machine: Machine) -> None:
    assert machine.module("json.tool", "--compact", input='{"a": 1}').stdout == '{"a":1}\n'
    with pytest.raises(CommandError, match="exit code 1"):
        machine.module("json.tool", input="{")


def test_commands_are_killed_at_the_time_limit(machine: Machine) -> None:
    with pytest.raises(CommandTimeout) as caught:
        machine.run("sh", "-c", "echo begun; sleep 1000 & wait", timeout_sec=2.0)
    assert caught.value.result.stdout == "begun\n"


def test_spawn_is_killed_with_all_it_started(machine: Machine) -> None:
    process = machine.spawn("sh", "-c", "echo ready; sleep 1234 & wait")
    process.kill()
    assert process.wait().exit_code == 128 + signal.SIGKILL
    # the last process may still be exiting
    machine.run(
        "timeout", "110", "sh", "-c", "while pgrep -f '[s]leep 1234' >/dev/null; do sleep 0.1; done"
    )


def test_facts_fit_the_cgroup_tree(machine: Machine) -> None:
    """Tests choose by them what they expect."""
    is_unified = machine.run("test", "-e", "/sys/fs/cgroup/cgroup.controllers", check=False)
    assert machine.cgroup_version == (2 if is_unified.exit_code == 0 else 1)
    file = {1: "memory/memory.limit_in_bytes", 2: "init.scope/memory.max"}[machine.cgroup_version]
    has_memory = machine.run("test", "-e", f"/sys/fs/cgroup/{file}", check=False).exit_code == 0
    assert machine.has_controllers == has_memory


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


def test_host_is_seen_read_only_and_only_where_bound(machine: Machine) -> None:
    assert machine.root is not None
    assert (machine.root / "src/tests/lab/namespace.py").is_file()
    assert machine.run("touch", "/src/written", check=False).exit_code == 1
    assert machine.run("sh", "-c", "echo 1 > /proc/sys/vm/swappiness", check=False).exit_code != 0
    assert machine.run("date", "-s", "@0", check=False).exit_code == 1
    assert cgroups_of(f"podlab-ns-{os.getpid()}-")
    strays = [path for path in cgroups_of("/podlab.slice") if "/podlab-ns-" not in path]
    assert strays == []


def test_close_leaves_nothing(machine: Machine) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    second = Namespace()
    pid, name = second.pid, second.name
    assert cgroups_of(name)
    second.run("systemctl", "start", "kubepods-pod1.slice")
    assert machine.run("systemctl", "is-active", "kubepods-pod1.slice", check=False).exit_code
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


def test_nothing_outlives_an_owner_which_is_killed(owner: subprocess.Popen[str]) -> None:
    pid, name = read_machine(owner)
    assert Path(f"/proc/{pid}").exists()
    owner.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    wait_until(lambda: cgroups_of(name) == [])
    wait_until(lambda: not (run_dir() / name).exists())


def test_sweep_removes_what_a_killed_keeper_left(owner: subprocess.Popen[str]) -> None:
    pid, name = read_machine(owner)
    status = Path(f"/proc/{pid}/status").read_text()
    os.kill(int(status.partition("PPid:")[2].split()[0]), signal.SIGKILL)
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


def wait_until(is_so: Callable[[], bool], timeout_sec: float = 60.0) -> None:
    """Poll processes and cgroups of the host, whose end is not reported as an event."""
    deadline = time.monotonic() + timeout_sec
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def cgroups_of(name: str) -> list[str]:
    """Cgroups of this host with that in their path; others come and go meanwhile."""
    return [path for path, _, _ in os.walk("/sys/fs/cgroup") if name in path]
