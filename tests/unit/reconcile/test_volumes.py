"""Volumes in memory and their mounts."""

from tests.fake_systemd import FakeSystemd
from tests.unit.builders import (
    USER,
    burstable,
    world,
)
from tests.unit.reconcile.worlds import CACHE, assert_settled, put, remove

MOUNT = "run-podslice-pods-web-volumes-cache.mount"


async def mounts(memory):
    return [unit.name for unit in await memory.observe(["run-podslice-*.mount"])]


async def test_volumes_are_mounted_and_go_with_their_pod(here, memory):
    web = burstable("web", volumes=CACHE)
    await put(here, web)
    assert await mounts(memory) == [MOUNT]
    await assert_settled(here, web)
    await remove(here)
    assert await mounts(memory) == []


async def test_a_volume_that_was_lost_is_mounted_again(here, memory):
    web = burstable("web", volumes=CACHE)
    await put(here, web)
    await memory.stop(MOUNT)
    report = await put(here)
    assert [result.step.name for result in report.results] == [MOUNT]
    await assert_settled(here, web)


async def test_a_volume_that_is_left_out_is_unmounted(here, memory):
    await put(here, burstable("web", volumes=CACHE))
    report = await put(here, burstable("web"))
    assert report.exit_code == 0
    assert await mounts(memory) == []
    await assert_settled(here, burstable("web"))


async def test_volumes_of_a_user_are_directories_and_reported_once(tmp_path):
    notes = []
    memory = FakeSystemd(manager=USER)
    here = world(tmp_path, memory, manager=USER, notes=notes)
    web = burstable("web", volumes=CACHE)
    for _ in range(2):
        assert (await put(here, web)).exit_code == 0
    path = here.store.volume_path("web", "cache")
    assert path.is_dir()
    assert await mounts(memory) == []
    assert notes == [
        (
            f"pod default/web: volume cache is the directory {path}, without a size of its own:"
            " a user's manager can't mount"
        )
    ]
    (path / "data").write_text("x")
    assert (await remove(here)).exit_code == 0
    assert not path.exists()
