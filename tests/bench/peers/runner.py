"""Run one command inside the machine and measure it; print one JSON object.

    runner.py COMMAND [ARGUMENT]...

The command's wall time is from its fork to its end. Its CPU time includes that of its children.
The measurement ends when PID 1 and the bus are idle, as part of their work follows
the command's end. Only the standard library, for a quick start.
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


def main(argv: list[str]) -> int:
    """Run it, and print the figures."""
    sys.stdout.write(json.dumps(measure(argv)))
    return 0


def measure(argv: list[str]) -> dict[str, object]:
    """The figures of the command, its output and its exit code."""
    others = {"pid1": 1, "bus": find("dbus-daemon")}
    for pid in others.values():
        settle(pid)
    before = {name: cpu_ms(pid) for name, pid in others.items()}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic_ns()
        child = subprocess.Popen(argv, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        ended = time.monotonic_ns()
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        said = out.read().decode(), err.read().decode()
    for pid in others.values():
        settle(pid)
    return {
        "code": child.returncode,
        "wall_ms": (ended - began) / 1e6,
        "cpu_ms": 1000 * (usage.ru_utime + usage.ru_stime),
        **{f"{name}_ms": cpu_ms(pid) - before[name] for name, pid in others.items()},
        "stdout": said[0][-20_000:],
        "stderr": said[1][-20_000:],
    }


def cpu_ms(pid: int) -> float:
    """Return the CPU time of a process of one thread, in nanoseconds; `stat` has ticks only."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def settle(pid: int) -> None:
    """Wait until a process has done nothing for a while."""
    deadline = time.monotonic() + PATIENCE_SEC
    seen = cpu_ms(pid)
    while time.monotonic() < deadline:
        time.sleep(STILL_SEC)
        if seen == (seen := cpu_ms(pid)):
            return
    raise RuntimeError(f"process {pid} is busy for {PATIENCE_SEC:g} s")


def find(name: str) -> int:
    """Return the id of the oldest process of that name."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return min(pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() == name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
