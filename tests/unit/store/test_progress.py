"""The progress of init containers."""

import json

import pytest

from podslice.errors import HostError
from podslice.model.pod import InitProgress
from podslice.store import files as store_files
from tests.unit.builders import besteffort, burstable
from tests.unit.store.files import HALF, plain, record

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


def test_a_removed_pod_has_no_progress_when_it_is_applied_again(store):
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


def test_progress_requires_a_record(store):
    with pytest.raises(HostError, match=r"web\.json: the pod has no record$"):
        store.save_progress("web", HALF)
    assert not store.root.exists()


def test_a_record_without_progress_is_kept(store):
    """As written by podslice 0.1: an upgrade must not lose pods."""
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
