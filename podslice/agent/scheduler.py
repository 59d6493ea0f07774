"""Schedules the rounds of the agent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn

QUIET_SEC = 0.01
"""Delay before a round, so that related changes are handled together."""
COMPLETE_QUIET_SEC = 0.001
"""The same after changes each of which is complete in itself, such as a new manifest."""
STUCK_SEC = 600.0
"""A round that takes longer does not end: systemd is to restart the agent."""
_RETRY_SEC, _RETRY_MAX_SEC = 0.1, 3.0
_MIN_RETRY_SHARE = 0.1
"""The share of the retry delay that passes even if something requests a round earlier."""
_MANY_FAILURES, _MANY_FAILURES_RETRY_SEC = 40, 30.0


class Scheduler:
    """Runs rounds when requested, periodically, and with increasing delays while they fail."""

    def __init__(self, period_sec: Callable[[], float]) -> None:
        """`period_sec` returns the longest time between two rounds."""
        self._period_sec = period_sec
        self._requested = asyncio.Event()
        self._quiet_sec = 0.0
        self._failures = 0
        self._started_at: float | None = None

    def request(self, quiet_sec: float = QUIET_SEC) -> None:
        """Request a round, after a delay for related changes."""
        self._quiet_sec = max(self._quiet_sec, quiet_sec)
        self._requested.set()

    @property
    def is_stuck(self) -> bool:
        """Return whether a round has taken too long so far."""
        since = self._started_at
        return since is not None and time.monotonic() - since >= STUCK_SEC

    @property
    def delay_sec(self) -> float:
        """Return how long to wait for a request before the next round."""
        if not self._failures:
            return self._period_sec()
        if self._failures > _MANY_FAILURES:
            return _MANY_FAILURES_RETRY_SEC
        return min(_RETRY_SEC * 2.0 ** min(self._failures - 1, 10), _RETRY_MAX_SEC)

    async def run(self, run_round: Callable[[], Awaitable[bool]]) -> NoReturn:
        """Run rounds; `run_round` returns whether the node is as desired."""
        while True:
            self._requested.clear()
            self._quiet_sec = 0.0
            self._started_at = time.monotonic()
            is_settled = await run_round()
            self._started_at = None
            self._failures = 0 if is_settled else self._failures + 1
            delay_sec = self.delay_sec
            try:
                async with asyncio.timeout(delay_sec):
                    await self._requested.wait()
            except TimeoutError:
                self.request()
            # a failing round may request the next one itself: a failed job is a change, too
            least_sec = delay_sec * _MIN_RETRY_SHARE if self._failures else 0.0
            await self._wait_quiet(least_sec)

    async def _wait_quiet(self, least_sec: float) -> None:
        """Wait as long as the requests until then require."""
        delay_sec = max(self._quiet_sec, least_sec)
        await asyncio.sleep(delay_sec)
        if self._quiet_sec > delay_sec:  # of a request in between
            await asyncio.sleep(self._quiet_sec - delay_sec)
