"""The files of histories of usage."""

import os

import pytest

from podslice.errors import HostError
from podslice.features.history import files as usage_files
from podslice.features.history.files import UsageFiles
from podslice.features.history.model import DecayingHistogram, PodHistory, UsageHistory
from podslice.model.unit import UnitName

WEB = PodHistory(pod=UsageHistory(first_sec=60, last_sec=120, samples=2))
LONGEST = f"default/{'.'.join(['a' * 63] * 4)[:253]}"


@pytest.fixture
def files(tmp_path):
    return UsageFiles(tmp_path / "usage")


def write(files, key, at_sec, history=WEB):
    path = files.pod_path(key)
    files.write(path, history)
    os.utime(path, (at_sec, at_sec))


def test_a_history_is_read_as_it_was_written(files):
    for path in (files.pod_path("default/web"), files.slice_path(UnitName("system.slice"))):
        assert files.read(path) is None
        files.write(path, WEB)
        files.write(path, WEB)
        assert files.read(path) == WEB
    assert files.pods() == ("default/web",)
    assert {path.name for path in files.directory.iterdir()} == {"pods", "slices"}


def test_the_longest_name_of_a_pod_is_the_name_of_a_file(files):
    files.write(files.pod_path(LONGEST), WEB)
    files.write(files.pod_path("default/a.new"), WEB)
    assert files.pods() == ("default/a.new", LONGEST)


def test_a_file_of_a_pod_with_a_changing_load_has_at_most_2_kib(files):
    weights = {bucket: 1.0 + bucket / 7 for bucket in range(30)}
    history = UsageHistory(
        first_sec=1_700_000_000,
        last_sec=1_700_600_000,
        samples=10_000,
        cpu=DecayingHistogram.of(weights, 1_700_000_000),
    )
    path = files.pod_path("default/web")
    files.write(path, PodHistory(pod=history, containers={"main": history}))
    assert path.stat().st_size <= 2048


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"version": 1}', b"9" * 5000]
)
def test_a_damaged_file_is_an_error_with_its_place(files, content):
    path = files.pod_path("default/web")
    files.write(path, WEB)
    path.write_bytes(content)
    with pytest.raises(HostError, match=r"pods/default/web: not a history of usage: "):
        files.read(path)


def test_a_file_that_cannot_be_read_or_written_is_an_error_with_its_place(files):
    path = files.pod_path("default/web")
    path.mkdir(parents=True)
    with pytest.raises(HostError, match=r"pods/default/web: not a history of usage: "):
        files.read(path)
    with pytest.raises(HostError, match="irectory"):
        files.write(path, WEB)
    assert files.read(path / "below") is None


def test_files_of_removed_pods_are_removed_when_they_are_old(files):
    for key, at_sec in (("default/old", 10), ("default/kept", 10), ("shop/web", 10), ("x/new", 20)):
        write(files, key, at_sec)
    files.prune({"default/kept"}, oldest_sec=20)
    assert files.pods() == ("default/kept", "x/new")
    assert not files.pod_path("shop/web").parent.exists()


def test_the_number_of_files_of_removed_pods_is_limited(files, monkeypatch):
    monkeypatch.setattr(usage_files, "_FILES_MAX", 2)
    for at_sec, name in enumerate(("a", "b", "c", "d"), 30):
        write(files, f"default/{name}", at_sec)
    files.prune({"default/a"}, oldest_sec=20)
    assert files.pods() == ("default/a", "default/c", "default/d")


def test_without_a_directory_there_is_nothing_to_remove(files):
    files.prune((), oldest_sec=20)
    assert files.pods() == ()
