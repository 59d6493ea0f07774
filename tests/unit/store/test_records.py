"""Records of applied pods, their sources and digests."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from podslice.errors import HostError, Problem
from podslice.model.desired import ReservedValues
from podslice.model.pod import ContainerKind, MemoryVolume
from podslice.store import files as store_files
from podslice.store import store as records
from podslice.store.store import Records, Store
from tests.unit.builders import amounts, besteffort, burstable, container, pod, resources
from tests.unit.store.files import HALF, STATE, TRIED, eviction, plain, record

# Records.


def test_no_records_before_the_first(store):
    assert store.load() == Records()


def test_saved_pods_are_loaded(store):
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
            volumes=(MemoryVolume(name="cache", size_bytes=2**26), MemoryVolume(name="free")),
            containers=(
                container("app", "cpu=333m,hugepages-2Mi=4Mi", "cpu=1,hugepages-2Mi=4Mi"),
                container("log", kind=ContainerKind.SIDECAR),
                container("init", "memory=1", kind=ContainerKind.INIT),
            ),
        ),
    )
    for each in pods:
        store.save(each)
    loaded = store.load()
    assert [plain(each) for each in loaded.pods] == [plain(each) for each in pods]
    assert loaded.digests == {each.uid: store.digest(each) for each in pods}
    assert loaded.broken == ()


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

    def fail(path, *_, **__):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(store_files.os, "replace", fail)
    with pytest.raises(HostError, match=r"No space left on device$"):
        store.save(burstable("web"))
    loaded = store.load()
    assert [plain(each) for each in loaded.pods] == [plain(besteffort("web"))]
    assert loaded.broken == ()


def test_a_half_written_file_is_not_a_record(store):
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
    loaded = store.load()
    assert [each.name for each in loaded.pods] == ["web"]
    assert loaded.broken == (str(record(store, "broken")),)
    store.discard(loaded.broken[0])
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
    """Create something that is not a regular file, or endless."""
    return request.param


def test_another_file_type_instead_of_a_record_is_broken_and_removed(store, make_odd):
    """A pipe would block the reader, and a device may act when it is opened."""
    store.save(besteffort("web"))
    make_odd(record(store, "odd"))
    loaded = store.load()
    assert [each.name for each in loaded.pods] == ["web"]
    assert loaded.broken == (str(record(store, "odd")),)
    store.discard(loaded.broken[0])
    assert (len(store.load().pods), store.load().broken) == (1, ())


def test_another_file_type_instead_of_a_mark_is_broken_and_removed(store, make_odd):
    store.mark_evicted(eviction("web"))
    odd = store.marks / "odd.json"
    make_odd(odd)
    assert store.load() == Records(evicted=(eviction("web"),), broken=(str(odd),))
    store.discard(str(odd))
    assert store.load() == Records(evicted=(eviction("web"),))


def test_another_file_type_instead_of_a_state_is_ignored(store, make_odd):
    store.root.mkdir()
    for name in ("agent.json", "reserved.json"):
        make_odd(store.root / name)
    assert (store.agent.read(), store.reserved()) == (None, None)
    store.agent.save(None)
    store.save_reserved(ReservedValues())
    store.agent.save(STATE)
    store.save_reserved(TRIED)
    assert (store.agent.read(), store.reserved()) == (STATE, TRIED)


def test_writes_follow_no_link_and_open_no_pipe(store, make_odd):
    """A half written file of a crash has the path that the next write uses."""
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
def test_another_file_type_instead_of_the_lock_is_an_error(store, make):
    store.root.mkdir()
    make(store.root / "lock")
    with (
        pytest.raises(
            HostError, match=r"/lock is a (pipe|link|socket), not a regular file; remove it$"
        ),
        store.lock(),
    ):
        pytest.fail("there is no lock")


def test_a_record_whose_root_is_not_text_is_broken(store):
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


def test_without_records_their_directory_is_removed(store):
    store.save(besteffort("web"))
    store.tidy()
    assert record(store, "web").exists()
    store.remove("web")
    store.tidy()
    store.tidy()
    assert not record(store, "web").parent.exists()


def test_a_write_without_permission_is_an_error_with_the_remedy(store, no_permission):
    no_permission(Path, "mkdir")
    with pytest.raises(HostError, match=r"Permission denied; run as root, or use --user$"):
        store.save(besteffort("web"))
    denied = r"^permission denied: the record directory .*; run as root, or use --user$"
    with pytest.raises(HostError, match=denied), store.lock():
        pytest.fail("there is no lock")


def test_a_read_without_permission_is_an_error_with_the_remedy(store, no_permission):
    store.save(besteffort("web"))
    no_permission(store_files, "read_regular")
    with pytest.raises(HostError, match=r"web.json: Permission denied; run as root"):
        Store(store.root).load()


def test_a_listing_without_permission_is_an_error(store, no_permission):
    no_permission(os, "scandir")
    with pytest.raises(HostError, match="pods: Permission denied"):
        store.load()


def test_a_record_that_is_removed_during_the_read_is_ignored(store, monkeypatch):
    store.save(besteffort("web"))

    def gone(path, **_):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(store_files, "read_regular", gone)
    assert Store(store.root).load() == Records()


# Sources and digests.


def test_the_source_of_a_pod_is_kept_until_it_is_applied_by_hand(store):
    store.save(besteffort("web"), "/manifests/web.yaml")
    store.save(besteffort("shop"))
    assert store.load().sources == {"web": "/manifests/web.yaml"}
    store.save_progress("web", HALF)
    assert store.load().sources == {"web": "/manifests/web.yaml"}
    store.save(besteffort("web"))
    assert store.load().sources == {}
    assert store.load().progress == {"web": HALF}


def test_a_source_that_is_not_text_is_none(store):
    store.save(besteffort("web"))
    path = record(store, "web")
    path.write_text(json.dumps({**json.loads(path.read_text()), "source": 5}))
    assert store.load().sources == {}
    assert len(store.load().pods) == 1


def test_the_digest_depends_on_the_meaning_of_a_manifest(store):
    one = burstable("web", "cpu=500m,memory=256Mi")
    store.save(one)
    assert store.load().digests == {"web": store.digest(one)}
    # another place and another spelling
    same = replace(burstable("web", "cpu=0.5,memory=268435456"), where="elsewhere.yaml")
    assert store.digest(same) == store.digest(one)
    others = [replace(one, priority=1), replace(one, uid="1"), burstable("web", "cpu=501m")]
    assert len({store.digest(each) for each in (one, *others)}) == 4


def test_the_digest_stays_the_same_in_a_newer_podslice(store):
    """An upgraded agent must not admit evicted pods."""
    expected = "2d2042076ebe44088985a513343707749cd048fa97d220f772c07993334cd762"
    assert store.digest(burstable("web", "cpu=500m,memory=256Mi", uid="12-34")) == expected


@pytest.fixture
def reads(monkeypatch):
    """Record the files that are read."""
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


def test_every_record_that_another_process_writes_is_found(store):
    other = Store(store.root)
    for number in range(1, 50):  # several within one tick of the clock of files
        other.save(burstable(f"web-{number}"))
        assert len(store.load().pods) == number


def test_a_record_that_was_edited_in_place_is_found_once_verified(store):
    store.save(burstable("web"))
    os.utime(record(store, "web").parent, (1, 1))
    first = store.load()
    record(store, "web").write_text("{")
    assert store.load() == first
    store.verify()
    assert store.load().broken == (str(record(store, "web")),)


@pytest.fixture
def parsed(monkeypatch):
    """Record the places of the manifests that are parsed."""
    places = []
    parse = records.parse_manifest
    monkeypatch.setattr(
        records,
        "parse_manifest",
        lambda *given, where: places.append(where) or parse(*given, where),
    )
    return places


def test_the_record_of_an_expected_pod_is_not_parsed(store, parsed):
    pods = (burstable("web", "cpu=500m,memory=1Gi"), burstable("shop"), besteffort("batch"))
    for each in pods:
        store.save(each, source="/m/all.yaml")
    found = Store(store.root).load()
    parsed.clear()
    again = Store(store.root)
    again.expect([*pods[:1], burstable("shop", "cpu=2"), besteffort("other")])
    assert again.load() == found
    assert sorted(parsed) == ["record of batch", "record of shop"]
    assert [each.where for each in again.load().pods] == [each.where for each in found.pods]


def test_the_problems_of_an_expected_pod_are_found_at_their_places_in_the_record(store, parsed):
    odd = replace(besteffort("odd"), problems=(Problem(where="m.yaml", message="is odd"),))
    store.save(odd)
    again = Store(store.root)
    again.expect([odd])
    assert again.load().pods[0].problems == ()
    assert parsed == ["record of odd"]
