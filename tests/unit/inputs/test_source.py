import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from podslice.errors import InputError
from podslice.inputs.budget import LIMITS, Budget, BudgetItem
from podslice.inputs.source import (
    TIMEOUTS,
    Timeouts,
    read_bytes,
    read_manifest,
    read_sources,
    read_stream,
)
from podslice.kernel.files import TooLargeError


def read(*sources, stdin=lambda: b"stdin", timeouts=TIMEOUTS, budget=None):
    return [
        (each.name, str(each.exhausted or each.problem or each.data.decode()))
        for each in read_sources(
            tuple(map(str, sources)), stdin, budget or Budget(), timeouts=timeouts
        )
    ]


def test_sources_are_read_in_the_order_stated(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/y.yml").write_bytes(b"3")
    (tmp_path / "d/x.yaml").write_bytes(b"2")
    assert read("-", tmp_path / "d", tmp_path / "a") == [
        ("stdin", "stdin"),
        (f"{tmp_path}/d/x.yaml", "2"),
        (f"{tmp_path}/d/y.yml", "3"),
        (f"{tmp_path}/a", "1"),
    ]


def test_pipe_with_a_writer_is_read_to_its_end():
    """As a shell creates it for `-f <(command)`."""
    reader, writer = os.pipe()
    path = f"/dev/fd/{reader}"
    os.write(writer, b"first ")
    late = threading.Timer(0.05, lambda: (os.write(writer, b"second"), os.close(writer)))
    late.start()
    try:
        assert read(path) == [(path, "first second")]
    finally:
        late.join()
        os.close(reader)


def test_pipe_waits_for_a_late_writer(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    late = threading.Timer(0.05, lambda: path.write_bytes(b"text"))
    late.start()
    try:
        assert read(path) == [(str(path), "text")]
    finally:
        late.join()


def test_pipe_whose_writer_has_not_written_yet():
    reader, writer = os.pipe()
    path = f"/dev/fd/{reader}"
    late = threading.Timer(0.05, lambda: (os.write(writer, b"text"), os.close(writer)))
    late.start()
    try:
        assert read(path) == [(path, "text")]
    finally:
        late.join()
        os.close(reader)


def test_no_more_than_the_limit_is_read(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 2048)
    assert read_bytes(path, limit_bytes=2048) == b"x" * 2048
    with pytest.raises(InputError, match="is larger than the limit of 1 KiB"):
        read_bytes(path, limit_bytes=1024)


def test_all_sources_together_have_a_limit(tmp_path):
    def budget():
        return Budget(limits={**LIMITS, BudgetItem.BYTES: 2048})

    (tmp_path / "a").write_bytes(b"x" * 2048)
    assert read(tmp_path / "a", budget=budget()) == [(str(tmp_path / "a"), "x" * 2048)]
    rejected = "there are more than 2 KiB of text"
    assert read(tmp_path / "a", "-", budget=budget())[1] == ("stdin", rejected)
    assert read("-", tmp_path / "a", budget=budget())[1] == (str(tmp_path / "a"), rejected)
    assert read("-", budget=budget(), stdin=lambda: b"x" * 2049) == [("stdin", rejected)]


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"x" * 2048)
    monkeypatch.setattr(os, "read", None)
    with pytest.raises(TooLargeError):
        read_manifest(str(tmp_path / "a"), 2047)


SILENT = Timeouts(writer_sec=0, whole_sec=0)


@pytest.mark.parametrize("has_writer", [True, False])
def test_a_pipe_in_a_directory_does_not_block(tmp_path, has_writer):
    path = tmp_path / "pipe.yaml"
    os.mkfifo(path)
    (tmp_path / "web.yaml").write_bytes(b"text")
    writer = os.open(path, os.O_RDWR) if has_writer else None
    try:
        assert read(tmp_path) == [
            (str(path), f"{path}: is a pipe, not a regular file"),
            (f"{tmp_path}/web.yaml", "text"),
        ]
    finally:
        if writer is not None:
            os.close(writer)


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after it was located"])
def test_a_replaced_file_is_not_opened(tmp_path, monkeypatch, is_late):
    path = tmp_path / "web.yaml"
    path.write_bytes(b"text")
    really_open, opened = os.open, []

    def swap():
        path.unlink()
        os.mkfifo(path)

    def watched(name, flags, *rest, **named):
        if name == str(path) and not is_late:
            swap()
        if not flags & os.O_PATH and is_late:
            swap()
        descriptor = really_open(name, flags, *rest, **named)
        if not flags & os.O_PATH:
            opened.append(stat.S_IFMT(os.fstat(descriptor).st_mode))
        return descriptor

    monkeypatch.setattr(os, "open", watched)
    if is_late:
        assert read_manifest(str(path), 2**20)[0] == b"text"
        assert opened == [stat.S_IFREG]
    else:
        with pytest.raises(ValueError, match="is a pipe, not a regular file"):
            read_manifest(str(path), 2**20)
        assert not opened


def test_a_pipe_with_a_silent_writer_has_a_deadline(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    try:
        expect = [(str(path), f"{path}: did not end within 0 s")]
        assert read(path, timeouts=SILENT) == expect
        os.write(writer, b"kind: Pod")
        assert read(path, timeouts=SILENT) == expect
    finally:
        os.close(writer)


def test_standard_input_has_a_deadline_while_it_is_written():
    """Each reading of the clock is a second later, and more was written each time."""
    reader, writer = os.pipe()
    seconds = iter(range(100))

    def now():
        os.write(writer, b"x")
        return float(next(seconds))

    try:
        with pytest.raises(ValueError, match="did not end within 9 s"):
            read_stream(reader, limit_bytes=1000, timeouts=Timeouts(whole_sec=9, now=now))
    finally:
        os.close(reader)
        os.close(writer)


def test_unreadable_standard_input_is_a_problem():
    def fail():
        raise OSError(errno.EBADF, "Bad file descriptor")

    assert read("-", stdin=fail) == [("stdin", "stdin: cannot be read: bad file descriptor")]


def test_directory_where_a_file_is_read(tmp_path):
    with pytest.raises(InputError, match="is a directory, not a regular file"):
        read_bytes(tmp_path, limit_bytes=1)


def test_empty_directory_is_a_problem(tmp_path):
    expect = f"{tmp_path}: the directory has no *.json, *.yaml or *.yml"
    assert read(tmp_path) == [(str(tmp_path), expect)]


def test_directory_with_too_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr("podslice.inputs.source.FILES_MAX", 2)
    for name in "abc":
        (tmp_path / f"{name}.yaml").touch()
    expect = f"{tmp_path}: the directory has more than 2 manifests"
    assert read(tmp_path) == [(str(tmp_path), expect)]


def test_unreadable_directory(tmp_path, monkeypatch):
    def refuse(_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    assert read(tmp_path) == [(str(tmp_path), f"{tmp_path}: permission denied")]


def test_no_descriptor_is_left_open(tmp_path):
    (tmp_path / "a").touch()
    before = sorted(Path("/proc/self/fd").iterdir())
    read(tmp_path / "a", "/dev/null", tmp_path / "none", tmp_path)
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_a_link_in_a_directory_to_a_file_of_another_user_is_not_followed(tmp_path, monkeypatch):
    """The link's owner does not own its target; a link named by the user is followed."""
    path = tmp_path / "web.yaml"
    path.symlink_to("/etc/passwd")
    if os.getuid() == 0:
        os.lchown(path, 4711, 4711)
    owner = os.lstat(path).st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    rejected = f"{path}: is a link of user {owner} to a file of another user and is not followed"
    assert read(tmp_path) == [(str(path), f"{rejected}; copy the file")]
    assert read(path) == [(str(path), Path("/etc/passwd").read_text())]
