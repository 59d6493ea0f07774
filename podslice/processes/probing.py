"""The probes of one container: when each is due, and what its results mean. Without effects.

Source: Kubernetes, pkg/kubelet/prober/worker.go, doProbe.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from podslice.dataclass import dataclass
from podslice.errors import invalid
from podslice.model.workload import Action, Exec, HttpGet, Probe, TcpSocket


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
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise invalid(f"not the probes of a unit: {error!r}", "render the pod again") from error
    if not found:
        raise invalid("there is no probe in it", "render the pod again")
    return found


def _probe(document: Mapping[str, Any]) -> Probe:
    return Probe(
        action=_action(document),
        initial_delay_sec=int(document["initial_delay_sec"]),
        period_sec=max(1, int(document["period_sec"])),
        timeout_sec=max(1, int(document["timeout_sec"])),
        success_threshold=int(document["success_threshold"]),
        failure_threshold=int(document["failure_threshold"]),
    )


def _action(document: Mapping[str, Any]) -> Action:
    if "exec" in document:
        return Exec(command=tuple(map(str, document["exec"])))
    if "tcp" in document:
        return TcpSocket(host=str(document["tcp"]["host"]), port=int(document["tcp"]["port"]))
    http = document["http"]
    return HttpGet(
        scheme=str(http["scheme"]),
        host=str(http["host"]),
        port=int(http["port"]),
        path=str(http["path"]),
        headers=tuple((str(name), str(value)) for name, value in http["headers"]),
    )


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
                probe=probe,
                due=now + probe.initial_delay_sec,
                passes=kind is ProbeKind.LIVENESS,
            )
            for kind, probe in probes.items()
        }
    )
