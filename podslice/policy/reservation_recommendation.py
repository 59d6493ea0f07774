"""Reservations that fit what the slices of system daemons and container runtimes have used."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from podslice.model.unit import UnitName
from podslice.model.usage_history import UsageHistory
from podslice.policy.providers import MI, Reservation
from podslice.policy.recommendation import MARGIN, UsedAmounts, used_amounts
from podslice.policy.usage_samples import without_old

_PERCENTILE = 0.99
"""Daemons wait for a CPU in one minute of a hundred at most."""


class SliceUsage(NamedTuple):
    """What a slice has used; its amounts are None without samples."""

    unit: UnitName
    age_sec: int
    samples: int
    used: UsedAmounts


def slice_usage(unit: UnitName, history: UsageHistory, now_sec: int) -> SliceUsage:
    """Return the 99th percentile and the maximum of what a slice has used."""
    history = without_old(history, now_sec)
    return SliceUsage(
        unit=unit,
        age_sec=max(history.last_sec - history.first_sec, 0) if history.samples else 0,
        samples=history.samples,
        used=used_amounts(history, now_sec, _PERCENTILE),
    )


def recommend_reservation(slices: Iterable[SliceUsage]) -> Reservation | None:
    """Return the reservation for slices together; None if none of them has samples.

    CPU: the sum of the 99th percentiles × 1.15; memory: the sum of the highest peaks × 1.15. A CPU
    that is missing for a moment delays daemons, memory that is missing has the kernel kill them.

    Source: VPA recommender, config/config.go, SafetyMarginFraction; the percentiles are of podslice.
    """
    cpu = memory = 0
    known = False
    for each in slices:
        known = known or each.used.cpu_milli is not None
        cpu += each.used.cpu_milli or 0
        memory += each.used.memory_peak_bytes or 0
    if not known:
        return None
    return Reservation(
        cpu_milli=math.ceil(cpu * MARGIN), memory_bytes=math.ceil(memory * MARGIN / MI) * MI
    )
