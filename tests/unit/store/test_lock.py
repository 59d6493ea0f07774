"""The lock of all writers."""

import fcntl
import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest

from podslice.errors import HostError
from podslice.store import files as store_files
from podslice.store.store import Store
from tests.unit.builders import besteffort


def is_locked(store):
    handle = os.open(store.root / "lock", os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def test_the_lock_is_held_and_given_back(store):
    with store.lock():
        store.save(besteffort("web"))
        assert is_locked(store)
    assert not is_locked(store)


def test_the_lock_is_given_back_after_an_error(store):
    store.save(besteffort("web"))
    with pytest.raises(ValueError, match="inside"), store.lock():
        raise ValueError("inside")
    assert not is_locked(store)


def test_without_records_nothing_stays(store):
    with store.lock():
        pass
    assert not store.root.exists()


def test_files_of_other_programs_are_kept(store):
    with store.lock():
        (store.root / "other").write_text("")
    assert [path.name for path in store.root.iterdir()] == ["other"]


def test_a_free_lock_reports_no_wait(store):
    waits = []
    with store.lock(lambda: waits.append("waiting")):
        pass
    assert not waits


@pytest.mark.parametrize("keep", [True, False])
def test_a_second_writer_waits_and_is_notified_once(store, monkeypatch, keep):
    """With a record the lock's file stays; without one the second writer creates it again."""
    monkeypatch.setattr(store_files, "_LOCK_TRIES", 1)
    monkeypatch.setattr(store_files, "LOCK_POLL_SEC", 0.001)
    waiting, order = threading.Event(), []
    if keep:
        store.save(besteffort("web"))

    def second():
        with Store(store.root).lock(waiting.set):
            order.append("second")
            assert is_locked(store)

    thread = threading.Thread(target=second)
    with store.lock():
        thread.start()
        assert waiting.wait(5)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]
    assert store.root.exists() is keep


def test_many_writers_are_in_one_after_the_other(store, monkeypatch):
    """Each creates and removes the lock's file and directory; none may enter meanwhile."""
    monkeypatch.setattr(store_files, "LOCK_POLL_SEC", 0.0005)
    inside, most, rounds, failures = 0, 0, 10, []

    def work():
        nonlocal inside, most
        try:
            for _ in range(rounds):
                with Store(store.root).lock():
                    inside += 1
                    most = max(most, inside)
                    inside -= 1
        except HostError as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not failures
    assert most == 1
    assert not store.root.exists()


def test_a_lock_that_is_never_given_back_is_an_error(store, monkeypatch):
    monkeypatch.setattr(store_files, "LOCK_WAIT_SEC", 0.0)
    monkeypatch.setattr(store_files, "_LOCK_TRIES", 1)
    monkeypatch.setattr(store_files, "LOCK_POLL_SEC", 0)
    message = "another podslice process has held the lock for 0 s; to find it: fuser -v"
    with store.lock(), pytest.raises(HostError, match=message), Store(store.root).lock():
        pytest.fail("the lock is taken")


def test_a_lock_that_is_free_is_taken_at_once(store):
    taken = store.try_lock()
    with taken:
        assert is_locked(store)
        assert Store(store.root).try_lock() is None
        assert is_locked(store)
    assert not store.root.exists()
    with store.lock():
        assert Store(store.root).try_lock() is None


def test_a_lock_without_permission_is_an_error(store, no_permission):
    no_permission(Path, "mkdir")
    with pytest.raises(HostError, match="permission denied: the record directory"):
        store.try_lock()


def test_a_file_system_without_locks_is_an_error_and_leaves_nothing_open(store, monkeypatch):
    def refuse(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(store_files.fcntl, "flock", refuse)
    before = sorted(path.name for path in Path("/proc/self/fd").iterdir())
    with pytest.raises(HostError, match="No locks available"), store.lock():
        pytest.fail("there is no lock")
    assert sorted(path.name for path in Path("/proc/self/fd").iterdir()) == before


@pytest.fixture
def as_other_user():
    """Return a directory that every user may enter; afterwards the test is root again."""
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    directory.chmod(0o755)
    yield directory
    os.seteuid(0)
    shutil.rmtree(directory)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_the_lock_of_root_is_an_error_that_names_the_directory(as_other_user):
    store = Store(as_other_user / "podslice")
    store.save(besteffort("web"))
    with store.lock():
        pass
    os.seteuid(65534)
    expected = f"permission denied: the record directory {store.root}; run as root, or use --user"
    with pytest.raises(HostError) as refused, store.lock():
        pytest.fail("another user holds the lock")
    assert str(refused.value) == expected
