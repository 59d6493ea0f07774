"""What has to hold between settings that are right one by one."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.errors import Problem
from podslice.model.config import Config, Enforce, Threshold


def validate_config(config: Config) -> tuple[Problem, ...]:
    """What is wrong with settings that are right one by one.

    Source: seed 004, "Phase 2", the rules of --enforce-node-allocatable; Kubernetes,
    pkg/kubelet/apis/config/validation/validation.go, ValidateKubeletConfiguration.
    """
    return (
        *_check_enforced(config),
        *_check_roots(config),
        *_check_eviction(config),
        *_check_oomd(config),
    )


def _check_enforced(config: Config) -> Iterator[Problem]:
    enforced = config.enforce_node_allocatable
    where = "enforce-node-allocatable"
    if enforced and not config.cgroups_per_qos:
        yield Problem(
            where=where,
            message="nothing can be enforced without cgroups-per-qos",
            hint="set it to an empty text, or leave cgroups-per-qos at true",
        )
    for kind, cgroup, key, example in (
        (
            Enforce.KUBE_RESERVED,
            config.kube_reserved_cgroup,
            "kube-reserved-cgroup",
            "/podruntime.slice",
        ),
        (
            Enforce.SYSTEM_RESERVED,
            config.system_reserved_cgroup,
            "system-reserved-cgroup",
            "/system.slice",
        ),
    ):
        compressible = Enforce(f"{kind}-compressible")
        if {kind, compressible} <= enforced:
            yield Problem(
                where=where,
                message=f"{kind} and {compressible} exclude each other",
                hint="name one",
            )
        if enforced & {kind, compressible} and not cgroup:
            name = kind if kind in enforced else compressible
            yield Problem(
                where=where,
                message=f"{name} needs {key}",
                hint=f"set {key} to {example}, for example",
            )


def _check_roots(config: Config) -> Iterator[Problem]:
    for key, cgroup in (
        ("kube-reserved-cgroup", config.kube_reserved_cgroup),
        ("system-reserved-cgroup", config.system_reserved_cgroup),
    ):
        if cgroup and not cgroup.strip("/"):
            yield Problem(where=key, message="the root can't be held to a reservation")


def _check_eviction(config: Config) -> Iterator[Problem]:
    """Every soft threshold has its grace period, and lies above the hard one of its signal."""
    for signal, soft in sorted(config.eviction_soft.items()):
        if signal not in config.eviction_soft_grace_period_usec:
            yield Problem(
                where="eviction-soft",
                message=f"{signal} has no grace period",
                hint=f"state eviction-soft-grace-period {signal}=1m30s, for example",
            )
        hard = config.eviction_hard.get(signal)
        if hard is not None and _is_below(soft, hard):
            yield Problem(
                where="eviction-soft",
                message=f"{signal} is met after its hard threshold",
                hint="a soft threshold is the higher one",
            )
    for signal in sorted(
        config.eviction_soft_grace_period_usec.keys() - config.eviction_soft.keys()
    ):
        yield Problem(
            where="eviction-soft-grace-period",
            message=f"{signal} has no soft threshold",
            hint="state it in eviction-soft, or leave it out here",
        )


def _check_oomd(config: Config) -> Iterator[Problem]:
    if config.oomd_memory_pressure_limit_percent is not None and not config.oomd_tiers:
        yield Problem(
            where="oomd-memory-pressure-limit",
            message="there is no tier that it could be for",
            hint="name some in oomd-tiers, or leave it out",
        )


def _is_below(soft: Threshold, hard: Threshold) -> bool:
    """Whether two thresholds that can be compared without a capacity are the wrong way round."""
    if soft.amount is not None and hard.amount is not None:
        return soft.amount < hard.amount
    if soft.percent_milli is not None and hard.percent_milli is not None:
        return soft.percent_milli < hard.percent_milli
    return False
