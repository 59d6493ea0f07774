from pathlib import Path

import pytest

from podslice.kernel.inotify import IN_CLOSE_WRITE, IN_CREATE, IN_DELETE, IN_IGNORED, IN_MODIFY

WRITTEN = IN_CLOSE_WRITE | IN_DELETE


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


def max_queued():
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


def names(told):
    return [name for _, name, _ in told]


def kernel_watches(inotify):
    """How many watches the kernel has for it. Source: proc(5), fdinfo."""
    lines = Path(f"/proc/self/fdinfo/{inotify._handle}").read_text().splitlines()
    return sum(line.startswith("inotify ") for line in lines)
