"""What callbacks were told, and how to wait for it."""

from __future__ import annotations

import asyncio
from pathlib import Path


class Told(list):
    """Whatever callbacks have to say, in its order."""

    def __init__(self):
        super().__init__()
        self._news = asyncio.Event()

    def say(self, *what):
        self.append(what)
        self._news.set()

    def heard_by(self, *who):
        """A callback that adds its arguments to the words for who was told."""
        return lambda *what: self.say(*who, *what)

    async def until(self, condition):
        """Wait until it is true of what was told."""
        async with asyncio.timeout(10):
            while not condition(self):
                self._news.clear()
                await self._news.wait()


def open_files():
    """The descriptors that this process has."""
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())
