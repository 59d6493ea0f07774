"""Samples of usage, and the history with each of them."""

from __future__ import annotations

import math

from podslice.model.usage_history import DecayingHistogram, MemoryPeaks, UsageHistory, WaitTimes
from podslice.policy.decaying_histogram import (
    CPU_BUCKETS,
    HALF_LIFE_SEC,
    HALF_LIVES_KEPT,
    MEMORY_BUCKETS,
    add_sample,
    without_expired,
)

KEPT_SEC = HALF_LIFE_SEC * HALF_LIVES_KEPT
"""The time after which a sample no longer counts, and a history without samples is removed."""
CPU_WEIGHT = 0.1
"""The weight of a CPU sample. Source: VPA recommender, model/aggregations_config.go, minSampleWeight."""
PEAK_WEIGHT = 1.0
"""The weight of a window's peak.

Source: VPA recommender, model/aggregate_container_state.go, AddSample.
"""
WINDOW_SEC = 86_400
"""The length of a window, which has one memory peak.

Source: VPA recommender, model/aggregations_config.go, DefaultMemoryAggregationInterval.
"""
_OOM_BYTES = 100 * 2**20
_OOM_PERCENT = 120


def add_cpu(history: UsageHistory, milli: int, at_sec: int) -> UsageHistory:
    """Return the history with a CPU sample, the average of a minute in thousandths of a CPU.

    Source: VPA recommender, model/aggregate_container_state.go, addCPUSample.
    """
    return history._replace(
        first_sec=history.first_sec or at_sec,
        last_sec=at_sec,
        samples=history.samples + 1,
        cpu=add_sample(history.cpu, CPU_BUCKETS.find(milli), CPU_WEIGHT, at_sec),
    )


def add_memory(history: UsageHistory, used_bytes: int, at_sec: int) -> UsageHistory:
    """Return the history with a memory sample: each window of a day counts with its peak.

    Source: VPA recommender, model/container.go, addMemorySample.
    """
    memory = _window_at(history.memory, at_sec)
    if used_bytes > memory.observed_bytes:
        memory = memory._replace(observed_bytes=used_bytes)
    return history._replace(memory=memory, last_sec=at_sec)


def add_oom_kills(
    history: UsageHistory, kills: int, at_sec: int, *, request_bytes: int = 0
) -> UsageHistory:
    """Return the history with OOM kills: the use was at least the request and the peak, and not enough.

    The need is estimated as max(used × 1.2, used + 100 MiB). An earlier estimate is not part of what
    was used, so that several kills do not add up.

    Source: VPA recommender, model/container.go, RecordOOM.
    """
    memory = _window_at(history.memory, at_sec)
    used = max(request_bytes, memory.observed_bytes)
    needed = max(used * _OOM_PERCENT // 100, used + _OOM_BYTES)
    recent = history.oom_kills if at_sec - history.oom_kill_sec < KEPT_SEC else 0
    return history._replace(
        memory=memory._replace(oom_bytes=max(memory.oom_bytes, needed)),
        last_sec=at_sec,
        oom_kills=recent + kills,
        oom_kill_sec=at_sec,
    )


def add_waits(
    history: UsageHistory, observed_sec: float, cpu_sec: float, memory_sec: float, at_sec: int
) -> UsageHistory:
    """Return the history with the time that tasks waited within the last `observed_sec`."""
    before = history.waits
    factor = _decay(at_sec - before.at_sec)
    waits = WaitTimes(
        at_sec=at_sec,
        observed_sec=before.observed_sec * factor + observed_sec,
        cpu_sec=before.cpu_sec * factor + cpu_sec,
        memory_sec=before.memory_sec * factor + memory_sec,
    )
    return history._replace(waits=waits)


def peaks_of(memory: MemoryPeaks) -> DecayingHistogram:
    """Return the peaks of all windows, with that of the present one at its end."""
    if not memory.peak_bytes:
        return memory.finished
    bucket = MEMORY_BUCKETS.find(memory.peak_bytes)
    return add_sample(memory.finished, bucket, PEAK_WEIGHT, memory.window_end_sec)


def is_expired(history: UsageHistory, now_sec: int) -> bool:
    """Return whether no sample of a history counts any longer; an empty one is expired, too.

    Source: VPA recommender, model/aggregate_container_state.go, isExpired.
    """
    return now_sec - history.last_sec >= KEPT_SEC


def without_old(history: UsageHistory, now_sec: int) -> UsageHistory:
    """Return the history without samples that no longer count."""
    if is_expired(history, now_sec):
        return UsageHistory()
    memory = history.memory
    finished = without_expired(memory.finished, PEAK_WEIGHT, now_sec)
    return history._replace(
        cpu=without_expired(history.cpu, CPU_WEIGHT, now_sec),
        memory=memory._replace(finished=finished),
        oom_kills=history.oom_kills if now_sec - history.oom_kill_sec < KEPT_SEC else 0,
    )


def _window_at(memory: MemoryPeaks, at_sec: int) -> MemoryPeaks:
    """Return the peaks with the window that contains a time as the present one.

    A window begins with the first sample after the previous one, at a multiple of its length.
    """
    if at_sec < memory.window_end_sec:
        return memory
    begin = memory.window_end_sec or at_sec
    passed = (at_sec - begin) // WINDOW_SEC + 1
    end = begin + passed * WINDOW_SEC
    return MemoryPeaks(finished=peaks_of(memory), window_end_sec=end)


def _decay(seconds: int) -> float:
    # the clock may have been set back
    return math.exp2(-max(seconds, 0) / HALF_LIFE_SEC)
