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
AGENT, MONITORING, PODMAN = (
    tuple(f"tests/host/test_{name}.py" for name in names)
    for names in (
        ("agent", "agent_follows", "agent_soak", "confirm", "events", "kernel_events"),
        ("monitoring", "fleet_monitoring", "top"),
        ("podman", "quadlets", "quadlet_start"),
    )
)
INSTALL, UPGRADE = (
    tuple(f"tests/packaging/test_{name}.py" for name in names)
    for names in (("install",), ("upgrade", "debian_libraries"))
)
PRESSURE, BENCH = ("tests/host/test_eviction.py",), ("tests/host/test_bench.py",)
PARTS = {
    "static": ["tests/test_static.py", "tests/test_layers.py", "tests/test_locks.py", *PARALLEL],
    "cases": ["tests/cases", *PARALLEL],
    "unit": ["tests/unit", *PARALLEL],
    "bus": ["tests/bus"],
    "pressure": [*PRESSURE],
    "bench": [*BENCH],
    "install": [*INSTALL],
    "agent": [*AGENT],
    "host": [
        "tests/host",
        *(f"--ignore={path}" for path in (*AGENT, *MONITORING, *PODMAN, *PRESSURE, *BENCH)),
    ],
    "upgrade": [*UPGRADE],
    "packaging": ["tests/packaging", *(f"--ignore={path}" for path in (*INSTALL, *UPGRADE))],
    "monitoring": [*MONITORING],
    "podman": [*PODMAN],
    "fleet": ["tests/fleet"],
    "cockpit": ["tests/cockpit"],
}
IN_PARALLEL = (
    *("host", "packaging", "install", "agent", "podman", "fleet", "pressure", "bench"),
    *("monitoring", "upgrade", "bus", "cockpit"),
)
"""Parts with machines, which run in parallel, from a queue with the longest first. Other parts change no
result: a machine that has to wait for a processor does so with all that runs in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """The result of a part."""

    part: str
    seconds: float
    code: int
    output: str = ""
    """The output of a part that has failed beside others, which was printed long before the end."""


def main() -> int:
    """Run the given parts, or all; return 1 if one failed."""
    chosen = sys.argv[1:] or list(PARTS)
    results = [_run(part) for part in chosen if part not in IN_PARALLEL]
    results += _run_in_parallel([part for part in IN_PARALLEL if part in chosen])
    for each in results:
        sys.stdout.write(each.output)
    for each in results:
        outcome = "failed" if each.code else "passed"
        sys.stdout.write(f"{each.part:10} {each.seconds:7.1f} s  {outcome}\n")
    return int(any(each.code for each in results))


def _run(part: str) -> PartResult:
    sys.stdout.write(f"== {part}\n")
    sys.stdout.flush()
    start = time.monotonic()
    code = subprocess.run(_command(part), env=_environment(), check=False).returncode
    return PartResult(part=part, seconds=time.monotonic() - start, code=code)


def _run_in_parallel(parts: list[str]) -> list[PartResult]:
    """Run parts from a queue; print the output of each when it is complete."""
    if len(parts) < 2:
        return [_run(part) for part in parts]
    # one more than processors, because a part also waits; with more, machines only slow each other
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) + 1) as threads:
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
    output = f"== {part}\n{done.stdout.decode(errors='replace')}"
    sys.stdout.write(output)
    sys.stdout.flush()
    return PartResult(
        part=part,
        seconds=time.monotonic() - start,
        code=done.returncode,
        output=output if done.returncode else "",
    )


def _command(part: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "--durations=8", *PARTS[part]]


def _environment() -> dict[str, str]:
    return {**os.environ, "PODSLICE_REQUIRE_LAB": "1"}


if __name__ == "__main__":
    sys.exit(main())
