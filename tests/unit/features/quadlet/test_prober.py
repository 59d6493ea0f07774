"""`__probe`, `__commands` and `__join`, which services beside a container run."""

import json
import os
import re
import socket
import threading
from pathlib import Path

import pytest

from podslice.features.quadlet import FEATURE
from podslice.features.quadlet.prober import NOT_ALIVE
from podslice.model.feature import load
from tests.cases.tables import cases
from tests.unit.cli.conftest import Ended

QUADLET = Path(__file__).parents[3] / "cases/quadlet/probes-from-outside/expect.txt"
GROUP = "/kubepods.slice/podslice-pod1-app.service"

PODMAN = """\
#!/bin/sh
echo "$@" >> "${0%/*}/calls"
exit 1
"""
FAILING = {
    "exec": ["check"],
    "initial_delay_sec": 0,
    "period_sec": 1,
    "timeout_sec": 30,
    "success_threshold": 1,
    "failure_threshold": 1,
}


CONNECTS = {"tcp": {"host": "127.0.0.1", "port": 1}} | {
    key: value for key, value in FAILING.items() if key != "exec"
}


@pytest.fixture
def run(capsys):
    """Run an internal verb."""

    def call(verb, *arguments):
        code = load(FEATURE.programs[verb])([*arguments])
        return Ended(code, *capsys.readouterr())

    return call


@pytest.fixture
def podman(tmp_path, monkeypatch, allow_effects):
    """A podman whose commands fail; returns its calls."""
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "podman").write_text(PODMAN)
    (directory / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return lambda: (directory / "calls").read_text().splitlines()


def test_a_container_that_is_not_alive_has_an_exit_status(run, podman):
    result = run("__probe", "web-app", json.dumps({"liveness": FAILING}), GROUP)
    assert result.code == NOT_ALIVE
    assert podman() == ["exec --env=PODSLICE_PROBE=web-app web-app check"]
    assert "the liveness probe of container web-app has failed" in result.err
    assert "container web-app is not alive" in result.err


def test_the_units_have_the_same_exit_status():
    units = QUADLET.read_text()
    for pattern in (
        r"exited:(\d+) ",
        r"\nSuccessExitStatus=(.*)",
        r"\nRestartPreventExitStatus=(.*)",
    ):
        assert set(re.findall(pattern, units)) == {str(NOT_ALIVE)}


@pytest.fixture
def commands(podman, tmp_path, monkeypatch, run):
    """The service of commands, connected to standard input; returns the path of its socket."""
    path = tmp_path / "socket"
    notified = tmp_path / "notified"
    monkeypatch.setenv("NOTIFY_SOCKET", str(notified))
    probes = json.dumps({"liveness": FAILING, "readiness": CONNECTS})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(notified))
        arguments = ("web-app", probes, GROUP, str(path))
        threading.Thread(
            target=load(FEATURE.programs["__commands"]), args=(arguments,), daemon=True
        ).start()
        manager.settimeout(60)
        assert manager.recv(4096).startswith(b"READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    return path


def connect(path):
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(60)
    client.connect(str(path))
    return client


def test_a_service_in_a_sandbox_has_its_commands_run_by_another(run, podman, commands, monkeypatch):
    with connect(commands) as client:
        client.settimeout(None)  # as systemd connects it
        monkeypatch.setattr("podslice.features.quadlet.prober._STANDARD_INPUT", client.fileno())
        result = run("__probe", "web-app", json.dumps({"liveness": FAILING, "readiness": CONNECTS}))
    assert result.code == NOT_ALIVE
    assert podman() == ["exec --env=PODSLICE_PROBE=web-app web-app check"]


@pytest.mark.parametrize("sent", [b"r", b"s", b"x", b"\0"])
def test_only_the_commands_of_the_manifest_run(podman, commands, sent):
    """A readiness probe is a request here, and there is no startup probe."""
    with connect(commands) as client:
        client.sendall(sent)
        assert client.recv(1) == b""
    with connect(commands) as client:
        client.sendall(b"l")
        assert client.recv(1) == b"-"
    assert len(podman()) == 1


def test_a_service_whose_commands_nothing_runs_has_failed(run, monkeypatch, allow_effects):
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        monkeypatch.setattr("podslice.features.quadlet.prober._STANDARD_INPUT", ours.fileno())
        result = run("__probe", "web-app", json.dumps({"liveness": FAILING}))
    assert result.code == 1
    assert "the service of commands" in result.err


def test_a_container_that_does_not_run_is_an_error(run):
    result = run("__join", "web-app", GROUP, "/usr/bin/true")
    assert result.code == 1
    assert result.err == "error: container web-app does not run\n"


@cases
def test_anything_but_what_units_state_is_refused(run, verb, arguments):
    result = run(verb, *arguments)
    assert result.code == 2
    assert result.err.endswith("render the pod again\n")
