import pytest

from podslice.errors import InputError
from podslice.model.node import Cpu, CpuTopology, regular_topology
from tests.cases.tables import cases


def test_a_regular_machine_has_the_numbers_of_linux():
    made = regular_topology(sockets=2, numa=4, cores=4, threads=2)
    assert made.sockets == {
        0: frozenset({0, 1, 2, 3, 8, 9, 10, 11}),
        1: frozenset({4, 5, 6, 7, 12, 13, 14, 15}),
    }
    assert made.numa_nodes[1] == {2, 3, 10, 11}
    assert made.cores[5] == {5, 13}
    assert made.uncore_caches == made.sockets
    assert made.core_of[13] == 5
    assert made.all == frozenset(range(16))
    assert (made.threads_per_core, made.is_uniform) == (2, True)


def test_numa_nodes_may_span_sockets():
    made = regular_topology(sockets=4, numa=2, cores=1, threads=1)
    assert made.numa_nodes == {0: frozenset({0, 1}), 1: frozenset({2, 3})}


def test_cores_of_different_sizes_are_not_uniform():
    made = CpuTopology(cpus=(Cpu(cpu=0, core=7), Cpu(cpu=1, core=7), Cpu(cpu=2, core=3)))
    assert made.cores == {3: frozenset({2}), 7: frozenset({0, 1})}
    assert list(made.cores) == [3, 7]
    assert (made.threads_per_core, made.is_uniform) == (2, False)


def test_a_machine_without_cpus_has_cores_of_one_thread():
    assert (CpuTopology(cpus=()).threads_per_core, CpuTopology(cpus=()).is_uniform) == (1, True)


@cases
def test_a_machine_without_equal_parts_is_refused(numbers, message, hint):
    keys = ("sockets", "numa", "cores", "threads")
    with pytest.raises(InputError) as refused:
        regular_topology(**dict(zip(keys, numbers, strict=True)))
    assert [(each.message, each.hint) for each in refused.value.problems] == [(message, hint)]
