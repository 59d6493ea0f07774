"""`__probe`, which a service beside a container runs."""

import json
import os

import pytest

from podslice.cli.prober import main
from podslice.quadlet.probes import KILL
from tests.unit.cli.conftest import Ended

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
def probe(capsys):
    """Run the prober."""

    def call(*arguments):
        code = main([*arguments])
        return Ended(code, *capsys.readouterr())

    return call


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


def test_a_container_that_is_not_alive_is_stopped(probe, podman):
    result = probe("web-app", json.dumps({"liveness": FAILING}))
    assert result.code == 0
    assert podman() == [
        "inspect --format {{.State.Pid}} web-app",
        "exec --env=PODSLICE_PROBE=web-app web-app check",
        "stop --ignore web-app",
    ]
    assert "the liveness probe of container web-app has failed" in result.err
    assert "container web-app is not alive and is stopped" in result.err


def test_a_container_that_must_fail_is_killed(probe, podman):
    result = probe(KILL, "web-app", json.dumps({"liveness": FAILING}))
    assert result.code == 0
    assert podman()[-1] == "stop --ignore --time=0 web-app"
    assert "container web-app is not alive and is killed" in result.err


def test_a_container_that_does_not_run_is_an_error(probe, podman, monkeypatch):
    monkeypatch.setenv("POD_PID", "0")
    result = probe("web-app", json.dumps({"liveness": FAILING}))
    assert result.code == 1
    assert "container web-app does not run" in result.err
    assert len(podman()) == 1


@pytest.mark.parametrize("arguments", [(), ("web-app",), ("web-app", "{}"), ("a", "b", "c")])
def test_anything_but_a_container_and_its_probes_is_refused(probe, podman, arguments):
    result = probe(*arguments)
    assert result.code == 2
    assert result.err.endswith("render the pod again\n")
