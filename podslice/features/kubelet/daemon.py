"""The process of an agent that applies the pod levels of a kubelet's pods, and nothing else.

What fails is reported and retried. The values remain when the agent stops, unless it is to remove
them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from podslice.agent.context import Counters, EventLog, NodeStatus, TimedClient
from podslice.agent.endpoints.http import Server
from podslice.agent.service_process import Scheduler, ServiceProcess
from podslice.errors import HostError
from podslice.features.kubelet.endpoints import LevelSnapshot, level_routes
from podslice.features.kubelet.level_record import LevelRecord
from podslice.features.kubelet.level_slices import LevelSlices
from podslice.features.kubelet.node import KubeletNode
from podslice.features.kubelet.pod_levels import PodLevels
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Config
from podslice.model.event import Kind
from podslice.model.unit import UnitName
from podslice.store.files import release_lock, try_lock
from podslice.systemd.client import Client, OnChange
from podslice.systemd.journal import Journal
from podslice.systemd.notify import Notifier

QUIET_SEC = 1.0
"""Delay before a round after a signal: a pod and its containers start together."""

OVERDUE_SEC = 120.0
"""A read ends before: the kubelet has 30 s for each of three documents, and they are parsed."""


class KubeletSetup(NamedTuple):
    """The arguments of the agent."""

    read: Callable[[], KubeletNode]
    """Reads the kubelet; raises `HostError` or `InputError`. It may take seconds."""
    refresh: Callable[[], None]
    """Has the next reading ask for the configuration of the kubelet again."""
    connect: Callable[[OnChange], Client]
    """Returns a client that reports changes."""
    config: Config
    directory: Path
    """Of the record of what was set, and of the lock of all such agents."""
    journal: Journal
    notifier: Notifier
    cgroups: CgroupFs
    sockets: Sequence[socket.socket] = ()
    """The sockets that systemd passed."""
    socket_path: Path | None = None
    """The socket file to serve without those."""
    restores: bool = False
    """Whether to remove what was set before the agent exits."""


class KubeletDaemon:
    """The agent process."""

    def __init__(self, setup: KubeletSetup) -> None:
        """Connect nothing yet."""
        self._setup = setup
        self._counters = Counters()
        self._events = EventLog(setup.journal)
        self._status = NodeStatus(self._events, lambda: None)
        self._scheduler = Scheduler(lambda: setup.config.sync_period_usec / 1e6)
        self._client = TimedClient(setup.connect(self._on_signal), self._counters)
        self._levels = PodLevels(
            LevelSlices(self._client, setup.cgroups),
            setup.read,
            LevelRecord(setup.directory),
            events=self._events,
            status=self._status,
            counters=self._counters,
        )
        self._process = ServiceProcess(setup.notifier, self._events)

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT.

        Raises:
            HostError: another agent runs, or a socket cannot be opened.
        """
        setup, process = self._setup, self._process
        held = try_lock(setup.directory)
        if held is None:
            raise HostError(
                "an agent that applies pod levels is already running on this host, perhaps in a"
                f" container; stop it first; to find it: fuser -v {setup.directory}/lock"
            )
        process.limit_threads()
        process.handle_signals(self._on_hangup)
        async with AsyncExitStack() as stack:
            stack.callback(
                lambda: release_lock(setup.directory, held, is_needed=bool(self._levels.plan.own))
            )
            stack.callback(setup.journal.close)
            stack.push_async_exit(self._client)
            await process.connect(self._client)
            server = Server(level_routes(self.snapshot))
            stack.push_async_callback(server.close)
            await process.serve(server, setup.sockets, setup.socket_path, setup.config.listen)
            self._events.report(
                Kind.AGENT_STARTED, "the agent applies pod levels on the slices of a kubelet"
            )
            await process.run_parts(
                (self._scheduler.run(self._run_round), process.feed_watchdog(self._scheduler))
            )
            setup.notifier.stopping()
            if setup.restores:
                await self._levels.remove()
            count = len(self._levels.plan.own)
            remaining = f"values remain on {count} slice{'' if count == 1 else 's'}"
            text = f"the agent stops; {remaining if count else 'no values remain'}"
            self._events.report(Kind.AGENT_STOPPED, text)

    async def _run_round(self) -> bool:
        """Run a round; notify the service manager of what is applied, and of the first problem."""
        is_settled = await self._levels.run_round()
        plan, problems = self._levels.plan, self._status.problems
        left = len({each.pod for each in plan.left})
        text = f"pod levels: {len(plan.own)} applied, {left} left alone"
        self._process.notify(f"{text}; {problems[0]}" if problems else text)
        return is_settled

    def snapshot(self) -> LevelSnapshot:
        """Return the state that the endpoints publish."""
        reading_sec = self._levels.reading_sec
        overdue = f"the kubelet: a read has not ended after {reading_sec:.0f} s"
        return LevelSnapshot(
            plan=self._levels.plan,
            counters=self._counters,
            events=self._events.counts,
            failures=tuple(map(str, self._status.failures)),
            overdue=overdue if reading_sec >= OVERDUE_SEC else "",
        )

    # What requests a round.

    def _on_hangup(self) -> None:
        self._setup.refresh()
        self._scheduler.request()

    def _on_signal(self, name: UnitName | None) -> None:
        """Run a round after a change of a slice of the kubelet; None: of any unit."""
        if name is None or self._levels.concerns(name):
            self._scheduler.request(QUIET_SEC)
