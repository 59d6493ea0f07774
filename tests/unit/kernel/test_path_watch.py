"""Directories by their path, whatever happens to them."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from podslice.kernel.watch import IN_CLOSE_WRITE, IN_CREATE, IN_DELETE, IN_MODIFY, Following

WRITTEN = IN_CLOSE_WRITE | IN_DELETE
NOBODY = 65534


@pytest.fixture
def follow(inotify, calls):
    return lambda path: Following(inotify, path, WRITTEN, calls.callback("me"))


async def test_an_existing_directory_is_watched(follow, calls, tmp_path):
    follow(tmp_path)
    (tmp_path / "a").touch()
    await calls.until(len)
    assert names(calls) == ["a"]


async def test_a_created_directory_is_found(follow, calls, tmp_path):
    place = tmp_path / "x/y/z"
    follow(place)
    for path in (tmp_path / "x", tmp_path / "x/y", place):
        path.mkdir()
        await asyncio.sleep(0.01)
    await calls.until(len)
    calls.clear()
    (place / "a").touch()
    await calls.until(len)
    assert names(calls) == ["a"]


async def test_a_directory_created_together_with_entries_is_reported(follow, calls, tmp_path):
    place = tmp_path / "x/y/z"
    follow(place)
    place.mkdir(parents=True)
    (place / "a").touch()
    await calls.until(len)
    assert "" in names(calls)
    calls.clear()
    (place / "b").touch()
    await calls.until(lambda calls: "b" in names(calls))


def remove(place):
    for path in place.iterdir():
        path.unlink()
    place.rmdir()


def move(place):
    place.rename(place.with_name("old"))


def move_above(place):
    place.parent.rename(place.parent.with_name("old"))


@pytest.mark.parametrize("leave", [remove, move, move_above])
async def test_another_directory_in_its_place_is_found(follow, calls, tmp_path, leave):
    place = tmp_path / "above/place"
    place.mkdir(parents=True)
    follow(place)
    leave(place)
    await calls.until(lambda calls: "" in names(calls))
    place.mkdir(parents=True)
    await calls.until(lambda calls: any(mask & IN_CREATE for _, _, mask in calls))
    (place / "a").touch()
    await calls.until(lambda calls: "a" in names(calls))


async def test_what_was_moved_away_is_no_longer_watched(follow, calls, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    follow(place)
    place.rename(tmp_path / "old")
    place.mkdir()
    await calls.until(len)
    (tmp_path / "old/a").touch()
    (place / "b").touch()
    await calls.until(lambda calls: "b" in names(calls))
    assert "a" not in names(calls)


async def test_a_removed_directory_that_is_still_open_is_recognized(follow, calls, tmp_path):
    """The kernel reports its removal only once the last descriptor is closed."""
    place = tmp_path / "place"
    place.mkdir()
    follow(place)
    held = os.open(place, os.O_RDONLY)
    try:
        place.rmdir()
        place.mkdir()
        await calls.until(len)
        (place / "a").touch()
        await calls.until(lambda calls: "a" in names(calls))
    finally:
        os.close(held)


@pytest.mark.parametrize("link", ["place", "above"])
async def test_a_link_that_leads_elsewhere_is_followed(follow, calls, tmp_path, link):
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
    await calls.until(len)
    (tmp_path / "one/place/a").touch()
    (tmp_path / "two/place/b").touch()
    await calls.until(lambda calls: "b" in names(calls))
    assert "a" not in names(calls)


async def test_links_are_followed_as_the_kernel_does(follow, calls, tmp_path):
    """Whatever leads elsewhere: a link that a link leads to, or a directory above its target."""
    (tmp_path / "data/v1/manifests").mkdir(parents=True)
    (tmp_path / "data/v2/manifests").mkdir(parents=True)
    (tmp_path / "data/now").symlink_to("../data/./v1")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/link").symlink_to(tmp_path / "data/now/manifests")
    follow(tmp_path / "etc/link")
    (tmp_path / "data/v1/manifests/a").touch()
    await calls.until(lambda calls: names(calls) == ["a"])

    (tmp_path / "data/new").symlink_to("v2")
    (tmp_path / "data/new").rename(tmp_path / "data/now")
    await calls.until(lambda calls: "" in names(calls))
    (tmp_path / "data/v2/manifests/b").touch()
    await calls.until(lambda calls: "b" in names(calls))

    calls.clear()
    (tmp_path / "data/v2").rename(tmp_path / "data/v3")
    (tmp_path / "data/v2/manifests").mkdir(parents=True)
    await calls.until(lambda calls: "" in names(calls))
    (tmp_path / "data/v2/manifests/c").touch()
    await calls.until(lambda calls: "c" in names(calls))


async def test_a_link_that_is_moved_away_and_back_is_followed(follow, calls, tmp_path):
    (tmp_path / "place").mkdir()
    link = tmp_path / "link"
    link.symlink_to("place")
    follow(link)
    link.rename(tmp_path / "old")
    await calls.until(lambda calls: "" in names(calls))
    calls.clear()
    (tmp_path / "old").rename(link)
    await calls.until(lambda calls: "" in names(calls))
    (tmp_path / "place/a").touch()
    await calls.until(lambda calls: "a" in names(calls))


@pytest.mark.parametrize("to", ["/", "..", "."])
async def test_a_link_may_lead_upwards(inotify, calls, tmp_path, to):
    (tmp_path / "up").symlink_to(to)
    following = Following(inotify, tmp_path / "up", IN_MODIFY, calls.callback("me"))
    assert following.error is None
    following.renew()
    assert following.error is None


# Permissions, without the capabilities that pass them over: neither has the agent's unit them.


@pytest.fixture
def unprivileged():
    """Be a user like any other, and yield a directory of that user's."""
    directory = Path(tempfile.mkdtemp())
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(directory, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    yield directory
    if is_root:
        os.seteuid(0)
    shutil.rmtree(directory)


@pytest.mark.parametrize("closed", [["place"], ["above"], ["place", "above"], ["above", "top"]])
async def test_a_directory_that_was_inaccessible_is_followed_again(
    follow, calls, unprivileged, closed
):
    top = unprivileged / "top"
    place = top / "above/place"
    place.mkdir(parents=True)
    paths = {"top": top, "above": place.parent, "place": place}
    following = follow(place)
    for name in closed:
        calls.clear()
        paths[name].chmod(0)
        await calls.until(lambda calls: "" in names(calls))
    assert following.error.strerror == "Permission denied"
    for name in ("top", "above", "place"):
        paths[name].chmod(0o700)
    await calls.until(lambda _: following.error is None)
    calls.clear()
    (place / "a").touch()
    await calls.until(lambda calls: "a" in names(calls))


@pytest.mark.parametrize("mode", [0o300, 0o400, 0o200])
async def test_every_missing_permission_is_noticed_once_it_is_granted(
    follow, calls, unprivileged, mode
):
    place = unprivileged / "place"
    place.mkdir()
    follow(place)
    calls.clear()
    place.chmod(mode)
    await calls.until(lambda calls: "" in names(calls))
    calls.clear()
    place.chmod(0o700)
    await calls.until(lambda calls: "" in names(calls))
    (place / "a").touch()
    await calls.until(lambda calls: "a" in names(calls))


async def test_a_closed_directory_that_is_replaced_is_followed_again(follow, calls, unprivileged):
    place = unprivileged / "place"
    place.mkdir(mode=0)
    following = follow(place)
    assert following.error.strerror == "Permission denied"
    place.rename(unprivileged / "old")
    await calls.until(lambda _: following.error is None)
    (unprivileged / "old").chmod(0o700)
    (unprivileged / "old").rename(place)
    calls.clear()
    await calls.until(lambda calls: "" in names(calls))
    (place / "a").touch()
    await calls.until(lambda calls: "a" in names(calls))


async def test_what_is_above_may_be_closed_for_reading(follow, calls, unprivileged):
    """As the directory above all homes may be."""
    above = unprivileged / "above"
    (above / "place").mkdir(parents=True)
    above.chmod(0o300)
    assert follow(above / "place").error is None
    (above / "place").rename(above / "old")
    await calls.until(lambda calls: "" in names(calls))


async def test_another_directory_without_an_event_is_found_when_checked(
    inotify, follow, calls, tmp_path
):
    """As one that was mounted there."""
    place = tmp_path / "place"
    place.mkdir()
    following = follow(place)
    following.check()
    assert calls == []
    place.rename(tmp_path / "old")
    place.mkdir()
    os.read(inotify.fileno(), 2**16)
    following.check()
    assert calls == [("me", "", 0)]
    (tmp_path / "old/a").touch()
    (place / "b").touch()
    await calls.until(lambda calls: "b" in names(calls))
    assert "a" not in names(calls)


async def test_a_file_in_place_of_the_directory(follow, calls, tmp_path):
    place = tmp_path / "place"
    place.touch()
    assert follow(place).error is None
    place.unlink()
    place.mkdir()
    (place / "a").touch()
    await calls.until(len)
    (place / "b").touch()
    await calls.until(lambda calls: "b" in names(calls))


async def test_what_cannot_be_followed_is_kept_as_its_error(follow, tmp_path):
    place = tmp_path / "loop"
    place.symlink_to(place)
    assert "symbolic links" in follow(place).error.strerror


async def test_what_is_above_may_be_closed_to_us(inotify, follow, calls, tmp_path, monkeypatch):
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
    await calls.until(len)
    assert names(calls) == ["a"]
    assert follow(tmp_path).error.strerror == "Permission denied"


async def test_closed_it_watches_nothing(follow, inotify, tmp_path):
    follow(tmp_path).close()
    assert kernel_watches(inotify) == 0


async def test_again_and_again_it_watches_no_more_than_before(follow, inotify, calls, tmp_path):
    place = tmp_path / "place"
    following = follow(place)
    place.mkdir()
    await calls.until(len)
    before = kernel_watches(inotify)
    for _ in range(10):
        place.rmdir()
        place.mkdir()
        following.renew()
    assert kernel_watches(inotify) == before


def names(calls):
    return [name for _, name, _ in calls]


def kernel_watches(inotify):
    """How many watches the kernel has for it. Source: proc(5), fdinfo."""
    lines = Path(f"/proc/self/fdinfo/{inotify.fileno()}").read_text().splitlines()
    return sum(line.startswith("inotify ") for line in lines)
