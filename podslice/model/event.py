"""Events of the agent and of verbs: their kinds, and their fields in the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from podslice.model.unit import UnitName


class Level(IntEnum):
    """The priority of an event. Source: syslog(3)."""

    ERROR = 3
    WARNING = 4
    NOTICE = 5
    INFO = 6


class Kind(Enum):
    """A kind of event: its name, the MESSAGE_ID of its catalog entry, and its priority."""

    AGENT_STARTED = ("agent-started", "5b03ff8d3488b5b06aab45c2639363c6", Level.INFO)
    AGENT_STOPPED = ("agent-stopped", "8ffbf07f2568e7e36534623997946680", Level.INFO)
    AGENT_FAILED = ("agent-failed", "d696b80fc0869c637a2da415109edb36", Level.ERROR)
    """Something keeps the agent from its work; it keeps trying."""
    AGENT_NOTED = ("agent-noted", "67c1966434592c1a93dbda82ed769cca", Level.INFO)
    """Something worth knowing that is not an error."""
    MANIFEST_BROKEN = ("manifest-broken", "fc4551649d270799613cc9a8945fb69f", Level.ERROR)
    MANIFEST_VALID = ("manifest-valid", "5c6d3766344c0cd354cc160fa125c1ce", Level.NOTICE)
    POD_APPLIED = ("pod-applied", "af0ed12153386a38be3b729cafc42d01", Level.INFO)
    POD_CHANGED = ("pod-changed", "e58d9f20493e34d48ee6794ba7d67d1f", Level.INFO)
    POD_TERMINATING = ("pod-terminating", "06b60696607a152d061907fe72e0e8b0", Level.INFO)
    """Its processes were asked to stop, and have a grace period."""
    POD_REMOVED = ("pod-removed", "9e3255aa498292cba4b844a73f7678cd", Level.INFO)
    POD_REFUSED = ("pod-refused", "0d40116561dea4dfab64bf08c300795d", Level.WARNING)
    POD_EVICTED = ("pod-evicted", "815db5d7a155f3a6ef60f595a667c234", Level.WARNING)
    POD_READMITTED = ("pod-readmitted", "04769887ab667b06423dd0ce4cb364b3", Level.NOTICE)
    POD_OOM = ("pod-oom", "b423e8b38df8111c0a35a954fc93a492", Level.WARNING)
    """The kernel killed a process of a pod."""
    POD_OOMD_KILL = ("pod-oomd-kill", "54e0df1372f043459ec434bdaa8c006a", Level.WARNING)
    """systemd-oomd killed a container of a pod."""
    POD_STUCK = ("pod-stuck", "b7dac94cb325ed262e1b71a8e10ea19c", Level.WARNING)
    DRIFT_REPAIRED = ("drift-repaired", "745d7fc2054ec855f430ea457812f92f", Level.NOTICE)
    DRIFT_CONTESTED = ("drift-contested", "6a5b083e75c7c3ae5563a1bb223d11af", Level.WARNING)
    """A repaired unit is changed externally again and again."""
    STEP_FAILED = ("step-failed", "1026b069f1bde2f9503246bfa77badfd", Level.ERROR)
    PRESSURE_BEGAN = ("pressure-began", "a4ef76228a9c22b595a2857f12a62e64", Level.WARNING)
    PRESSURE_ENDED = ("pressure-ended", "734bd4a96d10fba537d1b5a8bdf34a84", Level.NOTICE)
    RESERVATION_EXCEEDED = (
        "reservation-exceeded",
        "4c387e3db0a68a2422bb37fb5384ea11",
        Level.WARNING,
    )
    RESERVATION_KEPT = ("reservation-kept", "0e6cd3d2c5c693f6b94c6e1975102f6e", Level.NOTICE)
    ORPHAN_FOUND = ("orphan-found", "2df0a53689ac823853395e5404a8a590", Level.WARNING)
    ORPHAN_REMOVED = ("orphan-removed", "2a565760d1bfef05c18edea670f234df", Level.NOTICE)

    LEVEL_APPLIED = ("pod-level-applied", "9d1ddcd2a74b4b1f8f6e2d9f10c5b2a7", Level.INFO)
    """Values of a pod level were set on a slice of a kubelet."""
    LEVEL_REMOVED = ("pod-level-removed", "3e0f4b3f7c184a5e9d6c0b7a51d2e8f4", Level.INFO)
    LEVEL_LEFT = ("pod-level-left", "b7a6f2c94d8e4f30a1c5e6d7089b3c12", Level.NOTICE)
    """A pod level, or one of its values, is not applied."""

    CONTAINER_STARTED = ("container-started", "dc28e5710d9f47f4a4dbb043894042e9", Level.INFO)
    CONTAINER_FAILED = ("container-failed", "1f2a4b9c6d3e4f70a85b91c2d7e60f34", Level.WARNING)
    """A container has crashed, or its service has failed."""
    CONTAINER_OOM_KILLED = (
        "container-oom-killed",
        "8c41d7e2b95f4a06931e0fd2a6c7b358",
        Level.WARNING,
    )
    CONTAINER_RESTARTED = ("container-restarted", "c3e95a07f1d84b62b0497e8a25d6f19b", Level.NOTICE)
    """systemd has started a container again after its end."""
    PROCESSES_ADOPTED = ("processes-adopted", "11a242fd09724a4588d8fc13846295d5", Level.INFO)
    SERVICE_ADOPTED = ("service-adopted", "6f0d2a4e9b7c4c0f8a51d3e2b64f7a90", Level.INFO)
    """The drop-in of a service that starts in a pod was written."""
    SERVICE_RELEASED = ("service-released", "c1b8e75d03f24a6d9e42708f5a6bd31c", Level.INFO)
    PHASE_CHANGED = ("phase-changed", "103bb9d62ebb4e8d84e0ab58f3e0d74e", Level.INFO)
    RESERVED_SET = ("reserved-values-set", "f58bfcd4ea064ed3a52e67f1978401cf", Level.NOTICE)
    """A value of a slice outside the root was set, or restored."""
    RESERVED_CONFIRMED = (
        "reserved-values-confirmed",
        "a6452d2cbf10498d8295739abf032270",
        Level.NOTICE,
    )

    def __init__(self, label: str, message_id: str, level: Level) -> None:
        self.label = label
        self.message_id = message_id
        self.level = level


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event."""

    kind: Kind
    message: str
    """A sentence for people, with the numbers."""
    pod: str | None = None
    """`namespace/name`."""
    unit: UnitName | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    """Further values for programs, by the names of journal fields without the prefix `PODSLICE_`."""

    @property
    def journal_fields(self) -> dict[str, str]:
        """Return all values as journal fields.

        Source: systemd.journal-fields(7).
        """
        found = {
            "MESSAGE": self.message,
            "MESSAGE_ID": self.kind.message_id,
            "PRIORITY": str(int(self.kind.level)),
            "PODSLICE_EVENT": self.kind.label,
            **{f"PODSLICE_{name}": value for name, value in self.fields.items()},
        }
        if self.pod is not None:
            found["PODSLICE_POD"] = self.pod
        if self.unit is not None:
            found["PODSLICE_UNIT"] = self.unit
        return found
