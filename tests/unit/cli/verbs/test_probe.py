"""`__probe`, which a service beside a container runs."""

import json
import os

import pytest

PODMAN = """\
#!/bin/sh
echo "$@" >> "${0%/*}/calls"
case $1 in inspect) echo "$POD_PID";; exec) exit 1;; esac
"""
FAILING = {
    "exec": ["check"],
    "initial_delay_sec": 0,
    "period_sec": 1,
    "timeout_sec": 30,
    "success_threshold": 1,
    "failure_threshold": 1,
}


@pytest.fixture
def podman(tmp_path, monkeypatch, allow_effects):
    """A podman that knows one container and whose commands fail; returns its calls."""
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "podman").write_text(PODMAN)
    (directory / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    monkeypatch.setenv("POD_PID", str(os.getpid()))
    return lambda: (directory / "calls").read_text().splitlines()


def test_a_container_that_is_not_alive_is_stopped(podslice, podman):
    result = podslice("__probe", "web-app", json.dumps({"liveness": FAILING}))
    assert result.code == 0
    assert podman() == [
        "inspect --format {{.State.Pid}} web-app",
        "exec web-app check",
        "stop --ignore web-app",
    ]
    assert "the liveness probe of container web-app has failed" in result.err


def test_a_container_that_does_not_run_is_an_error(podslice, podman, monkeypatch):
    monkeypatch.setenv("POD_PID", "0")
    result = podslice("__probe", "web-app", json.dumps({"liveness": FAILING}))
    assert result.code == 1
    assert "container web-app does not run" in result.err
    assert len(podman()) == 1
