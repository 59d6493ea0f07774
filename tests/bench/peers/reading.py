"""The time in which podslice's client reads every slice, and lists them, with the bus open.

    python3 reading.py CAPACITY TIMES

Prints one JSON object: the number of slices, and the milliseconds of each time.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable

from podslice.cli.options import Planning
from podslice.cli.session import open_world


async def main(capacity: str, times: int) -> None:
    """List and read in turn."""
    found: dict[str, list[float]] = {"list_ms": [], "observe_ms": []}
    async with open_world(Planning(flags={"capacity": capacity})) as world:
        client, patterns = world.client, world.tree.patterns
        if client is None:
            raise SystemExit("there is no systemd to connect to")
        units = ()
        for _ in range(times):
            found["list_ms"].append((await timed(lambda: client.list_units(patterns)))[0])
            took, units = await timed(lambda: client.observe(patterns))
            found["observe_ms"].append(took)
    sys.stdout.write(json.dumps({"units": len(units), **found}))


async def timed(call: Callable[[], Awaitable[tuple]]) -> tuple[float, tuple]:
    """Return milliseconds, and the result."""
    began = time.perf_counter()
    result = await call()
    return 1000 * (time.perf_counter() - began), result


if __name__ == "__main__":
    gc.disable()  # as podslice does
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
