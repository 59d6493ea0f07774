"""Records are written while systemd starts slices, each before its own."""

import asyncio
from dataclasses import replace

import pytest

from podslice.errors import HostError, InputError, Refused
from podslice.policy.ownership import uid_of
from podslice.store.store import Store
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import besteffort, burstable, guaranteed, world
from tests.unit.reconcile.worlds import WRITES, assert_settled, put, recorded, remove, written

SIZE = 8
NEW = tuple(
    pod
    for number in range(SIZE)
    for pod in (
        besteffort(f"be{number}"),
        burstable(f"bu{number}"),
        guaranteed(f"gu{number}", cpu="10m", memory="1Mi"),
    )
)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr("podslice.reconcile.act.BATCH_MAX", SIZE)


class Watched(FakeSystemd):
    """Lists the records at every call that changes units."""

    def __init__(self, store):
        super().__init__()
        self.store = store
        self.seen = []
        self.hangs_at = None
        self.hangs = asyncio.Event()

    async def _begin(self, call, *names):
        if call in WRITES:
            uids = {pod.uid for pod in self.store.load().pods}
            self.seen.append((call, {uid_of(name) for name in names} - {None}, uids))
            if len(self.seen) == self.hangs_at:
                self.hangs.set()
                await asyncio.Event().wait()
        await super()._begin(call, *names)


class Full(Store):
    """A store whose file system is full after some records."""

    room = 0

    def save(self, pod, source=None):
        if not self.room:
            raise HostError("no space left on device")
        self.room -= 1
        super().save(pod, source)


@pytest.fixture
def watched(tmp_path):
    return Watched(Store(tmp_path / "run"))


async def test_a_record_precedes_its_slice_and_follows_slices_of_others(tmp_path, watched):
    await put(world(tmp_path, watched), *NEW)
    assert len(watched.seen) > len(NEW) / SIZE
    assert all(started <= records for _, started, records in watched.seen)
    counts = [len(records) for _, _, records in watched.seen]
    assert counts == sorted(counts)
    assert counts[0] < SIZE < counts[-1] == len(NEW)


async def test_records_of_applied_pods_precede_every_change(tmp_path, watched):
    here = world(tmp_path, watched)
    await put(here, *NEW[:SIZE])
    watched.seen.clear()
    moved = [burstable(pod.name) for pod in NEW[:SIZE]]
    before = {pod.uid for pod in moved}
    store = Store(here.store.root)
    await put(here, *moved, *NEW[SIZE:], force=True)
    assert all(before <= records for _, _, records in watched.seen)
    assert all(started <= records for call, started, records in watched.seen if "start" in call)
    assert {pod.key for pod in store.load().pods} == {pod.key for pod in NEW}


async def test_records_are_written_while_systemd_works(tmp_path, watched):
    here = world(tmp_path, watched)
    watched.hangs_at = 1
    running = asyncio.create_task(put(here, *NEW))
    async with asyncio.timeout(60):
        await watched.hangs.wait()
    for _ in range(2 * len(NEW)):
        await asyncio.sleep(0)
    assert len(watched.seen) == 1
    assert len(watched.seen[0][2]) < len(NEW)
    assert recorded(here).keys() == {pod.name for pod in NEW}
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_interruption_leaves_the_records_of_all_pods(tmp_path, watched):
    here = world(tmp_path, watched)
    watched.hangs_at = 1
    running = asyncio.create_task(put(here, *NEW))
    async with asyncio.timeout(60):
        await watched.hangs.wait()
    assert len(watched.seen[0][2]) < len(NEW)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert recorded(here).keys() == {pod.name for pod in NEW}
    await put(here)
    await assert_settled(here, *NEW)


async def test_failed_and_untried_steps_leave_the_records_of_all_pods(tmp_path, watched):
    here = world(tmp_path, watched)
    watched.refuse("kubepods-burstable.slice", Refused("no"))
    report = await put(here, *NEW)
    assert report.exit_code == 1
    assert recorded(here).keys() == {pod.name for pod in NEW}


async def test_nothing_is_changed_where_one_of_many_pods_is_refused(tmp_path, watched):
    here = world(tmp_path, watched)
    await put(here, besteffort("web"))
    watched.seen.clear()
    with pytest.raises(InputError, match="is applied with uid web, not other"):
        await put(here, *NEW, replace(besteffort("web"), uid="other"))
    assert not watched.seen
    assert recorded(here).keys() == {"web"}


async def test_nothing_is_changed_where_no_record_can_be_written(tmp_path, watched):
    here = replace(world(tmp_path, watched), store=Full(tmp_path / "run"))
    with pytest.raises(HostError, match="no space left"):
        await put(here, *NEW)
    assert not written(watched)
    assert not recorded(here)


@pytest.mark.parametrize("room", [1, SIZE - 2, SIZE, 2 * SIZE + 1, len(NEW) - 1])
async def test_no_slice_is_started_without_its_record(tmp_path, watched, room):
    full = Full(tmp_path / "run")
    full.room = room
    here = replace(world(tmp_path, watched), store=full)
    with pytest.raises(HostError, match="no space left"):
        await put(here, *NEW)
    assert all(started <= records for _, started, records in watched.seen)
    assert len(recorded(here)) == room
    full.room = len(NEW)
    assert (await put(here, *NEW)).exit_code == 0
    await assert_settled(here, *NEW)


async def test_a_pod_without_steps_is_recorded(tmp_path, watched):
    here = world(tmp_path, watched)
    await put(here, *NEW)
    here.store.remove(NEW[0].uid)
    assert (await put(here, NEW[0])).results == ()
    assert recorded(here).keys() == {pod.name for pod in NEW}
    await remove(here)
    assert not recorded(here)
