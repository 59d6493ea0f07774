"""What other tests rely on in a virtual machine of the lab, and would not show if it were broken.

That of a reboot is in tests/packaging/test_install.py, that of commands in tests/bus/test_lab_namespace.py.
"""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.lab.deps import run_tool
from tests.lab.machine import LabError, pack_tree
from tests.lab.paths import run_dir, source_dir
from tests.lab.vm import Vm

pytestmark = pytest.mark.host


def test_it_has_this_source_tree_cgroup_v2_and_the_time(vm: Vm) -> None:
    assert vm.get("/src/tests/lab/vm.py") == Path(source_dir(), "tests/lab/vm.py").read_bytes()
    assert (vm.kind, vm.cgroup_version, vm.has_controllers) == ("vm", 2, True)
    assert vm.systemd_version == 257
    assert b"some avg10=" in vm.get("/proc/pressure/memory")
    before = time.time()
    assert before - 1 < float(vm.run("date", "+%s.%N").stdout) < time.time() + 1


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


def test_megabytes_both_ways_while_another_command_writes(vm: Vm) -> None:
    text = "0123456789abcdef" * (1 << 17)
    chatty = vm.spawn("sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; read line")
    assert vm.run("cat", input=text).stdout == text
    chatty.close_stdin()
    assert len(chatty.wait().stdout) == 3_000_000


def test_archives_are_unpacked_one_after_the_other(vm: Vm, tmp_path: Path) -> None:
    disks = vm.run("ls", "/sys/block").stdout
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
        archive = tmp_path / f"{name}.tar"
        run_tool("tar", "-C", str(tmp_path), "-cf", str(archive), name)
        vm.unpack(archive)
    assert (vm.get("/one"), vm.get("/two")) == (b"one", b"two")
    assert vm.run("ls", "/sys/block").stdout == disks
    vm.run("rm", "/one", "/two")


def test_a_machine_that_crashes_reports_it_and_leaves_nothing(vm: Vm) -> None:
    with Vm() as second:
        second.put("/etc/only-here", "")
        with pytest.raises(FileNotFoundError):
            vm.get("/etc/only-here")
        os.kill(second.pid, signal.SIGKILL)
        with pytest.raises(LabError, match="the machine has ended"):
            second.run("sleep", "10")
    assert not Path(f"/proc/{second.pid}").exists()
    assert not (run_dir() / second.name).exists()
    with pytest.raises(LabError, match="closed"):
        second.run("true")
