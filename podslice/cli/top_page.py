"""The full-screen page of `top`."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from podslice.cli import terminal
from podslice.cli.arguments import DONE, PodFilter, Sort
from podslice.cli.usage_observer import ObservedUsage, UsageObserver
from podslice.cli.views import usage_head, usage_table
from podslice.cli.views.style import Display
from podslice.cli.views.usage_table import NodeUsage
from podslice.reconcile.world import LiveWorld

KEYS = {"c": Sort.CPU, "m": Sort.MEMORY, "t": Sort.THROTTLED, "p": Sort.PRESSURE, "n": Sort.NAME}
_HELP = "q quit  sort: c cpu, m memory, t throttled, p pressure, n name  w containers"
_FIRST_SEC = 0.5
"""The pause before the second measurement, which gives the first rates."""


class LivePage:
    """The full-screen page, from start to end."""

    def __init__(
        self, world: LiveWorld, shown: PodFilter, sort: Sort, interval_sec: float, *, wide: bool
    ) -> None:
        # notes would overwrite the page
        self._observer = UsageObserver(replace(world, on_note=lambda _: None), shown)
        self._sort = sort
        self._interval_sec = interval_sec
        self._wide = wide
        self._observed: ObservedUsage | None = None
        self._screen = terminal.Screen(self._on_key, self._draw)

    async def run(self) -> int:
        """Show the page until it is closed, and return the exit code."""
        with self._screen.full_screen():
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
            self._observed = await self._observer.observe()
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
        if self._observed is None:
            self._screen.draw(["loading …"])
            return
        shown, summary = self._observed.usage.sorted(self._sort), self._observed.summary
        width, height = self._screen.size
        display = Display(wide=self._wide, width=width)
        head = [self._title(shown), *usage_head.head(shown, summary, display), ""]
        rows = list(usage_table.table(shown, display))
        room = max(0, height - len(head) - 1)
        more = len(rows) - room
        foot = f"{more} more rows  {_HELP}" if more > 0 else _HELP
        self._screen.draw([*head, *rows[:room], foot], marked=len(head))

    def _title(self, shown: NodeUsage) -> str:
        at = datetime.fromtimestamp(shown.stats.time_usec / 1e6, UTC).astimezone()
        return (
            f"{at:%H:%M:%S}  {len(shown.pods)} pods by {self._sort}, every {self._interval_sec:g} s"
        )
