"""The usage of one control group over time: its history, and the counters of the last sample."""

from __future__ import annotations

from dataclasses import dataclass

from podslice.kernel.usage_counters import UsageCounters
from podslice.model.resources import Amounts, memory_bytes
from podslice.model.usage_history import UsageHistory
from podslice.policy.usage_samples import (
    add_cpu,
    add_memory,
    add_oom_kills,
    add_waits,
    is_expired,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A time by two clocks."""

    sec: int
    """Since the Unix epoch."""
    monotonic_sec: float


class GroupUsage:
    """Adds samples of a control group to a history, which outlives the group."""

    __slots__ = ("_counted", "_kills", "_peak_bytes", "_waits", "history")

    def __init__(self, history: UsageHistory) -> None:
        self.history = history
        self._counted: tuple[float, int] | None = None
        """When the CPU time was read last, and the CPU time in microseconds."""
        self._waits: tuple[float, int, int] | None = None
        """The same for the time that tasks have waited for a CPU, and for memory."""
        self._peak_bytes = 0
        self._kills = 0

    def skip_earlier(self, counters: UsageCounters, group: str) -> None:
        """Begin with the present peak and OOM kills of a group: the history has those so far."""
        self._peak_bytes = counters.peak_bytes(group) or 0
        self._kills = counters.oom_kills(group) or 0

    def sample(
        self, counters: UsageCounters, group: str, now: Moment, *, requests: Amounts
    ) -> None:
        """Add a sample; without a group nothing is added, and the next group begins at 0."""
        usec = counters.cpu_usec(group)
        before = self._counted
        if usec is None or (before is not None and usec < before[1]):
            self._forget_group()
            before = None
        if usec is None:
            return
        if is_expired(self.history, now.sec):
            self.history = UsageHistory()
        self._counted = now.monotonic_sec, usec
        if before is not None and now.monotonic_sec > before[0]:
            milli = (usec - before[1]) / (now.monotonic_sec - before[0]) / 1000
            self.history = add_cpu(self.history, round(milli), now.sec)
        kills = self._new_kills(counters, group)
        self._sample_memory(counters, group, now, is_killed=kills > 0)
        if kills:
            self.history = add_oom_kills(
                self.history, kills, now.sec, request_bytes=memory_bytes(requests) or 0
            )

    def sample_waits(self, counters: UsageCounters, group: str, now: Moment) -> None:
        """Add the time that tasks have waited since the last call."""
        waits, before = counters.waits_usec(group), self._waits
        self._waits = None if waits is None else (now.monotonic_sec, *waits)
        if waits is None or before is None:
            return
        elapsed_sec = now.monotonic_sec - before[0]
        cpu_sec, memory_sec = (
            (after - earlier) / 1e6 for after, earlier in zip(waits, before[1:], strict=True)
        )
        if elapsed_sec > 0 and cpu_sec >= 0 and memory_sec >= 0:
            self.history = add_waits(self.history, elapsed_sec, cpu_sec, memory_sec, now.sec)

    def _forget_group(self) -> None:
        self._counted, self._waits = None, None
        self._peak_bytes, self._kills = 0, 0

    def _new_kills(self, counters: UsageCounters, group: str) -> int:
        before, self._kills = self._kills, counters.oom_kills(group) or 0
        return max(self._kills - before, 0)

    def _sample_memory(
        self, counters: UsageCounters, group: str, now: Moment, *, is_killed: bool
    ) -> None:
        """Add the working set, or the peak since the last sample, if it is a new peak of the window.

        Of the peak the present inactive file pages are subtracted, as of the use. Files are read only
        as far as they can show a new peak, since a host may have thousands of groups.
        """
        memory = self.history.memory
        known = memory.observed_bytes if now.sec < memory.window_end_sec else -1
        peak, before = counters.peak_bytes(group), self._peak_bytes
        if peak is not None:
            self._peak_bytes = peak
            if peak <= known:
                return
        most = peak if is_killed or (peak or 0) > before else None
        if most is None:
            most = counters.current_bytes(group)
        if most is not None and most > known:
            used = max(most - counters.inactive_bytes(group), 0)
            self.history = add_memory(self.history, used, now.sec)
