"""What a running unit or process uses, from files of /proc and of control groups."""

import os

import pytest

from podslice.features.importing.policy import PresentUse
from podslice.features.importing.reading import process_use, unit_use
from podslice.kernel.cgroup import CgroupFs
from podslice.model.unit import ObservedUnit, UnitName
from tests.unit.builders import make_files

TICKS = os.sysconf("SC_CLK_TCK")
GROUP = "sys/fs/cgroup/system.slice/nginx.service"
UNIT = ObservedUnit(name=UnitName("nginx.service"), control_group="/system.slice/nginx.service")


def process(pid, *, started_sec, ticks=(0, 0, 0, 0), threads=1, children="", rss_kb=100):
    """The files of one process. Source: proc_pid_stat(5)."""
    fields = ["S", "1", *["0"] * 9, *map(str, ticks), "20", "0", str(threads), "0"]
    status = f"Tgid:\t{pid}\nUid:\t0\t0\t0\t0\n"
    if rss_kb:
        status += f"VmHWM:\t{2 * rss_kb} kB\nVmRSS:\t{rss_kb} kB\n"
    return {
        f"proc/{pid}/stat": f"{pid} (a b) {' '.join(fields)} {started_sec * TICKS} 0\n",
        f"proc/{pid}/status": status,
        f"proc/{pid}/comm": "nginx\n",
        f"proc/{pid}/cgroup": "0::/system.slice/nginx.service\n",
        f"proc/{pid}/task/{pid}/children": children,
    }


@pytest.fixture
def root(tmp_path):
    return make_files(
        tmp_path,
        {
            "proc/uptime": "1000.57 3000.00\n",
            **process(7, started_sec=900, ticks=(1, 2, 3, 4), threads=2, children="8 9"),
            **process(8, started_sec=950, ticks=(10, 0, 0, 0)),
            **process(9, started_sec=950, rss_kb=0),
            "sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n",
            f"{GROUP}/cgroup.procs": "8\n7\n",
            f"{GROUP}/cpu.stat": "usage_usec 4200000\n",
            f"{GROUP}/memory.current": "5000\n",
            f"{GROUP}/memory.peak": "9000\n",
            f"{GROUP}/memory.stat": "inactive_file 1000\n",
            f"{GROUP}/pids.current": "3\n",
        },
    )


def cgroups(root):
    return CgroupFs(mount=root / "sys/fs/cgroup")


def test_a_unit(root):
    assert unit_use(UNIT, cgroups=cgroups(root), root=root) == PresentUse(
        name="nginx",
        what="nginx.service",
        age_sec=100,
        cpu_usec=4_200_000,
        memory_bytes=4000,
        peak_bytes=9000,
        tasks=3,
    )


@pytest.mark.parametrize("group", ["", "/system.slice/other.service"])
def test_a_unit_without_processes(root, group):
    unit = ObservedUnit(name=UnitName("nginx.service"), control_group=group)
    assert unit_use(unit, cgroups=cgroups(root), root=root) is None


def test_a_process_with_those_below_it(root):
    """9 has no memory of its own: it is a kernel thread, or a zombie."""
    assert process_use(7, root) == PresentUse(
        name="nginx",
        what="process 7 (nginx) and 1 descendant",
        age_sec=100,
        cpu_usec=20 * 1_000_000 // TICKS,
        memory_bytes=200 * 1024,
        peak_bytes=400 * 1024,
        tasks=3,
    )
    assert process_use(8, root).what == "process 8 (nginx)"


@pytest.mark.parametrize("pid", [9, 10])
def test_a_process_that_is_none(root, pid):
    assert process_use(pid, root) is None
