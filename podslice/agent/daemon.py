"""The agent's life: what wakes it, what it does then, and its end.

One process with one event loop; nothing in it waits for anything but that loop. Whatever fails is
told, and tried again: the agent ends when it is told to, and leaves the pods as they are.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, MutableMapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from podslice.agent.board import Board
from podslice.agent.capture import snapshot
from podslice.agent.counters import Counters
from podslice.agent.endpoints.http import Server
from podslice.agent.endpoints.routes import routes
from podslice.agent.endpoints.snapshot import Snapshot
from podslice.agent.evictor import Evictor
from podslice.agent.manifest_files import Manifests
from podslice.agent.oom_kills import OomWatch
from podslice.agent.orphans import Orphans
from podslice.agent.reconciler import Rounds
from podslice.agent.reservations import Reservations
from podslice.agent.terminations import Endings
from podslice.agent.watcher import Watch
from podslice.errors import HostError, InputError, SystemdError
from podslice.model.config import Config
from podslice.model.event import Kind
from podslice.model.manager import SYSTEM, Manager
from podslice.model.unit import UnitKind, UnitName
from podslice.reconcile.guard import Guard, Guarded
from podslice.reconcile.readmission import living_agent
from podslice.reconcile.world import LiveWorld, World
from podslice.systemd.caching_client import CachingClient
from podslice.systemd.client import Client, OnChange
from podslice.systemd.journal import Journal
from podslice.systemd.notify import Notifier, listen_fds
from podslice.systemd.timed_client import TimedClient

_QUIET_SEC = 0.01
"""So long a round waits for what may belong to the same change."""
_KERNEL_PAUSE_SEC = 0.03
_RETRY_SEC, _RETRY_MAX_SEC = 0.1, 3.0
_FAILING_SHARE = 0.1
"""So much of its pause a round that follows a failure lasts out, whoever wakes it."""
_MANY_FAILURES, _PATIENT_SEC = 40, 30.0
"""After so many in a row, nothing is going to be different soon."""
_HUNG_SEC = 600.0
"""A round that takes longer than this never ends: systemd is to start the agent anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How the agent begins."""

    load: Callable[[], World]
    """Reads the configuration and the node; raises `InputError` or `HostError`."""
    connect: Callable[[OnChange], Client]
    """A client that tells of changes."""
    journal: Journal
    root: Path = Path("/")
    """Where is read what is left of the host's memory and the like."""
    manager: Manager = SYSTEM
    socket: Path | None = None
    """Where it serves, unless systemd hands it sockets."""
    environment: MutableMapping[str, str]


class Daemon:
    """The agent."""

    def __init__(self, setup: Setup) -> None:
        """Read the configuration.

        Raises:
            InputError, HostError: it is wrong, or the node can't be read.
        """
        self._setup = setup
        self._counters = Counters()
        self._journal = setup.journal
        self._notifier = Notifier(setup.environment)
        world = setup.load()
        timed = TimedClient(setup.connect(self._on_bus), self._counters.operation)
        self._bus = Guarded(timed, lambda: self._board.world.guard.claim(self._board.world))
        self._client = CachingClient(self._bus, world.cgroups)
        self._board = Board(world.with_client(self._client), self._journal, self._counters)
        self._endings = Endings(self._board, self._bus, self._on_ended)
        self._board.world = self._own(world)
        manifests = Manifests(self._config.manifests)
        self._rounds = Rounds(self._board, manifests, self._client, self._endings)
        self._orphans = Orphans(self._board, self._bus, on_due=self._due_now)
        self._reservations = Reservations(self._board)
        self._oom = OomWatch(self._board, self._endings)
        self._evictor = Evictor(
            self._board, self._bus, self._endings, on_change=self._due_now, root=setup.root
        )
        self._due, self._kernel_told, self._end = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._of_memory: set[UnitName] = set()
        self._reserved: frozenset[UnitName] = frozenset()
        self._reload_asked = False
        self._verified_at = time.monotonic()
        self._failures = 0
        self._rounded_at = time.monotonic()
        self._is_ready = False
        self._status = ""

    def _own(self, world: World) -> LiveWorld:
        return replace(
            world.with_client(self._client),
            guard=Guard(self._setup.root),
            on_note=self._board.note,
        )

    @property
    def _directories(self) -> tuple[str, ...]:
        """Whose files are the agent's business: manifests, and the marks of evicted pods."""
        return (*self._config.manifests, str(self._board.world.store.marks))

    @property
    def _config(self) -> Config:
        return self._board.world.config

    async def run(self) -> None:
        """Keep the node right until SIGTERM or SIGINT.

        Raises:
            HostError: it can't listen where it is told to, or watch, or another agent runs.
        """
        if (other := living_agent(self._board.world.store)) is not None:
            raise HostError(
                f"an agent runs already: process {other.pid}; two would undo each other's work"
            )
        self._save_settings()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end.set)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        async with AsyncExitStack() as stack:
            stack.callback(self._journal.close)
            stack.callback(self._board.leave)
            stack.push_async_exit(self._bus)
            await self._connect()
            stack.push_async_callback(self._endings.close)
            stack.callback(self._orphans.close)
            server = Server(routes(self._snapshot))
            stack.push_async_callback(server.close)
            await self._serve(server)
            self._watch = self._begin_to_watch()
            stack.callback(self._watch.close)
            for text in self._watch.notes:
                self._board.note(text)
            self._board.tell(Kind.AGENT_STARTED, f"podslice keeps {self._board.world.tree.root}")
            await self._live()
            self._notifier.stopping()
            self._board.tell(Kind.AGENT_STOPPED, "the agent ends; the pods stay as they are")

    async def _connect(self) -> None:
        """Connect to systemd; no reason to give up where that fails: every call connects anew."""
        connecting = asyncio.ensure_future(self._bus.__aenter__())
        end = asyncio.create_task(self._end.wait())
        await asyncio.wait({connecting, end}, return_when=asyncio.FIRST_COMPLETED)
        for task in (connecting, end):
            task.cancel()
        with suppress(SystemdError, asyncio.CancelledError):
            await connecting

    async def _live(self) -> None:
        """Do everything at once until the end is asked for, or something ends that must not."""
        parts = [
            asyncio.create_task(part)
            for part in (
                self._evictor.run(),  # its first look tells the first round what is short
                self._keep_right(),
                self._follow_kernel(),
                self._feed_watchdog(),
            )
        ]
        end = asyncio.create_task(self._end.wait())
        await asyncio.wait({end, *parts}, return_when=asyncio.FIRST_COMPLETED)
        for task in (end, *parts):
            task.cancel()
        results = await asyncio.gather(*parts, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                # a mistake of ours: systemd starts the agent anew
                self._board.tell(Kind.AGENT_FAILED, f"the agent ends by a mistake: {result!r}")
                raise result

    def _begin_to_watch(self) -> Watch:
        try:
            return Watch(
                self._directories,
                manager=self._setup.manager,
                on_manifests=self._due_now,
                on_unit=self._on_unit,
                on_memory_event=self._on_memory_event,
                on_pressure=self._evictor.wake,
            )
        except OSError as error:
            raise HostError(
                f"nothing can be watched: {error.strerror}; see sysctl"
                " fs.inotify.max_user_instances"
            ) from error

    async def _serve(self, server: Server) -> None:
        handed = listen_fds(self._setup.environment)
        if handed:
            await server.serve_sockets(handed)
        elif self._setup.socket is not None:
            await server.serve_unix(self._setup.socket, group="podslice")
        if self._config.listen:
            host, _, port = self._config.listen.rpartition(":")
            await server.serve_tcp(host.strip("[]"), int(port))

    # What it does.

    async def _keep_right(self) -> NoReturn:
        """Take a round whenever one is due, and once in a while."""
        while True:
            self._due.clear()
            pause_sec = await self._round()
            try:
                async with asyncio.timeout(pause_sec):
                    await self._due.wait()
            except TimeoutError:
                pass
            # what fails may wake us itself: a job that failed is a change, too
            patience_sec = pause_sec * _FAILING_SHARE if self._failures else 0.0
            await asyncio.sleep(max(_QUIET_SEC, patience_sec))

    async def _round(self) -> float:
        """One round with everything that follows from it; returns how long the next has time."""
        if self._reload_asked:
            self._reload()
        started, is_settled, is_failed = time.monotonic(), False, False
        if started - self._verified_at >= self._config.sync_period_usec / 1e6:
            self._verified_at = started
            self._client.verify()
        try:
            is_settled = (await self._rounds.take()).is_settled
        except (SystemdError, HostError, InputError) as error:
            is_failed = True
            self._board.fail("reconcile", str(error))
        else:
            self._board.recover("reconcile")
        self._counters.reconciled(time.monotonic() - started, failed=is_failed)
        self._failures = 0 if is_settled else self._failures + 1
        self._rounded_at = time.monotonic()
        self._look_around()
        self._say_ready()
        return self._pause_sec()

    def _pause_sec(self) -> float:
        if not self._failures:
            return self._config.sync_period_usec / 1e6
        if self._failures > _MANY_FAILURES:
            return _PATIENT_SEC
        return min(_RETRY_SEC * 2.0 ** min(self._failures - 1, 10), _RETRY_MAX_SEC)

    def _look_around(self) -> None:
        """What follows from a look, beside the plan."""
        state = self._board.state
        if state is None:
            return
        root = self._board.world.tree.root.removesuffix(".slice")
        self._reserved = frozenset(unit.name for unit in state.desired.units if not unit.owned)
        new = self._watch.follow(
            {
                name: unit.control_group
                for name, unit in state.observed.units.items()
                if unit.control_group
                and name.endswith(f".{UnitKind.SLICE}")
                and (name.startswith(root) or name in self._reserved)
            }
        )
        if new and self._client.verify(new):
            # nobody would have told what became of them before they were watched
            self._due_now()
        self._oom.follow()
        self._reservations.check()
        self._orphans.check()
        self._board.publish()

    def _say_ready(self) -> None:
        state = self._board.state
        count = len(state.desired.pods) if state else 0
        problems = self._board.problems
        text = f"{count} pod{'' if count == 1 else 's'}"
        text += f"; {problems[0]}" if problems else ""
        if not self._is_ready:
            self._notifier.ready(text)
            self._is_ready = True
        elif text != self._status:
            self._notifier.status(text)
        self._status = text

    def _reload(self) -> None:
        """Read the configuration anew; a wrong one leaves everything as it is."""
        self._reload_asked = False
        self._notifier.reloading()
        before = self._config
        try:
            world = self._own(self._setup.load())
            world.store.load()  # which are of another control group are out of its reach
        except (InputError, HostError) as error:
            problems = error.problems if isinstance(error, InputError) else (error,)
            said = "; ".join(map(str, problems))
            self._board.fail("configuration", f"the previous configuration stays in effect: {said}")
        else:
            self._board.world = world
            self._save_settings()
            self._board.recover("configuration")
            self._rounds.reload(Manifests(self._config.manifests))
            self._watch.direct(self._directories)
            if self._config.listen != before.listen:
                self._board.note("listen has changed; it takes effect with a restart")
        self._client.forget(None)
        self._notifier.ready(self._status)

    def _save_settings(self) -> None:
        """Record the configuration as the last valid one; without room for it, it is not known."""
        world = self._board.world
        with suppress(HostError):
            if world.origin.settings is not None and world.store.load().pods:
                world.store.save_settings(world.origin.settings)

    async def _follow_kernel(self) -> NoReturn:
        """Look at what the kernel has told of memory."""
        while True:
            await self._kernel_told.wait()
            self._kernel_told.clear()
            names, self._of_memory = self._of_memory, set()
            self._oom.check(names)
            self._evictor.wake()
            # it may tell a hundred times a second
            await asyncio.sleep(_KERNEL_PAUSE_SEC)

    async def _feed_watchdog(self) -> None:
        """Tell systemd that the agent lives, as long as rounds end."""
        period_sec = self._notifier.watchdog_sec
        while period_sec is not None:
            if time.monotonic() - self._rounded_at < _HUNG_SEC:
                self._notifier.watchdog()
            await asyncio.sleep(period_sec / 2)
        await self._end.wait()

    def _snapshot(self) -> Snapshot:
        return snapshot(self._board, self._setup.root)

    # What wakes it.

    def _due_now(self) -> None:
        self._due.set()

    def _on_hangup(self) -> None:
        self._reload_asked = True
        self._due.set()

    def _on_bus(self, name: UnitName | None) -> None:
        if name is None or self._is_ours(name):
            self._on_unit(name)

    def _on_unit(self, name: UnitName | None) -> None:
        """A unit may be another than it was; with None any unit."""
        self._client.forget(name)
        self._due.set()

    def _is_ours(self, name: UnitName) -> bool:
        root = self._board.world.tree.root.removesuffix(".slice")
        if name.startswith((root, "podslice-pod")) or name.endswith(".mount"):
            return True
        return name in self._reserved

    def _on_memory_event(self, name: UnitName) -> None:
        self._of_memory.add(name)
        self._kernel_told.set()

    def _on_ended(self, pod: str, slice_: UnitName) -> None:
        """A pod that the agent has stopped can be forgotten now, or made again, empty."""
        self._rounds.forget(pod, slice_)
        self._oom.forget(slice_)
        self._due.set()
