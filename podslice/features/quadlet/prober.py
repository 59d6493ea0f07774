"""The internal verbs of services that probe a container, as `quadlet.probes` writes them.

They run as long as the container, one process or two for each. So they import by need: with all
modules each process would take 11 MiB more.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial

from podslice.cli.output import note
from podslice.errors import HostError, PodsliceError, invalid
from podslice.features.quadlet.probing import ProbeKind, begin, connect, in_child, parse_probes
from podslice.features.quadlet.workload import Exec, HttpGet, Probe, TcpSocket
from podslice.systemd.notify import Notifier

NOT_ALIVE = 3
"""The exit status with which the service stops the container. `quadlet.probes` has it as well."""
_STANDARD_INPUT = 0
RunCommand = Callable[[ProbeKind, Probe], bool]
"""A function that runs the command of a probe, and returns whether it succeeds in time."""


def probe(arguments: list[str]) -> int:
    """Probe a container until it is not alive: `__probe CONTAINER PROBES [CONTROL_GROUP]`.

    Commands run here if the control group of the container's service is stated, and otherwise by
    the service that is connected to standard input.
    """
    try:
        if len(arguments) not in (2, 3):
            raise invalid("__probe has a container and its probes", "render the pod again")
        container, text, *groups = arguments
        probes = parse_probes(text)
        run_command = _own_runner(container, *groups) if groups else _request
        if not _run(probes, container, run_command):
            note(f"container {container} is not alive")
            return NOT_ALIVE
    except PodsliceError as error:
        note(f"error: {error}")
        return error.exit_code
    return 0


def run_commands(arguments: list[str]) -> int:
    """Run commands of probes on request: `__commands CONTAINER PROBES CONTROL_GROUP SOCKET`."""
    from podslice.features.quadlet.probe_commands import ProbedTarget, serve

    try:
        if len(arguments) != 4:
            raise invalid("__commands has four arguments", "render the pod again")
        container, text, control_group, path = arguments
        probes = parse_probes(text)
    except PodsliceError as error:
        note(f"error: {error}")
        return error.exit_code
    target = ProbedTarget(name=container, control_group=control_group)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)
        listening.listen()
        Notifier(os.environ).ready("waiting for probes")
        return serve(listening, target, probes)


def join(arguments: list[str]) -> int:
    """Execute a program in a container's network: `__join CONTAINER CONTROL_GROUP COMMAND...`.

    The program has no capabilities, and cannot get any.
    """
    from podslice.features.quadlet.container_network import (
        find_process,
        give_up_rights,
        join_network,
    )

    try:
        if len(arguments) < 3:
            raise invalid("__join has a container and a command", "render the pod again")
        container, control_group, *command = arguments
        pid = find_process(control_group)
        if pid is None:
            raise HostError(f"container {container} does not run")
        join_network(pid)
        give_up_rights()
    except PodsliceError as error:
        note(f"error: {error}")
        return error.exit_code
    return os.execv(command[0], command)  # noqa: S606 (there is no shell to need)


def _request(kind: ProbeKind, _: Probe) -> bool:
    from podslice.features.quadlet.probe_commands import request_command

    return request_command(kind, _STANDARD_INPUT)


def _own_runner(container: str, control_group: str) -> RunCommand:
    """Return a function that runs commands in a container, from this process."""
    from podslice.features.quadlet.probe_commands import ProbedTarget, attempt_command

    target = ProbedTarget(name=container, control_group=control_group)
    return lambda _, probe: attempt_command(probe, target)


def _run(probes: Mapping[ProbeKind, Probe], container: str, run_command: RunCommand) -> bool:
    """Probe until nothing is left to probe, or the container is not alive; return whether it is."""
    state = begin(probes, time.monotonic())
    notifier = Notifier(os.environ)
    was_ready: bool | None = None
    while not state.must_stop and (kind := state.next()) is not None:
        counter = state.counters[kind]
        time.sleep(max(0.0, counter.due - time.monotonic()))
        started = time.monotonic()
        success = attempt(kind, counter.probe, run_command)
        if not success:
            note(f"the {kind} probe of container {container} has failed")
        state.record(kind, success=success, now=started)
        if state.is_ready is not was_ready:
            was_ready = state.is_ready
            if was_ready:
                notifier.ready("the container is ready")
            else:
                notifier.status("the container is not ready")
    return not state.must_stop


def attempt(kind: ProbeKind, probe: Probe, run_command: RunCommand) -> bool:
    """Try once, and return whether it succeeds in time."""
    if isinstance(probe.action, Exec):
        return run_command(kind, probe)
    request = requester(probe.action)
    return in_child(lambda: request(probe.timeout_sec), probe.timeout_sec)


def requester(action: HttpGet | TcpSocket) -> Callable[[int], bool]:
    """Return a function that makes the request from its process, and returns whether it succeeds.

    It has the time in seconds, and raises OSError or http.client.HTTPException if it fails otherwise.
    """
    if isinstance(action, TcpSocket):
        return partial(connect, action)
    from podslice.features.quadlet.probe_http import (
        get,  # with OpenSSL, which other probes do not need
    )

    return partial(get, action)
