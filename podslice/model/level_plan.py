"""Pod levels that podslice sets on the slices of a kubelet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from podslice.model.properties import CPU_QUOTA, CPU_WEIGHT, MEMORY_LOW, MEMORY_MAX
from podslice.model.unit import PropertyValue, UnitName

LEVEL_PROPERTIES = (CPU_QUOTA, CPU_WEIGHT, MEMORY_LOW, MEMORY_MAX)
"""The properties that podslice sets on a slice of a kubelet; it sets no others."""

LevelValues = Mapping[UnitName, Mapping[str, int | str]]
"""Slice → property → value."""


class LeftReason(StrEnum):
    """Why a pod with a pod level, or one of its properties, is left as it is."""

    KUBELET_APPLIES = "kubelet-applies"
    """The kubelet applies `spec.resources` itself."""
    INVALID = "invalid"
    """The pod has an error."""
    NO_SLICE = "no-slice"
    """The kubelet has not created the slice yet, or has removed it."""
    NOT_CREATED_BY_KUBELET = "not-created-by-kubelet"
    RESIZING = "resizing"
    """The kubelet changes the pod's resources in place."""
    OTHER_VALUE = "other-value"
    """The property has a value that follows neither from the containers nor from the pod level."""
    EXCLUSIVE_CPUS = "exclusive-cpus"
    """Containers have CPUs of their own, which no quota may limit."""
    MEMORY_QOS = "memory-qos"
    """The kubelet protects memory itself."""
    CONTESTED = "contested"
    """The values were replaced again and again."""
    FAILED = "failed"
    """systemd has refused the values."""


class LeftAlone(NamedTuple):
    """A pod with a pod level, or one of its properties, that is left as it is."""

    pod: str
    """`namespace/name`."""
    unit: UnitName
    reason: LeftReason
    message: str
    property: str | None = None
    """None for the whole pod."""


class LevelChange(NamedTuple):
    """Properties to set on the slice of a pod."""

    pod: str
    """`namespace/name`."""
    unit: UnitName
    properties: tuple[PropertyValue, ...]

    @property
    def values(self) -> dict[str, int | str]:
        """Return the values by property."""
        return {each.name: each.value for each in self.properties}


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPlan:
    """What to set on the slices of a kubelet."""

    changes: tuple[LevelChange, ...] = ()
    left: tuple[LeftAlone, ...] = ()
    own: LevelValues = field(default_factory=dict)
    """The values of podslice once the changes are made."""
    pods: Mapping[UnitName, str] = field(default_factory=dict)
    """The pods of these slices, as `namespace/name`, of those that the kubelet has listed."""
