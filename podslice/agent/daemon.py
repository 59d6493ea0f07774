"""The agent's life: what wakes it, what it does then, and its end.

One process with one event loop; nothing in it waits for anything but that loop. Whatever fails is
told, and tried again: the agent ends when it is told to, and leaves the pods as they are.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, MutableMapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from podslice.agent.board import Board
from podslice.agent.counters import Counters
from podslice.agent.evictor import Evictor
from podslice.agent.http import Server
from podslice.agent.journal import Journal
from podslice.agent.manifests import Manifests
from podslice.agent.observability import routes
from podslice.agent.oom import OomWatch
from podslice.agent.orphans import Orphans
from podslice.agent.remember import Remembering
from podslice.agent.reservations import Reservations
from podslice.agent.rounds import Rounds
from podslice.agent.snapshot import Snapshot
from podslice.agent.timed import Timed
from podslice.agent.watch import Watch
from podslice.cgroupfs import CgroupFs
from podslice.errors import BusUnavailable, HostError, InputError, SystemdError
from podslice.events import Kind
from podslice.model.config import Config
from podslice.model.desired import Desired
from podslice.model.unit import Caps, Observed, UnitKind, UnitName
from podslice.policy.evict import eviction_thresholds
from podslice.procfs import read_process
from podslice.reconcile import World
from podslice.reconcile.observation import control_group
from podslice.shortage import observe_signals
from podslice.stats import gather
from podslice.systemd.bus import Bus
from podslice.systemd.notify import Notifier, listen_fds

_QUIET_SEC = 0.03
"""So long a round waits for what may belong to the same change."""
_RETRY_SEC, _RETRY_MAX_SEC = 0.1, 3.0
_MANY_FAILURES, _PATIENT_SEC = 40, 30.0
"""After so many in a row, nothing is going to be different soon."""
_HUNG_SEC = 600.0
"""A round that takes longer than this never ends: systemd is to start the agent anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How the agent begins."""

    load: Callable[[], World]
    """Reads the configuration and the node; raises `InputError` or `HostError`."""
    user: bool = False
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
        self._journal = Journal(user=setup.user)
        self._notifier = Notifier(setup.environment)
        self._bus = Timed(Bus(user=setup.user, on_change=self._on_bus), self._counters.operation)
        self._client = Remembering(self._bus, CgroupFs())
        self._board = Board(self._load(), self._journal, self._counters)
        self._manifests = Manifests(self._config.manifests)
        self._rounds = Rounds(self._board, self._manifests, self._client)
        self._orphans = Orphans(self._board, self._bus)
        self._reservations = Reservations(self._board)
        self._oom = OomWatch(self._board, self._bus, self._on_stopped)
        self._evictor = Evictor(self._board, self._bus, on_change=self._due_now)
        self._due, self._kernel_told, self._end = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._of_memory: set[UnitName] = set()
        self._reload_asked = False
        self._verify_asked = True
        self._failures = 0
        process = read_process(os.getpid())
        self._group = process.control_group if process else ""
        self._rounded_at = time.monotonic()
        self._is_ready = False
        self._status = ""

    def _load(self) -> World:
        return replace(self._setup.load(), client=self._client, on_note=self._note)

    def _note(self, text: str) -> None:
        self._board.note(text)

    @property
    def _directories(self) -> tuple[str, ...]:
        """Whose files are the agent's business: manifests, and the marks of evicted pods."""
        return (*self._config.manifests, str(self._board.world.store.root / "evicted"))

    @property
    def _config(self) -> Config:
        return self._board.world.config

    async def run(self) -> None:
        """Keep the node right until SIGTERM or SIGINT.

        Raises:
            HostError: it can't listen where it is told to.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end.set)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        async with AsyncExitStack() as stack:
            stack.callback(self._journal.close)
            stack.callback(self._board.leave)
            stack.push_async_exit(self._bus)
            with suppress(BusUnavailable):  # no reason to give up: every call connects anew
                await self._bus.__aenter__()
            server = Server(routes(self._snapshot))
            stack.push_async_callback(server.close)
            await self._serve(server)
            self._watch = Watch(
                self._directories,
                user=self._setup.user,
                on_manifests=self._due_now,
                on_unit=self._on_unit,
                on_memory_event=self._on_memory_event,
                on_pressure=self._evictor.wake,
            )
            stack.callback(self._watch.close)
            for text in self._watch.notes:
                self._board.note(text)
            self._board.tell(Kind.AGENT_STARTED, f"podslice keeps {self._board.world.tree.root}")
            await self._live()
            self._notifier.stopping()
            self._board.tell(Kind.AGENT_STOPPED, "the agent ends; the pods stay as they are")

    async def _live(self) -> None:
        """Do everything at once until the end is asked for, or something ends that must not."""
        parts = [
            asyncio.create_task(part)
            for part in (
                self._keep_right(),
                self._evictor.run(),
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
                raise result  # a mistake of ours: systemd starts the agent anew

    async def _serve(self, server: Server) -> None:
        handed = listen_fds(self._setup.environment)
        if handed:
            await server.serve_sockets(handed)
        elif self._setup.socket is not None:
            self._setup.socket.parent.mkdir(parents=True, exist_ok=True)
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
                self._verify_asked = True
            await asyncio.sleep(_QUIET_SEC)

    async def _round(self) -> float:
        """One round with everything that follows from it; returns how long the next has time."""
        if self._reload_asked:
            self._reload()
        if self._verify_asked:
            self._verify_asked = False
            self._client.verify()
        started, is_settled, is_failed = time.monotonic(), False, False
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
        reserved = {unit.name for unit in state.desired.units if not unit.owned}
        new = self._watch.follow(
            {
                name: unit.control_group
                for name, unit in state.observed.units.items()
                if unit.control_group
                and name.endswith(f".{UnitKind.SLICE}")
                and (name.startswith(root) or name in reserved)
            }
        )
        for name in new:
            # nobody has told what became of it before
            self._on_unit(name)
        self._oom.follow()
        self._reservations.check()
        self._orphans.check()
        self._board.publish()

    def _say_ready(self) -> None:
        state = self._board.state
        count = len(state.desired.pods) if state else 0
        problems = self._board.problems
        text = f"{count} pods" + (f"; {problems[0]}" if problems else "")
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
            self._board.world = self._load()
        except (InputError, HostError) as error:
            self._board.fail("configuration", f"the configuration stays as it was: {error}")
        else:
            self._board.recover("configuration")
            self._manifests = Manifests(self._config.manifests)
            self._rounds.reload(self._manifests)
            self._watch.direct(self._directories)
            if self._config.listen != before.listen:
                self._board.note("listen has changed; it takes effect with a restart")
        self._client.forget(None)
        self._notifier.ready(self._status)

    async def _follow_kernel(self) -> NoReturn:
        """Look at what the kernel has told of memory."""
        while True:
            await self._kernel_told.wait()
            self._kernel_told.clear()
            names, self._of_memory = self._of_memory, set()
            self._oom.check(names)
            self._evictor.wake()
            # it may tell a hundred times a second
            await asyncio.sleep(_QUIET_SEC)

    async def _feed_watchdog(self) -> None:
        """Tell systemd that the agent lives, as long as rounds end."""
        period_sec = self._notifier.watchdog_sec
        while period_sec is not None:
            if time.monotonic() - self._rounded_at < _HUNG_SEC:
                self._notifier.watchdog()
            await asyncio.sleep(period_sec / 2)
        await self._end.wait()

    def _snapshot(self) -> Snapshot:
        """What it tells whoever asks."""
        board, state = self._board, self._board.state
        desired = state.desired if state else Desired(root=board.world.tree.root)
        observed = state.observed if state else Observed(caps=Caps(systemd_version=0))
        config, cgroups = self._config, board.world.cgroups
        return Snapshot(
            node_name=os.uname().nodename,
            pods=desired.pods,
            gather=lambda pods: gather(
                pods, observed, config, cgroups=cgroups, agent_group=self._group
            ),
            observe=lambda: observe_signals(
                Path("/"), cgroups, desired.allocation, control_group(desired.root, observed)
            ),
            counters=self._counters,
            allocation=desired.allocation,
            thresholds=eviction_thresholds(config),
            conditions=board.conditions,
            events=self._journal.counts,
            evicted=len(state.evicted) if state else 0,
            problems=board.failures,
            initializing=desired.initializing,
        )

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
        state = self._board.state
        return state is not None and name in {unit.name for unit in state.desired.units}

    def _on_memory_event(self, name: UnitName) -> None:
        self._of_memory.add(name)
        self._kernel_told.set()

    def _on_stopped(self, name: UnitName) -> None:
        """A pod's slice that the agent itself has stopped is made again, empty."""
        self._rounds.forget(name)
        self._on_unit(name)
