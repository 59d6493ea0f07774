"""Directories instead of volumes."""

from pathlib import Path

import pytest

from podslice.errors import HostError
from podslice.model.naming import volume_path
from podslice.store import store as store_volumes
from podslice.store.store import Store
from tests.unit.builders import besteffort, make_files
from tests.unit.store.files import record


def test_a_volume_is_a_directory_of_the_user_s_own(store):
    path = store.make_volume("0a1b-2c", "cache")
    assert path == store.volume_path("0a1b-2c", "cache")
    assert path == store.root / "pods/0a1b-2c/volumes/cache"
    assert path.stat().st_mode & 0o777 == 0o700
    (path / "file").write_text("kept")
    assert store.make_volume("0a1b-2c", "cache") == path
    assert (path / "file").read_text() == "kept"


def test_volumes_have_the_paths_of_the_system_managers_mounts():
    store = Store(Path("/run/podslice"))
    assert str(store.volume_path("12-34", "cache")) == volume_path("12-34", "cache")


def test_volumes_are_not_records(store):
    store.save(besteffort("web"))
    store.make_volume("web", "cache")
    store.make_volume("other", "cache")
    assert [each.name for each in store.load().pods] == ["web"]
    assert store.load().broken == ()


def test_a_volume_without_permission_is_an_error_with_the_remedy(store, no_permission):
    no_permission(Path, "mkdir")
    with pytest.raises(HostError, match="Permission denied; run as root, or use --user"):
        store.make_volume("web", "cache")


def test_discarding_volumes_removes_their_content(store, tmp_path):
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
def test_mounts_and_directories_with_mounts_are_kept(store, monkeypatch, mounted):
    volumes = store.make_volume("web", "cache").parent
    make_files(volumes, {"cache/inner/file": "kept", "other/file": "gone"})
    monkeypatch.setattr("os.path.ismount", lambda path: str(path) == str(volumes / mounted))
    assert store.discard_volumes("web") == (str(volumes / "cache"),)
    assert (volumes / "cache/inner/file").read_text() == "kept"
    assert not (volumes / "other").exists()
    monkeypatch.undo()
    assert store.discard_volumes("web") == ()
    assert not volumes.parent.exists()


def test_directories_that_can_not_be_removed_are_returned(store, no_permission, monkeypatch):
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


def test_tidying_removes_empty_directories_without_a_pod(store):
    """Directories that a crash left are removed, files in them are kept."""
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


@pytest.mark.parametrize(
    "link", ["pods", "pods/gone", "pods/gone/volumes", "evicted", "containers", "containers/gone"]
)
def test_tidying_follows_no_link(store, tmp_path, link):
    outside = make_files(tmp_path / "outside", {"main.json": "kept", "gone/main.json": "kept"})
    for name in ("cache", "volumes/cache", "gone/volumes/cache", "gone/cache", "gone.new"):
        (outside / name).mkdir(parents=True)
    before = sorted(outside.rglob("*"))
    path = store.root / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(outside)
    store.tidy()
    assert sorted(outside.rglob("*")) == before
    if link != "pods" and link.startswith(("pods/", "containers/")):
        assert not path.is_symlink()


@pytest.mark.parametrize("link", ["pods/gone", "pods/gone/volumes"])
def test_discarding_volumes_follows_no_link(store, tmp_path, link):
    outside = make_files(tmp_path / "outside", {"cache/file": "kept", "volumes/cache/file": "kept"})
    before = sorted(outside.rglob("*"))
    path = store.root / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(outside)
    assert store.discard_volumes("gone") == ()
    assert sorted(outside.rglob("*")) == before
