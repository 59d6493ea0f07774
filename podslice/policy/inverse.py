"""Amounts of a manifest from the numbers of the kernel and of systemd: the inverse of `convert`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from podslice.model.config import WeightMapping
from podslice.policy.convert import (
    MAX_SHARES,
    QUOTA_STEP_USEC,
    SHARES_PER_CPU,
    shares_from_milli,
    weight_from_shares,
)

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
