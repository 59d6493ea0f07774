import fcntl
import json
import os
import threading

import pytest

from podslice import store as store_module
from podslice.errors import HostError
from podslice.model.pod import ContainerKind
from podslice.store import Store
from tests.unit.builders import amounts, besteffort, burstable, container, pod, resources


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "podslice")


def record(store, name):
    return store.root / "pods" / f"{name}.json"


def plain(each):
    """A pod without the places of its parts: those are of the manifest, not of the pod."""
    return (
        each.key,
        each.uid,
        each.priority,
        each.resources,
        dict(each.overhead),
        [(one.name, one.kind, one.resources) for one in each.containers],
    )


@pytest.fixture
def no_permission(monkeypatch):
    """Tests run as root, whom nothing refuses."""

    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    return lambda owner, name: monkeypatch.setattr(owner, name, refuse)


def test_no_records_before_the_first(store):
    assert store.load() == ((), ())


def test_what_was_saved_is_loaded(store):
    """Everything that the sums of the tiers depend on."""
    pods = (
        besteffort("batch"),
        pod(
            "web",
            namespace="shop",
            uid="0a1b-2c",
            priority=7,
            resources=resources("cpu=1,memory=1Gi", "memory=2Gi"),
            overhead=amounts("cpu=50m,memory=16Mi"),
            containers=(
                container("app", "cpu=333m,hugepages-2Mi=4Mi", "cpu=1,hugepages-2Mi=4Mi"),
                container("log", kind=ContainerKind.SIDECAR),
                container("init", "memory=1", kind=ContainerKind.INIT),
            ),
        ),
    )
    for each in pods:
        store.save(each)
    loaded, broken = store.load()
    assert [plain(each) for each in loaded] == [plain(each) for each in pods]
    assert broken == ()


def test_records_come_by_key(store):
    for name, uid in (("b", "1"), ("a", "2"), ("c", "0")):
        store.save(besteffort(name, uid=uid))
    assert [each.name for each in store.load()[0]] == ["a", "b", "c"]


def test_a_record_is_named_by_the_uid_and_has_a_version(store):
    store.save(besteffort("web", uid="12-34"))
    written = json.loads(record(store, "12-34").read_text())
    assert written["version"] == 1
    assert written["manifest"]["kind"] == "Pod"


def test_saving_again_replaces(store):
    store.save(besteffort("web"))
    store.save(burstable("web"))
    assert [plain(each) for each in store.load()[0]] == [plain(burstable("web"))]
    assert [path.name for path in record(store, "web").parent.iterdir()] == ["web.json"]


def test_saving_the_same_writes_nothing(store):
    store.save(burstable("web"))
    before = record(store, "web").stat()
    store.save(burstable("web"))
    after = record(store, "web").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_write_that_fails_leaves_the_old_record(store, monkeypatch):
    store.save(besteffort("web"))

    def fail(path, _):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(HostError, match=r"No space left on device$"):
        store.save(burstable("web"))
    loaded, broken = store.load()
    assert [plain(each) for each in loaded] == [plain(besteffort("web"))]
    assert broken == ()


def test_what_a_crash_left_half_written_is_no_record(store):
    store.save(besteffort("web"))
    half = record(store, "other").with_suffix(".new")
    half.write_text('{"version"')
    assert len(store.load()[0]) == 1
    assert store.load()[1] == ()
    store.tidy()
    assert not half.exists()
    assert record(store, "web").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"version": 1}',
        b'{"version": 1, "manifest": {}}',
        b'{"version": 1, "manifest": []}',
        b'{"version": 1, "manifest": {"apiVersion": "v1", "kind": "Secret"}}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
    ],
)
def test_a_broken_file_is_named_and_the_others_are_loaded(store, content):
    store.save(besteffort("web"))
    record(store, "broken").write_bytes(content)
    pods, broken = store.load()
    assert [each.name for each in pods] == ["web"]
    assert broken == (str(record(store, "broken")),)
    store.discard(broken[0])
    assert store.load()[1] == ()


def test_what_cannot_be_read_is_not_taken_for_broken(store):
    record(store, "odd").mkdir(parents=True)
    with pytest.raises(HostError, match=r"odd\.json: Is a directory"):
        store.load()


def test_records_below_another_root_are_not_overlooked(store):
    Store(store.root, cgroup_root="/other").save(besteffort("web"))
    with pytest.raises(HostError, match="default/web was applied below '/other', not '/'"):
        store.load()


def test_removing_is_done_once_and_again(store):
    store.save(besteffort("web"))
    store.remove("web")
    store.remove("web")
    assert store.load() == ((), ())


def test_without_records_their_directory_goes(store):
    store.save(besteffort("web"))
    store.tidy()
    assert record(store, "web").exists()
    store.remove("web")
    store.tidy()
    store.tidy()
    assert not record(store, "web").parent.exists()


def test_who_may_not_write_is_told_what_to_do(store, no_permission):
    no_permission(store_module.Path, "mkdir")
    with pytest.raises(HostError, match=r"Permission denied; run as root, or use --user$"):
        store.save(besteffort("web"))
    with pytest.raises(HostError, match="Permission denied; run as root"), store.lock():
        pytest.fail("there is no lock")


def test_who_may_not_read_is_told_what_to_do(store, no_permission):
    store.save(besteffort("web"))
    no_permission(store_module.Path, "read_bytes")
    with pytest.raises(HostError, match=r"web.json: Permission denied; run as root"):
        store.load()


def test_who_may_not_list_is_told(store, no_permission):
    no_permission(store_module.Path, "glob")
    with pytest.raises(HostError, match="pods: Permission denied"):
        store.load()


def test_a_record_that_goes_while_they_are_read_is_no_error(store, monkeypatch):
    store.save(besteffort("web"))

    def gone(path):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr("pathlib.Path.read_bytes", gone)
    assert store.load() == ((), ())


# The lock.


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


def test_what_others_keep_beside_the_records_stays(store):
    with store.lock():
        (store.root / "other").write_text("")
    assert [path.name for path in store.root.iterdir()] == ["other"]


def test_no_wait_is_told_where_nobody_holds_it(store):
    told = []
    with store.lock(lambda: told.append("waiting")):
        pass
    assert not told


@pytest.mark.parametrize("keep", [True, False])
def test_a_second_writer_waits_and_is_told_once(store, monkeypatch, keep):
    """With a record the lock's file stays; without one the second writer has to make it anew."""
    monkeypatch.setattr(store_module, "_LOCK_TRIES", 1)
    monkeypatch.setattr(store_module, "_LOCK_POLL_SEC", 0.001)
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
    """Each makes and removes the lock's file and its directory: nobody may slip in beside."""
    monkeypatch.setattr(store_module, "_LOCK_POLL_SEC", 0.0005)
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
    monkeypatch.setattr(store_module, "LOCK_WAIT_SEC", 0.0)
    monkeypatch.setattr(store_module, "_LOCK_TRIES", 1)
    monkeypatch.setattr(store_module, "_LOCK_POLL_SEC", 0)
    message = "another podslice has held the lock for 0 s; see who runs it: fuser -v"
    with store.lock(), pytest.raises(HostError, match=message), Store(store.root).lock():
        pytest.fail("the lock is taken")
