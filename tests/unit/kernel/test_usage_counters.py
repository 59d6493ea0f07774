"""The counters of histories, in both layouts."""

import pytest

from podslice.kernel.cgroup import CgroupFs
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
    return CgroupFs(mount=tmp_path)


@pytest.fixture
def v1(tmp_path):
    files = {
        "cpuacct/kubepods.slice/cpuacct.usage": "7000999\n",
        "memory/kubepods.slice/memory.usage_in_bytes": "4096\n",
        "memory/kubepods.slice/memory.max_usage_in_bytes": "8192\n",
        "memory/kubepods.slice/memory.stat": "inactive_file 5\ntotal_inactive_file 1024\n",
    }
    make_files(tmp_path, files)
    return CgroupFs(mount=tmp_path)


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_counters_are_read_in_both_layouts(layout, request):
    counters = request.getfixturevalue(layout)
    assert counters.counter(GROUP, "cpu_usec") == 7000
    assert counters.counter(GROUP, "memory_bytes") == 4096
    assert counters.counter(GROUP, "peak_bytes") == 8192
    assert counters.counter(GROUP, "inactive_bytes") == 1024


def test_only_the_unified_layout_counts_oom_kills_and_waits(v2, tmp_path):
    assert v2.counter(GROUP, "oom_kills") == 3
    assert v2.waits_usec(GROUP) == (500, 70)
    (tmp_path / "kubepods.slice/memory.pressure").unlink()
    assert v2.waits_usec(GROUP) is None


def test_the_other_layout_does_not(v1):
    assert v1.counter(GROUP, "oom_kills") is None
    assert v1.waits_usec(GROUP) is None


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_without_a_group_nothing_is_counted(layout, request):
    counters = request.getfixturevalue(layout)
    names = ("cpu_usec", "memory_bytes", "peak_bytes", "inactive_bytes")
    assert counters.counters("/none.slice", names) == dict.fromkeys(names)
    assert counters.waits_usec("/none.slice") is None


def test_a_group_that_is_removed_while_it_is_read_has_no_counters(v2, tmp_path):
    path = tmp_path / "kubepods.slice/cpu.stat"
    path.unlink()
    path.mkdir()  # reading it fails after it was opened
    assert v2.counter(GROUP, "cpu_usec") is None
