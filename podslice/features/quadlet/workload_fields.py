"""Fields of a pod and of its owner that nothing keeps, and the report of each: none is dropped silently.

A field is read, or without meaning on a single host, or refused with its place and the reason. The
caller may ignore refused fields by name; they are then warnings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel

from podslice.errors import Problem, warning
from podslice.inputs.manifest.kinds import WORKLOADS
from podslice.inputs.scalars import Boolean, extend_path

_INDEX = re.compile(r"\[[^]]*\]")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split(" "))


# read by `podspec`, since resources depend on them
_READ_ELSEWHERE = _names(
    "resources overhead priority priorityClassName terminationGracePeriodSeconds emptyDir.sizeLimit"
)

# for the scheduler, the API server or the display of a cluster
_WITHOUT_MEANING = _names(
    "affinity automountServiceAccountToken enableServiceLinks nodeName nodeSelector os"
    " preemptionPolicy readinessGates schedulerName schedulingGates schedulingGroup serviceAccount"
    " serviceAccountName tolerations topologySpreadConstraints resizePolicy"
    " terminationMessagePath terminationMessagePolicy stdinOnce fieldRef.apiVersion"
    " securityContext.fsGroupChangePolicy securityContext.seLinuxChangePolicy"
)

# the end of a place without indices → why it cannot be kept, and what to write instead
_REASONS = {
    "grpc": ("podslice has no gRPC client", "write an exec, httpGet or tcpSocket action"),
    "lifecycle.postStart.httpGet": ("requests to a container are made by probes only", "use exec"),
    "lifecycle.preStop.httpGet": ("requests to a container are made by probes only", "use exec"),
    "activeDeadlineSeconds": ("podman has no deadline for a pod", ""),
    "ephemeralContainers": ("they are only added to running pods", ""),
    "imagePullSecrets": ("podman reads credentials from its own file", "use podman login"),
    "runtimeClassName": ("podman has one runtime for all pods", "set it in containers.conf"),
    "hostIPC": ("a podman pod has an IPC namespace of its own", ""),
    "setHostnameAsFQDN": ("there is no cluster domain", "write the name into hostname"),
    "subdomain": ("there is no cluster domain", "write the name into hostname"),
    "resourceClaims": ("there is no driver for them", ""),
    "securityContext.fsGroup": (
        "podman does not change the group of volumes",
        "set runAsUser and runAsGroup, or change the group in an init container",
    ),
    "subPathExpr": ("variables in paths are not expanded", "use subPath"),
    "volumeDevices": ("block devices are not passed on", "mount a hostPath of type BlockDevice"),
    "windowsOptions": ("containers run on Linux", ""),
    "stdin": ("a service has no input", ""),
    "restartPolicyRules": ("systemd has no rules for single exit codes of a container", ""),
    "recursiveReadOnly": ("podman has no such mounts in units", ""),
    "terminationGracePeriodSeconds": (
        "a probe has no grace period of its own",
        "set it for the pod",
    ),
}
_NOT_KEPT = ("quadlets cannot keep it", "")


@dataclass(slots=True)
class Refusals:
    """The problems of one pod's workload, as they are found."""

    where: str
    """Its file, with the number of the document if there are several."""
    ignored: frozenset[str] = frozenset()
    """Fields that the caller gives up: `hostIPC`, `livenessProbe.grpc`, or a whole place."""
    unknown: frozenset[str] = frozenset()
    """Places of fields that Kubernetes does not have: `check_fields` has reported them."""
    known: frozenset[str] = frozenset()
    """The places of the pod's own problems."""
    found: list[Problem] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    """Those of `ignored` that a field has matched."""

    def error(self, path: str, message: str, hint: str = "") -> None:
        """Add an error: the value is invalid."""
        self.found.append(Problem(where=f"{self.where}: {path}", message=message, hint=hint))

    def refuse(self, path: str, reason: str, hint: str = "") -> None:
        """Add the refusal of a field that cannot be kept; a warning if it is to be ignored."""
        place = f"{self.where}: {path}"
        name = _plain(path)
        matched = {each for each in self.ignored if each == path or f".{name}".endswith(f".{each}")}
        if matched:
            self.used |= matched
            self.found.append(warning(place, f"is ignored, as requested: {reason}"))
            return
        more = f"or continue without it: --ignore {_short(path)}"
        text = f"{hint}, {more}" if hint else more.removeprefix("or ")
        self.found.append(Problem(where=place, message=f"cannot be kept: {reason}", hint=text))

    def has_error(self, path: str) -> bool:
        """Return whether a place has a problem already."""
        place = f"{self.where}: {path}"
        return place in self.known or any(each.where == place for each in self.found)

    def refuse_unread(self, fields: BaseModel, raw: object, path: str) -> None:
        """Refuse every field of a mapping, and of those in it, that its model does not have."""
        for place in _unread(fields, raw, path):
            name = f".{_plain(place)}"
            if place in self.unknown or any(name.endswith(f".{each}") for each in _WITHOUT_MEANING):
                continue
            reasons = (_REASONS[each] for each in _REASONS if name.endswith(f".{each}"))
            self.refuse(place, *next(reasons, _NOT_KEPT))

    def add(self, problems: Iterable[Problem]) -> None:
        """Add the problems of types; their places have no file."""
        self.found += [each.within(self.where) for each in problems]


def _unread(fields: BaseModel, raw: object, path: str) -> Iterator[str]:
    """Yield the place of each field that is not read."""
    if not isinstance(raw, Mapping):
        return
    names = {info.alias or name: name for name, info in type(fields).model_fields.items()}
    for key, value in raw.items():
        place = extend_path(path, str(key))
        if key in names:
            yield from _unread_below(getattr(fields, names[key]), value, place)
        elif is_stated(value) and not _is_read_elsewhere(place):
            yield place


def _unread_below(value: object, raw: object, path: str) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from _unread(value, raw, path)
    elif isinstance(value, list) and isinstance(raw, list):
        for index, (each, item) in enumerate(zip(value, raw, strict=True)):
            yield from _unread_below(each, item, f"{path}[{index}]")


def is_stated(value: object) -> bool:
    """Return whether a value differs from the default of most fields: nothing, or false."""
    if isinstance(value, Boolean):
        return value.lower() not in ("false", "no", "off")
    return value not in (None, "", 0, False, [], {})


def _is_read_elsewhere(path: str) -> bool:
    """Return whether `podspec` reads a field; a probe's grace period is not the pod's."""
    name = _plain(path)
    if name.rpartition(".")[0].endswith("Probe"):
        return False
    return any(f".{name}".endswith(f".{each}") for each in _READ_ELSEWHERE)


def _plain(path: str) -> str:
    """Return a path without indices: `spec.containers.livenessProbe`."""
    return _INDEX.sub("", path)


def _short(path: str) -> str:
    """Return the shortest name by which a field can be ignored; it is never that of another one."""
    *_, parent, name = ["", *_plain(path).split(".")]
    return f"{parent}.{name}" if parent in ("postStart", "preStop", "emptyDir") else name


# of updates, and of the connection with other objects of a cluster
_ROLLOUT = _names(
    "selector template replicas strategy updateStrategy minReadySeconds revisionHistoryLimit"
    " progressDeadlineSeconds"
)
_OF_OWNERS = {
    "Deployment": _ROLLOUT,
    "ReplicaSet": _ROLLOUT,
    "ReplicationController": _ROLLOUT,
    "DaemonSet": _ROLLOUT,
    "StatefulSet": _ROLLOUT
    | _names(
        "serviceName podManagementPolicy persistentVolumeClaimRetentionPolicy volumeClaimTemplates"
    ),
    "Job": _names("template selector manualSelector parallelism ttlSecondsAfterFinished"),
    "CronJob": _names(
        "jobTemplate successfulJobsHistoryLimit failedJobsHistoryLimit startingDeadlineSeconds"
    ),
}
"""Kind → the fields of its `spec` that are read elsewhere, or mean nothing on a single host."""

_OWNER_REASONS = {
    "schedule": ("a quadlet starts at boot", "write a timer that starts the pod's service"),
    "backoffLimit": ("systemd does not count the restarts of a pod", ""),
    "completions": ("a pod runs once", ""),
}
_OWNER_NOT_KEPT = ("it belongs to a controller of a cluster", "")


def refuse_of_owner(kind: str, document: object, kind_path: str, refusals: Refusals) -> None:
    """Refuse the fields of an object's `spec` that change what its pods do.

    Args:
        kind: its kind.
        document: the object.
        kind_path: its path in the document, for a list.
        refusals: gets them.

    Source: Kubernetes v1.36, staging/src/k8s.io/api: apps/v1 and batch/v1.
    """
    known, spec = (
        _OF_OWNERS.get(kind),
        document.get("spec") if isinstance(document, Mapping) else None,
    )
    if known is None or not isinstance(spec, Mapping):
        return
    job = spec.get("jobTemplate")
    if isinstance(job, Mapping):
        refuse_of_owner("Job", job, extend_path(kind_path, "spec", "jobTemplate"), refusals)
    for name, value in spec.items():
        path = extend_path(kind_path, "spec", str(name))
        if name not in known and is_stated(value) and path not in refusals.unknown:
            refusals.refuse(path, *_OWNER_REASONS.get(str(name), _OWNER_NOT_KEPT))


def owner_path(spec_where: str) -> str:
    """Return the path of the object with a pod's spec: `items[3]`, or nothing."""
    suffixes = sorted({".".join((*each.template, "spec")) for each in WORKLOADS.values()}, key=len)
    for suffix in reversed(suffixes):
        if spec_where == suffix:
            return ""
        if spec_where.endswith(f"].{suffix}"):
            return spec_where.removesuffix(f".{suffix}")
    return ""
