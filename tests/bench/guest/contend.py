"""Let stopped processes contend for the processors, and measure the share of each control group.

    python3 contend.py SETTLE_SEC WINDOW_SEC STOPPED... -- WATCHED...

Arguments are control groups below /sys/fs/cgroup. Processes in the former are continued and stopped
again; prints the use of each of the latter in the window, and its weight in the kernel, as JSON.
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
    """Settle, measure, stop, print."""
    settle_sec, window_sec = map(float, sys.argv[1:3])
    mark = sys.argv.index("--")
    groups = sys.argv[mark + 1 :]
    pids = [pid for group in sys.argv[3:mark] for pid in processes(group)]
    wait_stopped(pids)
    send_signal(pids, signal.SIGCONT)
    time.sleep(settle_sec)
    before, began = {group: used_usec(group) for group in groups}, time.monotonic()
    time.sleep(window_sec)
    after, ended = {group: used_usec(group) for group in groups}, time.monotonic()
    send_signal(pids, signal.SIGSTOP)
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
    """Return a file of a control group; None if the controller is not in use."""
    try:
        return (ROOT / group / name).read_text()
    except FileNotFoundError:
        return missing


def processes(group: str) -> list[int]:
    """Return all processes of a control group and its children."""
    files = (ROOT / group).rglob("cgroup.procs")
    return [int(pid) for file in files for pid in file.read_text().split()]


def used_usec(group: str) -> int:
    """Return the processor time of a control group and its children."""
    lines = (ROOT / group / "cpu.stat").read_text().splitlines()
    return int(dict(line.split() for line in lines)["usage_usec"])


def send_signal(pids: list[int], number: int) -> None:
    """Send a signal to each."""
    for pid in pids:
        os.kill(pid, number)


def wait_stopped(pids: list[int]) -> None:
    """Wait until each has stopped.

    Raises:
        RuntimeError: one still runs.
    """
    deadline = time.monotonic() + STOP_WAIT_SEC
    for pid in pids:
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            if time.monotonic() > deadline:
                raise RuntimeError(f"process {pid} does not stop")
            time.sleep(POLL_SEC)


if __name__ == "__main__":
    main()
