import pytest

from podslice.agent.reservations import ReservationMonitor
from podslice.model.event import Kind
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import Clock, make_context, use_memory, write_group
from tests.unit.builders import amounts, config

KINDS = (Kind.RESERVATION_EXCEEDED, Kind.RESERVATION_KEPT)


class Node:
    """Reserved slices, and their monitor."""

    def __init__(self, tmp_path, **fields):
        self.context = make_context(tmp_path, FakeSystemd(), by=config(**fields))
        self.clock = Clock()
        self.reservations = ReservationMonitor(self.context, self.clock)
        self.used_usec = 0

    async def use(self, cpus, seconds, unit="system.slice"):
        """Use CPUs for some seconds, then check."""
        self.used_usec += int(cpus * seconds * 1e6)
        self.clock.advance(seconds)
        write_group(self.context, unit, cpu_stat=f"usage_usec {self.used_usec}")
        await self.reservations.follow()

    async def hold(self, mebibytes, unit="system.slice"):
        use_memory(self.context, unit, mebibytes)
        await self.reservations.follow()

    def reported(self):
        return [event.kind for event in self.context.events.journal.of(*KINDS)]


@pytest.fixture
def here(tmp_path):
    return Node(tmp_path, system_reserved=amounts("cpu=500m,memory=1000Mi,pid=100"))


async def test_exceeding_a_reservation_is_reported_once_and_so_is_its_end(here):
    for mebibytes in (900, 1100, 1200, 980, 1100, 900, 800):
        await here.hold(mebibytes)
    exceeded, kept = here.context.events.journal.of(*KINDS)
    assert exceeded.kind is Kind.RESERVATION_EXCEEDED
    assert exceeded.message == (
        "system.slice uses 1.1 GiB of memory, more than system-reserved, 1000 MiB"
    )
    assert (exceeded.unit, exceeded.fields) == ("system.slice", {"RESOURCE": "memory"})
    assert kept.kind is Kind.RESERVATION_KEPT
    assert "900 MiB of memory, again less than" in kept.message


async def test_processes_count_too(here):
    write_group(here.context, "system.slice", pids_current=101)
    await here.reservations.follow()
    assert here.context.events.journal.of(*KINDS)[0].fields == {"RESOURCE": "pid"}


async def test_short_use_of_cpu_does_not_count(here):
    await here.use(0, 1)
    for _ in range(5):
        await here.use(4, 0.03)
        await here.use(0, 0.03)
    await here.use(0.1, 10)
    assert not here.reported()


async def test_lasting_use_of_cpu_is_reported(here):
    await here.use(0, 1)
    await here.use(2, 30)
    await here.use(0.1, 30)
    assert here.reported() == [Kind.RESERVATION_EXCEEDED, Kind.RESERVATION_KEPT]


async def test_a_restarted_slice_has_no_negative_use(here):
    await here.use(0.1, 20)
    here.used_usec = 0
    await here.use(0.1, 20)
    assert not here.reported()


async def test_what_is_not_reserved_does_not_count(tmp_path):
    here = Node(tmp_path)
    await here.hold(5000)
    assert not here.reported()


async def test_the_slices_of_the_configuration_count(tmp_path):
    here = Node(
        tmp_path,
        kube_reserved=amounts("memory=100Mi"),
        kube_reserved_cgroup="/runtime",
        system_reserved=amounts("memory=100Mi"),
    )
    await here.hold(200, "runtime.slice")
    await here.hold(50, "system.slice")
    (event,) = here.context.events.journal.of(*KINDS)
    assert event.unit == "runtime.slice"
    assert "kube-reserved" in event.message


async def test_a_missing_slice_is_not_reported(here):
    await here.reservations.follow()
    assert not here.reported()
