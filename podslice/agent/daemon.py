"""The agent process: connects its parts, starts them, and stops them at SIGTERM.

One process with one event loop; only that loop is waited for. What fails is reported and retried:
the agent stops when asked to, and leaves the pods unchanged.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from podslice.agent.container_ends import ContainerEnds, PodmanExits, ServicesInPods
from podslice.agent.context import AgentContext, Counters, MakePart, TimedClient
from podslice.agent.endpoints.http import Server
from podslice.agent.endpoints.metrics import routes
from podslice.agent.endpoints.snapshot import Snapshot, capture
from podslice.agent.evictor import Evictor
from podslice.agent.manifests import ManifestDirectories
from podslice.agent.oom_kills import OomdMonitor, OomMonitor
from podslice.agent.orphans import OrphanCollector
from podslice.agent.reconciler import Reconciler
from podslice.agent.reservations import ReservationMonitor
from podslice.agent.service_process import COMPLETE_QUIET_SEC, Scheduler, ServiceProcess
from podslice.agent.terminations import Terminations
from podslice.agent.watcher import Watcher, WatchEvents
from podslice.errors import HostError, InputError, SystemdError
from podslice.model.config import Config
from podslice.model.container_exit import ContainerExit
from podslice.model.event import Kind
from podslice.model.unit import SYSTEM, Manager, UnitKind, UnitName
from podslice.reconcile.assess import Assessment
from podslice.reconcile.world import Guard, Guarded, LiveWorld, World
from podslice.systemd.caching_client import CachingClient
from podslice.systemd.client import Client, OnChange, OnExit
from podslice.systemd.journal import Journal
from podslice.systemd.notify import Notifier


class Setup(NamedTuple):
    """The arguments of the agent."""

    load: Callable[[], World]
    """Reads the configuration and the node; raises `InputError` or `HostError`."""
    connect: Callable[[OnChange, OnExit], Client]
    """Returns a client that reports changes, and exits of services."""
    journal: Journal
    notifier: Notifier
    program: str = "/usr/bin/podslice"
    """The path of podslice."""
    parts: Sequence[MakePart] = ()
    """The parts that features add."""
    root: Path = Path("/")
    """The root directory of the host."""
    manager: Manager = SYSTEM
    sockets: Sequence[socket.socket] = ()
    """The sockets that systemd passed."""
    socket_path: Path | None = None
    """The socket file to serve without those."""


class Daemon:
    """The agent process."""

    def __init__(self, setup: Setup) -> None:
        """Read the configuration.

        Raises:
            InputError, HostError: it is invalid, or the node cannot be read.
        """
        self._setup = setup
        world = setup.load()
        counters = Counters()
        timed = TimedClient(setup.connect(self._on_bus_signal, self._on_exit), counters)
        self._bus = Guarded(timed, self._claim)
        self._client = CachingClient(self._bus, world.cgroups)
        self._context = AgentContext(world.with_client(self._client), setup.journal, counters)
        self._units = UnitFilter(world.tree.root)
        self._scheduler = Scheduler(lambda: self._config.sync_period_usec / 1e6)
        request = self._scheduler.request
        self._terminations = Terminations(self._context, self._bus, self._on_terminated)
        self._context.world = self._complete(world)
        self._reconciler = Reconciler(
            self._context, self._manifests(), self._client, self._terminations
        )
        self._orphans = OrphanCollector(self._context, self._bus, on_due=request)
        self._evictor = Evictor(
            self._context, self._bus, self._terminations, on_change=request, root=setup.root
        )
        self._oom = OomMonitor(self._context, self._terminations, on_event=self._evictor.wake)
        self._oomd = OomdMonitor(self._context)
        self._services = ServicesInPods(self._context, self._bus, on_found=request)
        self._ends = ContainerEnds(self._context, self._oomd)
        self._podman = PodmanExits(self._context, self._ends, on_exit=request, root=setup.root)
        self._reservations = ReservationMonitor(self._context)
        self._parts = [make(self._context, setup.program) for make in setup.parts]
        self._process = ServiceProcess(setup.notifier, self._context.events)
        self._is_reload_requested = False
        self._verified_at = time.monotonic()

    @property
    def _config(self) -> Config:
        return self._context.world.config

    @property
    def _watched_directories(self) -> tuple[str, ...]:
        """Return the directories of manifests, of the marks of evicted pods, and of changes by verbs."""
        store = self._context.world.store
        return (*self._config.manifests, str(store.marks), str(store.manual_changes.directory))

    def _manifests(self) -> ManifestDirectories:
        return ManifestDirectories(self._config.manifests, validate=self._config.validate)

    def _complete(self, world: World) -> LiveWorld:
        return replace(
            world.with_client(self._client),
            guard=Guard(self._setup.root),
            on_note=self._context.events.note,
        )

    def snapshot(self) -> Snapshot:
        """Return the state that the endpoints publish."""
        return capture(self._context, self._setup.root, self._services.services)

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT.

        Raises:
            HostError: another agent runs, or sockets or files cannot be opened or watched.
        """
        setup, process = self._setup, self._process
        process.refuse_second(self._context.world.store)
        self._save_options()
        process.limit_threads()
        process.handle_signals(self._on_hangup)
        async with AsyncExitStack() as stack:
            stack.callback(self._setup.journal.close)
            stack.callback(self._context.withdraw)
            stack.push_async_exit(self._bus)
            await process.connect(self._bus)
            stack.push_async_callback(self._terminations.close)
            closing = (each.close for each in self._parts)
            for close in (self._orphans.close, self._oomd.close, *closing):
                stack.callback(close)
            server = Server(routes(self.snapshot))
            stack.push_async_callback(server.close)
            await process.serve(server, setup.sockets, setup.socket_path, self._config.listen)
            self._watcher = self._open_watcher()
            stack.callback(self._watcher.close)
            for text in self._watcher.notes:
                self._context.events.note(text)
            root = self._context.world.tree.root
            self._context.events.report(Kind.AGENT_STARTED, f"the agent manages {root}")
            await process.run_parts(
                (
                    self._evictor.run(),  # its first observation sets the first round's conditions
                    self._scheduler.run(self._run_round),
                    self._oom.run(),
                    self._services.run(),
                    *(each.run() for each in self._parts),
                    process.feed_watchdog(self._scheduler),
                )
            )
            self._setup.notifier.stopping()
            self._context.events.report(
                Kind.AGENT_STOPPED, "the agent stops; pods remain unchanged"
            )

    def _open_watcher(self) -> Watcher:
        events = WatchEvents(
            on_manifests=self._scheduler.request,
            on_complete_manifests=partial(self._scheduler.request, COMPLETE_QUIET_SEC),
            on_unit=self._on_unit_changed,
            on_memory_event=self._oom.notice,
            on_pressure=self._evictor.wake,
            on_exit_file=self._podman.notice,
        )
        try:
            return Watcher(self._watched_directories, events, manager=self._setup.manager)
        except OSError as error:
            raise HostError(
                f"cannot watch files: {error.strerror}; see sysctl fs.inotify.max_user_instances"
            ) from error

    # A round: reconcile, then everything that follows from what was observed.

    async def _run_round(self) -> bool:
        """Run one round; return whether everything is as desired."""
        if self._is_reload_requested:
            self._reload()
        started, is_settled, is_failed = time.monotonic(), False, False
        self._ends.begin()
        if started - self._verified_at >= self._config.sync_period_usec / 1e6:
            self._verified_at = started
            self._client.verify()
            self._context.world.store.verify()
        try:
            is_settled = (await self._reconciler.reconcile()).is_settled
        except (SystemdError, HostError, InputError) as error:
            is_failed = True
            self._context.status.fail("reconcile", str(error))
        else:
            self._context.status.recover("reconcile")
        self._context.counters.reconciled(time.monotonic() - started, failed=is_failed)
        await self._follow_up()
        for each in self._parts:
            await each.follow()
        self._notify()
        return is_settled

    async def _follow_up(self) -> None:
        assessment = self._context.assessment
        if assessment is None:
            return
        await self._services.follow()
        self._units.update(assessment)
        new = self._watcher.follow(self._units.watched_groups(assessment))
        if new and self._client.verify(new):
            # they changed before they were watched
            self._scheduler.request()
        self._oom.follow()
        self._oomd.follow()
        self._ends.follow(self._services.services)
        self._podman.follow()
        self._reservations.check()
        self._orphans.check()
        self._context.publish()

    def _notify(self) -> None:
        assessment, problems = self._context.assessment, self._context.status.problems
        count = len(assessment.desired.pods) if assessment else 0
        text = f"{count} pod{'' if count == 1 else 's'}"
        text += f"; {problems[0]}" if problems else ""
        self._process.notify(text)

    # The configuration.

    def _reload(self) -> None:
        """Read the configuration again; an invalid one leaves the previous one in effect."""
        self._is_reload_requested = False
        self._setup.notifier.reloading()
        before = self._config
        try:
            world = self._complete(self._setup.load())
            world.store.load()  # raises where records belong to another control group
        except (InputError, HostError) as error:
            problems = error.problems if isinstance(error, InputError) else (error,)
            text = "; ".join(map(str, problems))
            self._context.status.fail(
                "configuration", f"the previous configuration stays in effect: {text}"
            )
        else:
            self._context.world = world
            self._save_options()
            self._context.status.recover("configuration")
            self._reconciler.reload(self._manifests())
            self._watcher.set_directories(self._watched_directories)
            if self._config.listen != before.listen:
                self._context.events.note("listen has changed; restart the agent to apply it")
        self._client.forget(None)
        self._setup.notifier.ready(self._process.notified or "")

    def _save_options(self) -> None:
        """Record the configuration as the last valid one, if it can be written."""
        world = self._context.world
        with suppress(HostError):
            if world.origin.options is not None and world.store.load().pods:
                world.store.save_options(world.origin.options)

    # What requests a round.

    def _on_hangup(self) -> None:
        self._is_reload_requested = True
        self._scheduler.request()

    def _on_exit(self, name: UnitName, last: ContainerExit) -> None:
        if name in self._units or self._services.may_have(name):
            self._ends.notice_exit(name, last)

    async def _claim(self, client: Client) -> None:
        """Refuse changes where podslice does not own the root of the present configuration."""
        await self._context.world.claim(client)

    def _on_bus_signal(self, name: UnitName | None) -> None:
        self._services.notice(name)
        if name is None or name in self._units or name in self._services.names:
            self._on_unit_changed(name)
            if name is not None:
                self._ends.notice(name)

    def _on_unit_changed(self, name: UnitName | None) -> None:
        """Observe a unit again; None: every unit."""
        self._client.forget(name)
        self._scheduler.request()

    def _on_terminated(self, pod: str, slice_: UnitName) -> None:
        """Let the next round remove a terminated pod, or start it again."""
        self._reconciler.forget(pod, slice_)
        self._oom.forget(slice_)
        self._scheduler.request()


class UnitFilter:
    """The units below the root, and the reserved slices."""

    def __init__(self, root: UnitName) -> None:
        self._prefix = root.removesuffix(".slice")
        self._reserved: frozenset[UnitName] = frozenset()

    def update(self, assessment: Assessment) -> None:
        """Take the root and the reserved slices from an assessment."""
        self._prefix = assessment.desired.root.removesuffix(".slice")
        self._reserved = frozenset(unit.name for unit in assessment.desired.units if not unit.owned)

    def __contains__(self, name: UnitName) -> bool:
        """Return whether a change of a unit concerns the agent."""
        if name.startswith((self._prefix, "podslice-pod")) or name.endswith(".mount"):
            return True
        return name in self._reserved

    def watched_groups(self, assessment: Assessment) -> Mapping[UnitName, str]:
        """Return the control groups to watch, by their slices."""
        return {
            name: unit.control_group
            for name, unit in assessment.observed.units.items()
            if unit.control_group
            and name.endswith(f".{UnitKind.SLICE}")
            and (name.startswith(self._prefix) or name in self._reserved)
        }
