"""The annotations by which a manifest states properties that Kubernetes has no field for.

`podslice.io/NAME` is about the pod's slice, `podslice.io/NAME.CONTAINER` about a container. A row
serves the reading of manifests, the records and the reasons. To add an annotation, add a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from podslice.model.properties import format_value
from podslice.model.unit import INFINITY

PREFIX = "podslice.io/"

RESOURCES = "resources"
"""The name of the annotation that states the pod level as JSON, in place of `spec.resources`."""

QUOTA_PERIOD = "CPUQuotaPeriodUSec"
ALLOWED_CPUS = "AllowedCPUs"
CPU_WEIGHT = "CPUWeight"
OOM_SCORE_ADJ = "OOMScoreAdjust"
CPU_WEIGHT_NAME, OOM_SCORE_NAME = "cpu-weight", "oom-score-adj"
"""The names of the annotations that state them."""

StatedProperties = Mapping[str, int | str]
"""Name of a property on the bus → the value that a manifest states."""


class AnnotationKind(StrEnum):
    """How the text of an annotation is read."""

    PERIOD = "period"
    """The period of a CPU quota, such as `500ms`."""
    BYTES = "bytes"
    """A quantity in bytes, such as `64Mi`, or `infinity`."""
    COUNT = "count"
    """A whole number above 0, or `infinity`."""
    WEIGHT = "weight"
    """A whole number from 1 to 10000."""
    BANDWIDTHS = "bandwidths"
    """Devices with bytes per second, such as `/dev/sda 10Mi; /srv 5Mi`."""
    RATES = "rates"
    """Devices with operations per second, such as `/dev/sda 500; /srv 100`."""
    SCORE = "score"
    """A whole number from -1000 to 1000."""
    CPUS = "cpus"
    """A list of CPUs, such as `0-3,8`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One annotation."""

    name: str
    """Its name below the prefix."""
    property: str
    """The property that it states, by its name on the bus."""
    kind: AnnotationKind
    controller: str
    """The controller of the kernel that it requires; empty for none."""
    is_of_pod_only: bool = False
    """Whether containers do not have it."""
    minimum: int = 1
    """The least value."""


_ROWS = (
    Annotation(
        name="cpu-quota-period", property=QUOTA_PERIOD, kind=AnnotationKind.PERIOD, controller="cpu"
    ),
    Annotation(
        name=CPU_WEIGHT_NAME, property=CPU_WEIGHT, kind=AnnotationKind.WEIGHT, controller="cpu"
    ),
    # a property of processes: the score of a pod applies to its containers
    Annotation(
        name=OOM_SCORE_NAME,
        property=OOM_SCORE_ADJ,
        kind=AnnotationKind.SCORE,
        controller="",
        minimum=-1000,
    ),
    Annotation(
        name="memory-high",
        property="MemoryHigh",
        kind=AnnotationKind.BYTES,
        controller="memory",
    ),
    Annotation(
        name="memory-swap-max",
        property="MemorySwapMax",
        kind=AnnotationKind.BYTES,
        controller="memory",
        minimum=0,
    ),
    Annotation(
        name="memory-zswap-max",
        property="MemoryZSwapMax",
        kind=AnnotationKind.BYTES,
        controller="memory",
        minimum=0,
    ),
    Annotation(name="io-weight", property="IOWeight", kind=AnnotationKind.WEIGHT, controller="io"),
    *(
        Annotation(name=name, property=property_, kind=kind, controller="io")
        for name, property_, kind in (
            ("io-read-bandwidth-max", "IOReadBandwidthMax", AnnotationKind.BANDWIDTHS),
            ("io-write-bandwidth-max", "IOWriteBandwidthMax", AnnotationKind.BANDWIDTHS),
            ("io-read-iops-max", "IOReadIOPSMax", AnnotationKind.RATES),
            ("io-write-iops-max", "IOWriteIOPSMax", AnnotationKind.RATES),
        )
    ),
    # a container has the manager's DefaultTasksMax=
    Annotation(
        name="tasks-max",
        property="TasksMax",
        kind=AnnotationKind.COUNT,
        controller="pids",
        is_of_pod_only=True,
    ),
    Annotation(
        name="allowed-cpus",
        property=ALLOWED_CPUS,
        kind=AnnotationKind.CPUS,
        controller="cpuset",
    ),
)

ANNOTATIONS = {row.name: row for row in _ROWS}
"""Every annotation by its name below the prefix."""

ANNOTATION_NAMES = (*ANNOTATIONS, RESOURCES)
"""The names of all annotations below the prefix."""

BY_PROPERTY = {row.property: row for row in _ROWS}
"""Every annotation by the property that it states."""

ANNOTATED = frozenset(BY_PROPERTY)
"""The properties that annotations state."""


def describe_annotation(property_: str, value: int | str) -> str:
    """Return the annotation of a property with its value: `podslice.io/memory-high 64Mi`."""
    return f"{PREFIX}{BY_PROPERTY[property_].name} {_describe(property_, value)}"


def format_annotations(stated: StatedProperties, container: str = "") -> dict[str, str]:
    """Return the annotations that state these properties of a pod, or of a container."""
    suffix = f".{container}" if container else ""
    return {
        f"{PREFIX}{BY_PROPERTY[name].name}{suffix}": _format(name, value)
        for name, value in stated.items()
    }


def _format(property_: str, value: int | str) -> str:
    if value == INFINITY:
        return "infinity"
    return f"{value}us" if property_ == QUOTA_PERIOD else str(value)


def _describe(property_: str, value: int | str) -> str:
    if value == INFINITY:
        return "infinity"
    if property_ == QUOTA_PERIOD:
        return f"{int(value) / 1000:g}ms"
    return format_value(property_, value)
