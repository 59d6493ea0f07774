"""Let control groups contend for the CPUs, and measure the use of each.

    python3 share.py SETTLE_SEC WINDOW_SEC < TREE

TREE is a JSON list of groups with `name`, `weight`, `quota_milli`, `threads`, `cpus` and `children`, see
`podslice.features.simulate.sharing`. They are built below a control group of their own, with a busy process for
each thread. Prints the CPU time of each by name, and by an empty name that of all, as JSON: in percent
of the time in which the CPUs were idle or used by these groups.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

TOP = Path("/sys/fs/cgroup/share")
PERIOD_USEC = 100_000
WAIT_SEC = 60.0
POLL_SEC = 0.02

Group = dict[str, Any]


def main() -> None:
    """Measure the tree."""
    settle_sec, window_sec = map(float, sys.argv[1:])
    enable(TOP.parent)
    json.dump(measure(json.load(sys.stdin), settle_sec, window_sec), sys.stdout)


def enable(directory: Path) -> None:
    """Let the children of a control group have the controllers."""
    (directory / "cgroup.subtree_control").write_text("+cpu +cpuset")


def measure(tree: list[Group], settle_sec: float, window_sec: float) -> dict[str, float]:
    """Build a tree, let its processes run, and remove it."""
    TOP.mkdir()
    made: dict[str, Path] = {}
    reading, writing = os.pipe()
    try:
        build(tree, TOP, made, reading, writing)
        os.close(writing)
        time.sleep(settle_sec)
        before, idle_before = used(made), idle_usec()
        time.sleep(window_sec)
        after, idle_after = used(made), idle_usec()
    finally:
        os.close(reading)
        remove(made)
    total = after[""] - before[""] + idle_after - idle_before
    return {name: 100 * (after[name] - before[name]) / total for name in after}


def build(
    groups: list[Group], parent: Path, made: dict[str, Path], reading: int, writing: int
) -> None:
    """Make control groups with their processes, which wait for the end of a pipe."""
    enable(parent)
    for group in groups:
        path = made[group["name"]] = parent / group["name"]
        path.mkdir()
        (path / "cpu.weight").write_text(str(group["weight"]))
        if group["quota_milli"] is not None:
            quota_usec = group["quota_milli"] * PERIOD_USEC // 1000
            (path / "cpu.max").write_text(f"{quota_usec} {PERIOD_USEC}")
        if group["cpus"] is not None:
            (path / "cpuset.cpus").write_text(",".join(map(str, group["cpus"])))
        if group["children"]:
            build(group["children"], path, made, reading, writing)
        for _ in range(group["threads"]):
            spin(path, reading, writing)


def spin(path: Path, reading: int, writing: int) -> None:
    """Start a process in a control group that uses a CPU once the pipe is closed."""
    if os.fork():
        return
    os.close(writing)
    (path / "cgroup.procs").write_text("0")
    os.read(reading, 1)
    while True:
        pass


def used(made: dict[str, Path]) -> dict[str, int]:
    """Return the CPU time of each control group in microseconds."""
    groups = {**made, "": TOP}
    return {name: int((path / "cpu.stat").read_text().split()[1]) for name, path in groups.items()}


def idle_usec() -> int:
    """Return the idle time of all CPUs."""
    fields = Path("/proc/stat").read_text().split("\n")[0].split()
    return (int(fields[4]) + int(fields[5])) * 1_000_000 // os.sysconf("SC_CLK_TCK")


def remove(made: dict[str, Path]) -> None:
    """Kill the processes, and remove the control groups."""
    (TOP / "cgroup.kill").write_text("1")
    deadline = time.monotonic() + WAIT_SEC
    while "populated 1" in (TOP / "cgroup.events").read_text():
        if time.monotonic() > deadline:
            raise TimeoutError("the processes do not end")
        time.sleep(POLL_SEC)
    for path in reversed(made.values()):
        path.rmdir()
    TOP.rmdir()


if __name__ == "__main__":
    main()
