"""The kinds of manifests: those with a pod, and those that are ignored.

Source: Kubernetes v1.36, staging/src/k8s.io/api: core/v1, apps/v1, batch/v1.
"""

from __future__ import annotations

from podslice.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A kind that holds a pod, or the template of pods."""

    template: tuple[str, ...] = ()
    """The path of the mapping with the pod's `spec`."""
    count: str = ""
    """The field of `spec` with the number of pods; empty if a node has one."""


_REPLICATED = Workload(template=("spec", "template"), count="replicas")

WORKLOADS = {
    "Pod": Workload(),
    "PodTemplate": Workload(template=("template",)),
    "Deployment": _REPLICATED,
    "ReplicaSet": _REPLICATED,
    "ReplicationController": _REPLICATED,
    "StatefulSet": _REPLICATED,
    "DaemonSet": Workload(template=("spec", "template")),
    "Job": Workload(template=("spec", "template"), count="parallelism"),
    "CronJob": Workload(template=("spec", "jobTemplate", "spec", "template")),
}
"""Every kind with pods."""

DATA_KINDS = frozenset({"ConfigMap", "Secret"})
"""Kinds that the containers of quadlets use."""

IGNORED_KINDS = frozenset(
    {
        "APIService",
        "Certificate",
        "CertificateSigningRequest",
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "CSIDriver",
        "CustomResourceDefinition",
        "Endpoints",
        "EndpointSlice",
        "Event",
        "Gateway",
        "HorizontalPodAutoscaler",
        "HTTPRoute",
        "Ingress",
        "IngressClass",
        "Lease",
        "LimitRange",
        "MutatingWebhookConfiguration",
        "Namespace",
        "NetworkPolicy",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "PriorityClass",
        "ResourceQuota",
        "Role",
        "RoleBinding",
        "RuntimeClass",
        "Secret",
        "Service",
        "ServiceAccount",
        "StorageClass",
        "ValidatingWebhookConfiguration",
        "VerticalPodAutoscaler",
        "VolumeAttachment",
    }
)
"""Kinds that often accompany pods and mean nothing to a node."""

PRIORITY_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
"""Source: Kubernetes, pkg/apis/scheduling/types.go, SystemCriticalPriority and 1,000 above it."""


def is_foreign(api_version: object) -> bool:
    """Return whether an object belongs to an extension: `cert-manager.io/v1`, not `apps/v1`."""
    group = str(api_version).partition("/")[0] if "/" in str(api_version) else ""
    return "." in group and not group.endswith(".k8s.io")
