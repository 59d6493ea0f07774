"""`podslice __probe`, run by the service beside a container that has probes from outside."""

from __future__ import annotations

import gc
import os
import subprocess
import time
from typing import TYPE_CHECKING, Annotated

import typer

from podslice.cli.arguments import DONE
from podslice.cli.output import note
from podslice.errors import HostError
from podslice.imports import allow_openssl
from podslice.processes.probing import ProbedContainer, begin, parse_probes
from podslice.systemd.notify import Notifier

if TYPE_CHECKING:
    from podslice.processes.probe_attempt import RunningContainer

PODMAN = "podman"


def probe(
    container: Annotated[str, typer.Argument(metavar="CONTAINER")],
    probes: Annotated[str, typer.Argument(metavar="JSON")],
) -> int:
    """Probe a container of podman until it exits; stop it if it is not alive.

    systemd starts it again, as the restart policy states.
    """
    gc.enable()  # it is off in verbs, which end soon
    allow_openssl()
    wanted = parse_probes(probes)
    target = _find(container)
    state = begin(wanted, time.monotonic())
    notifier = Notifier(os.environ)
    was_ready: bool | None = None
    while not state.must_stop and state.next() is not None:
        _step(state, target)
        if state.is_ready is not was_ready:
            was_ready = state.is_ready
            _report(notifier, is_ready=was_ready)
    if state.must_stop:
        note(f"container {container} is not alive and is stopped")
        subprocess.run([PODMAN, "stop", "--ignore", container], check=False)
    return DONE


def _step(state: ProbedContainer, target: RunningContainer) -> None:
    """Wait for the next probe, and try it once."""
    from podslice.processes.probe_attempt import attempt

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


def _report(notifier: Notifier, *, is_ready: bool) -> None:
    if is_ready:
        notifier.ready("the container is ready")
    else:
        notifier.status("the container is not ready")


def _find(container: str) -> RunningContainer:
    from podslice.processes.probe_attempt import RunningContainer

    done = subprocess.run(
        [PODMAN, "inspect", "--format", "{{.State.Pid}}", container],
        capture_output=True,
        text=True,
        check=False,
    )
    pid = done.stdout.strip()
    if done.returncode != 0 or not pid.isdecimal() or pid == "0":
        raise HostError(f"container {container} does not run: {done.stderr.strip()}")
    return RunningContainer(name=container, pid=int(pid))
