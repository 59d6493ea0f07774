"""The CPUs that a pod claims for itself, and the quota that it has then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from podslice.model.config import Config, CpuManagerPolicy
from podslice.model.pod import Pod, Qos
from podslice.model.resources import CPU, Resources
from podslice.policy.aggregate import default_pod

_WHOLE_MILLI = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuClaim:
    """The numbers of CPUs that a pod gets for itself."""

    pod: int = 0
    """Those of the pod level; 0 where it states no whole number."""
    containers: Mapping[str, int] = field(default_factory=dict)
    """By name; at least 1. With a pod level they are a part of its CPUs."""

    def __bool__(self) -> bool:
        """Return whether it claims any."""
        return bool(self.pod or self.containers)


def claim_cpus(pod: Pod, qos: Qos) -> CpuClaim:
    """Return the CPUs that a pod gets for itself.

    Only a Guaranteed pod gets any: for each container with a whole number of CPUs as request and
    limit, and as a pod if its pod level has that.

    Source: Kubernetes, pkg/kubelet/cm/cpumanager/policy_static.go, guaranteedCPUs; KEP-5526.
    """
    if qos is not Qos.GUARANTEED:
        return CpuClaim()
    pod = default_pod(pod)
    containers = {each.name: count for each in pod.containers if (count := _whole(each.resources))}
    return CpuClaim(pod=_whole(pod.resources), containers=containers)


def _whole(stated: Resources) -> int:
    request = stated.requests.get(CPU, 0)
    is_whole = request % _WHOLE_MILLI == 0 and request == stated.limits.get(CPU)
    return request // _WHOLE_MILLI if is_whole else 0


def exclusive(pod: Pod, qos: Qos, config: Config) -> CpuClaim:
    """Return the CPUs that a pod has for itself by the configured policy."""
    if config.cpu_manager_policy is CpuManagerPolicy.NONE:
        return CpuClaim()
    return claim_cpus(pod, qos)


def without_own_cpus(config: Config) -> Config:
    """Return the configuration for a pod that cannot have the CPUs which it claims."""
    return replace(config, cpu_manager_policy=CpuManagerPolicy.NONE)


def with_quota(config: Config, *, applies: bool) -> Config:
    """Return the configuration for a pod or container; no quota throttles one with its own CPUs.

    Source: Kubernetes, pkg/features/kube_features.go, DisableCPUQuotaWithExclusiveCPUs: on by
    default since 1.33.
    """
    return config if applies else replace(config, cpu_cfs_quota=False)
