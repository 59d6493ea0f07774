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
from podslice.agent.endpoints.metrics import routes
from podslice.agent.endpoints.snapshot import Snapshot, capture
from podslice.agent.evictor import Evictor
from podslice.agent.manifests import ManifestDirectories
from podslice.agent.oom_kills import OomdMonitor, OomMonitor
from podslice.agent.orphans import OrphanCollector
from podslice.agent.reconciler import Reconciler
from podslice.agent.reservations import ReservationMonitor
from podslice.agent.service_process import COMPLETE_QUIET_SEC, ServiceProcess
from podslice.agent.terminations import Terminations
from podslice.agent.watcher import Watcher, WatchEvents
from podslice.errors import HostError, InputError, SystemdError
from podslice.model.config import Config
from podslice.model.container_exit import ContainerExit
from podslice.model.event import Kind
from podslice.model.unit import SYSTEM, Manager, UnitKind, UnitName
from podslice.reconcile.assess import Assessment, living_agent
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
        world, counters = setup.load(), Counters()
        # From the inside out: what reaches systemd is measured, after the check of who owns the
        # root; reads come from the cache.
        timed = TimedClient(setup.connect(self._on_bus_signal, self._on_exit), counters)
        self._bus = Guarded(timed, self._claim)
        self._client = CachingClient(self._bus, world.cgroups)
        context = AgentContext(world.with_client(self._client), setup.journal, counters)
        self._context = context
        context.world = self._complete(world)
        self._process = ServiceProcess(
            setup.notifier, context.events, lambda: self._config.sync_period_usec / 1e6
        )
        request = self._process.scheduler.request
        self._units = UnitFilter(world.tree.root)
        self._terminations = Terminations(context, self._bus, self._on_terminated)
        self._reconciler = Reconciler(context, self._manifests(), self._client, self._terminations)
        self._evictor = Evictor(
            context, self._bus, self._terminations, on_change=request, root=setup.root
        )
        self._oom = OomMonitor(context, self._terminations, on_event=self._evictor.wake)
        self._services = ServicesInPods(context, self._bus, on_found=request)
        oomd = OomdMonitor(context)
        self._ends = ContainerEnds(context, oomd, self._services)
        self._podman = PodmanExits(context, self._ends, on_exit=request, root=setup.root)
        self._parts = (
            # its first observation sets the conditions of the first round
            self._evictor,
            # each follows a round after those that it takes results from
            *(self._services, self._oom, oomd, self._ends, self._podman),
            ReservationMonitor(context),
            OrphanCollector(context, self._bus, on_due=request),
            *(make(context, setup.program) for make in setup.parts),
        )
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
        setup, context, process = self._setup, self._context, self._process
        if (other := living_agent(context.world.store)) is not None:
            raise HostError(
                f"an agent is already running as process {other.pid}; stop it first: two agents"
                " would undo each other's changes"
            )
        self._save_options()
        # what is opened last is closed first: the parts have stopped when the bus is closed, and the
        # published state is withdrawn at the end
        async with AsyncExitStack() as stack:
            stack.callback(context.withdraw)
            await process.start(stack, self._bus, self._on_hangup)
            stack.push_async_callback(self._terminations.close)
            for part in self._parts:
                stack.callback(part.close)
            await process.serve(
                stack,
                routes(self.snapshot),
                sockets=setup.sockets,
                path=setup.socket_path,
                listen=self._config.listen,
            )
            self._watcher = self._open_watcher()
            stack.callback(self._watcher.close)
            for text in self._watcher.notes:
                context.events.note(text)
            context.events.report(
                Kind.AGENT_STARTED, f"the agent manages {context.world.tree.root}"
            )
            await process.run(self._run_round, *(part.run() for part in self._parts))
            context.events.report(Kind.AGENT_STOPPED, "the agent stops; pods remain unchanged")

    def _open_watcher(self) -> Watcher:
        request = self._process.scheduler.request
        events = WatchEvents(
            on_manifests=request,
            on_complete_manifests=partial(request, COMPLETE_QUIET_SEC),
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

    async def _run_round(self) -> bool:
        """Reconcile, then do what follows from what was observed; return whether all is as desired."""
        context = self._context
        # before the round takes anything from the configuration
        if self._is_reload_requested:
            self._reload()
        started, is_settled, is_failed = time.monotonic(), False, False
        # what is noticed from here on may not be in the assessment of this round
        self._ends.begin()
        # a signal may be lost: from time to time nothing is taken from a cache
        if started - self._verified_at >= self._config.sync_period_usec / 1e6:
            self._verified_at = started
            self._client.verify()
            context.world.store.verify()
        try:
            is_settled = await self._reconciler.reconcile()
        except (SystemdError, HostError, InputError) as error:
            is_failed = True
            context.status.fail("reconcile", str(error))
        else:
            context.status.recover("reconcile")
        context.counters.reconciled(time.monotonic() - started, failed=is_failed)
        # also after a failure: pods end, and their containers are observed, in any case
        assessment = context.assessment
        if assessment is not None:
            self._watch(assessment)
            context.publish()
        for part in self._parts:
            await part.follow()
        count, problems = len(assessment.desired.pods) if assessment else 0, context.status.problems
        text = f"{count} pod{'' if count == 1 else 's'}"
        self._process.notify(f"{text}; {problems[0]}" if problems else text)
        return is_settled

    def _watch(self, assessment: Assessment) -> None:
        """Watch the units of an assessment."""
        self._units.update(assessment)
        new = self._watcher.follow(self._units.watched_groups(assessment))
        if new and self._client.verify(new):
            # they changed before they were watched
            self._process.scheduler.request()

    # The configuration.

    def _reload(self) -> None:
        """Read the configuration again; an invalid one leaves the previous one in effect."""
        self._is_reload_requested = False
        context, notifier, before = self._context, self._setup.notifier, self._config
        notifier.reloading()
        try:
            world = self._complete(self._setup.load())
            world.store.load()  # raises where records belong to another control group
        except (InputError, HostError) as error:
            problems = error.problems if isinstance(error, InputError) else (error,)
            text = f"the previous configuration stays in effect: {'; '.join(map(str, problems))}"
            context.status.fail("configuration", text)
        else:
            context.world = world
            self._save_options()
            context.status.recover("configuration")
            self._reconciler.reload(self._manifests())
            self._watcher.set_directories(self._watched_directories)
            if self._config.listen != before.listen:
                context.events.note("listen has changed; restart the agent to apply it")
        self._client.forget(None)
        notifier.ready(self._process.notified or "")

    def _save_options(self) -> None:
        """Record the configuration as the last valid one, if it can be written."""
        world = self._context.world
        with suppress(HostError):
            if world.origin.options is not None and world.store.load().pods:
                world.store.save_options(world.origin.options)

    # What requests a round.

    def _on_hangup(self) -> None:
        self._is_reload_requested = True
        self._process.scheduler.request()

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
        self._process.scheduler.request()

    def _on_terminated(self, pod: str, slice_: UnitName) -> None:
        """Let the next round remove a terminated pod, or start it again."""
        self._reconciler.forget(pod, slice_)
        self._oom.forget(slice_)
        self._process.scheduler.request()


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
        # The unit of a volume is named after its path, without the slice of its pod.
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
