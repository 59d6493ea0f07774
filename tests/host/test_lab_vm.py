"""The guarantees of the lab, for virtual machines; that of a reboot is in tests/packaging/test_install.py."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.deps import run_tool
from tests.lab.machine import LabError, Machine, pack_tree
from tests.lab.paths import run_dir, source_dir
from tests.lab.vm import Vm

pytestmark = pytest.mark.host


def test_run_keeps_the_streams_apart(machine: Machine) -> None:
    result = machine.run("sh", "-c", "cat; echo wrong >&2; exit 3", input="hello", check=False)
    assert (result.exit_code, result.stdout, result.stderr) == (3, "hello", "wrong\n")


def test_source_tree_is_present(machine: Machine) -> None:
    assert machine.get("/src/tests/lab/vm.py") == Path(source_dir(), "tests/lab/vm.py").read_bytes()


def test_caches_do_not_change_the_packed_tree(tmp_path: Path) -> None:
    """It is the key of the template that has it."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package/module.py").write_text("x = 1\n")
    packed = pack_tree(tmp_path)
    (tmp_path / "package/__pycache__").mkdir()
    (tmp_path / ".hypothesis").mkdir()
    os.utime(tmp_path / "package", (1, 1))
    assert pack_tree(tmp_path) == packed
    (tmp_path / "package/module.py").write_text("x = 2\n")
    assert pack_tree(tmp_path) != packed


def test_module_runs_as_python_would(machine: Machine) -> None:
    result = machine.module("json.tool", "--compact", input='{"a": 1}')
    assert (result.exit_code, result.stdout, result.stderr) == (0, '{"a":1}\n', "")


def test_spawn_is_killed_with_its_children(machine: Machine) -> None:
    process = machine.spawn("sh", "-c", "sleep 1234 & wait")
    assert machine.run("test", "-d", f"/proc/{process.pid}").exit_code == 0
    process.kill()
    assert process.wait().exit_code == 128 + signal.SIGKILL
    # the shell may be reaped while the kernel still ends the other
    machine.run("sh", "-c", "while pgrep -f '[s]leep 1234'; do sleep 0.1; done", timeout_sec=60)


def test_megabytes_both_ways_while_another_command_writes(machine: Machine) -> None:
    text = "0123456789abcdef" * (1 << 17)
    chatty = machine.spawn("sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; read line")
    assert machine.run("cat", input=text).stdout == text
    chatty.close_stdin()
    assert len(chatty.wait().stdout) == 3_000_000


def test_archives_are_unpacked_one_after_the_other(machine: Machine, tmp_path: Path) -> None:
    disks = machine.run("ls", "/sys/block").stdout
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
        archive = tmp_path / f"{name}.tar"
        run_tool("tar", "-C", str(tmp_path), "-cf", str(archive), name)
        machine.unpack(archive)
    assert (machine.get("/one"), machine.get("/two")) == (b"one", b"two")
    assert machine.run("ls", "/sys/block").stdout == disks
    machine.run("rm", "/one", "/two")


def test_tests_run_inside(machine: Machine) -> None:
    result = machine.module(
        *("pytest", "-q", "-p", "no:cacheprovider", "tests/bus/test_lab_namespace.py"),
        *(("-k", "streams or facts or reaches_the_kernel") if machine.kind == "vm" else ()),
        env={"PODSLICE_TEST_LOCAL": "1"},
        check=False,
    )
    assert result.exit_code == 0, result.stdout
    assert " passed" in result.stdout


@pytest.mark.cgroup2
def test_facts_of_cgroup_v2(machine: Machine) -> None:
    assert (machine.kind, machine.cgroup_version, machine.has_controllers) == ("vm", 2, True)
    assert machine.systemd_version == 257
    assert b"some avg10=" in machine.get("/proc/pressure/memory")


def test_memory_max_reaches_the_kernel(clean_vm: Machine) -> None:
    clean_vm.run("systemctl", "set-property", "--runtime", "kubepods.slice", "MemoryMax=64M")
    clean_vm.run("systemctl", "start", "kubepods.slice")
    assert clean_vm.get("/sys/fs/cgroup/kubepods.slice/memory.max") == b"67108864\n"


def test_kernel_kills_for_memory_only_inside(clean_vm: Machine) -> None:
    eat = "b = [bytearray(1 << 20) for _ in range(200)]"
    slice_ = ("--slice=kubepods-pod1.slice", "--property=MemorySwapMax=0")
    clean_vm.run("systemctl", "set-property", "--runtime", "kubepods-pod1.slice", "MemoryMax=48M")
    result = clean_vm.run("systemd-run", "--scope", *slice_, "python3", "-c", eat, check=False)
    assert result.exit_code == 128 + signal.SIGKILL
    events = clean_vm.get("/sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice/memory.events")
    assert b"oom_kill 1\n" in events
    assert clean_vm.run("true").exit_code == 0


def test_clock_is_right(vm: Vm) -> None:
    assert abs(float(vm.run("date", "+%s.%N").stdout) - time.time()) < 2


def test_disks_are_discarded(vm: Vm) -> None:
    with Vm() as second:
        second.put("/etc/only-here", "")
    with pytest.raises(FileNotFoundError):
        vm.get("/etc/only-here")


def test_close_leaves_nothing() -> None:
    vm = Vm()
    pid, name = vm.pid, vm.name
    assert Path(f"/proc/{pid}").exists()
    vm.close()
    vm.close()
    assert not Path(f"/proc/{pid}").exists()
    assert not (run_dir() / name).exists()
    with pytest.raises(LabError, match="closed"):
        vm.run("true")


def test_machine_that_crashes_reports_it() -> None:
    with Vm() as vm:
        os.kill(vm.pid, signal.SIGKILL)
        with pytest.raises(LabError, match="the machine has ended"):
            vm.run("sleep", "10")


OWNER_SCRIPT = """
import sys
from tests.lab.vm import Vm
vm = Vm()
print(vm.pid, vm.name, flush=True)
sys.stdin.read()
"""


def test_nothing_outlives_a_killed_owner(vm: Vm) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER_SCRIPT],
        cwd=source_dir(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout
        pid, name = owner.stdout.readline().split()
        assert Path(f"/proc/{pid}").exists()
        owner.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    wait_until(lambda: not (run_dir() / name).exists())


def wait_until(is_so: Callable[[], bool], timeout_sec: float = 10.0) -> None:
    """Poll processes and files of the host, which do not notify of their end."""
    deadline = time.monotonic() + timeout_sec
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)
