import errno
import os
import threading
from pathlib import Path

import pytest

from podslice.errors import InputError
from podslice.inputs import source
from podslice.inputs.source import read_bytes, read_sources


def read(*sources, stdin=lambda: b"stdin"):
    return [
        (each.name, each.data if each.problem is None else str(each.problem))
        for each in read_sources(tuple(map(str, sources)), stdin)
    ]


def test_sources_come_in_the_order_stated(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/y.yml").write_bytes(b"3")
    (tmp_path / "d/x.yaml").write_bytes(b"2")
    assert read("-", tmp_path / "d", tmp_path / "a") == [
        ("stdin", b"stdin"),
        (f"{tmp_path}/d/x.yaml", b"2"),
        (f"{tmp_path}/d/y.yml", b"3"),
        (f"{tmp_path}/a", b"1"),
    ]


def test_pipe_with_a_writer_is_read_to_its_end():
    """As `-f <(command)` of a shell makes it."""
    reader, writer = os.pipe()
    path = f"/dev/fd/{reader}"
    os.write(writer, b"first ")
    late = threading.Timer(0.05, lambda: (os.write(writer, b"second"), os.close(writer)))
    late.start()
    try:
        assert read(path) == [(path, b"first second")]
    finally:
        late.join()
        os.close(reader)


def test_pipe_waits_for_a_writer_that_is_late(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    late = threading.Timer(0.05, lambda: path.write_bytes(b"text"))
    late.start()
    try:
        assert read(path) == [(str(path), b"text")]
    finally:
        late.join()


def test_pipe_whose_writer_has_nothing_yet():
    reader, writer = os.pipe()
    path = f"/dev/fd/{reader}"
    late = threading.Timer(0.05, lambda: (os.write(writer, b"text"), os.close(writer)))
    late.start()
    try:
        assert read(path) == [(path, b"text")]
    finally:
        late.join()
        os.close(reader)


def test_no_more_than_the_limit_is_read(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 2048)
    assert read_bytes(path, limit_bytes=2048) == b"x" * 2048
    with pytest.raises(InputError, match="is larger than 1 KiB"):
        read_bytes(path, limit_bytes=1024)


def test_standard_input_has_the_same_limit(monkeypatch):
    monkeypatch.setattr(source, "BYTES_MAX", 2**20)
    (entry,) = read("-", stdin=lambda: b"x" * (2**20 + 1))
    assert entry == ("stdin", "stdin: is larger than 1 MiB; use several files")


def test_directory_where_a_file_is_read(tmp_path):
    with pytest.raises(InputError, match="is a directory, not a file"):
        read_bytes(tmp_path, limit_bytes=1)


def test_empty_directory_is_a_problem(tmp_path):
    expect = f"{tmp_path}: the directory has no *.json, *.yaml or *.yml"
    assert read(tmp_path) == [(str(tmp_path), expect)]


def test_directory_with_too_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "FILES_MAX", 2)
    for name in "abc":
        (tmp_path / f"{name}.yaml").touch()
    expect = f"{tmp_path}: the directory has more than 2 manifests"
    assert read(tmp_path) == [(str(tmp_path), expect)]


def test_directory_that_may_not_be_read(tmp_path, monkeypatch):
    def refuse(_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    assert read(tmp_path) == [(str(tmp_path), f"{tmp_path}: permission denied")]


def test_no_descriptor_is_left_open(tmp_path):
    (tmp_path / "a").touch()
    before = sorted(Path("/proc/self/fd").iterdir())
    read(tmp_path / "a", "/dev/null", tmp_path / "none", tmp_path)
    assert sorted(Path("/proc/self/fd").iterdir()) == before
