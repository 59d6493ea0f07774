"""`podslice __probe [--kill] CONTAINER JSON`, run by the service beside a container that it probes.

It runs as long as the container, so it imports as little as possible.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial

from podslice.cli.output import note
from podslice.errors import HostError, PodsliceError, invalid
from podslice.model.workload import Action, Exec, HttpGet, Probe, TcpSocket
from podslice.processes.probe_attempt import (
    RunningContainer,
    attempt_command,
    attempt_request,
)
from podslice.processes.probe_connection import connect
from podslice.processes.probing import ProbedContainer, ProbeKind, begin, parse_probes
from podslice.systemd.notify import Notifier

_PODMAN = "podman"
_KILL = "--kill"
"""As `quadlet.probes` writes it."""


def main(arguments: list[str]) -> int:
    """Probe a container of podman until it exits; stop it if it is not alive, or kill it.

    systemd starts it again, as the restart policy states.
    """
    try:
        kills = arguments[:1] == [_KILL]
        container, probes = _parse(arguments[kills:])
        target = _find(container)
    except PodsliceError as error:
        note(f"error: {error}")
        return error.exit_code
    if not _run(probes, target):
        note(f"container {container} is not alive and is {'killed' if kills else 'stopped'}")
        at_once = ("--time=0",) if kills else ()
        subprocess.run([_PODMAN, "stop", "--ignore", *at_once, container], check=False)
    return 0


def _parse(arguments: list[str]) -> tuple[str, Mapping[ProbeKind, Probe]]:
    """Return the container and its probes.

    Raises:
        InputError: they are not those of a unit.
    """
    if len(arguments) != 2:
        raise invalid("__probe has a container and its probes", "render the pod again")
    container, probes = arguments
    return container, parse_probes(probes)


def _run(probes: Mapping[ProbeKind, Probe], target: RunningContainer) -> bool:
    """Probe until nothing is left to probe, or the container is not alive; return whether it is."""
    state = begin(probes, time.monotonic())
    notifier = Notifier(os.environ)
    was_ready: bool | None = None
    while not state.must_stop and state.next() is not None:
        _step(state, target)
        if state.is_ready is not was_ready:
            was_ready = state.is_ready
            _report(notifier, is_ready=was_ready)
    return not state.must_stop


def _step(state: ProbedContainer, target: RunningContainer) -> None:
    """Wait for the next probe, and try it once."""
    kind = state.next()
    if kind is None:
        return
    counter = state.counters[kind]
    time.sleep(max(0.0, counter.due - time.monotonic()))
    started = time.monotonic()
    success = attempt(counter.probe.action, target, counter.probe.timeout_sec)
    if not success:
        note(f"the {kind} probe of container {target.name} has failed")
    state.record(kind, success=success, now=started)


def attempt(action: Action, target: RunningContainer, timeout_sec: int) -> bool:
    """Try once, and return whether it succeeds in time."""
    if isinstance(action, Exec):
        return attempt_command(action, target, timeout_sec)
    return attempt_request(requester(action), target, timeout_sec)


def requester(action: HttpGet | TcpSocket) -> Callable[[int], bool]:
    """Return a function that makes the request from its process, and returns whether it succeeds.

    It has the time in seconds, and raises OSError or http.client.HTTPException if it fails otherwise.
    """
    if isinstance(action, TcpSocket):
        return partial(connect, action)
    from podslice.processes.probe_http import get  # with OpenSSL, which other probes do not need

    return partial(get, action)


def _report(notifier: Notifier, *, is_ready: bool) -> None:
    if is_ready:
        notifier.ready("the container is ready")
    else:
        notifier.status("the container is not ready")


def _find(container: str) -> RunningContainer:
    done = subprocess.run(
        [_PODMAN, "inspect", "--format", "{{.State.Pid}}", container],
        capture_output=True,
        text=True,
        check=False,
    )
    pid = done.stdout.strip()
    if done.returncode != 0 or not pid.isdecimal() or pid == "0":
        raise HostError(f"container {container} does not run: {done.stderr.strip()}")
    return RunningContainer(name=container, pid=int(pid))
