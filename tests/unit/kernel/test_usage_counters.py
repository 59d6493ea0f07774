"""The counters of histories, in both layouts."""

import pytest

from podslice.kernel.cgroup import CgroupFs, UsageCounters
from tests.unit.builders import make_files

GROUP = "/kubepods.slice"


@pytest.fixture
def v2(tmp_path):
    files = {
        "cgroup.controllers": "cpu memory\n",
        "kubepods.slice/cpu.stat": "usage_usec 7000\nuser_usec 1\n",
        "kubepods.slice/memory.current": "4096\n",
        "kubepods.slice/memory.peak": "8192\n",
        "kubepods.slice/memory.stat": "anon 1\nfile 2\nactive_file 3\ninactive_file 1024\nx 1\n",
        "kubepods.slice/memory.events": "low 0\noom 4\noom_kill 3\n",
        "kubepods.slice/cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=500\n",
        "kubepods.slice/memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=70\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=60\n",
    }
    make_files(tmp_path, files)
    return UsageCounters(CgroupFs(mount=tmp_path))


@pytest.fixture
def v1(tmp_path):
    files = {
        "cpuacct/kubepods.slice/cpuacct.usage": "7000999\n",
        "memory/kubepods.slice/memory.usage_in_bytes": "4096\n",
        "memory/kubepods.slice/memory.max_usage_in_bytes": "8192\n",
        "memory/kubepods.slice/memory.stat": "inactive_file 5\ntotal_inactive_file 1024\n",
    }
    make_files(tmp_path, files)
    return UsageCounters(CgroupFs(mount=tmp_path))


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_counters_are_read_in_both_layouts(layout, request):
    counters = request.getfixturevalue(layout)
    assert counters.cpu_usec(GROUP) == 7000
    assert counters.current_bytes(GROUP) == 4096
    assert counters.peak_bytes(GROUP) == 8192
    assert counters.inactive_bytes(GROUP) == 1024


def test_only_the_unified_layout_counts_oom_kills_and_waits(v2, tmp_path):
    assert v2.oom_kills(GROUP) == 3
    assert v2.waits_usec(GROUP) == (500, 70)
    (tmp_path / "kubepods.slice/memory.pressure").unlink()
    assert v2.waits_usec(GROUP) is None


def test_the_other_layout_does_not(v1):
    assert v1.oom_kills(GROUP) is None
    assert v1.waits_usec(GROUP) is None


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_without_a_group_nothing_is_counted(layout, request):
    counters = request.getfixturevalue(layout)
    found = (counters.cpu_usec, counters.current_bytes, counters.peak_bytes, counters.waits_usec)
    assert [read("/none.slice") for read in found] == [None] * 4
    assert counters.inactive_bytes("/none.slice") == 0


def test_a_group_that_is_removed_while_it_is_read_has_no_counters(v2, tmp_path):
    path = tmp_path / "kubepods.slice/cpu.stat"
    path.unlink()
    path.mkdir()  # reading it fails after it was opened
    assert v2.cpu_usec(GROUP) is None
