"""The probes of one container: when each is due, how it is limited, and what its results mean.

Source: Kubernetes, pkg/kubelet/prober/worker.go, doProbe.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from podslice.errors import FORMAT_ERRORS, excerpt, invalid
from podslice.features.quadlet.workload import Action, Exec, HttpGet, Probe, TcpSocket

_WHOLE_MAX = 2**31 - 1
"""Source: Kubernetes, staging/src/k8s.io/api/core/v1/types.go, Probe: its numbers are of type int32."""
_PORT_MAX = 65_535


class ProbeKind(StrEnum):
    """What a probe finds out."""

    STARTUP = "startup"
    LIVENESS = "liveness"
    READINESS = "readiness"


def parse_probes(text: str) -> dict[ProbeKind, Probe]:
    """Return the probes that a generated unit states.

    Raises:
        InputError: the text is not what `quadlet.probes` writes.
    """
    try:
        document = json.loads(text)
        found = {kind: _probe(document[kind]) for kind in ProbeKind if kind in document}
    except FORMAT_ERRORS as error:
        reason = excerpt(repr(error))
        raise invalid(f"not the probes of a unit: {reason}", "render the pod again") from error
    if not found:
        raise invalid("there is no probe in it", "render the pod again")
    return found


def _probe(document: Mapping[str, Any]) -> Probe:
    return Probe(
        action=_action(document),
        initial_delay_sec=_whole(document["initial_delay_sec"]),
        period_sec=max(1, _whole(document["period_sec"])),
        timeout_sec=max(1, _whole(document["timeout_sec"])),
        success_threshold=_whole(document["success_threshold"]),
        failure_threshold=_whole(document["failure_threshold"]),
    )


def _action(document: Mapping[str, Any]) -> Action:
    if "exec" in document:
        command = document["exec"]
        if not isinstance(command, list):
            raise TypeError(command)
        return Exec(command=tuple(map(_text, command)))
    if "tcp" in document:
        tcp = document["tcp"]
        return TcpSocket(host=_text(tcp["host"]), port=_whole(tcp["port"], _PORT_MAX))
    http = document["http"]
    return HttpGet(
        scheme=_text(http["scheme"]),
        host=_text(http["host"]),
        port=_whole(http["port"], _PORT_MAX),
        path=_text(http["path"]),
        headers=tuple((_text(name), _text(value)) for name, value in http["headers"]),
    )


def _whole(value: Any, most: int = _WHOLE_MAX) -> int:  # noqa: ANN401 (JSON)
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(value)
    return value


def _text(value: Any) -> str:  # noqa: ANN401 (JSON)
    if not isinstance(value, str):
        raise TypeError(value)
    return value


@dataclass(slots=True)
class ProbeCounter:
    """The results of one probe so far."""

    probe: Probe
    due: float
    """When it runs next, on the clock of the caller."""
    passes: bool
    """Its state: a result counts once it has been repeated often enough."""
    _last: bool | None = None
    _repeated: int = 0

    def count(self, *, success: bool, now: float) -> bool:
        """Count a result; return whether the state is that of the result now."""
        self.due = now + self.probe.period_sec
        self._repeated = self._repeated + 1 if success is self._last else 1
        self._last = success
        probe = self.probe
        threshold = probe.success_threshold if success else probe.failure_threshold
        if self._repeated < threshold:
            return False
        self.passes = success
        return True


@dataclass(slots=True)
class ProbedContainer:
    """The probes of a container that has started at some time."""

    counters: dict[ProbeKind, ProbeCounter] = field(default_factory=dict)
    must_stop: bool = False
    """Whether the container is to be stopped: it is not alive, or has not started in time."""

    @property
    def is_ready(self) -> bool:
        """Return whether it has started and is ready."""
        waited = (ProbeKind.STARTUP, ProbeKind.READINESS)
        return all(each.passes for kind, each in self.counters.items() if kind in waited)

    def next(self) -> ProbeKind | None:
        """Return the probe that is due first; None if none will run again."""
        startup = self.counters.get(ProbeKind.STARTUP)
        if startup is not None and not startup.passes:
            return ProbeKind.STARTUP
        others = [kind for kind in self.counters if kind is not ProbeKind.STARTUP]
        return min(others, key=lambda kind: self.counters[kind].due, default=None)

    def record(self, kind: ProbeKind, *, success: bool, now: float) -> None:
        """Record the result of a probe."""
        settled = self.counters[kind].count(success=success, now=now)
        if settled and not success and kind is not ProbeKind.READINESS:
            self.must_stop = True


def begin(probes: Mapping[ProbeKind, Probe], now: float) -> ProbedContainer:
    """Return a container that has started now: alive until shown otherwise, and not ready."""
    return ProbedContainer(
        {
            kind: ProbeCounter(
                probe=probe, due=now + probe.initial_delay_sec, passes=kind is ProbeKind.LIVENESS
            )
            for kind, probe in probes.items()
        }
    )


def in_child(work: Callable[[], bool], timeout_sec: float) -> bool:
    """Run in a child process, which is killed after a time; return whether it succeeds."""
    pid = os.fork()
    if pid == 0:
        success = False
        with suppress(BaseException):
            success = work()
        os._exit(0 if success else 1)
    descriptor = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    try:
        if not poll.poll(timeout_sec * 1000):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


_UNROUTED = "192.0.2.1"
"""An address for documentation: a datagram socket that names it sends nothing. Source: RFC 5737."""


def own_address() -> str:
    """Return the address of the pod: that of its default route, or else the loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            found.connect((_UNROUTED, 9))
        except OSError:
            return "127.0.0.1"
        return str(found.getsockname()[0])


def connect(action: TcpSocket, timeout_sec: int) -> bool:
    """Connect, and return true.

    Raises:
        OSError: it fails.
    """
    with socket.create_connection((action.host or own_address(), action.port), timeout_sec):
        return True
