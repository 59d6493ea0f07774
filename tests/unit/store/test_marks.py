"""Marks of evicted pods."""

import json

import pytest

from podslice.errors import HostError
from podslice.store import files as store_files
from podslice.store.store import Records, Store
from tests.unit.builders import besteffort
from tests.unit.store.files import STATE, eviction


def test_marks_last_until_they_are_removed(store):
    store.mark_evicted(eviction("web"))
    store.mark_evicted(eviction("shop"))
    store.mark_evicted(eviction("web", digest="cd"))
    assert store.load() == Records(evicted=(eviction("shop"), eviction("web", digest="cd")))
    store.unmark("web")
    store.unmark("web")
    assert store.load().evicted == (eviction("shop"),)
    assert store.marks.is_dir()
    store.unmark("shop")
    assert not store.marks.exists()


def test_a_mark_outlives_the_record_and_the_lock(store):
    with store.lock():
        store.save(besteffort("web"))
        store.mark_evicted(eviction("web"))
        store.remove("web")
        store.tidy()
    assert store.load() == Records(evicted=(eviction("web"),))
    store.unmark("web")
    with store.lock():
        store.tidy()
    assert not store.root.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"pod": 5}', "[" * 100_000])
def test_a_damaged_mark_is_broken_and_has_no_effect(store, content):
    store.mark_evicted(eviction("shop"))
    path = store.marks / "web.json"
    path.write_text(content)
    records = store.load()
    assert (records.evicted, records.broken) == ((eviction("shop"),), (str(path),))


@pytest.mark.parametrize("key", ["pod", "uid", "digest", "signal", "message", "at_usec"])
def test_a_mark_has_to_say_everything(store, key):
    store.mark_evicted(eviction("web"))
    path = store.marks / "web.json"
    written = json.loads(path.read_text())
    for value in (None, [], 0.5, -1, 10**400):
        path.write_text(json.dumps({**written, key: value}))
        assert store.load().broken == (str(path),)


def test_a_mark_that_is_removed_during_the_read_is_ignored(store, monkeypatch):
    store.mark_evicted(eviction("web"))
    read = store_files.read_regular

    def gone(path, **how):
        path.unlink()
        return read(path, **how)

    monkeypatch.setattr(store_files, "read_regular", gone)
    assert store.load() == Records()


def test_marks_that_can_not_be_read_are_an_error(store, no_permission):
    store.mark_evicted(eviction("web"))
    no_permission(store_files, "read_regular")
    with pytest.raises(HostError, match=r"web.json: Permission denied; run as root"):
        Store(store.root).load()


def test_remains_of_an_interrupted_write_are_removed(store):
    store.mark_evicted(eviction("web"))
    half = store.marks / "shop.new"
    half.write_text("{")
    store.tidy()
    assert [path.name for path in store.marks.iterdir()] == ["web.json"]


def test_a_directory_that_another_tidies_away_is_made_again(store, monkeypatch):
    """The evictor can't wait for the lock."""
    write, tidied = store_files.replace_file, []

    def tidy_first(path, content, **how):
        if len(tidied) < 3:
            tidied.append(path)
            path.parent.rmdir()
        return write(path, content, **how)

    monkeypatch.setattr(store_files, "replace_file", tidy_first)
    store.mark_evicted(eviction("web"))
    assert store.load().evicted == (eviction("web"),)


def test_a_directory_that_is_always_removed_is_an_error(store, monkeypatch):
    def never(path, *_, **__):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(store_files, "replace_file", never)
    with pytest.raises(HostError, match="No such file or directory"):
        store.mark_evicted(eviction("web"))


def test_on_a_full_disk_nothing_half_written_stays(store, monkeypatch):
    def full(path, *_, **__):
        raise OSError(28, "No space left on device", str(path))

    store.mark_evicted(eviction("web"))
    monkeypatch.setattr(store_files.os, "replace", full)
    for write in (
        lambda: store.mark_evicted(eviction("web", digest="cd")),
        lambda: store.agent.save(STATE),
        lambda: store.save(besteffort("web")),
    ):
        with pytest.raises(HostError, match=r"No space left on device$"):
            write()
    files = [path.name for path in store.root.rglob("*") if path.is_file()]
    assert files == ["web.json"]
    assert store.load() == Records(evicted=(eviction("web"),))
