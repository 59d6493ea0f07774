"""The object that holds a pod's template: its own fields, which a quadlet may not be able to keep.

Source: Kubernetes v1.36, staging/src/k8s.io/api: apps/v1 and batch/v1.
"""

from __future__ import annotations

from collections.abc import Mapping

from podslice.inputs.manifest.kinds import WORKLOADS
from podslice.inputs.manifest.workload_fields import Refusals, is_stated
from podslice.inputs.scalars import extend_path


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split(" "))


# of updates, and of the connection with other objects of a cluster
_ROLLOUT = _names(
    "selector template replicas strategy updateStrategy minReadySeconds revisionHistoryLimit"
    " progressDeadlineSeconds"
)
_WITHOUT_MEANING = {
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

_REASONS = {
    "schedule": ("a quadlet starts at boot", "write a timer that starts the pod's service"),
    "backoffLimit": ("systemd does not count the restarts of a pod", ""),
    "completions": ("a pod runs once", ""),
}
_NOT_KEPT = ("it belongs to a controller of a cluster", "")


def refuse_of_owner(document: object, kind_path: str, refusals: Refusals) -> None:
    """Refuse the fields of an object's `spec` that change what its pods do.

    Args:
        document: the object.
        kind_path: its path in the document, for a list.
        refusals: gets them.
    """
    if isinstance(document, Mapping):
        _refuse(str(document.get("kind")), document, kind_path, refusals)


def _refuse(kind: str, holder: Mapping[str, object], kind_path: str, refusals: Refusals) -> None:
    known, spec = _WITHOUT_MEANING.get(kind), holder.get("spec")
    if known is None or not isinstance(spec, Mapping):
        return
    job = spec.get("jobTemplate")
    if isinstance(job, Mapping):
        _refuse("Job", job, extend_path(kind_path, "spec", "jobTemplate"), refusals)
    for name, value in spec.items():
        path = extend_path(kind_path, "spec", str(name))
        if name not in known and is_stated(value) and path not in refusals.unknown:
            refusals.refuse(path, *_REASONS.get(str(name), _NOT_KEPT))


def owner_path(spec_where: str) -> str:
    """Return the path of the object with a pod's spec: `items[3]`, or nothing."""
    suffixes = sorted({".".join((*each.template, "spec")) for each in WORKLOADS.values()}, key=len)
    for suffix in reversed(suffixes):
        if spec_where == suffix:
            return ""
        if spec_where.endswith(f"].{suffix}"):
            return spec_where.removesuffix(f".{suffix}")
    return ""
