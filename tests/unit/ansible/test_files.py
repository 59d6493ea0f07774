"""Files that modules write: completely or not at all, as their directory requires."""

import os
import stat
from pathlib import Path

import pytest

from podslice.inputs.source import MANIFESTS
from tests.unit.ansible.conftest import utility

files = utility("files")
Failure = utility("podslice").Failure


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_written_with_its_directory(tmp_path):
    path = tmp_path / "a/b/web.yaml"
    files.write_text(str(path), "text\n")
    assert files.read_text(str(path)) == "text\n"
    assert [each.name for each in path.parent.iterdir()] == ["web.yaml"]


@pytest.mark.parametrize(("directory", "mode"), [(0o755, 0o644), (0o2770, 0o640), (0o750, 0o640)])
def test_its_mode_follows_the_directory(tmp_path, directory, mode):
    tmp_path.chmod(directory)
    files.write_text(str(tmp_path / "web.yaml"), "")
    assert mode_of(tmp_path / "web.yaml") == mode
    files.write_text(str(tmp_path / "open.toml"), "", mode=0o644)
    assert mode_of(tmp_path / "open.toml") == 0o644


def test_bytes_that_are_not_utf_8_are_kept(tmp_path):
    (tmp_path / "a").write_bytes(b"x: \xff\r\n")
    files.write_text(str(tmp_path / "b"), files.read_text(str(tmp_path / "a")))
    assert (tmp_path / "b").read_bytes() == b"x: \xff\r\n"


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "web.yaml"
    path.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(Failure, match="cannot be written: No space left on device"):
        files.write_text(str(path), "new")
    assert [each.name for each in tmp_path.iterdir()] == ["web.yaml"]
    assert path.read_text() == "old"


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "target").write_text("kept")
    (tmp_path / "web.yaml").symlink_to(tmp_path / "target")
    files.write_text(str(tmp_path / "web.yaml"), "new")
    assert (tmp_path / "target").read_text() == "kept"
    assert not (tmp_path / "web.yaml").is_symlink()


def test_links_are_read_only_on_request(tmp_path):
    """A member of podslice-admin could show what root may read, in a difference."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "web.yaml").symlink_to(tmp_path / "secret")
    with pytest.raises(Failure, match="is a symbolic link"):
        files.read_text(str(tmp_path / "web.yaml"))
    assert files.read_text(str(tmp_path / "web.yaml"), follow=True) == "secret"


def test_links_of_other_users_are_left_out(tmp_path, monkeypatch):
    (tmp_path / "a.yaml").touch()
    (tmp_path / "b.yaml").symlink_to("a.yaml")
    original = os.lstat

    def lstat(path):
        status = list(original(path))
        status[stat.ST_UID] = 4711
        return os.stat_result(status)

    monkeypatch.setattr(files.os, "lstat", lstat)
    assert [Path(path).name for path in files.list_manifests(str(tmp_path))] == ["a.yaml"]


def test_what_is_not_a_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("", "pipe"):
        with pytest.raises(Failure, match="is not a regular file"):
            files.read_text(str(tmp_path / name))
    assert files.read_text(str(tmp_path / "none")) is None


def test_a_file_above_the_limit_is_not_compared_in_part(tmp_path):
    path = tmp_path / "web.yaml"
    with path.open("wb") as file:
        file.truncate(files.BYTES_MAX)
    assert len(files.read_text(str(path))) == files.BYTES_MAX
    with path.open("ab") as file:
        file.write(b"x")
    with pytest.raises(Failure, match=r"web.yaml is larger than 16 MiB, and is not compared"):
        files.read_text(str(path))


def test_manifests_are_those_that_podslice_reads(tmp_path):
    for name in ("b.yaml", "a.yml", "c.json", ".hidden.yaml", "readme.md"):
        (tmp_path / name).touch()
    (tmp_path / "d.yaml").mkdir()
    os.mkfifo(tmp_path / "e.yaml")
    (tmp_path / "f.yaml").symlink_to("none")
    (tmp_path / "g.yaml").symlink_to("a.yml")
    found = files.list_manifests(str(tmp_path))
    assert [Path(path).name for path in found] == ["a.yml", "b.yaml", "c.json", "g.yaml"]
    assert files.list_manifests(str(tmp_path / "none")) == []
    assert set(files.MANIFEST_SUFFIXES) == {*MANIFESTS}


def test_a_file_is_removed_once(tmp_path):
    (tmp_path / "a").touch()
    files.remove(str(tmp_path / "a"))
    files.remove(str(tmp_path / "a"))
    with pytest.raises(Failure, match="cannot be removed"):
        files.remove(str(tmp_path))
