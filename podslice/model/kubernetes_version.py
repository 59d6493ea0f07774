"""The versions of Kubernetes whose rules differ, and how they do."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class KubernetesVersion(StrEnum):
    """The version that the rules `kubernetes` follow."""

    V1_36 = "1.36"
    V1_37 = "1.37"


class VersionRules(NamedTuple):
    """What differs between versions: the defaults of their feature gates and options."""

    counts_empty_level: bool
    """Whether a pod level that is stated and empty makes a pod BestEffort.

    Source: Kubernetes, pull request 137150, PodLevelResourcesFixKubeletQOSClass.
    """
    defaults_level_limits: bool
    """Whether a pod level has the sum of the containers' limits, if all of them have one.

    Source: Kubernetes, pull request 140514, PodLevelResourcesFixDefaulting; KEP-2837.
    """
    throttling_factor_milli: int | None
    """The factor where MemoryQoS is on, and none is stated.

    Source: KEP-2570, "Alpha v1.36" and "Beta v1.37".
    """
    has_memory_qos: bool
    """Whether MemoryQoS is on by default, which has an effect only with a factor or a policy.

    Source: KEP-2570, "Beta v1.37".
    """


VERSION_RULES: Mapping[KubernetesVersion, VersionRules] = {
    KubernetesVersion.V1_36: VersionRules(
        counts_empty_level=True,
        defaults_level_limits=False,
        throttling_factor_milli=900,
        has_memory_qos=False,
    ),
    KubernetesVersion.V1_37: VersionRules(
        counts_empty_level=False,
        defaults_level_limits=True,
        throttling_factor_milli=None,
        has_memory_qos=True,
    ),
}


def version_of(version: tuple[int, int]) -> KubernetesVersion:
    """Return the rules that a version of the kubelet follows; those of 1.36 for earlier ones."""
    return KubernetesVersion.V1_37 if version >= (1, 37) else KubernetesVersion.V1_36
