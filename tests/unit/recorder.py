"""Records calls of callbacks, and waits for them."""

from __future__ import annotations

import asyncio
from pathlib import Path


class CallRecorder(list):
    """The recorded calls, as tuples, in their order."""

    def __init__(self):
        super().__init__()
        self._changed = asyncio.Event()

    def record(self, *call):
        self.append(call)
        self._changed.set()

    def callback(self, *labels):
        """Return a callback that records the labels and its arguments."""
        return lambda *arguments: self.record(*labels, *arguments)

    async def until(self, condition):
        """Wait until a condition of the recorded calls is true."""
        async with asyncio.timeout(10):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()


def open_files():
    """Return the open file descriptors of this process."""
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())
