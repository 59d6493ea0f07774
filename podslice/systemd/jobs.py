"""Results of systemd's jobs, as its JobRemoved signals tell them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from podslice.systemd.dbus.connection import Interrupted, in_time
from podslice.systemd.dbus.wire import Received

MANAGER = "org.freedesktop.systemd1.Manager"
MANAGER_PATH = "/org/freedesktop/systemd1"

MATCH = (
    "type='signal',sender='org.freedesktop.systemd1',"
    f"path='{MANAGER_PATH}',interface='{MANAGER}',member='JobRemoved'"
)
"""The match rule. Without Subscribe, systemd announces the jobs of our own calls only: cheaper."""


class Jobs:
    """Who waits for which job, and for how long."""

    def __init__(self, *, timeout_sec: float) -> None:
        self._timeout_sec = timeout_sec
        # a list: systemd merges equal jobs, so two calls can get the same one
        self._waiting: dict[str, list[asyncio.Future[str]]] = {}
        # results of jobs that nobody waits for yet; kept only while a call may turn out to own one
        self._early: dict[str, str] = {}
        self._asking = 0
        self._interruptions = 0

    async def result(
        self, asking: Awaitable[Received], about: str, *, timeout_sec: float | None = None
    ) -> str:
        """The result of the job that a call, whose reply is the job's path, has queued.

        `timeout_sec` is for this job, where that is not what is usual.

        Raises:
            CallTimeout: the job did not end in time; it stays queued.
            Interrupted: systemd or the connection went away; the result is not known.
        """
        self._asking += 1
        interruptions = self._interruptions
        try:
            (job,) = (await asking).body("o")
            if job in self._early:
                return self._early[job]
            if interruptions != self._interruptions:
                raise Interrupted(f"systemd went away with {job} unfinished")
            future = asyncio.get_running_loop().create_future()
            waiting = self._waiting.setdefault(job, [])
            waiting.append(future)
        finally:
            self._asking -= 1
            if not self._asking:
                self._early.clear()
        try:
            async with in_time(self._timeout_sec if timeout_sec is None else timeout_sec, about):
                return str(await future)
        finally:
            waiting.remove(future)
            if not waiting:
                self._waiting.pop(job, None)

    def on_signal(self, signal: Received) -> None:
        """Take a signal that systemd itself has sent."""
        if (signal.interface, signal.member) != (MANAGER, "JobRemoved"):
            return
        _id, job, _unit, result = signal.body("uoss")
        for future in self._waiting.get(job, ()):
            if not future.done():
                future.set_result(result)
        if self._asking:
            self._early[job] = result

    def on_interruption(self, error: Interrupted) -> None:
        """End all waiting: the signals may never come."""
        self._interruptions += 1
        for future in (future for waiting in self._waiting.values() for future in waiting):
            if not future.done():
                future.set_exception(Interrupted(str(error)))
