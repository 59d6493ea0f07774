"""Fakes of what the agent uses: a journal, a clock, and files of a host."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections import Counter

from podslice.agent.context import AgentContext, Counters
from podslice.reconcile.assess import Request, assess
from tests.unit import builders
from tests.unit.converged import apply_pods


class Events:
    """A journal that keeps its events."""

    def __init__(self):
        self.all = []
        self.counts = Counter()

    def log(self, event):
        self.all.append(event)
        self.counts[event.kind] += 1

    def close(self):
        pass

    def of(self, *kinds):
        """Return the events of these kinds, in their order."""
        return [event for event in self.all if event.kind in kinds]

    def texts(self, *kinds):
        return [event.message for event in self.of(*kinds)]

    def clear(self):
        self.all.clear()


GUARD_CACHE_SEC = 2.0
"""Longer than the guard keeps an answer."""


class Clock:
    """A monotonic clock that is advanced by tests."""

    def __init__(self):
        self.sec = 1000.0

    def __call__(self):
        return self.sec

    def advance(self, seconds):
        self.sec += seconds


def make_context(tmp_path, client, **fields):
    """Return a context with a fake journal; `by` is the configuration."""
    events = Events()
    return AgentContext(builders.world(tmp_path, client, **fields), events, Counters())


async def reassess(context):
    """Assess the node again."""
    context.assessment = await assess(context.world, Request(terminating=context.terminating))
    context.assessments += 1
    return context.assessment


async def put(context, *pods):
    """Apply pods, and assess the node again."""
    await apply_pods(context.world, *pods)
    await reassess(context)


def write_group(context, name, **files):
    """Write files of a unit's control group; `_` is the dot of a file's name."""
    group = context.world.cgroups.mount / builders.control_group_of(name).lstrip("/")
    (context.world.cgroups.mount).mkdir(exist_ok=True)
    (context.world.cgroups.mount / "cgroup.controllers").write_text("cpu memory pids\n")
    texts = {file.replace("_", ".", 1): f"{text}\n" for file, text in files.items()}
    builders.make_files(group, texts)
    return group


def use_memory(context, name, mebibytes):
    """Set the memory usage of a unit."""
    return write_group(
        context, name, memory_current=mebibytes * 2**20, memory_stat="inactive_file 0"
    )


class Oomd:
    """A systemd-oomd that counts its kills in the attribute of a directory, also of a removed one."""

    def __init__(self, monkeypatch):
        self._values = {}
        monkeypatch.setattr(os, "getxattr", self._read)

    def kill(self, directory, value=b"1"):
        self._values[directory.stat().st_ino] = value

    def _read(self, descriptor, name):
        inode = os.fstat(descriptor).st_ino
        if name != "user.oomd_ooms" or inode not in self._values:
            raise OSError(errno.ENODATA, "No data available")
        return self._values[inode]


class Host:
    """A host with configured free memory and tasks; stopped pods release theirs."""

    def __init__(self, root, free_mib=1000):
        self.root = root
        self.free_mib = free_mib
        self.held = {}
        """The memory released by the stop of a unit, by its name."""
        self.tasks = 100
        self._write()

    def set(self, *, free_mib=None, tasks=None):
        self.free_mib = self.free_mib if free_mib is None else free_mib
        self.tasks = self.tasks if tasks is None else tasks
        self._write()

    def on_change(self, name):
        """Release the memory of a changed unit."""
        self.set(free_mib=self.free_mib + self.held.pop(name, 0))

    def _write(self):
        files = {
            "proc/meminfo": f"MemTotal: {4000 * 1024} kB\nMemFree: {self.free_mib * 1024} kB\n"
            "Inactive(file): 0 kB\n",
            "proc/loadavg": f"0.00 0.00 0.00 1/{self.tasks} 4711\n",
            "proc/sys/kernel/pid_max": "1000\n",
            "proc/sys/kernel/threads-max": "5000\n",
        }
        builders.make_files(self.root, files)


def skip_time(monkeypatch, seconds):
    """Move the clock of the running loop forward."""
    loop = asyncio.get_running_loop()
    before = loop.time
    monkeypatch.setattr(loop, "time", lambda: before() + seconds)


async def until(condition, timeout_sec=30.0):
    """Wait for a condition that has no event."""
    async with asyncio.timeout(timeout_sec):
        while not condition():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)


async def end(task):
    """Cancel a task, and wait for it."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
