import fcntl
import json
import os
import threading
from pathlib import Path

import pytest

from podslice import store as store_module
from podslice.errors import HostError
from podslice.model.pod import ContainerKind, InitProgress, MemoryVolume
from podslice.policy.tree import volume_path
from podslice.store import Records, Store
from tests.unit.builders import (
    amounts,
    besteffort,
    burstable,
    container,
    make_files,
    pod,
    resources,
)


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
        each.grace_period_sec,
        [(one.name, one.kind, one.resources) for one in each.containers],
        [(one.name, one.size_bytes) for one in each.volumes],
    )


@pytest.fixture
def no_permission(monkeypatch):
    """Tests run as root, whom nothing refuses."""

    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    return lambda owner, name: monkeypatch.setattr(owner, name, refuse)


def test_no_records_before_the_first(store):
    assert store.load() == Records()


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
            grace_period_sec=5,
            volumes=(
                MemoryVolume(name="cache", size_bytes=2**26),
                MemoryVolume(name="free"),
            ),
            containers=(
                container("app", "cpu=333m,hugepages-2Mi=4Mi", "cpu=1,hugepages-2Mi=4Mi"),
                container("log", kind=ContainerKind.SIDECAR),
                container("init", "memory=1", kind=ContainerKind.INIT),
            ),
        ),
    )
    for each in pods:
        store.save(each)
    records = store.load()
    assert [plain(each) for each in records.pods] == [plain(each) for each in pods]
    assert records.broken == ()


def test_records_come_by_key(store):
    for name, uid in (("b", "1"), ("a", "2"), ("c", "0")):
        store.save(besteffort(name, uid=uid))
    assert [each.name for each in store.load().pods] == ["a", "b", "c"]


def test_a_record_is_named_by_the_uid_and_has_a_version(store):
    store.save(besteffort("web", uid="12-34"))
    written = json.loads(record(store, "12-34").read_text())
    assert written["version"] == 1
    assert written["manifest"]["kind"] == "Pod"


def test_saving_again_replaces(store):
    store.save(besteffort("web"))
    store.save(burstable("web"))
    assert [plain(each) for each in store.load().pods] == [plain(burstable("web"))]
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
    records = store.load()
    assert [plain(each) for each in records.pods] == [plain(besteffort("web"))]
    assert records.broken == ()


def test_what_a_crash_left_half_written_is_no_record(store):
    store.save(besteffort("web"))
    half = record(store, "other").with_suffix(".new")
    half.write_text('{"version"')
    assert len(store.load().pods) == 1
    assert store.load().broken == ()
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
    records = store.load()
    assert [each.name for each in records.pods] == ["web"]
    assert records.broken == (str(record(store, "broken")),)
    store.discard(records.broken[0])
    assert store.load().broken == ()


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
    assert store.load() == Records()


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
    no_permission(store_module.Path, "iterdir")
    with pytest.raises(HostError, match="pods: Permission denied"):
        store.load()


def test_a_record_that_goes_while_they_are_read_is_no_error(store, monkeypatch):
    store.save(besteffort("web"))

    def gone(path):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr("pathlib.Path.read_bytes", gone)
    assert store.load() == Records()


# The init containers' progress.

HALF = InitProgress(done=frozenset({"first"}))
OVER = InitProgress(done=frozenset({"first", "second"}), over=True)


def test_progress_is_none_until_it_is_saved(store):
    store.save(besteffort("web"))
    assert store.load().progress == {}


@pytest.mark.parametrize("progress", [HALF, OVER, InitProgress(over=True)])
def test_progress_is_of_one_pod(store, progress):
    for name in ("web", "shop"):
        store.save(besteffort(name, uid=f"uid-{name}"))
    store.save_progress("uid-web", progress)
    records = store.load()
    assert records.progress == {"uid-web": progress}
    assert [each.name for each in records.pods] == ["shop", "web"]


def test_progress_may_be_taken_back(store):
    store.save(besteffort("web"))
    store.save_progress("web", OVER)
    store.save_progress("web", InitProgress())
    assert store.load().progress == {}


def test_another_manifest_keeps_the_progress(store):
    store.save(besteffort("web"))
    store.save_progress("web", HALF)
    store.save(burstable("web"))
    records = store.load()
    assert records.progress == {"web": HALF}
    assert [plain(each) for each in records.pods] == [plain(burstable("web"))]


def test_a_pod_that_was_removed_begins_anew(store):
    store.save(besteffort("web"))
    store.save_progress("web", OVER)
    store.remove("web")
    store.save(besteffort("web"))
    assert store.load().progress == {}


def test_saving_the_same_progress_writes_nothing(store):
    store.save(besteffort("web"))
    store.save_progress("web", HALF)
    before = record(store, "web").stat()
    store.save_progress("web", HALF)
    store.save(besteffort("web"))
    assert record(store, "web").stat().st_ino == before.st_ino


def test_there_is_no_progress_without_a_record(store):
    with pytest.raises(HostError, match=r"web\.json: there is no record of the pod$"):
        store.save_progress("web", HALF)
    assert not store.root.exists()


def test_a_record_of_before_there_was_progress_is_kept(store):
    """As podslice 0.1 has written it: an upgrade loses no pod."""
    path = record(store, "12-34")
    path.parent.mkdir(parents=True)
    metadata = {"name": "web", "namespace": "shop", "uid": "12-34"}
    spec = {"containers": [{"name": "main", "resources": {"limits": {"cpu": "500m"}}}]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    path.write_text(json.dumps({"version": 1, "cgroup_root": "/", "manifest": manifest}, indent=1))
    records = store.load()
    assert [(each.key, each.grace_period_sec) for each in records.pods] == [("shop/web", 30)]
    assert not records.broken
    store.save(records.pods[0])
    assert store.load().pods == records.pods


@pytest.mark.parametrize(
    "progress", ['"done"', "[1]", '{"done": 5}', '{"done": {"a": 1}, "over": 1}', "null"]
)
def test_a_record_with_odd_progress_is_broken_or_has_none(store, progress):
    store.save(besteffort("web"))
    path = record(store, "web")
    path.write_text(path.read_text().removesuffix("\n}") + f',\n "progress": {progress}\n}}')
    records = store.load()
    assert len(records.pods) + len(records.broken) == 1
    store.save(besteffort("web"))


def test_saving_over_a_broken_record_mends_it(store):
    record(store, "web").parent.mkdir(parents=True)
    for text in ("[]", "{", "[" * 100_000):
        record(store, "web").write_text(text)
        store.save(besteffort("web"))
        assert store.load().pods


def test_a_record_that_may_not_be_read_is_not_written_over(store, no_permission):
    store.save(besteffort("web"))
    no_permission(store_module.Path, "read_bytes")
    with pytest.raises(HostError, match="Permission denied; run as root"):
        store.save(burstable("web"))
    with pytest.raises(HostError, match="Permission denied; run as root"):
        store.save_progress("web", HALF)


# Volumes.


def test_a_volume_is_a_directory_of_the_user_s_own(store):
    path = store.make_volume("0a1b-2c", "cache")
    assert path == store.volume_path("0a1b-2c", "cache")
    assert path == store.root / "pods/0a1b-2c/volumes/cache"
    assert path.stat().st_mode & 0o777 == 0o700
    (path / "file").write_text("kept")
    assert store.make_volume("0a1b-2c", "cache") == path
    assert (path / "file").read_text() == "kept"


def test_volumes_are_where_the_mounts_of_the_system_s_manager_are():
    store = Store(Path("/run/podslice"))
    assert str(store.volume_path("12-34", "cache")) == volume_path("12-34", "cache")


def test_volumes_are_no_records(store):
    store.save(besteffort("web"))
    store.make_volume("web", "cache")
    store.make_volume("other", "cache")
    assert [each.name for each in store.load().pods] == ["web"]
    assert store.load().broken == ()


def test_who_may_not_make_a_volume_is_told_what_to_do(store, no_permission):
    no_permission(store_module.Path, "mkdir")
    with pytest.raises(HostError, match="Permission denied; run as root, or use --user"):
        store.make_volume("web", "cache")


def test_discarding_volumes_removes_what_is_in_them(store, tmp_path):
    outside = make_files(tmp_path / "outside", {"file": "kept"})
    path = store.make_volume("web", "cache")
    make_files(path, {"a/b/c": "text", "d": "text"})
    (path / "link").symlink_to(outside)
    (path / "a" / "loop").symlink_to(path)
    (path / "a").chmod(0)
    store.make_volume("web", "other")
    store.make_volume("shop", "cache")
    assert store.discard_volumes("web") == ()
    assert [each.name for each in (store.root / "pods").iterdir()] == ["shop"]
    assert (outside / "file").read_text() == "kept"


def test_discarding_no_volumes_does_nothing(store):
    assert store.discard_volumes("web") == ()
    store.save(besteffort("web"))
    assert store.discard_volumes("web") == ()
    assert record(store, "web").exists()


@pytest.mark.parametrize("mounted", ["cache", "cache/inner"])
def test_what_is_a_mount_or_has_one_in_it_stays(store, monkeypatch, mounted):
    volumes = store.make_volume("web", "cache").parent
    make_files(volumes, {"cache/inner/file": "kept", "other/file": "gone"})
    monkeypatch.setattr("os.path.ismount", lambda path: str(path) == str(volumes / mounted))
    assert store.discard_volumes("web") == (str(volumes / "cache"),)
    assert (volumes / "cache/inner/file").read_text() == "kept"
    assert not (volumes / "other").exists()
    monkeypatch.undo()
    assert store.discard_volumes("web") == ()
    assert not volumes.parent.exists()


def test_what_cannot_be_removed_is_named(store, no_permission, monkeypatch):
    path = store.make_volume("web", "cache")
    no_permission(store_module.shutil, "rmtree")
    assert store.discard_volumes("web") == (str(path),)
    monkeypatch.undo()
    assert store.discard_volumes("web") == ()


def test_a_link_in_the_place_of_a_volume_is_not_followed(store, tmp_path):
    outside = make_files(tmp_path / "outside", {"file": "kept"})
    volumes = store.make_volume("web", "cache").parent
    (volumes / "link").symlink_to(outside)
    assert store.discard_volumes("web") == ()
    assert (outside / "file").read_text() == "kept"
    assert not volumes.exists()


def test_tidying_removes_what_is_empty_and_of_no_pod(store):
    """A crash may have left directories; nothing that somebody has written goes."""
    with store.lock():
        store.save(besteffort("web"))
        for name in ("web", "shop", "full"):
            store.make_volume(name, "cache")
        make_files(store.volume_path("full", "cache"), {"file": "kept"})
        store.tidy()
    names = sorted(path.name for path in (store.root / "pods").iterdir())
    assert names == ["full", "web", "web.json"]
    assert store.volume_path("web", "cache").is_dir()
    store.remove("web")
    store.tidy()
    assert store.discard_volumes("full") == ()
    with store.lock():
        store.tidy()
    assert not store.root.exists()


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
