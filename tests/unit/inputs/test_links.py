import os
from pathlib import Path

import pytest

from podslice.inputs.links import open_beside

STRANGER, READER = 4711, 4712


@pytest.fixture
def reader(monkeypatch):
    """Neither root nor the owner of what the test makes."""
    monkeypatch.setattr(os, "geteuid", lambda: READER)


def link(path, target):
    """A link of a user without rights: the one who runs the test, unless that is root."""
    path.symlink_to(target)
    if os.getuid() == 0:
        os.lchown(path, STRANGER, STRANGER)
    return path


def read(path):
    descriptor = open_beside(str(path), os.O_RDONLY)
    try:
        return os.read(descriptor, 100)
    finally:
        os.close(descriptor)


def test_a_file_is_opened(reader, tmp_path):
    (tmp_path / "web.yaml").write_bytes(b"text")
    assert read(tmp_path / "web.yaml") == b"text"


def test_a_link_of_a_user_to_a_file_of_another_is_not_followed(reader, tmp_path):
    path = link(tmp_path / "web.yaml", "/etc/passwd")
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(ValueError, match=r"is a link of user .* is not followed; copy the file"):
        read(path)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_nor_is_a_link_to_such_a_link(reader, tmp_path):
    link(tmp_path / "other", "/etc/passwd")
    with pytest.raises(ValueError, match="is not followed"):
        read(link(tmp_path / "web.yaml", "other"))


def test_a_link_of_a_user_to_the_own_file_is_followed(reader, tmp_path):
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
    assert read("/proc/mounts")  # one that leads to another link


@pytest.mark.parametrize("target", ["nowhere", "web.yaml"])
def test_a_link_that_leads_nowhere_is_an_error_of_the_system(reader, tmp_path, target):
    path = link(tmp_path / "web.yaml", target)
    with pytest.raises(OSError, match=r"No such file|Too many levels"):
        read(path)
