"""Slices below the root that no pod accounts for: told of, and removed where that is asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from podslice.act import act
from podslice.agent.board import Board
from podslice.errors import HostError
from podslice.events import Kind
from podslice.model.pod import DEFAULT_GRACE_SEC, Qos
from podslice.model.unit import UnitName, control_group_of
from podslice.plan import Plan, StopUnit, depth_of
from podslice.reconcile.holds import Holds, name_processes, read_holds
from podslice.reconcile.observation import control_group
from podslice.report import Outcome
from podslice.systemd.client import Client

PATIENCE_SEC = 10.0
"""How long a slice that is no pod's is left alone."""


class Orphans:
    """Finds orphans in the last look."""

    def __init__(
        self, board: Board, client: Client, now: Callable[[], float] = time.monotonic
    ) -> None:
        """The client is one that asks systemd itself; `now` is a monotonic clock."""
        self._board = board
        self._client = client
        self._now = now
        self._since: dict[UnitName, float] = {}
        self._failed: set[UnitName] = set()
        self._removing: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Tell of new ones; those that have been there for a while are removed if they may be.

        A while, so that whoever is just making a slice has the time to make it a pod's.
        """
        board, state = self._board, self._board.state
        if state is None:
            return
        now = self._now()
        found = {name: self._since.get(name, now) for name in state.orphans}
        self._failed &= found.keys()
        for name in sorted(found.keys() - self._since.keys()):
            board.tell(
                Kind.ORPHAN_FOUND,
                f"{name} is below {board.world.tree.root} and no pod's;"
                f" {_in_words(self._holds(name))}; {self._what_next(name)}",
                unit=name,
            )
        self._since = found
        board.counters.orphans = len(found)
        old = [name for name, since in found.items() if now - since >= PATIENCE_SEC]
        is_busy = self._removing is not None and not self._removing.done()
        if board.world.config.collect_orphans and old and not is_busy:
            self._removing = asyncio.create_task(self._remove_all(old))

    def close(self) -> None:
        """Remove nothing more."""
        if self._removing is not None:
            self._removing.cancel()

    async def _remove_all(self, names: list[UnitName]) -> None:
        # what lies deeper goes first
        for name in sorted(names, key=depth_of, reverse=True):
            await self._remove(name)

    def _what_next(self, name: UnitName) -> str:
        if self._board.world.config.collect_orphans:
            return f"it is stopped if it is still there in {PATIENCE_SEC:.0f} s"
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
        (result,) = await act(Plan(steps=(step,)), self._client)
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
