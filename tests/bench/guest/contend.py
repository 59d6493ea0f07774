"""Lets processes that have stopped themselves contend for the processors, and watches who gets what.

    python3 contend.py SETTLE_SEC WINDOW_SEC STOPPED... -- WATCHED...

Arguments are control groups below /sys/fs/cgroup. What is in the former goes on and is stopped
again; prints what each of the latter has used in the window, and its weight in the kernel, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
STOP_WAIT_SEC = 30.0
POLL_SEC = 0.05


def main() -> None:
    """Settle, watch, stop, tell."""
    settle_sec, window_sec = map(float, sys.argv[1:3])
    mark = sys.argv.index("--")
    groups = sys.argv[mark + 1 :]
    pids = [pid for group in sys.argv[3:mark] for pid in processes(group)]
    wait_stopped(pids)
    tell(pids, signal.SIGCONT)
    time.sleep(settle_sec)
    before, began = {group: used_usec(group) for group in groups}, time.monotonic()
    time.sleep(window_sec)
    after, ended = {group: used_usec(group) for group in groups}, time.monotonic()
    tell(pids, signal.SIGSTOP)
    wait_stopped(pids)
    found = {
        group: {
            "usec": after[group] - before[group],
            "weight": int(read(group, "cpu.weight", "0")),
            "max": read(group, "cpu.max", "max").split()[0],
        }
        for group in groups
    }
    json.dump({"window_sec": ended - began, "cpus": os.cpu_count(), "groups": found}, sys.stdout)


def read(group: str, name: str, missing: str) -> str:
    """A file of a control group; it is not there where the controller is not in use."""
    try:
        return (ROOT / group / name).read_text()
    except FileNotFoundError:
        return missing


def processes(group: str) -> list[int]:
    """Everything in a control group and below it."""
    files = (ROOT / group).rglob("cgroup.procs")
    return [int(pid) for file in files for pid in file.read_text().split()]


def used_usec(group: str) -> int:
    """The processor time of a control group and of all below it."""
    lines = (ROOT / group / "cpu.stat").read_text().splitlines()
    return int(dict(line.split() for line in lines)["usage_usec"])


def tell(pids: list[int], number: int) -> None:
    """Send a signal to each."""
    for pid in pids:
        os.kill(pid, number)


def wait_stopped(pids: list[int]) -> None:
    """Wait until each has stopped.

    Raises:
        RuntimeError: one runs on.
    """
    deadline = time.monotonic() + STOP_WAIT_SEC
    for pid in pids:
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            if time.monotonic() > deadline:
                raise RuntimeError(f"process {pid} does not stop")
            time.sleep(POLL_SEC)


if __name__ == "__main__":
    main()
