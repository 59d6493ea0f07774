"""What every process of an agent does: it connects, serves HTTP, and runs rounds until a stop."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import shutil
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from podslice.agent.context import EventLog
from podslice.agent.endpoints.http import Route, Server
from podslice.errors import HostError, SystemdError
from podslice.model.event import Kind
from podslice.systemd.client import Client
from podslice.systemd.notify import Notifier

QUIET_SEC = 0.01
"""Delay before a round, so that related changes are handled together."""
COMPLETE_QUIET_SEC = 0.001
"""Shorter delay for changes that need no settling, such as a new manifest."""
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
            # what is requested from here on may come too late for this round
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
            quiet_sec = max(self._quiet_sec, least_sec)
            await asyncio.sleep(quiet_sec)
            if self._quiet_sec > quiet_sec:  # a request in between needs a longer delay
                await asyncio.sleep(self._quiet_sec - quiet_sec)


_THREADS_MAX = 2
"""One for manifests and decisions, and one for records of usage."""
_GROUP = "podslice"
"""The group whose members may connect."""


class ServiceProcess:
    """A service with one event loop, which runs rounds and serves HTTP until SIGTERM or SIGINT."""

    def __init__(
        self, notifier: Notifier, events: EventLog, period_sec: Callable[[], float]
    ) -> None:
        """`period_sec` returns the longest time between two rounds."""
        self.scheduler = Scheduler(period_sec)
        self.notified: str | None = None
        """The last status sent to the service manager."""
        self._notifier = notifier
        self._events = events
        self._stop_requested = asyncio.Event()

    async def start(
        self, stack: AsyncExitStack, client: Client, on_hangup: Callable[[], None]
    ) -> None:
        """Handle signals, and connect to systemd; after a failure each call tries again.

        Args:
            stack: closes the connection, and the journal.
            client: the connection.
            on_hangup: called at SIGHUP.
        """
        loop = asyncio.get_running_loop()
        # Before the connection, which may have to wait for systemd: a stop ends that as well.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_requested.set)
        loop.add_signal_handler(signal.SIGHUP, on_hangup)
        # however many processors the host has: `TasksMax=` of the unit permits no more than these
        # threads, the loop and a margin
        loop.set_default_executor(ThreadPoolExecutor(_THREADS_MAX))
        stack.callback(self._events.journal.close)
        stack.push_async_exit(client)
        connecting = asyncio.ensure_future(client.__aenter__())
        stop = asyncio.create_task(self._stop_requested.wait())
        await asyncio.wait({connecting, stop}, return_when=asyncio.FIRST_COMPLETED)
        for task in (connecting, stop):
            task.cancel()
        with suppress(SystemdError, asyncio.CancelledError):
            await connecting

    @staticmethod
    async def serve(
        stack: AsyncExitStack,
        routes: Mapping[str, Route],
        *,
        sockets: Sequence[socket.socket],
        path: Path | None,
        listen: str,
    ) -> None:
        """Serve HTTP at the sockets of systemd or else at a socket file, and at `HOST:PORT`.

        Raises:
            HostError: a socket cannot be opened.
        """
        opened = list(sockets)
        if path is not None and not sockets:
            opened.append(open_file(path, _GROUP))
            stack.callback(path.unlink, missing_ok=True)
        if listen:
            opened.append(open_port(listen))
        server = Server(routes)
        stack.push_async_callback(server.close)
        await server.listen(opened)

    def notify(self, status: str) -> None:
        """Report the first status with the readiness, and later ones if they have changed."""
        if self.notified is None:
            self._notifier.ready(status)
        elif status != self.notified:
            self._notifier.status(status)
        self.notified = status

    async def run(
        self, run_round: Callable[[], Awaitable[bool]], *parts: Coroutine[Any, Any, object]
    ) -> None:
        """Begin the parts, then the rounds; return when a stop is requested or one of them fails."""
        works = (*parts, self.scheduler.run(run_round), self._feed_watchdog())
        tasks = [asyncio.create_task(each) for each in works]
        stop = asyncio.create_task(self._stop_requested.wait())
        await asyncio.wait({stop, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in (stop, *tasks):
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                # a bug: systemd restarts the agent
                message = f"internal error, the agent exits: {result!r}"
                self._events.report(Kind.AGENT_FAILED, message)
                raise result
        self._notifier.stopping()

    async def _feed_watchdog(self) -> None:
        """Notify the watchdog of systemd as long as rounds finish."""
        period_sec = self._notifier.watchdog_sec
        while period_sec is not None:
            if not self.scheduler.is_stuck:
                self._notifier.watchdog()
            # Source: sd_watchdog_enabled(3), which recommends half of the time.
            await asyncio.sleep(period_sec / 2)
        await self._stop_requested.wait()


def open_file(path: Path, group: str) -> socket.socket:
    """Listen at a socket file; create its directory if needed, and replace an existing file.

    The file gets the group if that exists and permissions suffice.

    Raises:
        HostError: the socket cannot be created.
    """
    new = path.with_name(f".{path.name}.new")
    with _opening(socket.AF_UNIX, str(path)) as opened:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.unlink(missing_ok=True)
        # bound under another name until the file has its group and its mode
        opened.bind(str(new))
        # not permitted in a sandbox; then only the agent's own user may connect
        with suppress(LookupError, PermissionError):
            shutil.chown(new, group=group)
        new.chmod(0o660)
        opened.listen()
        new.replace(path)
    return opened


def open_port(address: str) -> socket.socket:
    """Listen at `HOST:PORT`.

    Raises:
        HostError: the address is in use or not of this host, or there is no network.
    """
    host, _, port = address.replace("[", "").replace("]", "").rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with _opening(family, f"{host}:{port}") as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # the only supported name: resolving others would block the event loop
        opened.bind(("127.0.0.1" if host == "localhost" else host, int(port)))
        opened.listen()
    return opened


@contextmanager
def _opening(family: int, name: str) -> Iterator[socket.socket]:
    """Open a socket, and close it where the block fails.

    Raises:
        HostError: it fails.
    """
    with ExitStack() as stack:
        try:
            yield stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        except OSError as error:
            hint = ""
            if error.errno == errno.EAFNOSUPPORT:
                hint = "; its unit allows no network: see listen in podslice-agent(8)"
            elif isinstance(error, PermissionError) and family == socket.AF_UNIX:
                hint = "; run as root, or use --user"
            raise HostError(f"{name}: cannot listen: {error.strerror or error}{hint}") from error
        stack.pop_all()


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
