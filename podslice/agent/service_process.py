"""What every process of an agent does: it connects, serves HTTP, and runs its parts until a stop."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from podslice.agent.context import EventLog
from podslice.agent.endpoints.http import Server
from podslice.errors import HostError, SystemdError
from podslice.model.event import Kind
from podslice.reconcile.assess import living_agent
from podslice.store.store import Store
from podslice.systemd.client import Client
from podslice.systemd.notify import Notifier

_THREADS_MAX = 2
"""One for manifests and decisions, and one for records of usage."""


class ServiceProcess:
    """A service with one event loop, which stops at SIGTERM and SIGINT."""

    def __init__(self, notifier: Notifier, events: EventLog) -> None:
        self._notifier = notifier
        self._events = events
        self._stop_requested = asyncio.Event()
        self.notified: str | None = None
        """The last status sent to the service manager."""

    @staticmethod
    def refuse_second(store: Store) -> None:
        """Check that no other agent runs.

        Raises:
            HostError: one runs.
        """
        if (other := living_agent(store)) is not None:
            raise HostError(
                f"an agent is already running as process {other.pid}; stop it first: two agents"
                " would undo each other's changes"
            )

    def handle_signals(self, on_hangup: Callable[[], None]) -> None:
        """Stop at SIGTERM and SIGINT, and call `on_hangup` at SIGHUP."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_requested.set)
        loop.add_signal_handler(signal.SIGHUP, on_hangup)

    @staticmethod
    def limit_threads() -> None:
        """Let the event loop use few threads, however many processors the host has.

        `TasksMax=` of the unit permits no more than these, the loop and a margin.
        """
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS_MAX))

    async def connect(self, client: Client) -> None:
        """Connect to systemd; after a failure each call tries again."""
        connecting = asyncio.ensure_future(client.__aenter__())
        stop = asyncio.create_task(self._stop_requested.wait())
        await asyncio.wait({connecting, stop}, return_when=asyncio.FIRST_COMPLETED)
        for task in (connecting, stop):
            task.cancel()
        with suppress(SystemdError, asyncio.CancelledError):
            await connecting

    @staticmethod
    async def serve(
        server: Server, sockets: Sequence[socket.socket], path: Path | None, listen: str
    ) -> None:
        """Serve HTTP at the sockets of systemd or else at a socket file, and at `HOST:PORT`.

        Raises:
            HostError: a socket cannot be opened.
        """
        if sockets:
            await server.serve_sockets(sockets)
        elif path is not None:
            await server.serve_unix(path, group="podslice")
        if listen:
            host, _, port = listen.rpartition(":")
            await server.serve_tcp(host.strip("[]"), int(port))

    def notify(self, status: str) -> None:
        """Report the first status with the readiness, and later ones if they have changed."""
        if self.notified is None:
            self._notifier.ready(status)
        elif status != self.notified:
            self._notifier.status(status)
        self.notified = status

    async def run_parts(self, running: Iterable[Coroutine[Any, Any, object]]) -> None:
        """Run all parts until a stop is requested or one of them fails."""
        parts = [asyncio.create_task(part) for part in running]
        stop = asyncio.create_task(self._stop_requested.wait())
        await asyncio.wait({stop, *parts}, return_when=asyncio.FIRST_COMPLETED)
        for task in (stop, *parts):
            task.cancel()
        for result in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(result, Exception):
                # a bug: systemd restarts the agent
                message = f"internal error, the agent exits: {result!r}"
                self._events.report(Kind.AGENT_FAILED, message)
                raise result

    async def feed_watchdog(self, scheduler: Scheduler) -> None:
        """Notify the watchdog of systemd as long as rounds finish."""
        period_sec = self._notifier.watchdog_sec
        while period_sec is not None:
            if not scheduler.is_stuck:
                self._notifier.watchdog()
            await asyncio.sleep(period_sec / 2)
        await self._stop_requested.wait()


_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 256 * 1024


def prepare_memory() -> None:
    """Keep what is imported out of collections, and return large blocks at once.

    It is never collected, without the garbage of the imports, half a MiB.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    # glibc keeps large blocks after the first few instead of returning them to the kernel: Python's
    # table of interned strings, 2 MiB that are reallocated every few thousand rounds, would leave
    # holes twice its size. Source: mallopt(3), M_MMAP_THRESHOLD
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


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
