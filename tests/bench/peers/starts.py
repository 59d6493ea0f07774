"""Run commands one after the other, and print the wall and CPU time of each as one JSON object.

    starts.py < COMMANDS

Standard input is a JSON object of commands by name. CPU time includes that of their children. Only
the standard library, for a quick start.
"""

import json
import os
import subprocess
import sys
import tempfile
import time


def measure(argv: list[str]) -> dict[str, object]:
    """Return the figures of a command, its exit code and the end of its errors."""
    with tempfile.TemporaryFile() as errors:
        began = time.monotonic_ns()
        child = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=errors, stdin=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(child.pid, 0)
        ended = time.monotonic_ns()
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        text = errors.read().decode()
    return {
        "code": child.returncode,
        "wall_ms": round((ended - began) / 1e6, 3),
        "cpu_ms": round(1000 * (usage.ru_utime + usage.ru_stime), 3),
        "stderr": text[-2000:],
    }


if __name__ == "__main__":
    json.dump({name: measure(argv) for name, argv in json.load(sys.stdin).items()}, sys.stdout)
