"""The world of a verb."""

from pathlib import Path

import pytest

from podslice.cli import host
from podslice.cli.output import note
from podslice.errors import HostError
from podslice.kernel.proc import find_manager
from podslice.model.config import Config
from podslice.model.unit import SYSTEM
from podslice.store.store import Store
from tests.unit.builders import USER, manifest


@pytest.fixture
def no_proc(here, monkeypatch):
    """A host without /proc, as in some sandboxes: its capacity is unknown."""

    def refuse(**_):
        raise HostError("this host's capacity can't be read: no /proc")

    monkeypatch.setattr(host, "read_node", refuse)


def test_a_host_of_unknown_capacity(podslice, no_proc, files):
    files({"web.yaml": manifest("web")})
    message = "error: this host's capacity can't be read: no /proc\n"
    assert podslice("node") == (1, "", message)
    assert podslice("explain", "-f", "web.yaml") == (1, "", message)
    assert podslice("node", "--capacity=cpu=4") == (1, "", message)


def test_a_stated_capacity_needs_no_host(podslice, no_proc):
    ended = podslice("node", "--capacity=cpu=4,memory=8Gi", "-o", "name")
    assert ended == (0, "cpu\nmemory\n", "")


def test_check_needs_no_host(podslice, no_proc, files):
    files({"web.yaml": manifest("web")})
    assert podslice("check", "-f", "web.yaml").code == 0


@pytest.mark.parametrize(
    ("manager", "stated", "directory"),
    [
        (SYSTEM, None, "/var/lib/podslice/usage"),
        (SYSTEM, "/srv/usage", "/srv/usage"),
        (USER, None, f"{USER.state_directory}/podslice/usage"),
        (USER, "/srv/usage", "/srv/usage"),
        (USER, "", ""),
    ],
)
def test_the_default_directory_of_usage_is_that_of_the_manager(
    usage_directory, manager, stated, directory
):
    config = Config() if stated is None else Config(usage_history=stated)
    assert usage_directory(config, manager) == directory


@pytest.fixture
def usage_directory():
    """The real one; `here` puts another in its place."""
    return host.usage_directory


@pytest.fixture
def runtime_directory():
    """The real one; `here` puts another in its place."""
    return host.runtime_directory


def test_records_of_the_system_are_in_run(runtime_directory):
    assert runtime_directory(find_manager()) == Path("/run/podslice")


def test_records_of_a_user_are_in_the_session(runtime_directory, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runtime_directory(find_manager(user=True)) == tmp_path / "podslice"


def test_the_session_of_another_user_is_refused(runtime_directory, monkeypatch, tmp_path):
    """As `sudo` and `su` leave it; records would end up there, unreadable to their owner."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("os.getuid", lambda: 4711)
    with pytest.raises(HostError, match=r"not to user 4711; set XDG_RUNTIME_DIR=/run/user/4711"):
        runtime_directory(find_manager(user=True))


def test_a_session_that_is_not_there_is_left_to_the_bus(runtime_directory, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nonexistent")
    assert runtime_directory(find_manager(user=True)) == Path("/nonexistent/podslice")


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_session_there_are_no_records(runtime_directory, monkeypatch, value):
    if value is None:
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    else:
        monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    with pytest.raises(HostError, match="there is no user session: XDG_RUNTIME_DIR is not set"):
        runtime_directory(find_manager(user=True))


def test_records_that_can_not_be_read_are_not_counted(podslice, here, monkeypatch):
    def refuse(_):
        raise HostError("pods: Permission denied")

    monkeypatch.setattr(Store, "load", refuse)
    ended = podslice("node", "-o", "name")
    assert ended.code == 0
    assert ended.err == "pods: Permission denied; applied pods are not counted\n"


def test_notes_go_to_stderr(capsys):
    note("something")
    assert capsys.readouterr() == ("", "something\n")
