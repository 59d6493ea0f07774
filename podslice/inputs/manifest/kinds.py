"""The kinds of manifests: those with a pod, and those that are ignored.

Source: Kubernetes v1.36, staging/src/k8s.io/api: core/v1, apps/v1, batch/v1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A kind that holds a pod, or the template of pods."""

    api_version: str = "v1"
    template: tuple[str, ...] = ()
    """The path of the mapping with the pod's `spec`."""
    count: str = ""
    """The field of `spec` with the number of pods; empty if a node has one."""


_TEMPLATE = ("spec", "template")
_REPLICATED = Workload(api_version="apps/v1", template=_TEMPLATE, count="replicas")

WORKLOADS = {
    "Pod": Workload(),
    "PodTemplate": Workload(template=("template",)),
    "Deployment": _REPLICATED,
    "ReplicaSet": _REPLICATED,
    "ReplicationController": Workload(template=_TEMPLATE, count="replicas"),
    "StatefulSet": _REPLICATED,
    "DaemonSet": Workload(api_version="apps/v1", template=_TEMPLATE),
    "Job": Workload(api_version="batch/v1", template=_TEMPLATE, count="parallelism"),
    "CronJob": Workload(
        api_version="batch/v1", template=("spec", "jobTemplate", "spec", "template")
    ),
}
"""Every kind with pods."""

DATA_KINDS = frozenset({"ConfigMap", "Secret"})
"""Kinds that the containers of quadlets use."""

LIST = "List"
API_VERSIONS = {
    **{kind: workload.api_version for kind, workload in WORKLOADS.items()},
    **dict.fromkeys(DATA_KINDS, "v1"),
    LIST: "v1",
}
"""The kinds whose fields are known, and the version that Kubernetes has each in."""

_IGNORED = """
APIService Certificate CertificateSigningRequest ClusterRole ClusterRoleBinding ConfigMap
CSIDriver CustomResourceDefinition Endpoints EndpointSlice Event Gateway HorizontalPodAutoscaler
HTTPRoute Ingress IngressClass Lease LimitRange MutatingWebhookConfiguration Namespace
NetworkPolicy Node PersistentVolume PersistentVolumeClaim PodDisruptionBudget PriorityClass
ResourceQuota Role RoleBinding RuntimeClass Secret Service ServiceAccount StorageClass
ValidatingWebhookConfiguration VerticalPodAutoscaler VolumeAttachment
"""
IGNORED_KINDS = frozenset(re.findall(r"\w+", _IGNORED))
"""Kinds that often accompany pods and mean nothing to a node."""

PRIORITY_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
"""Source: Kubernetes, pkg/apis/scheduling/types.go, SystemCriticalPriority and 1,000 above it."""


def is_foreign(api_version: object) -> bool:
    """Return whether an object belongs to an extension: `cert-manager.io/v1`, not `apps/v1`."""
    group = str(api_version).partition("/")[0] if "/" in str(api_version) else ""
    return "." in group and not group.endswith(".k8s.io")
