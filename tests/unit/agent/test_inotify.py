import asyncio
import os
from pathlib import Path

import pytest

from podslice.agent.inotify import (
    IN_CLOSE_WRITE,
    IN_CREATE,
    IN_DELETE,
    IN_IGNORED,
    IN_MODIFY,
    Following,
    Inotify,
)
from tests.unit.agent.told import Told

WRITTEN = IN_CLOSE_WRITE | IN_DELETE


@pytest.fixture
def told():
    return Told()


@pytest.fixture
async def inotify(told):
    opened = Inotify(on_lost=told.heard_by("lost", "", 0))
    yield opened
    opened.close()


async def test_a_file_that_was_written_is_told_by_name(inotify, told, tmp_path):
    inotify.watch(tmp_path, WRITTEN, told.heard_by("me"))
    (tmp_path / "käse\udcff").write_text("x")
    await told.until(len)
    assert told == [("me", "käse\udcff", IN_CLOSE_WRITE)]


async def test_each_is_told_what_it_has_asked_for(inotify, told, tmp_path):
    inotify.watch(tmp_path, IN_CREATE, told.heard_by("birth"))
    inotify.watch(tmp_path, IN_DELETE, told.heard_by("death"))
    (tmp_path / "a").touch()
    (tmp_path / "a").unlink()
    await told.until(lambda told: len(told) == 2)
    assert told == [("birth", "a", IN_CREATE), ("death", "a", IN_DELETE)]


async def test_the_same_event_comes_once(inotify, told, tmp_path):
    path = tmp_path / "a"
    path.touch()
    inotify.watch(tmp_path, IN_MODIFY | IN_DELETE, told.heard_by("me"))
    inotify.watch(path, IN_MODIFY, told.heard_by("me"))
    for _ in range(5):
        path.write_text("more")
    path.unlink()
    await told.until(lambda told: "a" in names(told) and told[-1][2] == IN_DELETE)
    assert told.count(("me", "a", IN_MODIFY)) == 1
    assert told.count(("me", "", IN_MODIFY)) == 1


async def test_who_asks_no_more_is_not_told_although_others_are(inotify, told, tmp_path):
    mine = inotify.watch(tmp_path, WRITTEN, told.heard_by("me"))
    inotify.watch(tmp_path, WRITTEN, told.heard_by("other"))
    (tmp_path / "a").touch()  # is in the queue already
    inotify.unwatch(mine)
    inotify.unwatch(mine)
    await told.until(len)
    assert told == [("other", "a", IN_CLOSE_WRITE)]


async def test_nobody_is_left_nothing_is_watched(inotify, told, tmp_path):
    for _ in range(3):
        inotify.unwatch(inotify.watch(tmp_path, WRITTEN, told.heard_by("me")))
    assert kernel_watches(inotify) == 0
    (tmp_path / "a").touch()
    inotify.watch(tmp_path, WRITTEN, told.heard_by("me"))
    (tmp_path / "b").touch()
    await told.until(len)
    assert names(told) == ["b"]


async def test_a_callback_may_end_another_watch(inotify, told, tmp_path):
    def end(name, mask):
        told.say("first", name, mask)
        inotify.unwatch(second)

    inotify.watch(tmp_path, WRITTEN, end)
    second = inotify.watch(tmp_path, WRITTEN, told.heard_by("second"))
    (tmp_path / "a").touch()
    inotify.watch(tmp_path, WRITTEN, told.heard_by("third"))
    await told.until(lambda told: "third" in [who for who, *_ in told])
    assert [who for who, *_ in told] == ["first", "third"]


async def test_what_is_gone_is_told_and_forgotten(inotify, told, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    watched = inotify.watch(place, WRITTEN, told.heard_by("me"))
    place.rmdir()
    await told.until(len)
    assert told == [("me", "", IN_IGNORED)]
    inotify.unwatch(watched)


async def test_what_is_not_there_is_an_error(inotify, tmp_path, told):
    with pytest.raises(FileNotFoundError):
        inotify.watch(tmp_path / "nothing", WRITTEN, told.heard_by("me"))


async def test_lost_events_are_told(inotify, told, tmp_path):
    inotify.watch(tmp_path, IN_CREATE | IN_DELETE, told.heard_by("me"))
    path = tmp_path / "a"
    # the kernel merges only what follows upon its like
    for _ in range(max_queued() // 2 + 10):
        path.touch()
        path.unlink()
    await told.until(lambda told: ("lost", "", 0) in told)


# Directories by their path.


@pytest.fixture
def follow(inotify, told):
    return lambda path: Following(inotify, path, WRITTEN, told.heard_by("me"))


async def test_a_directory_that_is_there_is_watched(follow, told, tmp_path):
    follow(tmp_path)
    (tmp_path / "a").touch()
    await told.until(len)
    assert names(told) == ["a"]


async def test_a_directory_that_comes_is_found(follow, told, tmp_path):
    place = tmp_path / "x/y/z"
    follow(place)
    for path in (tmp_path / "x", tmp_path / "x/y", place):
        path.mkdir()
        await asyncio.sleep(0.01)
    await told.until(len)
    told.clear()
    (place / "a").touch()
    await told.until(len)
    assert names(told) == ["a"]


async def test_a_directory_that_comes_at_once_with_what_is_in_it_is_told_of(follow, told, tmp_path):
    place = tmp_path / "x/y/z"
    follow(place)
    place.mkdir(parents=True)
    (place / "a").touch()
    await told.until(len)
    assert "" in names(told)
    told.clear()
    (place / "b").touch()
    await told.until(lambda told: "b" in names(told))


def remove(place):
    for path in place.iterdir():
        path.unlink()
    place.rmdir()


def move(place):
    place.rename(place.with_name("old"))


def move_above(place):
    place.parent.rename(place.parent.with_name("old"))


@pytest.mark.parametrize("leave", [remove, move, move_above])
async def test_another_directory_in_its_place_is_found(follow, told, tmp_path, leave):
    place = tmp_path / "above/place"
    place.mkdir(parents=True)
    follow(place)
    leave(place)
    await told.until(lambda told: "" in names(told))
    place.mkdir(parents=True)
    await told.until(lambda told: names(told).count("") >= 2)
    (place / "a").touch()
    await told.until(lambda told: "a" in names(told))


async def test_what_was_moved_away_is_not_watched_any_more(follow, told, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    follow(place)
    place.rename(tmp_path / "old")
    place.mkdir()
    await told.until(len)
    (tmp_path / "old/a").touch()
    (place / "b").touch()
    await told.until(lambda told: "b" in names(told))
    assert "a" not in names(told)


async def test_a_removed_directory_that_somebody_holds_is_not_mistaken(follow, told, tmp_path):
    """The kernel does not tell of its end before the last one has let go of it."""
    place = tmp_path / "place"
    place.mkdir()
    follow(place)
    held = os.open(place, os.O_RDONLY)
    try:
        place.rmdir()
        place.mkdir()
        await told.until(len)
        (place / "a").touch()
        await told.until(lambda told: "a" in names(told))
    finally:
        os.close(held)


@pytest.mark.parametrize("link", ["place", "above"])
async def test_a_link_that_leads_elsewhere_is_followed(follow, told, tmp_path, link):
    for name in ("one", "two"):
        (tmp_path / name / "place").mkdir(parents=True)
    (tmp_path / "above").mkdir()
    path = {"place": tmp_path / "above/link", "above": tmp_path / "link/place"}[link]
    target = {"place": "{}/place", "above": "{}"}[link]
    switch = path if link == "place" else tmp_path / "link"
    switch.symlink_to(tmp_path / target.format("one"))
    follow(path)
    (tmp_path / "new").symlink_to(tmp_path / target.format("two"))
    (tmp_path / "new").rename(switch)
    await told.until(len)
    (tmp_path / "one/place/a").touch()
    (tmp_path / "two/place/b").touch()
    await told.until(lambda told: "b" in names(told))
    assert "a" not in names(told)


async def test_a_file_in_its_place_is_no_directory(follow, told, tmp_path):
    place = tmp_path / "place"
    place.touch()
    assert follow(place).error is None
    place.unlink()
    place.mkdir()
    (place / "a").touch()
    await told.until(len)
    (place / "b").touch()
    await told.until(lambda told: "b" in names(told))


async def test_what_cannot_be_followed_is_kept_as_its_error(follow, tmp_path):
    place = tmp_path / "loop"
    place.symlink_to(place)
    assert "symbolic links" in follow(place).error.strerror


async def test_what_is_above_may_be_closed_to_us(inotify, follow, told, tmp_path, monkeypatch):
    watch = inotify.watch

    def refuse(path, mask, on_event):
        if path == tmp_path:
            raise PermissionError(13, "Permission denied", str(path))
        return watch(path, mask, on_event)

    monkeypatch.setattr(inotify, "watch", refuse)
    place = tmp_path / "above/place"
    place.mkdir(parents=True)
    assert follow(place).error is None
    (place / "a").touch()
    await told.until(len)
    assert names(told) == ["a"]
    assert follow(tmp_path).error.strerror == "Permission denied"


async def test_closed_it_watches_nothing(follow, inotify, tmp_path):
    follow(tmp_path).close()
    assert kernel_watches(inotify) == 0


async def test_again_and_again_it_watches_no_more_than_before(follow, inotify, told, tmp_path):
    place = tmp_path / "place"
    following = follow(place)
    place.mkdir()
    await told.until(len)
    before = kernel_watches(inotify)
    for _ in range(10):
        place.rmdir()
        place.mkdir()
        following.renew()
    assert kernel_watches(inotify) == before


def max_queued():
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


def names(told):
    return [name for _, name, _ in told]


def kernel_watches(inotify):
    """How many watches the kernel has for it. Source: proc(5), fdinfo."""
    lines = Path(f"/proc/self/fdinfo/{inotify._handle}").read_text().splitlines()
    return sum(line.startswith("inotify ") for line in lines)
