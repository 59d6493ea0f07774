"""Runs every part of the tests, in order of cost, and says how long each took.

    python3 -m tests.everything [PART]...

A part that can't run fails here (PODSLICE_REQUIRE_LAB=1); elsewhere it may be skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

PARALLEL = ("-n", "auto")
PARTS = {
    "static": ["tests/test_static.py", "tests/test_layers.py", *PARALLEL],
    "unit": ["tests/unit", *PARALLEL],
    "cases": ["tests/cases", *PARALLEL],
    "bus": ["tests/bus"],
    "packaging": ["tests/packaging"],
    "host": ["tests/host", "-m", "host or not host"],
}


def main() -> int:
    """Run the parts that are named, or all; 1 when one has failed."""
    chosen = sys.argv[1:] or list(PARTS)
    took: list[tuple[str, float, int]] = []
    environment = {**os.environ, "PODSLICE_REQUIRE_LAB": "1"}
    for part in chosen:
        sys.stdout.write(f"== {part}\n")
        sys.stdout.flush()
        start = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "--durations=5", *PARTS[part]]
        code = subprocess.run(command, env=environment, check=False).returncode
        took.append((part, time.monotonic() - start, code))
    for part, seconds, code in took:
        sys.stdout.write(f"{part:8} {seconds:7.1f} s  {'failed' if code else 'passed'}\n")
    return int(any(code for _, _, code in took))


if __name__ == "__main__":
    sys.exit(main())
