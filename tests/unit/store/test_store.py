import fcntl
import json
import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from podslice.errors import HostError, Problem, Severity
from podslice.model.naming import volume_path
from podslice.model.node_state import AgentState, Condition, Eviction
from podslice.model.pod import ContainerKind, InitProgress, MemoryVolume
from podslice.model.reserved_values import ReservedValue, ReservedValues, Trial
from podslice.store import Records, Store
from podslice.store import atomic as store_files
from podslice.store import lock as store_lock
from podslice.store import volume_directories as store_volumes
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
    assert records.digests == {each.uid: store.digest(each) for each in pods}
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


def make_link(path):
    path.symlink_to("web.json")


def make_loop(path):
    path.symlink_to(path.name)


def make_dangling(path):
    path.symlink_to("/nonexistent/record")


def make_device(path):
    """`/dev/zero`, which never ends."""
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))


def make_socket(path):
    os.mknod(path, 0o600 | stat.S_IFSOCK)


def make_huge(path):
    with path.open("w") as file:
        file.truncate(store_files.RECORD_BYTES_MAX + 1)


NO_RECORDS = [os.mkfifo, Path.mkdir, make_link, make_loop, make_dangling, make_socket, make_huge]
if os.geteuid() == 0:
    NO_RECORDS.append(make_device)


@pytest.fixture(params=NO_RECORDS, ids=lambda make: make.__name__)
def make_odd(request):
    """Make something that is not a regular file, or never ends."""
    return request.param


def test_something_else_in_the_place_of_a_record_is_broken_and_goes(store, make_odd):
    """A pipe would block the reader, and a device may act when it is opened."""
    store.save(besteffort("web"))
    make_odd(record(store, "odd"))
    records = store.load()
    assert [each.name for each in records.pods] == ["web"]
    assert records.broken == (str(record(store, "odd")),)
    store.discard(records.broken[0])
    assert (len(store.load().pods), store.load().broken) == (1, ())


def test_something_else_in_the_place_of_a_mark_is_broken_and_goes(store, make_odd):
    store.mark_evicted(eviction("web"))
    odd = store.marks / "odd.json"
    make_odd(odd)
    assert store.load() == Records(evicted=(eviction("web"),), broken=(str(odd),))
    store.discard(str(odd))
    assert store.load() == Records(evicted=(eviction("web"),))


def test_something_else_in_the_place_of_a_state_counts_as_absent(store, make_odd):
    store.root.mkdir()
    for name in ("agent.json", "reserved.json"):
        make_odd(store.root / name)
    assert (store.agent(), store.reserved()) == (None, None)
    store.drop_agent()
    store.save_reserved(ReservedValues())
    store.save_agent(STATE)
    store.save_reserved(TRIED)
    assert (store.agent(), store.reserved()) == (STATE, TRIED)


def test_what_is_written_goes_through_no_link_and_into_no_pipe(store, make_odd):
    """A file that a crash left half written is in the place that the next write uses."""
    store.save(besteffort("shop"))
    before = record(store, "shop").read_bytes()
    half = record(store, "web").with_suffix(".new")
    make_odd(half)
    if half.is_dir():
        with pytest.raises(HostError, match="Is a directory"):
            store.save(besteffort("web"))
    else:
        store.save(besteffort("web"))
        assert record(store, "web").is_file()
        assert not record(store, "web").is_symlink()
    assert record(store, "shop").read_bytes() == before


def test_a_record_that_would_be_too_large_to_read_is_not_written(store, monkeypatch):
    monkeypatch.setattr(store_files, "RECORD_BYTES_MAX", 100)
    with pytest.raises(HostError, match=r"web\.new: File too large$"):
        store.save(burstable("web"))
    assert store.load() == Records()


@pytest.mark.parametrize(
    "make", [os.mkfifo, make_loop, make_socket], ids=lambda make: make.__name__
)
def test_something_else_in_the_place_of_the_lock_is_told(store, make):
    store.root.mkdir()
    make(store.root / "lock")
    with (
        pytest.raises(
            HostError, match=r"/lock is a (pipe|link|socket), not a regular file; remove it$"
        ),
        store.lock(),
    ):
        pytest.fail("there is no lock")


def test_a_record_whose_root_is_no_text_is_broken(store):
    store.save(besteffort("web"))
    path = record(store, "web")
    path.write_text(json.dumps({**json.loads(path.read_text()), "cgroup_root": ["/"]}))
    assert Store(store.root).load().broken == (str(path),)


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
    no_permission(Path, "mkdir")
    with pytest.raises(HostError, match=r"Permission denied; run as root, or use --user$"):
        store.save(besteffort("web"))
    with pytest.raises(HostError, match="Permission denied; run as root"), store.lock():
        pytest.fail("there is no lock")


def test_who_may_not_read_is_told_what_to_do(store, no_permission):
    store.save(besteffort("web"))
    no_permission(store_files, "read_regular")
    with pytest.raises(HostError, match=r"web.json: Permission denied; run as root"):
        Store(store.root).load()


def test_who_may_not_list_is_told(store, no_permission):
    no_permission(os, "scandir")
    with pytest.raises(HostError, match="pods: Permission denied"):
        store.load()


def test_a_record_that_goes_while_they_are_read_is_no_error(store, monkeypatch):
    store.save(besteffort("web"))

    def gone(path, **_):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(store_files, "read_regular", gone)
    assert Store(store.root).load() == Records()


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
    no_permission(store_files, "read_regular")
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
    no_permission(Path, "mkdir")
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
    no_permission(store_volumes.shutil, "rmtree")
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
    monkeypatch.setattr(store_lock, "_TRIES", 1)
    monkeypatch.setattr(store_lock, "_POLL_SEC", 0.001)
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
    monkeypatch.setattr(store_lock, "_POLL_SEC", 0.0005)
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
    monkeypatch.setattr(store_lock, "WAIT_SEC", 0.0)
    monkeypatch.setattr(store_lock, "_TRIES", 1)
    monkeypatch.setattr(store_lock, "_POLL_SEC", 0)
    message = "another podslice has held the lock for 0 s; see who runs it: fuser -v"
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


def test_who_may_not_take_the_lock_is_told(store, no_permission):
    no_permission(Path, "mkdir")
    with pytest.raises(HostError, match="Permission denied; run as root"):
        store.try_lock()


def test_a_file_system_without_locks_is_told_and_nothing_stays_open(store, monkeypatch):
    def refuse(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(store_lock.fcntl, "flock", refuse)
    before = sorted(path.name for path in Path("/proc/self/fd").iterdir())
    with pytest.raises(HostError, match="No locks available"), store.lock():
        pytest.fail("there is no lock")
    assert sorted(path.name for path in Path("/proc/self/fd").iterdir()) == before


# Where a pod comes from, and what its manifest is.


def test_the_source_of_a_pod_is_kept_until_somebody_else_applies_it(store):
    store.save(besteffort("web"), "/manifests/web.yaml")
    store.save(besteffort("shop"))
    assert store.load().sources == {"web": "/manifests/web.yaml"}
    store.save_progress("web", HALF)
    assert store.load().sources == {"web": "/manifests/web.yaml"}
    store.save(besteffort("web"))
    assert store.load().sources == {}
    assert store.load().progress == {"web": HALF}


def test_a_source_that_is_no_text_is_none(store):
    store.save(besteffort("web"))
    path = record(store, "web")
    path.write_text(json.dumps({**json.loads(path.read_text()), "source": 5}))
    assert store.load().sources == {}
    assert len(store.load().pods) == 1


def test_the_digest_is_of_what_is_asked_for(store):
    one = burstable("web", "cpu=500m,memory=256Mi")
    store.save(one)
    assert store.load().digests == {"web": store.digest(one)}
    # another place, and another way to write the same
    same = replace(burstable("web", "cpu=0.5,memory=268435456"), where="elsewhere.yaml")
    assert store.digest(same) == store.digest(one)
    others = [replace(one, priority=1), replace(one, uid="1"), burstable("web", "cpu=501m")]
    assert len({store.digest(each) for each in (one, *others)}) == 4


def test_the_digest_stays_the_same_in_a_newer_podslice(store):
    """An agent that is upgraded must not let evicted pods come back."""
    expected = "2d2042076ebe44088985a513343707749cd048fa97d220f772c07993334cd762"
    assert store.digest(burstable("web", "cpu=500m,memory=256Mi", uid="12-34")) == expected


@pytest.fixture
def reads(monkeypatch):
    """The files that are read."""
    paths = []
    read = store_files.read_regular
    monkeypatch.setattr(
        store_files,
        "read_regular",
        lambda path, **how: paths.append(path.name) or read(path, **how),
    )
    return paths


def test_a_record_that_has_not_changed_is_not_read_again(store, reads):
    for name in ("web", "shop"):
        store.save(besteffort(name))
    record(store, "broken").write_text("{")
    first = store.load()
    reads.clear()
    assert store.load() == first
    assert reads == []
    Store(store.root).save(burstable("web"))
    record(store, "shop").unlink()
    reads.clear()
    second = store.load()
    assert reads == ["web.json"]
    assert [plain(each) for each in second.pods] == [plain(burstable("web"))]
    assert second.digests != first.digests
    assert second.broken == first.broken


def test_a_record_that_was_written_here_is_not_read(store, reads):
    store.save(burstable("web"), source="/m/web.yaml")
    reads.clear()
    found = store.load()
    assert reads == []
    assert found == Store(store.root).load()
    assert found.sources == {"web": "/m/web.yaml"}


# Marks of evicted pods.


def eviction(name="web", **fields):
    return Eviction(
        **{
            "pod": f"default/{name}",
            "uid": name,
            "digest": "12ab",
            "signal": "memory.available",
            "message": "50Mi of 32Gi are available; uses 1Gi — « viel »",
            "at_usec": 1_700_000_000_000_000,
            **fields,
        }
    )


def test_marks_are_there_until_they_are_removed(store):
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
def test_a_damaged_mark_is_broken_and_keeps_nobody_away(store, content):
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


def test_a_mark_that_goes_while_they_are_read_is_no_error(store, monkeypatch):
    store.mark_evicted(eviction("web"))
    read = store_files.read_regular

    def gone(path, **how):
        path.unlink()
        return read(path, **how)

    monkeypatch.setattr(store_files, "read_regular", gone)
    assert store.load() == Records()


def test_marks_that_may_not_be_read_are_told(store, no_permission):
    store.mark_evicted(eviction("web"))
    no_permission(store_files, "read_regular")
    with pytest.raises(HostError, match=r"web.json: Permission denied; run as root"):
        Store(store.root).load()


def test_what_writing_a_mark_left_behind_goes(store):
    store.mark_evicted(eviction("web"))
    half = store.marks / "shop.new"
    half.write_text("{")
    store.tidy()
    assert [path.name for path in store.marks.iterdir()] == ["web.json"]


def test_a_directory_that_another_tidies_away_is_made_again(store, monkeypatch):
    """The evictor can't wait for the lock."""
    write, tidied = store_files._write_new, []

    def tidy_first(path, text):
        if len(tidied) < 3:
            tidied.append(path)
            path.parent.rmdir()
        return write(path, text)

    monkeypatch.setattr(store_files, "_write_new", tidy_first)
    store.mark_evicted(eviction("web"))
    assert store.load().evicted == (eviction("web"),)


def test_a_directory_that_always_goes_is_an_error(store, monkeypatch):
    def never(path, *_):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(store_files, "_write_new", never)
    with pytest.raises(HostError, match="No such file or directory"):
        store.mark_evicted(eviction("web"))


def test_on_a_full_disk_nothing_half_written_stays(store, monkeypatch):
    write_new = store_files._write_new

    def half(path, text):
        write_new(path, text[:5])
        raise OSError(28, "No space left on device", str(path))

    store.mark_evicted(eviction("web"))
    monkeypatch.setattr(store_files, "_write_new", half)
    for write in (
        lambda: store.mark_evicted(eviction("web", digest="cd")),
        lambda: store.save_agent(STATE),
        lambda: store.save(besteffort("web")),
    ):
        with pytest.raises(HostError, match=r"No space left on device$"):
            write()
    files = [path.name for path in store.root.rglob("*") if path.is_file()]
    assert files == ["web.json"]
    assert store.load() == Records(evicted=(eviction("web"),))


# What an agent lets others know, and values that are to be confirmed.

STATE = AgentState(
    pid=812,
    started_ticks=4711,
    conditions=(Condition.MEMORY, Condition.PID),
    terminating=("default/web", "shop/api"),
    problems=(
        Problem(where="a.yaml", message="is broken", hint="mend it"),
        Problem(where="", message="odd", severity=Severity.WARNING),
    ),
)
TRIED = ReservedValues(
    until_usec=5_000_000,
    cgroup_root="/podslice",
    units={
        "system.slice": {
            "MemoryMax": ReservedValue(
                before=2**64 - 1, ours=(2**30,), trial=Trial(old=2**29, new=2**30)
            ),
            "ManagedOOMSwap": ReservedValue(before="auto", ours=("kill", "auto")),
            "TasksMax": ReservedValue(before=5, ours=(7,), trial=Trial(old=5, new=None)),
        }
    },
)


@pytest.mark.parametrize(
    ("save", "read", "drop", "value", "file"),
    [
        ("save_agent", "agent", "drop_agent", STATE, "agent.json"),
        ("save_agent", "agent", "drop_agent", AgentState(pid=1, started_ticks=2), "agent.json"),
    ],
)
def test_what_was_left_is_found(store, save, read, drop, value, file):
    assert getattr(store, read)() is None
    getattr(store, drop)()
    getattr(store, save)(value)
    assert getattr(Store(store.root), read)() == value
    path = store.root / file
    for damaged in (
        "",
        "[]",
        "{}",
        path.read_text()[:-3],
        path.read_text().replace(": ", ": [", 1),
    ):
        path.write_text(damaged)
        assert getattr(store, read)() is None
    getattr(store, save)(value)
    assert getattr(store, read)() == value
    getattr(store, drop)()
    assert not path.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"conditions": ["Thirst"]},
        {"conditions": 5},
        {"problems": [{}]},
        {"problems": [5]},
        {"pid": "812"},
        {"problems": [{"where": "", "message": "m", "hint": "", "severity": "bad"}]},
    ],
)
def test_an_agent_s_state_that_is_wrong_anywhere_is_none(store, change):
    store.save_agent(STATE)
    path = store.root / "agent.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert store.agent() is None


def held(**change):
    return {"a.slice": {"MemoryMax": {"before": 1, "ours": [2], "trial": None, **change}}}


def test_values_outside_the_root_are_recorded_until_there_are_none(store):
    assert store.reserved() == ReservedValues()
    store.save_reserved(ReservedValues())
    assert not store.root.exists()
    store.save_reserved(TRIED)
    assert Store(store.root).reserved() == TRIED
    store.save_reserved(ReservedValues(units={"system.slice": {}}))
    assert not store.reserved_path.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"units": 5},
        {"units": {"a.slice": 5}},
        {"units": {"a.slice": {"MemoryMax": [1]}}},
        {"units": {"a.slice": {"Unknown": {"before": 1, "ours": [2], "trial": None}}}},
        {"units": held(before=None)},
        {"units": held(ours=[])},
        {"units": held(ours=[[1]])},
        {"units": held(trial={"old": 1})},
        {"units": held(trial={"old": None, "new": 1})},
        {"until_usec": None},
        {"cgroup_root": 5},
    ],
)
def test_a_record_of_values_that_is_wrong_anywhere_is_none(store, change):
    store.save_reserved(TRIED)
    path = store.root / "reserved.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert store.reserved() is None


def test_what_may_not_be_read_is_none(store, no_permission):
    store.save_agent(STATE)
    store.save_reserved(TRIED)
    no_permission(store_files, "read_regular")
    assert (store.agent(), store.reserved()) == (None, None)
