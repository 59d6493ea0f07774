"""Conversion of CPU amounts to the numbers of the kernel and of systemd, and back."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from podslice.model.config import WeightMapping

MIN_SHARES = 2
MAX_SHARES = 262_144
SHARES_PER_CPU = 1024
MIN_QUOTA_USEC = 1_000
"""The minimum quota of the kernel, per period. Source: Linux, min_cfs_quota_period: 1 ms."""
QUOTA_STEP_USEC = 10_000
"""systemd's drop-ins store CPUQuota= in whole percents: 10 ms of every second."""
MIN_WEIGHT = 1
MAX_WEIGHT = 10_000
DEFAULT_WEIGHT = 100
"""Of a unit that states none. Source: systemd.resource-control(5), CPUWeight=."""


def shares_from_milli(cpu_milli: int) -> int:
    """Return CPU shares for an amount of CPU: 1024 for one CPU, never below 2 or above 262144.

    Source: Kubelet pod level resource management, "Conversion of CPU millicores to cgroup
    configuration"; Kubernetes, pkg/kubelet/cm/helpers_linux.go, MilliCPUToShares.
    """
    return min(max(cpu_milli * SHARES_PER_CPU // 1000, MIN_SHARES), MAX_SHARES)


class Curve(StrEnum):
    """A formula from CPU shares to CPUWeight."""

    SYSTEMD = "×100/1024"
    LINEAR = "1+(shares-2)×9999/262142"
    OCI = "⌈10^((l²+125l)/612-7/34)⌉, l=log2 shares"


def curve_of(mapping: WeightMapping, *, container: bool = False) -> Curve:
    """Return the formula of a mapping for slices, or for the scopes of containers.

    Source: Kubernetes 1.36.2 with containerd 2.1.9 and runc 1.3.6, where the kubelet writes the
    weights of slices and the runtime those of containers; runc 1.1,
    libcontainer/cgroups/utils.go, ConvertCPUSharesToCgroupV2Value, which was linear.
    """
    return (_OF_CONTAINERS if container else _OF_SLICES)[mapping]


def weight_from_shares(
    shares: int, mapping: WeightMapping = WeightMapping.SYSTEMD, *, container: bool = False
) -> int:
    """Return CPUWeight for CPU shares, 1 to 10000."""
    weight = unbounded_weight(shares, curve_of(mapping, container=container))
    return min(max(weight, MIN_WEIGHT), MAX_WEIGHT)


def unbounded_weight(shares: int, curve: Curve) -> int:
    """Return the result of a formula before it is clamped to the range that systemd accepts.

    Source: `systemd`: one CPU is 100, the default weight of a unit
    (systemd.resource-control(5)). Linear: Kubernetes, pkg/kubelet/cm/cgroup_v2_manager_linux.go,
    getCPUWeight, from KEP-2254. `oci`: opencontainers/cgroups, utils.go,
    ConvertCPUSharesToCgroupV2Value.
    """
    return _FORMULAS[curve](shares)


def _oci_weight(shares: int) -> int:
    # The published formula subtracts 7/34, which is 126/612 below.
    log = math.log2(shares)
    # one division, so that the default 1024 gives exactly 100
    return math.ceil(10 ** ((log * log + 125 * log - 126) / 612))


_FORMULAS: Mapping[Curve, Callable[[int], int]] = {
    Curve.SYSTEMD: lambda shares: shares * 100 // SHARES_PER_CPU,
    # Maps 2 to 262,144 shares linearly to weights of 1 to 10,000.
    Curve.LINEAR: lambda shares: 1 + (shares - 2) * 9999 // 262_142,
    Curve.OCI: _oci_weight,
}
_OF_SLICES = {
    WeightMapping.SYSTEMD: Curve.SYSTEMD,
    WeightMapping.KUBELET: Curve.LINEAR,
    WeightMapping.KUBELET_LINEAR: Curve.LINEAR,
    WeightMapping.OCI: Curve.OCI,
}
_OF_CONTAINERS = {**_OF_SLICES, WeightMapping.KUBELET: Curve.OCI}


class Quota(NamedTuple):
    """A CPU quota as systemd stores it, and the requested one."""

    per_sec_usec: int
    asked_usec: int


def quota_from_milli(cpu_milli: int, *, period_usec: int) -> Quota:
    """Return the CPU time per second for an amount of CPU, at least 1 ms per period.

    The quota is rounded up to a multiple of 10 ms per second, the precision of systemd's drop-ins:
    a finer one would change with the next daemon-reload.

    Source: Kubelet pod level resource management, "Conversion of CPU millicores to cgroup
    configuration"; Kubernetes, pkg/kubelet/cm/helpers_linux.go, MilliCPUToQuota.
    """
    asked_usec = cpu_milli * 1000
    # The kernel's minimum is for each period, of which a second has 1,000,000 / period_usec.
    least_usec = -(-MIN_QUOTA_USEC * 1_000_000 // period_usec)
    usec = max(asked_usec, least_usec)
    return Quota(per_sec_usec=-(-usec // QUOTA_STEP_USEC) * QUOTA_STEP_USEC, asked_usec=asked_usec)


_REQUEST_MAX_MILLI = MAX_SHARES * 1000 // SHARES_PER_CPU
"""A larger request has no more shares."""
_MILLI_USEC = 1_000
_STEPS_MILLI = tuple(factor * 10**power for power in range(5, -1, -1) for factor in (5, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpan:
    """The CPU requests that all result in one weight, in thousandths of a CPU."""

    least: int
    most: int
    is_exact: bool = True
    """Whether they result in it; otherwise no request does, and these result in the next one."""

    def roundest(self, *, at_least: int | None = None) -> int | None:
        """Return the request that is a multiple of the largest step: of 5 or 1 times a power of ten.

        It is more than 0. None if none of the requests is large enough.
        """
        low = max(self.least, at_least or 1)
        multiples = (-(-low // step) * step for step in _STEPS_MILLI)
        return next((multiple for multiple in multiples if multiple <= self.most), None)


def requests_of_weight(
    weight: int, mapping: WeightMapping, *, container: bool = False
) -> RequestSpan:
    """Return the CPU requests for which `convert` gives a CPUWeight, 1 to 10000."""

    def weigh(milli: int) -> int:
        return weight_from_shares(shares_from_milli(milli), mapping, container=container)

    return _span(weight, weigh)


def requests_of_shares(shares: int) -> RequestSpan:
    """Return the CPU requests for which `convert` gives CPU shares, 2 to 262144."""
    return _span(shares, shares_from_milli)


def _span(result: int, formula: Callable[[int], int]) -> RequestSpan:
    """Return the requests with a result of a formula that never decreases, or with the next one."""
    requests = range(_REQUEST_MAX_MILLI + 1)
    least = min(bisect_left(requests, result, key=formula), _REQUEST_MAX_MILLI)
    found = formula(least)
    most = bisect_right(requests, found, key=formula) - 1
    return RequestSpan(least=least, most=most, is_exact=found == result)


def limit_of_quota(per_sec_usec: int) -> int:
    """Return the CPU limit, in thousandths, of a quota: rounded up to a hundredth of a CPU.

    A finer limit would have the quota of the next hundredth, see `convert.quota_from_milli`.
    """
    return -(-per_sec_usec // QUOTA_STEP_USEC) * QUOTA_STEP_USEC // _MILLI_USEC


_SHARE_MILLI = 1000
"""A request of one CPU: CPUWeight=100, the weight of a unit without a setting.

Source: podslice-policy(7), CPUWeight; systemd.resource-control(5), CPUWeight=.
"""
NOT_RESERVED = "the limit is not reserved, see --reserve"
"""The reason of a request beside a limit that it does not reserve."""


def share_request_milli(limit_milli: int | None) -> int:
    """Return the request of CPUs, in thousandths, beside a limit that reserves nothing.

    The pod gets the weight of a unit without a setting, or less if its limit is less.
    """
    return _SHARE_MILLI if limit_milli is None else min(limit_milli, _SHARE_MILLI)
