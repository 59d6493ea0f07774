"""Results of systemd's jobs, from its JobRemoved signals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from podslice.systemd.dbus.connection import ConnectionLost, in_time
from podslice.systemd.dbus.wire import Received

MANAGER = "org.freedesktop.systemd1.Manager"
MANAGER_PATH = "/org/freedesktop/systemd1"

MATCH = (
    "type='signal',sender='org.freedesktop.systemd1',"
    f"path='{MANAGER_PATH}',interface='{MANAGER}',member='JobRemoved'"
)
"""The match rule. Without Subscribe, systemd signals the jobs of this connection only."""


class Jobs:
    """The jobs that calls wait for."""

    def __init__(self, *, timeout_sec: float) -> None:
        self._timeout_sec = timeout_sec
        # a list: systemd merges equal jobs, so that several calls can wait for one
        self.waiting: dict[str, list[asyncio.Future[str]]] = {}
        # results that arrived before the reply that names their job; kept while a call has none
        self.early: dict[str, str] = {}
        self._calls = 0
        self._interruptions = 0

    async def result(
        self, call: Awaitable[Received], about: str, *, timeout_sec: float | None = None
    ) -> str:
        """Return the result of the job that a call queues and replies with the path of.

        `timeout_sec` replaces the usual limit for this job.

        Raises:
            CallTimeout: the job did not finish in time; it stays queued.
            ConnectionLost: systemd or the connection was lost; the result is not known.
        """
        self._calls += 1
        interruptions = self._interruptions
        try:
            (job,) = (await call).body("o")
            if job in self.early:
                return self.early[job]
            if interruptions != self._interruptions:
                raise ConnectionLost(f"systemd was lost before {job} finished")
            future = asyncio.get_running_loop().create_future()
            waiting = self.waiting.setdefault(job, [])
            waiting.append(future)
        finally:
            self._calls -= 1
            if not self._calls:
                self.early.clear()
        try:
            async with in_time(self._timeout_sec if timeout_sec is None else timeout_sec, about):
                return str(await future)
        finally:
            waiting.remove(future)
            if not waiting:
                self.waiting.pop(job, None)

    def on_signal(self, signal: Received) -> None:
        """Handle a signal that systemd sent."""
        if (signal.interface, signal.member) != (MANAGER, "JobRemoved"):
            return
        _id, job, _unit, result = signal.body("uoss")
        for future in self.waiting.get(job, ()):
            if not future.done():
                future.set_result(result)
        if self._calls:
            self.early[job] = result

    def on_interruption(self, error: ConnectionLost) -> None:
        """Raise the error in all waiting calls: their signals may never arrive."""
        self._interruptions += 1
        for future in (future for waiting in self.waiting.values() for future in waiting):
            if not future.done():
                future.set_exception(ConnectionLost(str(error)))
