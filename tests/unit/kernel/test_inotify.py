from pathlib import Path

import pytest

from podslice.kernel.watch import (
    IN_ATTRIB,
    IN_CLOSE_WRITE,
    IN_CREATE,
    IN_DELETE,
    IN_IGNORED,
    IN_MODIFY,
)

WRITTEN = IN_CLOSE_WRITE | IN_DELETE


async def test_a_written_file_is_reported_by_name(inotify, calls, tmp_path):
    inotify.watch(tmp_path, WRITTEN, calls.callback("me"))
    (tmp_path / "käse\udcff").write_text("x")
    await calls.until(len)
    assert calls == [("me", "käse\udcff", IN_CLOSE_WRITE)]


async def test_each_watch_reports_its_own_events(inotify, calls, tmp_path):
    inotify.watch(tmp_path, IN_CREATE, calls.callback("birth"))
    inotify.watch(tmp_path, IN_DELETE, calls.callback("death"))
    (tmp_path / "a").touch()
    (tmp_path / "a").unlink()
    await calls.until(lambda calls: len(calls) == 2)
    assert calls == [("birth", "a", IN_CREATE), ("death", "a", IN_DELETE)]


async def test_equal_events_are_reported_once(inotify, calls, tmp_path):
    path = tmp_path / "a"
    path.touch()
    inotify.watch(tmp_path, IN_MODIFY | IN_DELETE, calls.callback("me"))
    inotify.watch(path, IN_MODIFY, calls.callback("me"))
    for _ in range(5):
        path.write_text("more")
    path.unlink()
    await calls.until(lambda calls: "a" in names(calls) and calls[-1][2] == IN_DELETE)
    assert calls.count(("me", "a", IN_MODIFY)) == 1
    assert calls.count(("me", "", IN_MODIFY)) == 1


async def test_a_removed_watch_reports_nothing_while_others_do(inotify, calls, tmp_path):
    mine = inotify.watch(tmp_path, WRITTEN, calls.callback("me"))
    inotify.watch(tmp_path, WRITTEN, calls.callback("other"))
    (tmp_path / "a").touch()  # is in the queue already
    inotify.unwatch(mine)
    inotify.unwatch(mine)
    await calls.until(len)
    assert calls == [("other", "a", IN_CLOSE_WRITE)]


async def test_without_watches_nothing_is_watched(inotify, calls, tmp_path):
    for _ in range(3):
        inotify.unwatch(inotify.watch(tmp_path, WRITTEN, calls.callback("me")))
    assert kernel_watches(inotify) == 0
    (tmp_path / "a").touch()
    inotify.watch(tmp_path, WRITTEN, calls.callback("me"))
    (tmp_path / "b").touch()
    await calls.until(len)
    assert names(calls) == ["b"]


async def test_a_callback_may_end_another_watch(inotify, calls, tmp_path):
    def end(name, mask):
        calls.record("first", name, mask)
        inotify.unwatch(second)

    inotify.watch(tmp_path, WRITTEN, end)
    second = inotify.watch(tmp_path, WRITTEN, calls.callback("second"))
    (tmp_path / "a").touch()
    inotify.watch(tmp_path, WRITTEN, calls.callback("third"))
    await calls.until(lambda calls: "third" in [who for who, *_ in calls])
    assert [who for who, *_ in calls] == ["first", "third"]


async def test_a_removed_file_is_reported_and_forgotten(inotify, calls, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    watched = inotify.watch(place, WRITTEN, calls.callback("me"))
    place.rmdir()
    await calls.until(len)
    assert calls == [("me", "", IN_IGNORED)]
    inotify.unwatch(watched)


async def test_a_missing_file_is_an_error(inotify, tmp_path, calls):
    with pytest.raises(FileNotFoundError):
        inotify.watch(tmp_path / "nothing", WRITTEN, calls.callback("me"))


async def test_lost_events_are_reported(inotify, calls, tmp_path):
    inotify.watch(tmp_path, IN_ATTRIB, calls.callback("me"))
    both = tmp_path / "a", tmp_path / "b"
    for path in both:
        path.touch()
    # the kernel merges an event only with an equal one before it
    for _ in range(max_queued() // 2 + 10):
        for path in both:
            path.chmod(0o600)
    await calls.until(lambda calls: ("lost", "", 0) in calls)


def max_queued():
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


def names(calls):
    return [name for _, name, _ in calls]


def kernel_watches(inotify):
    """How many watches the kernel has for it. Source: proc(5), fdinfo."""
    lines = Path(f"/proc/self/fdinfo/{inotify.fileno()}").read_text().splitlines()
    return sum(line.startswith("inotify ") for line in lines)
