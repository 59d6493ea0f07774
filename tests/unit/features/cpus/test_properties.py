"""CPUs are assigned once, in the exact number, and only where they are free."""

import itertools

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st

from podslice.features.cpus.assignment import CpuOptions, CpuRefusal, assign_cpus
from podslice.model.node import Cpu, CpuTopology, format_cpus, parse_cpus, regular_topology
from tests.unit.properties.strategies import some

SHAPES = [(1, 1), (1, 2), (2, 1), (2, 2), (2, 4), (4, 4)]


@st.composite
def machines(draw):
    """Machines of one to four sockets, of which some threads may be offline."""
    sockets, numa = draw(st.sampled_from(SHAPES))
    threads = draw(st.integers(1, 2))
    cores = draw(st.integers(1, 3)) * max(1, numa // sockets)
    whole = regular_topology(sockets=sockets, numa=numa, cores=cores, threads=threads)
    offline = draw(st.sets(st.sampled_from(sorted(whole.all)), max_size=4))
    caches = draw(st.integers(1, 3))
    cpus = (
        Cpu(
            cpu=each.cpu,
            core=each.core,
            socket=each.socket,
            numa=each.numa,
            uncore=each.core // caches,
        )
        for each in whole.cpus
        if each.cpu not in offline
    )
    return CpuTopology(cpus=tuple(cpus))


@st.composite
def requests(draw):
    """A machine, the CPUs that are free, a number, options and preferred nodes.

    CPU 999, which the machine lacks, may be among the free ones.
    """
    topology = draw(machines())
    used = draw(st.sets(st.sampled_from([*sorted(topology.all), 999])))
    return {
        "topology": topology,
        "count": draw(st.integers(0, len(topology.all) + 1)),
        "free": (topology.all | {999}) - used,
        "options": CpuOptions(
            full_cores=draw(st.booleans()),
            distribute_numa=draw(st.booleans()),
            align_uncore=draw(st.booleans()),
        ),
        "numa_nodes": draw(st.sets(st.integers(0, 4), max_size=2)),
    }


def whole_cores(topology, cpus):
    return [core for core in topology.cores.values() if core <= cpus]


def has_sum(cores, count):
    sums = {0}
    for core in cores:
        sums |= {each + len(core) for each in sums}
    return count in sums


@some
@given(requests())
def test_exactly_the_requested_number_of_free_cpus_is_assigned(request):
    got = assign_cpus(**request)
    if not isinstance(got, CpuRefusal):
        assert len(got) == request["count"]
        assert got <= request["free"] & request["topology"].all
    assert got == assign_cpus(**request)


@some
@given(requests())
def test_a_request_is_refused_only_if_the_free_cpus_cannot_serve_it(request):
    topology, count = request["topology"], request["count"]
    free = request["free"] & topology.all
    refused = isinstance(assign_cpus(**request), CpuRefusal)
    if not request["options"].full_cores:
        assert refused == (count > len(free))
    elif topology.is_uniform:
        cores = whole_cores(topology, free)
        assert refused == (count % topology.threads_per_core > 0 or count > sum(map(len, cores)))
    else:
        assert refused == (not has_sum(whole_cores(topology, free), count))


@some
@given(requests())
def test_full_pcpus_only_assigns_whole_cores(request):
    got = assign_cpus(**{**request, "options": CpuOptions(full_cores=True)})
    if not isinstance(got, CpuRefusal):
        assert sum(map(len, whole_cores(request["topology"], got))) == request["count"]


@some
@given(requests())
def test_all_that_the_preferred_nodes_have_is_taken_before_others(request):
    topology, free = request["topology"], request["free"]
    got = assign_cpus(**{**request, "options": CpuOptions()})
    preferred = {each.cpu for each in topology.cpus if each.numa in request["numa_nodes"]} & free
    if not isinstance(got, CpuRefusal):
        assert len(got & preferred) == min(request["count"], len(preferred))


@some
@given(machines(), st.lists(st.integers(1, 4), max_size=5), st.booleans())
def test_what_is_released_is_available_again(topology, counts, full_cores):
    options = CpuOptions(full_cores=full_cores)
    held = []
    for count in counts:
        free = topology.all.difference(*held)
        got = assign_cpus(topology, count, free=free, options=options)
        if not isinstance(got, CpuRefusal):
            again = assign_cpus(topology, count, free=free, options=options)
            assert again == got
            held.append(got)
    assert all(not one & other for one, other in itertools.combinations(held, 2))


@some
@given(st.frozensets(st.integers(0, 600)))
def test_a_list_of_cpus_is_read_as_it_was_written(cpus):
    assert parse_cpus(format_cpus(cpus)) == cpus
