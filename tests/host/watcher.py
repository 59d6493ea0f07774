"""`python3 -m tests.host.watcher`: print the kernel's notifications for commands, one by one.

Reads a JSON list of pairs, a shell command and its expected notification, like `["unit", NAME]`;
writes a list of all notifications of each until no more arrived. A command without an expected
notification has null.
"""

import asyncio
import json
import subprocess
import sys

from podslice.agent.watcher import Watcher, WatchEvents
from podslice.model.unit import SYSTEM

SLICES = {
    "kubepods-poda.slice": "/kubepods.slice/kubepods-poda.slice",
    "kubepods-podb.slice": "/kubepods.slice/kubepods-podb.slice",
    "system.slice": "/system.slice",
}
PATIENCE_SEC = 60
# longer than the watch itself waits before it compares
QUIET_SEC = 0.1


async def settle():
    """Wait until all notifications of the command have arrived.

    systemd writes to the control groups after it has answered, and before it answers the next one;
    the watch reads the kernel's notifications, and compares a moment later.
    """
    process = await asyncio.create_subprocess_exec(
        "systemctl", "is-system-running", stdout=subprocess.DEVNULL
    )
    await process.wait()
    for _ in ("read", "compared"):
        await asyncio.sleep(QUIET_SEC)


async def main():
    """Follow the slices, run the commands."""
    notified, news = [], asyncio.Event()

    def record(*who):
        def on_event(*what):
            notified.append([*who, *what])
            news.set()

        return on_event

    watch = Watcher(
        ["/etc/podslice/manifests"],
        WatchEvents(
            on_manifests=record("manifests"),
            on_complete_manifests=record("manifests"),
            on_unit=record("unit"),
            on_memory_event=record("memory"),
            on_pressure=record("pressure"),
            on_exit_file=record("exit"),
        ),
        manager=SYSTEM,
    )
    watch.follow(SLICES)
    answers = [list(watch.notes)]
    for command, wanted in json.load(sys.stdin):
        notified.clear()
        process = await asyncio.create_subprocess_shell(command, stdout=subprocess.DEVNULL)
        await process.wait()
        async with asyncio.timeout(PATIENCE_SEC):
            while wanted is not None and wanted not in notified:
                news.clear()
                await news.wait()
        await settle()
        answers.append(list(notified))
    watch.close()
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
