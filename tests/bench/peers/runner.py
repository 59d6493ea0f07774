"""Run commands inside the machine and measure them; print one JSON object.

    runner.py COMMAND [ARGUMENT]...   one command, and what PID 1 and the bus do for it
    runner.py - < COMMANDS            each of a JSON object of commands by name

A command's wall time is from its fork to its end. Its CPU time includes that of its children. The
first kind ends when PID 1 and the bus are idle, as part of their work follows the command's
end. Only the standard library, for a quick start.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STILL_SEC = 0.03
PATIENCE_SEC = 30.0
OUTPUT_BYTES = 20_000


def main(argv: list[str]) -> None:
    """Run them, and print the figures."""
    if argv == ["-"]:
        found = {name: run(command) for name, command in json.load(sys.stdin).items()}
    else:
        found = run_beside(argv)
    json.dump(found, sys.stdout)


def run(argv: list[str]) -> dict[str, object]:
    """Return the figures of a command, its output and its exit code."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic_ns()
        child = subprocess.Popen(argv, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        ended = time.monotonic_ns()
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return {
            "code": child.returncode,
            "wall_ms": (ended - began) / 1e6,
            "cpu_ms": 1000 * (usage.ru_utime + usage.ru_stime),
            "stdout": out.read().decode()[-OUTPUT_BYTES:],
            "stderr": err.read().decode()[-OUTPUT_BYTES:],
        }


def run_beside(argv: list[str]) -> dict[str, object]:
    """Return the same, with the CPU time of PID 1 and the bus."""
    others = {"pid1": 1, "bus": find("dbus-daemon")}
    before = {name: settled_ms(pid) for name, pid in others.items()}
    found = run(argv)
    return found | {f"{name}_ms": settled_ms(pid) - before[name] for name, pid in others.items()}


def settled_ms(pid: int) -> float:
    """Return the CPU time of a process once it has done nothing for a while."""
    deadline = time.monotonic() + PATIENCE_SEC
    seen = cpu_ms(pid)
    while time.monotonic() < deadline:
        time.sleep(STILL_SEC)
        if seen == (seen := cpu_ms(pid)):
            return seen
    raise RuntimeError(f"process {pid} is busy for {PATIENCE_SEC:g} s")


def cpu_ms(pid: int) -> float:
    """Return the CPU time of a process of one thread, in nanoseconds; `stat` has ticks only."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def find(name: str) -> int:
    """Return the id of the oldest process of that name."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return min(pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() == name)


if __name__ == "__main__":
    main(sys.argv[1:])
