"""Run every part of the tests, in order of cost, and print the duration of each.

    python3 -m tests.everything [PART]...

A part that cannot run fails (PODSLICE_REQUIRE_LAB=1); with plain pytest it is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

PARALLEL = ("-n", "auto")
AGENT = tuple(
    f"tests/host/test_{name}.py"
    for name in (
        *("agent", "agent_soak", "confirm", "events", "kernel_events", "monitoring"),
        "top",
    )
)
"""A part of its own, because it takes as long as all other tests of its directory."""
PRESSURE = ["tests/host/test_eviction.py"]
"""A race with the kernel for the last 100 MiB, which other parts would slow down."""
BENCH = ["tests/host/test_bench.py"]
"""One small round of each benchmark, which checks that no other program did the work."""
PARTS = {
    "static": ["tests/test_static.py", "tests/test_layers.py", "tests/test_locks.py", *PARALLEL],
    "unit": ["tests/unit", *PARALLEL],
    "cases": ["tests/cases", *PARALLEL],
    "bus": ["tests/bus"],
    "packaging": ["tests/packaging"],
    "pressure": PRESSURE,
    "bench": BENCH,
    "host": ["tests/host", *(f"--ignore={path}" for path in (*AGENT, *PRESSURE, *BENCH))],
    "agent": [*AGENT],
}
IN_PARALLEL = ("packaging", "host", "agent")
"""Parts that mostly wait for virtual machines and thus run in parallel; earlier parts create what
they share: the images and missing packages of the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """The result of a part."""

    part: str
    seconds: float
    code: int


def main() -> int:
    """Run the given parts, or all; return 1 if one failed."""
    chosen = sys.argv[1:] or list(PARTS)
    results = [_run(part) for part in chosen if part not in IN_PARALLEL]
    results += _run_in_parallel([part for part in chosen if part in IN_PARALLEL])
    for each in results:
        outcome = "failed" if each.code else "passed"
        sys.stdout.write(f"{each.part:9} {each.seconds:7.1f} s  {outcome}\n")
    return int(any(each.code for each in results))


def _run(part: str) -> PartResult:
    sys.stdout.write(f"== {part}\n")
    sys.stdout.flush()
    start = time.monotonic()
    code = subprocess.run(_command(part), env=_environment(), check=False).returncode
    return PartResult(part=part, seconds=time.monotonic() - start, code=code)


def _run_in_parallel(parts: list[str]) -> list[PartResult]:
    """Run parts in parallel; print the output of each when it is complete."""
    if len(parts) < 2:
        return [_run(part) for part in parts]
    with ThreadPoolExecutor(len(parts)) as threads:
        runs = [threads.submit(_run_and_print, part) for part in parts]
        return [each.result() for each in as_completed(runs)]


def _run_and_print(part: str) -> PartResult:
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
    return PartResult(part=part, seconds=time.monotonic() - start, code=done.returncode)


def _command(part: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "--durations=8", *PARTS[part]]


def _environment() -> dict[str, str]:
    return {**os.environ, "PODSLICE_REQUIRE_LAB": "1"}


if __name__ == "__main__":
    sys.exit(main())
