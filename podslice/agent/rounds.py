"""One round of the agent: reconcile, then everything that follows from what was observed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from podslice.agent.container_ends import ContainerEnds
from podslice.agent.container_keeper import ContainerKeeper
from podslice.agent.context import AgentContext
from podslice.agent.oom_kills import OomMonitor
from podslice.agent.oomd_kills import OomdMonitor
from podslice.agent.orphans import OrphanCollector
from podslice.agent.pod_services import ServicesInPods
from podslice.agent.podman_exits import PodmanExits
from podslice.agent.reconciler import Reconciler
from podslice.agent.reservations import ReservationMonitor
from podslice.agent.unit_filter import UnitFilter
from podslice.agent.watcher import Watcher
from podslice.errors import HostError, InputError, SystemdError
from podslice.systemd.caching_client import CachingClient
from podslice.systemd.notify import Notifier


class RoundParts(NamedTuple):
    """The parts that take part in a round."""

    client: CachingClient
    reconciler: Reconciler
    watcher: Watcher
    units: UnitFilter
    oom: OomMonitor
    oomd: OomdMonitor
    services: ServicesInPods
    ends: ContainerEnds
    podman: PodmanExits
    reservations: ReservationMonitor
    orphans: OrphanCollector
    containers: ContainerKeeper
    notifier: Notifier


class Rounds:
    """Runs rounds."""

    def __init__(
        self, context: AgentContext, parts: RoundParts, request: Callable[[], None]
    ) -> None:
        """`request` requests another round."""
        self._context = context
        self._parts = parts
        self._request = request
        self._verified_at = time.monotonic()
        self._is_ready = False
        self._status = ""

    @property
    def status(self) -> str:
        """Return the last status sent to the service manager."""
        return self._status

    async def run(self) -> bool:
        """Run one round; return whether everything is as desired."""
        started, is_settled, is_failed = time.monotonic(), False, False
        self._parts.ends.begin()
        if started - self._verified_at >= self._context.world.config.sync_period_usec / 1e6:
            self._verified_at = started
            self._parts.client.verify()
            self._context.world.store.verify()
        try:
            is_settled = (await self._parts.reconciler.reconcile()).is_settled
        except (SystemdError, HostError, InputError) as error:
            is_failed = True
            self._context.status.fail("reconcile", str(error))
        else:
            self._context.status.recover("reconcile")
        self._context.counters.reconciled(time.monotonic() - started, failed=is_failed)
        await self._follow_up()
        await self._parts.containers.follow()
        self._notify()
        return is_settled

    async def _follow_up(self) -> None:
        assessment = self._context.assessment
        if assessment is None:
            return
        parts = self._parts
        await parts.services.follow()
        parts.units.update(assessment)
        new = parts.watcher.follow(parts.units.watched_groups(assessment))
        if new and parts.client.verify(new):
            # they changed before they were watched
            self._request()
        parts.oom.follow()
        parts.oomd.follow()
        parts.ends.follow(parts.services.services)
        parts.podman.follow()
        parts.reservations.check()
        parts.orphans.check()
        self._context.publish()

    def _notify(self) -> None:
        assessment = self._context.assessment
        count = len(assessment.desired.pods) if assessment else 0
        problems = self._context.status.problems
        text = f"{count} pod{'' if count == 1 else 's'}"
        text += f"; {problems[0]}" if problems else ""
        if not self._is_ready:
            self._parts.notifier.ready(text)
            self._is_ready = True
        elif text != self._status:
            self._parts.notifier.status(text)
        self._status = text
