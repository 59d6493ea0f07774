"""Runs every part of the tests, in order of cost, and says how long each took.

    python3 -m tests.everything [PART]...

A part that can't run fails here (PODSLICE_REQUIRE_LAB=1); elsewhere it may be skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

PARALLEL = ("-n", "auto")
OF_THE_AGENT = tuple(
    f"tests/host/test_{name}.py"
    for name in (
        *("agent", "agent_soak", "confirm", "events", "kernel_events", "monitoring"),
        "top",
    )
)
"""What is in a part of its own, for it takes as long as all others of its folder."""
PRESSURE = ["tests/host/test_eviction.py"]
"""A race with the kernel for the last 100 MiB, which nothing beside it may slow down."""
BENCH = ["tests/host/test_bench.py"]
"""One small round of each benchmark, which checks that nothing else has done the work."""
PARTS = {
    "static": ["tests/test_static.py", "tests/test_layers.py", "tests/test_locks.py", *PARALLEL],
    "unit": ["tests/unit", *PARALLEL],
    "cases": ["tests/cases", *PARALLEL],
    "bus": ["tests/bus"],
    "packaging": ["tests/packaging"],
    "pressure": PRESSURE,
    "bench": BENCH,
    "host": ["tests/host", *(f"--ignore={path}" for path in (*OF_THE_AGENT, *PRESSURE, *BENCH))],
    "agent": [*OF_THE_AGENT],
}
TOGETHER = ("packaging", "host", "agent")
"""Parts that mostly wait for virtual machines, so that they run side by side; what they have in
common, the images and what the host lacks, is made by the parts before them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What became of a part."""

    part: str
    seconds: float
    code: int


def main() -> int:
    """Run the parts that are named, or all; 1 when one has failed."""
    chosen = sys.argv[1:] or list(PARTS)
    ended = [_run(part) for part in chosen if part not in TOGETHER]
    ended += _run_together([part for part in chosen if part in TOGETHER])
    for each in ended:
        outcome = "failed" if each.code else "passed"
        sys.stdout.write(f"{each.part:9} {each.seconds:7.1f} s  {outcome}\n")
    return int(any(each.code for each in ended))


def _run(part: str) -> Ended:
    sys.stdout.write(f"== {part}\n")
    sys.stdout.flush()
    start = time.monotonic()
    code = subprocess.run(_command(part), env=_environment(), check=False).returncode
    return Ended(part=part, seconds=time.monotonic() - start, code=code)


def _run_together(parts: list[str]) -> list[Ended]:
    """Run parts at the same time; what each says comes when it has ended."""
    if len(parts) < 2:
        return [_run(part) for part in parts]
    with ThreadPoolExecutor(len(parts)) as threads:
        return [told.result() for told in as_completed(threads.submit(_tell, p) for p in parts)]


def _tell(part: str) -> Ended:
    start = time.monotonic()
    done = subprocess.run(
        _command(part),
        env=_environment(),
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    sys.stdout.write(f"== {part}\n{done.stdout.decode(errors='replace')}")
    sys.stdout.flush()
    return Ended(part=part, seconds=time.monotonic() - start, code=done.returncode)


def _command(part: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "--durations=8", *PARTS[part]]


def _environment() -> dict[str, str]:
    return {**os.environ, "PODSLICE_REQUIRE_LAB": "1"}


if __name__ == "__main__":
    sys.exit(main())
