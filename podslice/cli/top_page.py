"""What `top` looks at, again and again, and the page that shows it."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from podslice.cli import terminal
from podslice.cli.arguments import DONE, Sort
from podslice.cli.views import usage_table
from podslice.cli.views.usage_table import NodeSummary, NodeUsage
from podslice.errors import PodsliceError
from podslice.kernel.proc import read_process
from podslice.model.resources import CPU
from podslice.model.unit import INFINITY, UnitName
from podslice.reconcile.assess import assess
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.world import LiveWorld
from podslice.systemd.caching_client import CachingClient
from podslice.usage import stats
from podslice.usage.stats import NodeStats

KEYS = {"c": Sort.CPU, "m": Sort.MEMORY, "t": Sort.THROTTLED, "p": Sort.PRESSURE, "n": Sort.NAME}
_HELP = "q quit  sort: c cpu, m memory, t throttled, p pressure, n name  w containers"
_FIRST_SEC = 0.5
"""The pause before the second look, without which there are no rates."""
_FORGET_SEC = 10.0
"""How old limits may be; where units are is looked at each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Two looks, compared."""

    usage: NodeUsage
    about: NodeSummary


class Eyes:
    """Looks again and again at the same world, and remembers the last look."""

    def __init__(self, world: LiveWorld) -> None:
        self._client = CachingClient(world.client, world.cgroups)
        self._world = replace(world, client=self._client)
        self._state: Assessment | None = None
        self._before: NodeStats | None = None
        self._forget_at = 0.0

    async def look(self) -> Seen:
        """What has been used since the last look.

        Raises:
            PodsliceError: systemd does not answer, and never has; or /proc can't be read.
        """
        problems = []
        now = asyncio.get_running_loop().time()
        if now >= self._forget_at:
            self._client.forget(None)
            self._forget_at = now + _FORGET_SEC
        try:
            state = self._state = await assess(self._world)
        except PodsliceError as error:
            if self._state is None:
                raise
            # what is there has most likely not changed, and this may be what one came to see
            problems.append(f"as seen before: {error}")
            state = self._state
        found = self._gather(state)
        before, self._before = self._before or found, found
        if self._world.origin.problems:
            problems.append("the configuration files are invalid, see: podslice status")
        return Seen(
            usage=usage_table.measure(found, before, _limits(state)), about=_about(state, problems)
        )

    def _gather(self, state: Assessment) -> NodeStats:
        agent = read_process(state.agent.pid) if state.agent else None
        return stats.gather(
            state.desired.pods,
            state.observed,
            self._world.config,
            cgroups=self._world.cgroups,
            agent_group=agent.control_group if agent else "",
        )


def _limits(state: Assessment) -> dict[UnitName, int]:
    """Limits of memory, as systemd has them."""
    stated = {name: unit.properties.get("MemoryMax") for name, unit in state.observed.units.items()}
    return {
        name: value for name, value in stated.items() if isinstance(value, int) and value < INFINITY
    }


def _about(state: Assessment, problems: list[str]) -> NodeSummary:
    if state.agent and state.agent.problems:
        problems.append("the agent has problems, see: podslice status")
    return NodeSummary(
        cpus_milli=state.desired.allocation.capacity.get(CPU, 0),
        conditions=state.agent.conditions if state.agent else (),
        evicted=[each.pod for each in state.evicted],
        problems=problems,
    )


async def look_twice(world: LiveWorld, interval_sec: float) -> Seen:
    """What is used in this time."""
    eyes = Eyes(world)
    await eyes.look()
    await asyncio.sleep(interval_sec)
    return await eyes.look()


class Live:
    """The full screen, from start to end."""

    def __init__(self, world: LiveWorld, sort: Sort, interval_sec: float, *, wide: bool) -> None:
        self._eyes = Eyes(replace(world, on_note=lambda _: None))  # notes would spoil the page
        self._sort = sort
        self._interval_sec = interval_sec
        self._wide = wide
        self._seen: Seen | None = None
        self._screen = terminal.Screen(self._on_key, self._draw)
        self._is_over = asyncio.Event()

    async def run(self) -> int:
        """Show it until somebody has seen enough."""
        with self._screen.lent():
            self._draw()
            refreshing = asyncio.create_task(self._refresh())
            ends: set[asyncio.Future[Any]] = {refreshing, self._screen.ended_by}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            refreshing.cancel()
            with suppress(asyncio.CancelledError):
                await refreshing
        number = self._screen.ended_by.result()
        return DONE if number == signal.SIGINT else 128 + number

    async def _refresh(self) -> None:
        pause_sec = min(_FIRST_SEC, self._interval_sec)
        while True:
            self._seen = await self._eyes.look()
            self._draw()
            await asyncio.sleep(pause_sec)
            pause_sec = self._interval_sec

    def _on_key(self, key: str) -> None:
        if key == "q":
            self._screen.end(signal.SIGINT)
        elif key == "w":
            self._wide = not self._wide
        self._sort = KEYS.get(key, self._sort)
        self._draw()

    def _draw(self) -> None:
        if self._seen is None:
            self._screen.draw(["looking …"])
            return
        shown, about = self._seen.usage.sorted(self._sort), self._seen.about
        width, height = self._screen.size
        head = [self._title(shown), *usage_table.head(shown, about), ""]
        widest = usage_table.name_width(width)
        rows = list(usage_table.table(shown, wide=self._wide, name_width=widest))
        room = max(0, height - len(head) - 1)
        more = len(rows) - room
        foot = f"{more} more rows  {_HELP}" if more > 0 else _HELP
        self._screen.draw([*head, *rows[:room], foot], marked=len(head))

    def _title(self, shown: NodeUsage) -> str:
        at = datetime.fromtimestamp(shown.stats.time_usec / 1e6, UTC).astimezone()
        return (
            f"{at:%H:%M:%S}  {len(shown.pods)} pods by {self._sort}, every {self._interval_sec:g} s"
        )
