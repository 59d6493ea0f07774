"""The fields of Kubernetes' objects that podslice meets, and which of them are typing mistakes.

A field that nobody knows is passed over, except when it is near one that is read here, or one that
is read stands in the wrong place: then it was probably meant, and silence would cost the limit.

Source: Kubernetes v1.36, staging/src/k8s.io/api/core/v1/types.go, PodSpec, Container,
ResourceRequirements, VolumeSource, EmptyDirVolumeSource.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

from podslice.errors import Problem, Severity
from podslice.inputs.limits import UNKNOWN_FIELDS_MAX
from podslice.inputs.scalars import extend_path, shown
from podslice.model.resources import describe_unknown

_NEAR = 0.75
"""How alike two names are when one is a slip of the other; `gpu` and `cpu` are 0.67."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """A mapping with fields that are read."""

    read: frozenset[str]
    others: frozenset[str] = frozenset()
    """Its further fields, which are known and mean nothing here."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Fields that belong under another one, and which."""

    @cached_property
    def known(self) -> frozenset[str]:
        """All fields that it has."""
        return self.read | self.others


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split(" "))


_AMOUNTS = ("cpu", "memory", "ephemeral-storage")
_UNDER_RESOURCES = {
    "limits": "resources",
    "requests": "resources",
    **dict.fromkeys(_AMOUNTS, "resources.limits or resources.requests"),
}

OBJECT = Level(
    read=_words("kind metadata spec"),
    others=_words("apiVersion status"),
    elsewhere={
        "containers": "spec",
        "resources": "spec",
        "name": "metadata",
        "namespace": "metadata",
    },
)
METADATA = Level(
    read=_words("name namespace uid generateName"),
    others=_words(
        "annotations creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers"
        " generation labels managedFields ownerReferences resourceVersion selfLink"
    ),
    elsewhere={"containers": "spec", "spec": "the top level"},
)
POD = Level(
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
CONTAINER = Level(
    read=_words("name resources restartPolicy"),
    others=_words(
        "args command env envFrom image imagePullPolicy lifecycle livenessProbe ports"
        " readinessProbe resizePolicy restartPolicyRules securityContext startupProbe stdin"
        " stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts"
        " workingDir"
    ),
    elsewhere=_UNDER_RESOURCES,
)
RESOURCES = Level(
    read=_words("requests limits"),
    others=_words("claims"),
    elsewhere=dict.fromkeys(_AMOUNTS, "limits or requests"),
)
VOLUME = Level(
    read=_words("name emptyDir"),
    others=_words(
        "awsElasticBlockStore azureDisk azureFile cephfs cinder configMap csi downwardAPI ephemeral"
        " fc flexVolume flocker gcePersistentDisk gitRepo glusterfs hostPath image iscsi nfs"
        " persistentVolumeClaim photonPersistentDisk portworxVolume projected quobyte rbd scaleIO"
        " secret storageos vsphereVolume"
    ),
    elsewhere={"medium": "emptyDir", "sizeLimit": "emptyDir"},
)
EMPTY_DIR = Level(read=_words("medium sizeLimit"), others=_words("stickyBit"))
AMOUNTS = Level(
    read=frozenset(_AMOUNTS),
    elsewhere={"limits": "resources", "requests": "resources"},
)

_SHORT = {"mem": "memory", "storage": "ephemeral-storage"}


def unknown_fields(
    level: Level, fields: Mapping[str, Any], most: int = UNKNOWN_FIELDS_MAX
) -> tuple[str, ...]:
    """Return the first unknown fields of a mapping; to compare each with the known ones takes time."""
    return tuple(islice((name for name in fields if name not in level.known), most))


def find_slips(
    level: Level, fields: Mapping[str, Any], unknown: Iterable[str], where: str, path: str
) -> Iterator[Problem]:
    """Warn of the unknown fields of a mapping that were probably meant to be others."""
    for name in unknown:
        hint = _explain(level, str(name), fields)
        if hint:
            yield Problem(
                where=f"{where}: {extend_path(path, str(name))}",
                message=_describe(level, str(name)),
                hint=hint,
                severity=Severity.WARNING,
            )


def _describe(level: Level, name: str) -> str:
    """Return the message for an unknown field; that of a resource is the one of `validate`."""
    if level is AMOUNTS:
        return describe_unknown(name)
    return f"the field {shown(name)} is unknown and was ignored"


def nearest(name: str, known: frozenset[str] | Mapping[str, Any]) -> str | None:
    """The one of the known names that this is a slip of."""
    if len(name) > 40:
        return None
    lower = {other.lower(): other for other in sorted(known)}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=_NEAR)
    return lower[found[0]] if found else None


def _explain(level: Level, name: str, fields: Mapping[str, Any]) -> str:
    if name in level.elsewhere:
        return f"it belongs under {level.elsewhere[name]}"
    if level is AMOUNTS and ("/" in name or name.startswith("hugepages-")):
        return ""
    right = _SHORT.get(name) if level is AMOUNTS else None
    right = right or nearest(name, level.read)
    return f"write {right}" if right and right not in fields else ""
