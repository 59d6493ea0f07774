import os
from pathlib import Path

import pytest

from podslice.inputs import source
from podslice.inputs.source import locate_entitled
from podslice.kernel.files import read_regular

STRANGER, READER = 4711, 4712


@pytest.fixture
def reader(monkeypatch):
    """A user who is neither root nor the owner of the test's files."""
    monkeypatch.setattr(os, "geteuid", lambda: READER)


def link(path, target):
    """Create a link of an unprivileged user: the one running the test, unless that is root."""
    path.symlink_to(target)
    if os.getuid() == 0:
        os.lchown(path, STRANGER, STRANGER)
    return path


def read(path):
    return read_regular(str(path), limit_bytes=2**20, locate=locate_entitled)


def test_a_file_is_opened(reader, tmp_path):
    (tmp_path / "web.yaml").write_bytes(b"text")
    assert read(tmp_path / "web.yaml") == b"text"


def test_a_link_of_a_user_to_a_file_of_another_is_not_followed(reader, tmp_path):
    path = link(tmp_path / "web.yaml", "/etc/passwd")
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(ValueError, match=r"is a link of user .* is not followed; copy the file"):
        read(path)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_link_to_such_a_link_is_not_followed_either(reader, tmp_path):
    link(tmp_path / "other", "/etc/passwd")
    with pytest.raises(ValueError, match="is not followed"):
        read(link(tmp_path / "web.yaml", "other"))


def test_a_link_of_a_user_to_their_own_file_is_followed(reader, tmp_path):
    target = tmp_path / "web"
    target.write_bytes(b"text")
    if os.getuid() == 0:
        os.chown(target, STRANGER, STRANGER)
    assert read(link(tmp_path / "web.yaml", "web")) == b"text"


def test_links_of_root_and_of_the_reader_are_followed(tmp_path, monkeypatch):
    path = link(tmp_path / "web.yaml", "/etc/passwd")
    owner = os.lstat(path).st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    assert read(path)
    monkeypatch.setattr(os, "geteuid", lambda: READER)
    assert os.lstat("/etc/os-release").st_uid == 0
    assert read("/etc/os-release")
    assert read("/proc/mounts")  # this link leads to another one


@pytest.mark.parametrize("target", ["nowhere", "web.yaml"])
def test_a_link_that_leads_nowhere_is_an_error_of_the_system(reader, tmp_path, target):
    path = link(tmp_path / "web.yaml", target)
    with pytest.raises(OSError, match=r"No such file|Too many levels"):
        read(path)


@pytest.fixture
def root_link(tmp_path, monkeypatch):
    """Create a link of root; another user who runs the test takes root's part."""
    really_fstat, made = os.fstat, set()

    def fstat(descriptor):
        status = really_fstat(descriptor)
        if (status.st_dev, status.st_ino) not in made:
            return status
        fields = list(status)
        fields[4] = 0
        return os.stat_result(fields)

    def make(path, target):
        path.symlink_to(target)
        status = os.lstat(path)
        made.add((status.st_dev, status.st_ino))
        return path

    monkeypatch.setattr(os, "fstat", fstat)
    return make


def test_a_link_of_root_to_a_link_of_a_user_is_not_followed_to_a_file_of_another(
    reader, root_link, tmp_path
):
    home = tmp_path / "home"
    home.mkdir()
    link(home / "web.yaml", "/etc/passwd")
    with pytest.raises(ValueError, match=r"is a link of user .* is not followed; copy the file"):
        read(root_link(tmp_path / "web.yaml", home / "web.yaml"))


def test_a_link_of_a_user_to_a_directory_is_not_followed_either(reader, root_link, tmp_path):
    link(tmp_path / "home", "/etc")
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(ValueError, match=r"is a link of user .* is not followed; copy the file"):
        read(root_link(tmp_path / "web.yaml", "../" + tmp_path.name + "/home/passwd"))
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_links_of_root_to_links_of_root_and_of_the_owner_are_followed(reader, root_link, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    target = home / "web"
    target.write_bytes(b"text")
    if os.getuid() == 0:
        os.chown(target, STRANGER, STRANGER)
    link(home / "web.yaml", "./web")
    root_link(tmp_path / "other", "home/web.yaml")
    assert read(root_link(tmp_path / "web.yaml", tmp_path / "other")) == b"text"


def test_more_links_than_the_kernel_follows_are_an_error_of_the_system(reader, tmp_path):
    (tmp_path / "0").write_bytes(b"text")
    if os.getuid() == 0:
        os.chown(tmp_path / "0", STRANGER, STRANGER)
    for number in range(1, 42):
        link(tmp_path / f"{number}", f"{number - 1}")
    assert read(tmp_path / "40") == b"text"
    with pytest.raises(OSError, match="Too many levels"):
        read(tmp_path / "41")


@pytest.mark.parametrize("target", ["/proc/self/root/etc/passwd", "./" * 500 + "target"])
def test_a_path_that_cannot_be_checked_is_not_followed(reader, tmp_path, monkeypatch, target):
    """`/proc/self/root` may be another root than its text, and a path must end."""
    (tmp_path / "target").write_bytes(b"text")
    path = link(tmp_path / "web.yaml", target)
    monkeypatch.setattr(os, "readlink", lambda *_, **__: target.replace("self/root", "nowhere"))
    with pytest.raises(ValueError, match="cannot be checked"):
        read(path)


def test_a_link_that_is_replaced_after_it_was_followed_is_rejected(reader, tmp_path, monkeypatch):
    mine, path = tmp_path / "mine", tmp_path / "web.yaml"
    mine.write_bytes(b"text")
    link(path, "/etc/passwd")

    def swapped(name):
        descriptor = os.open(name, os.O_PATH | os.O_CLOEXEC)
        if name == str(path):
            path.unlink()
            link(path, mine)
        return descriptor

    monkeypatch.setattr(source, "follow_links", swapped)
    with pytest.raises(ValueError, match="cannot be checked"):
        read(path)
