"""`python3 -m tests.host.watcher`: what the kernel tells the agent of commands, one by one.

Reads a JSON list of pairs, a shell command and what has to be told after it, like `["unit", NAME]`;
writes a list of what was told with each until all was quiet again. A command that nothing has to be
told of has null.
"""

import asyncio
import json
import subprocess
import sys

from podslice.agent.watcher import Watcher, WatchEvents
from podslice.model.manager import SYSTEM

SLICES = {
    "kubepods-poda.slice": "/kubepods.slice/kubepods-poda.slice",
    "kubepods-podb.slice": "/kubepods.slice/kubepods-podb.slice",
    "system.slice": "/system.slice",
}
PATIENCE_SEC = 20
# more than the watch itself waits for before it compares
QUIET_SEC = 0.1


async def settle():
    """Until what belongs to the command has been told of.

    systemd writes to the control groups after it has answered, and before it answers the next one;
    the watch reads what the kernel tells, and compares a moment later.
    """
    process = await asyncio.create_subprocess_exec(
        "systemctl", "is-system-running", stdout=subprocess.DEVNULL
    )
    await process.wait()
    for _ in ("read", "compared"):
        await asyncio.sleep(QUIET_SEC)


async def main():
    """Follow the slices, run the commands."""
    told, news = [], asyncio.Event()

    def hear(*who):
        def on_event(*what):
            told.append([*who, *what])
            news.set()

        return on_event

    watch = Watcher(
        ["/etc/podslice/manifests"],
        WatchEvents(
            on_manifests=hear("manifests"),
            on_unit=hear("unit"),
            on_memory_event=hear("memory"),
            on_pressure=hear("pressure"),
        ),
        manager=SYSTEM,
    )
    watch.follow(SLICES)
    answers = [list(watch.notes)]
    for command, wanted in json.load(sys.stdin):
        told.clear()
        process = await asyncio.create_subprocess_shell(command, stdout=subprocess.DEVNULL)
        await process.wait()
        async with asyncio.timeout(PATIENCE_SEC):
            while wanted is not None and wanted not in told:
                news.clear()
                await news.wait()
        await settle()
        answers.append(list(told))
    watch.close()
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
