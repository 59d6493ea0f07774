"""CPUs are assigned on machines whose /sys was read."""

from dataclasses import replace

import pytest

from podslice.features.cpus.assignment import CpuOptions, align_cpus, assign_cpus
from podslice.kernel.host import read_cpu_topology
from podslice.model.config import TopologyManagerPolicy
from podslice.model.node import CpuTopology, parse_cpus, regular_topology
from tests.cases.tables import cases
from tests.unit.kernel.test_host_cpus import HYBRID, SMT, write_recorded, write_sys

CACHES = CpuTopology(
    cpus=tuple(
        replace(cpu, uncore=cpu.core // 2)
        for cpu in regular_topology(sockets=1, numa=1, cores=6, threads=1).cpus
    )
)
OFFLINE = CpuTopology(cpus=tuple(cpu for cpu in SMT.cpus if cpu.cpu not in (8, 9)))


@pytest.mark.parametrize(
    ("machine", "free", "count", "options", "expected"),
    [
        (SMT, "1-15", 4, {}, "2-3,10-11"),
        (SMT, "1-15", 3, {}, "1,8-9"),
        (OFFLINE, "1-7,10-15", 2, {"full_cores": True}, "2,10"),
        (HYBRID, "1-5", 3, {"full_cores": True}, "2-4"),
        (CACHES, "1-5", 3, {"align_uncore": True}, "1-3"),
        (CACHES, "0,2-5", 2, {"align_uncore": True}, "2-3"),
    ],
    ids=["NUMA node", "threads", "offline", "hybrid", "a cache and a half", "a cache"],
)
def test_cpus_are_assigned_on_the_machine_that_was_read(
    machine, free, count, options, expected, tmp_path
):
    write_sys(tmp_path, machine)
    found = align_cpus(
        read_cpu_topology(tmp_path),
        count,
        free=frozenset(parse_cpus(free)),
        options=CpuOptions(**options),
        policy=TopologyManagerPolicy.SINGLE_NUMA_NODE,
    )
    assert found == parse_cpus(expected)


@cases
def test_cpus_are_assigned_on_a_recorded_machine(name, free, count, options, expected, tmp_path):
    write_recorded(tmp_path, name)
    found = assign_cpus(
        read_cpu_topology(tmp_path),
        count,
        free=frozenset(parse_cpus(free)),
        options=CpuOptions(**options),
    )
    assert found == parse_cpus(expected)
