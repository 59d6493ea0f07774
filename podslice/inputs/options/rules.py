"""What has to hold between settings that are right one by one."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from podslice.errors import Problem
from podslice.model.config import Config, Enforce, Threshold
from podslice.model.resources import MEMORY, PIDS

_Found = tuple[frozenset[str], Problem]
"""The keys of the settings that contradict each other, and the problem."""


def validate_config(config: Config, unread: Collection[str] = ()) -> tuple[Problem, ...]:
    """Return what is wrong between settings that are right one by one.

    Args:
        config: the settings; those that could not be read have their defaults.
        unread: the keys of those; what depends on one of them is not judged.

    Source: seed 004, "Phase 2", the rules of --enforce-node-allocatable; Kubernetes,
    pkg/kubelet/apis/config/validation/validation.go, ValidateKubeletConfiguration.
    """
    found = (
        *_check_enforced(config),
        *_check_zeros(config),
        *_check_roots(config),
        *_check_eviction(config),
        *_check_oomd(config),
    )
    return tuple(problem for keys, problem in found if keys.isdisjoint(unread))


def _found(where: str, message: str, hint: str = "", *, beside: Collection[str] = ()) -> _Found:
    """Return a problem of the setting `where`, which depends on the settings `beside` as well."""
    return frozenset((where, *beside)), Problem(where=where, message=message, hint=hint)


def _check_enforced(config: Config) -> Iterator[_Found]:
    enforced = config.enforce_node_allocatable
    where = "enforce-node-allocatable"
    if enforced and not config.cgroups_per_qos:
        yield _found(
            where,
            "nothing can be enforced without cgroups-per-qos",
            "set it to an empty text, or leave cgroups-per-qos at true",
            beside=("cgroups-per-qos",),
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
            yield _found(where, f"{kind} and {compressible} exclude each other", "name one")
        if enforced & {kind, compressible} and not cgroup:
            name = kind if kind in enforced else compressible
            hint = f"set {key} to {example}, for example"
            yield _found(where, f"{name} needs {key}", hint, beside=(key,))


def _check_zeros(config: Config) -> Iterator[_Found]:
    """A limit of nothing would stop the daemons that it is for."""
    for kind, reserved in (
        (Enforce.KUBE_RESERVED, config.kube_reserved),
        (Enforce.SYSTEM_RESERVED, config.system_reserved),
    ):
        for resource in (MEMORY, PIDS):
            if kind in config.enforce_node_allocatable and reserved.get(resource) == 0:
                yield _found(
                    kind,
                    f"{resource}=0 can't be enforced: nothing could run within that",
                    f"leave {resource} out, or enforce {kind}-compressible",
                    beside=("enforce-node-allocatable",),
                )


def _check_roots(config: Config) -> Iterator[_Found]:
    for key, cgroup in (
        ("kube-reserved-cgroup", config.kube_reserved_cgroup),
        ("system-reserved-cgroup", config.system_reserved_cgroup),
    ):
        if cgroup and not cgroup.strip("/"):
            yield _found(key, "the root can't be held to a reservation")


def _check_eviction(config: Config) -> Iterator[_Found]:
    """Check that soft thresholds have grace periods, and lie above the hard ones."""
    for signal, soft in sorted(config.eviction_soft.items()):
        if signal not in config.eviction_soft_grace_period_usec:
            yield _found(
                "eviction-soft",
                f"{signal} has no grace period",
                f"state eviction-soft-grace-period {signal}=1m30s, for example",
                beside=("eviction-soft-grace-period",),
            )
        hard = config.eviction_hard.get(signal)
        if hard is not None and _is_below(soft, hard):
            yield _found(
                "eviction-soft",
                f"{signal} is met after its hard threshold",
                "a soft threshold is the higher one",
                beside=("eviction-hard",),
            )
    for signal in sorted(
        config.eviction_soft_grace_period_usec.keys() - config.eviction_soft.keys()
    ):
        yield _found(
            "eviction-soft-grace-period",
            f"{signal} has no soft threshold",
            "state it in eviction-soft, or leave it out here",
            beside=("eviction-soft",),
        )


def _check_oomd(config: Config) -> Iterator[_Found]:
    if config.oomd_memory_pressure_limit_percent is not None and not config.oomd_tiers:
        yield _found(
            "oomd-memory-pressure-limit",
            "there is no tier that it could be for",
            "name some in oomd-tiers, or leave it out",
            beside=("oomd-tiers",),
        )


def _is_below(soft: Threshold, hard: Threshold) -> bool:
    """Whether two thresholds that can be compared without a capacity are the wrong way round."""
    if soft.amount is not None and hard.amount is not None:
        return soft.amount < hard.amount
    if soft.percent_milli is not None and hard.percent_milli is not None:
        return soft.percent_milli < hard.percent_milli
    return False
