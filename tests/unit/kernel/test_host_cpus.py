from dataclasses import replace
from pathlib import Path

import pytest

from podslice.errors import HostError
from podslice.kernel.host import read_cpu_topology
from podslice.model.node import Cpu, CpuTopology, format_cpus, regular_topology

SMT = regular_topology(sockets=2, numa=4, cores=4, threads=2)
HYBRID = CpuTopology(
    cpus=(
        Cpu(cpu=0, core=0),
        Cpu(cpu=1, core=0),
        Cpu(cpu=2, core=2),
        Cpu(cpu=3, core=2),
        Cpu(cpu=4, core=4, uncore=4),
        Cpu(cpu=5, core=5, uncore=4),
    )
)


def write_sys(root, topology, *, core_id=lambda cpu: cpu.core, caches=True, nodes=True):
    """Write a machine's /sys as the kernel shows it."""

    def write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    system = root / "sys/devices/system"
    write(system / "cpu/online", format_cpus(topology.all))
    for cpu in topology.cpus:
        here = system / f"cpu/cpu{cpu.cpu}"
        write(here / "topology/core_id", core_id(cpu))
        write(here / "topology/core_cpus_list", format_cpus(topology.cores[cpu.core]))
        write(here / "topology/physical_package_id", cpu.socket)
        shared = {1: topology.cores[cpu.core], 3: topology.uncore_caches[cpu.uncore]}
        # the highest level need not have the highest index
        for index, level in ((0, 1), (1, 3), (2, 1)) if caches else ():
            write(here / f"cache/index{index}/level", level)
            write(here / f"cache/index{index}/shared_cpu_list", format_cpus(shared[level]))
    for number, cpus in topology.numa_nodes.items() if nodes else ():
        write(system / f"node/node{number}/cpulist", format_cpus(cpus))


def numbered(topology):
    """The machine with each core and cache numbered by its first CPU."""
    return CpuTopology(
        cpus=tuple(
            replace(
                cpu,
                core=min(topology.cores[cpu.core]),
                uncore=min(topology.uncore_caches[cpu.uncore]),
            )
            for cpu in sorted(topology.cpus, key=lambda cpu: cpu.cpu)
        )
    )


@pytest.mark.parametrize(
    "machine",
    [
        regular_topology(sockets=1, numa=1, cores=4, threads=1),
        SMT,
        regular_topology(sockets=4, numa=2, cores=2, threads=2),
        HYBRID,
    ],
    ids=["one socket", "two sockets", "four sockets", "hybrid"],
)
def test_the_topology_is_as_the_kernel_lists_it(machine, tmp_path):
    write_sys(tmp_path, machine)
    assert read_cpu_topology(tmp_path) == numbered(machine)


def test_cores_of_two_sockets_may_have_the_same_id(tmp_path):
    write_sys(tmp_path, SMT, core_id=lambda cpu: cpu.core % 4)
    assert read_cpu_topology(tmp_path) == numbered(SMT)


def test_cpus_that_are_offline_are_left_out(tmp_path):
    machine = CpuTopology(cpus=tuple(cpu for cpu in SMT.cpus if cpu.cpu not in (0, 9)))
    write_sys(tmp_path, machine)
    # its directory remains, without a topology
    (tmp_path / "sys/devices/system/cpu/cpu9").mkdir()
    found = read_cpu_topology(tmp_path)
    assert found == numbered(machine)
    assert found.cores[8] == {8}


def test_cpus_that_the_manager_may_not_use_are_left_out(tmp_path):
    write_sys(tmp_path, SMT)
    allowed = tmp_path / "sys/fs/cgroup/cpuset.cpus.effective"
    allowed.parent.mkdir(parents=True)
    allowed.write_text("1-3,9\n")
    found = read_cpu_topology(tmp_path)
    assert found.all == {1, 2, 3, 9}
    assert found.cores == {1: {1, 9}, 2: {2}, 3: {3}}
    assert found.uncore_caches == {1: {1, 2, 3, 9}}


def test_without_caches_the_cpus_of_a_socket_count_as_sharing_one(tmp_path):
    write_sys(tmp_path, SMT, caches=False)
    assert [*read_cpu_topology(tmp_path).uncore_caches.values()] == [*SMT.sockets.values()]


def test_a_kernel_without_numa_has_one_node(tmp_path):
    write_sys(tmp_path, SMT, nodes=False)
    assert read_cpu_topology(tmp_path).numa_nodes == {0: SMT.all}


def test_a_socket_that_the_firmware_does_not_number_is_the_first(tmp_path):
    write_sys(tmp_path, regular_topology(sockets=1, numa=1, cores=2, threads=1))
    for path in tmp_path.rglob("physical_package_id"):
        path.write_text("-1\n")
    assert [*read_cpu_topology(tmp_path).sockets] == [0]


@pytest.mark.parametrize(
    ("name", "text"),
    [("cpu3/topology/core_cpus_list", "x\n"), ("cpu0/cache/index1/level", "high\n")],
)
def test_a_topology_that_cannot_be_parsed_is_an_error_of_the_host(name, text, tmp_path):
    write_sys(tmp_path, SMT)
    (tmp_path / "sys/devices/system/cpu" / name).write_text(text)
    with pytest.raises(HostError, match="the topology of this host's CPUs can't be read: "):
        read_cpu_topology(tmp_path)


MACHINES = Path(__file__).parent / "machines"


def write_recorded(root, name):
    """Write the files that a machine's kernel had: lines of `PATH: CONTENT`."""
    for line in (MACHINES / f"{name}.txt").read_text().splitlines():
        if not line.startswith("#"):
            path, _, text = line.partition(": ")
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f"{text}\n")


def as_text(groups):
    return " ".join(format_cpus(each) for each in groups.values())


@pytest.mark.parametrize(
    ("name", "cores", "caches", "nodes", "sockets"),
    [
        ("one-socket", "0 1 2 3", "0-3", "0-3", "0-3"),
        ("two-sockets", "0-1 2-3 4-5 6-7", "0-3 4-7", "0-3 4-7", "0-3 4-7"),
        ("four-sockets", "0 1 2 3 4 5 6 7", *3 * ("0-1 2-3 4-5 6-7",)),
        # the kernel still lists CPU 5 as one that shares the cache
        ("offline-thread", "0-1 2-3 4 6-7", "0-3 4,6-7", "0-3 4,6-7", "0-3 4,6-7"),
    ],
)
def test_a_recorded_machine_is_read(name, cores, caches, nodes, sockets, tmp_path):
    write_recorded(tmp_path, name)
    found = read_cpu_topology(tmp_path)
    assert as_text(found.cores) == cores
    assert as_text(found.uncore_caches) == caches
    assert as_text(found.numa_nodes) == nodes
    assert as_text(found.sockets) == sockets
