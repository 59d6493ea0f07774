"""Slices below the root that no pod accounts for: told of, and removed where that is asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from podslice.agent.board import Board
from podslice.errors import HostError
from podslice.model.event import Kind
from podslice.model.pod import DEFAULT_GRACE_SEC, Qos
from podslice.model.unit import UnitName, control_group_of
from podslice.plan import StopUnit, depth_of
from podslice.reconcile.act import act_alone
from podslice.reconcile.observe import control_group
from podslice.reconcile.occupants import Holds, name_processes, read_holds
from podslice.reconcile.report import Outcome
from podslice.systemd.client import Client

MAKING_SEC = 1.0
"""So long whoever makes a slice has to put something into it, before it is told of."""
PATIENCE_SEC = 10.0
"""How long a slice that is no pod's is left alone."""


class Orphans:
    """Finds orphans in the last look."""

    def __init__(
        self,
        board: Board,
        client: Client,
        *,
        on_due: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """The client is one that asks systemd itself; `now` is a monotonic clock.

        `on_due` is called when it is time for another look and `check`.
        """
        self._board = board
        self._client = client
        self._on_due = on_due
        self._now = now
        self._since: dict[UnitName, float] = {}
        self._told: set[UnitName] = set()
        self._next: asyncio.TimerHandle | None = None
        self._failed: set[UnitName] = set()
        self._removing: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Tell of new ones; those that have been there for a while are removed if they may be.

        A while each, so that whoever is just making a slice has the time to fill it, or to make it
        a pod's.
        """
        board, state = self._board, self._board.state
        if state is None:
            return
        now = self._now()
        self._since = {name: self._since.get(name, now) for name in state.orphans}
        self._failed &= self._since.keys()
        self._told &= self._since.keys()
        for name in sorted(self._there_for(MAKING_SEC) - self._told):
            self._told.add(name)
            board.tell(
                Kind.ORPHAN_FOUND,
                f"{name} is below {board.world.tree.root} and no pod's;"
                f" {_in_words(self._holds(name))}; {self._what_next(name)}",
                unit=name,
            )
        board.counters.orphans = len(self._since)
        old = self._there_for(PATIENCE_SEC)
        is_busy = self._removing is not None and not self._removing.done()
        if board.world.config.collect_orphans and old and not is_busy:
            self._removing = asyncio.create_task(self._remove_all(old))
        self._call_again()

    def _there_for(self, period_sec: float) -> set[UnitName]:
        now = self._now()
        return {name for name, since in self._since.items() if now - since >= period_sec}

    def _call_again(self) -> None:
        """Have another look taken when the next of them is to be told of, or removed."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        periods = [MAKING_SEC]
        if self._board.world.config.collect_orphans:
            periods.append(PATIENCE_SEC)
        now = self._now()
        left = [since + period - now for since in self._since.values() for period in periods]
        coming = [each for each in left if each > 0]
        if coming:
            self._next = asyncio.get_running_loop().call_later(min(coming), self._on_due)

    def close(self) -> None:
        """Tell of nothing more, and remove nothing more."""
        if self._next is not None:
            self._next.cancel()
        if self._removing is not None:
            self._removing.cancel()

    async def _remove_all(self, names: set[UnitName]) -> None:
        # what lies deeper goes first
        for name in sorted(names, key=depth_of, reverse=True):
            await self._remove(name)
        self._call_again()

    def _what_next(self, name: UnitName) -> str:
        if self._board.world.config.collect_orphans:
            return f"it is stopped if it is still there in {PATIENCE_SEC - MAKING_SEC:.0f} s"
        return f"to be rid of it: systemctl stop {name}"

    def _is_pods(self, name: UnitName) -> bool:
        """Whether it has become a pod's since it was looked at: records come before slices."""
        world = self._board.world
        try:
            pods = world.store.load().pods
        except HostError:
            return True  # nobody can tell
        return any(name == world.tree.pod(pod.uid, qos) for pod in pods for qos in Qos)

    def _holds(self, name: UnitName) -> Holds:
        return read_holds(self._board.world.cgroups, self._group(name), "")

    def _group(self, name: UnitName) -> str:
        state = self._board.state
        return control_group_of(name) if state is None else control_group(name, state.observed)

    async def _remove(self, name: UnitName) -> None:
        if self._is_pods(name):
            return
        board, holds = self._board, self._holds(name)
        step = StopUnit(
            name=name,
            why="no pod accounts for it",
            tasks=holds.processes,
            grace_sec=DEFAULT_GRACE_SEC,
            holds=holds.words,
            processes=holds.processes,
            inside=holds.units,
            signals=(name,) if holds.is_mixed else (),
        )
        result = await act_alone(step, self._client)
        if result.outcome is not Outcome.DONE:
            self._since[name] = self._now()
            if name not in self._failed:
                self._failed.add(name)
                text = f"{name} could not be removed: {result.error}; it is tried again"
                board.tell(Kind.STEP_FAILED, text, unit=name)
            return
        left = board.world.cgroups.processes(self._group(name))
        what = f", but in its control group there are still {name_processes(left)}" if left else ""
        board.tell(Kind.ORPHAN_REMOVED, f"{name} was removed, as no pod's{what}", unit=name)


def _in_words(holds: Holds) -> str:
    return f"it holds {', '.join(holds.words)}" if holds.words else "nothing runs in it"
