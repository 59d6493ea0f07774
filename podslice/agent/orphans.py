"""Reports slices below the root that belong to no pod, and removes them if configured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from podslice.agent.context import AgentContext, AgentPart
from podslice.errors import HostError
from podslice.model.event import Kind
from podslice.model.pod import DEFAULT_GRACE_SEC, Qos
from podslice.model.unit import Occupants, UnitName
from podslice.plan import StopUnit, depth_of
from podslice.reconcile.act import act_alone
from podslice.reconcile.observe import describe_processes, read_occupants
from podslice.reconcile.report import Outcome
from podslice.systemd.client import Client

REPORT_AFTER_SEC = 1.0
"""Time for the creator of a slice to put processes into it, before the slice is reported."""
REMOVE_AFTER_SEC = 10.0
"""How long an orphan is left alone."""


class OrphanCollector(AgentPart):
    """Reports and removes the orphans of the last assessment."""

    def __init__(
        self,
        context: AgentContext,
        client: Client,
        *,
        on_due: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`client` has no cache; `on_due` is called when it is time to assess again."""
        self._context = context
        self._client = client
        self._on_due = on_due
        self._now = now
        self._since: dict[UnitName, float] = {}
        self._reported: set[UnitName] = set()
        self._failed: set[UnitName] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._removing: asyncio.Task[None] | None = None

    @property
    def is_removing(self) -> bool:
        """Return whether orphans are being removed."""
        return self._removing is not None and not self._removing.done()

    async def follow(self) -> None:
        """Report new orphans, and begin to remove older ones if that is configured.

        Both are delayed, so that the creator of a slice has time to fill it, or to record its pod.
        """
        context, assessment, now = self._context, self._context.assessment, self._now()
        if assessment is None:
            return
        self._since = {name: self._since.get(name, now) for name in assessment.orphans}
        self._failed &= self._since.keys()
        self._reported &= self._since.keys()
        removes = context.world.config.collect_orphans
        for name in sorted(self._older_than(REPORT_AFTER_SEC) - self._reported):
            self._reported.add(name)
            held = ", ".join(self._occupants(name).descriptions)
            found = f"it contains {held}" if held else "it has no processes"
            removal = f"to remove it: systemctl stop {name}"
            if removes:
                removal = f"it will be stopped in {REMOVE_AFTER_SEC - REPORT_AFTER_SEC:.0f} s"
            context.events.report(
                Kind.ORPHAN_FOUND,
                f"{name} is below {context.world.tree.root} but belongs to no pod; {found};"
                f" {removal}",
                unit=name,
            )
        context.counters.orphans = len(self._since)
        old = self._older_than(REMOVE_AFTER_SEC)
        if removes and old and not self.is_removing:
            self._removing = asyncio.create_task(self._remove_all(old))
        self._set_timer()

    def close(self) -> None:
        """Stop reporting and removing orphans."""
        for each in (self._timer, self._removing):
            if each is not None:
                each.cancel()

    def _older_than(self, period_sec: float) -> set[UnitName]:
        now = self._now()
        return {name for name, since in self._since.items() if now - since >= period_sec}

    def _set_timer(self) -> None:
        """Request an assessment for when the next orphan is to be reported or removed."""
        if self._timer is not None:
            self._timer.cancel()
        is_collecting, now = self._context.world.config.collect_orphans, self._now()
        periods = (REPORT_AFTER_SEC, REMOVE_AFTER_SEC) if is_collecting else (REPORT_AFTER_SEC,)
        delays = [since + period - now for since in self._since.values() for period in periods]
        delay_sec = min((each for each in delays if each > 0), default=None)
        loop = asyncio.get_running_loop()
        self._timer = None if delay_sec is None else loop.call_later(delay_sec, self._on_due)

    async def _remove_all(self, names: set[UnitName]) -> None:
        # children before their parents
        for name in sorted(names, key=depth_of, reverse=True):
            # While earlier ones were stopped, which may take a grace period each, an apply may have
            # run.
            if not self._belongs_to_pod(name):
                await self._remove(name)
        self._set_timer()

    def _belongs_to_pod(self, name: UnitName) -> bool:
        """Return whether it has become a pod's slice: records are written before slices start."""
        world = self._context.world
        try:
            pods = world.store.load().pods
        except HostError:
            return True  # unknown
        return any(name == world.tree.pod(pod.uid, qos) for pod in pods for qos in Qos)

    def _occupants(self, name: UnitName) -> Occupants:
        return read_occupants(self._context.world.cgroups, self._context.group(name), "")

    async def _remove(self, name: UnitName) -> None:
        events, occupants = self._context.events, self._occupants(name)
        step = StopUnit(
            name=name,
            why="it belongs to no pod",
            tasks=occupants.processes,
            grace_sec=DEFAULT_GRACE_SEC,
            occupants=occupants,
            signals=(name,) if occupants.is_mixed else (),
        )
        result = await act_alone(step, self._client)
        if result.outcome is Outcome.DONE:
            left = self._context.world.cgroups.processes(self._context.group(name))
            what = f"; processes remain in its control group: {describe_processes(left)}"
            message = f"{name} was removed: it belonged to no pod{what if left else ''}"
            events.report(Kind.ORPHAN_REMOVED, message, unit=name)
            return
        # a failure is retried after the whole period
        self._since[name] = self._now()
        if name not in self._failed:
            self._failed.add(name)
            message = f"failed to remove {name}: {result.error}; the agent tries again"
            events.report(Kind.STEP_FAILED, message, unit=name)
