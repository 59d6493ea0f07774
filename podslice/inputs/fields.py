"""The fields of Kubernetes objects, and warnings about misspelled and misplaced ones.

An unknown field is ignored. If its name resembles that of a field that podslice reads, or belongs
to another mapping, podslice warns: the limit in it would be lost silently.

Source: Kubernetes v1.36, staging/src/k8s.io/api/core/v1/types.go, PodSpec, Container,
ResourceRequirements, VolumeSource, EmptyDirVolumeSource.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from itertools import islice
from typing import Any

from podslice.dataclass import dataclass
from podslice.errors import Problem, Severity
from podslice.inputs.limits import UNKNOWN_FIELDS_MAX
from podslice.inputs.scalars import extend_path, quote
from podslice.model.resources import describe_unknown

_NEAR = 0.75
"""Similarity from which a name is taken for a misspelled one; that of `gpu` and `cpu` is 0.67."""


@dataclass(frozen=True, kw_only=True)
class FieldSet:
    """The fields of a mapping."""

    read: frozenset[str]
    others: frozenset[str] = frozenset()
    """Fields that Kubernetes defines and podslice ignores."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Fields of other mappings → the path of those."""

    @cached_property
    def known(self) -> frozenset[str]:
        """Return all fields that Kubernetes defines."""
        return self.read | self.others


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split(" "))


_AMOUNTS = ("cpu", "memory", "ephemeral-storage")
_UNDER_RESOURCES = {
    "limits": "resources",
    "requests": "resources",
    **dict.fromkeys(_AMOUNTS, "resources.limits or resources.requests"),
}

OBJECT_FIELDS = FieldSet(
    read=_words("kind metadata spec"),
    others=_words("apiVersion status"),
    elsewhere={
        "containers": "spec",
        "resources": "spec",
        "name": "metadata",
        "namespace": "metadata",
    },
)
METADATA_FIELDS = FieldSet(
    read=_words("name namespace uid generateName"),
    others=_words(
        "annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers"
        " generation labels managedFields ownerReferences resourceVersion selfLink"
    ),
    elsewhere={"containers": "spec", "spec": "the top known"},
)
POD_FIELDS = FieldSet(
    read=_words(
        "containers initContainers resources overhead priority priorityClassName"
        " terminationGracePeriodSeconds volumes"
    ),
    others=_words(
        "activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy"
        " enableServiceLinks ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers"
        " hostname hostnameOverride imagePullSecrets nodeName nodeSelector os preemptionPolicy"
        " readinessGates resourceClaims restartPolicy runtimeClassName schedulerName"
        " schedulingGates schedulingGroup securityContext serviceAccount serviceAccountName"
        " setHostnameAsFQDN shareProcessNamespace subdomain tolerations"
        " topologySpreadConstraints workloadRef"
    ),
    elsewhere={**_UNDER_RESOURCES, "emptyDir": "volumes", "sizeLimit": "volumes[…].emptyDir"},
)
CONTAINER_FIELDS = FieldSet(
    read=_words("name resources restartPolicy"),
    others=_words(
        "args command env envFrom image imagePullPolicy lifecycle livenessProbe ports"
        " readinessProbe resizePolicy restartPolicyRules securityContext startupProbe stdin"
        " stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts"
        " workingDir"
    ),
    elsewhere=_UNDER_RESOURCES,
)
RESOURCES_FIELDS = FieldSet(
    read=_words("requests limits"),
    others=_words("claims"),
    elsewhere=dict.fromkeys(_AMOUNTS, "limits or requests"),
)
VOLUME_FIELDS = FieldSet(
    read=_words("name emptyDir"),
    others=_words(
        "awsElasticBlockStore azureDisk azureFile cephfs cinder configMap csi downwardAPI ephemeral"
        " fc flexVolume flocker gcePersistentDisk gitRepo glusterfs hostPath image iscsi nfs"
        " persistentVolumeClaim photonPersistentDisk portworxVolume projected quobyte rbd scaleIO"
        " secret storageos vsphereVolume"
    ),
    elsewhere={"medium": "emptyDir", "sizeLimit": "emptyDir"},
)
EMPTY_DIR_FIELDS = FieldSet(read=_words("medium sizeLimit"), others=_words("stickyBit"))
AMOUNT_FIELDS = FieldSet(
    read=frozenset(_AMOUNTS),
    elsewhere={"limits": "resources", "requests": "resources"},
)

POD_LIMIT_FIELDS = FieldSet(read=frozenset((*_AMOUNTS, "pid")), elsewhere=AMOUNT_FIELDS.elsewhere)
_OF_AMOUNTS = (AMOUNT_FIELDS, POD_LIMIT_FIELDS)

_SHORT = {"mem": "memory", "storage": "ephemeral-storage"}


def unknown_fields(
    field_set: FieldSet, fields: Mapping[str, Any], most: int = UNKNOWN_FIELDS_MAX
) -> tuple[str, ...]:
    """Return the first unknown fields of a mapping; comparing each with the known ones takes time."""
    return tuple(islice((name for name in fields if name not in field_set.known), most))


def find_misspelled(
    field_set: FieldSet, fields: Mapping[str, Any], unknown: Iterable[str], where: str, path: str
) -> Iterator[Problem]:
    """Yield a warning for each unknown field that is probably misspelled or misplaced."""
    for name in unknown:
        hint = _suggest(field_set, str(name), fields)
        if hint:
            yield Problem(
                where=f"{where}: {extend_path(path, str(name))}",
                message=_describe(field_set, str(name)),
                hint=hint,
                severity=Severity.WARNING,
            )


def _describe(field_set: FieldSet, name: str) -> str:
    """Return the message for an unknown field; for a resource it is that of `validate`."""
    if field_set in _OF_AMOUNTS:
        return describe_unknown(name)
    return f"unknown field {quote(name)} is ignored"


def nearest(name: str, known: frozenset[str] | Mapping[str, Any]) -> str | None:
    """Return the known name that a name is probably meant to be."""
    if len(name) > 40:
        return None
    from difflib import get_close_matches  # noqa: PLC0415 (needed for errors only)

    lower = {other.lower(): other for other in sorted(known)}
    found = get_close_matches(name.lower(), lower, n=1, cutoff=_NEAR)
    return lower[found[0]] if found else None


def _suggest(field_set: FieldSet, name: str, fields: Mapping[str, Any]) -> str:
    if name in field_set.elsewhere:
        return f"it belongs under {field_set.elsewhere[name]}"
    if field_set in _OF_AMOUNTS and ("/" in name or name.startswith("hugepages-")):
        return ""
    right = _SHORT.get(name) if field_set in _OF_AMOUNTS else None
    right = right or nearest(name, field_set.read)
    return f"write {right}" if right and right not in fields else ""
