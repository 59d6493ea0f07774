"""How long manifests block the agent's event loop, and thus an eviction and an answer of /healthz.

    python3 -m tests.bench blocking [--quick]

Rounds of the agent on a service manager in memory, with 20 ordinary manifests in force and then a
bomb of `tests/bombs.py`, or many ordinary pods, beside them. A task that only reads the clock
measures the processor time of the rounds from one of its turns to the next. The cost of the bus
is not included.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.load import watch_load
from tests.bench.pods import make_manifests
from tests.bench.result import Aim, Result, Table
from tests.bombs import BOMBS
from tests.unit.agent.reconciled import Node

NAME = "blocking"
TITLE = "Blocking: how long manifests hold up the agent's event loop"
MACHINE = "none"
GOOD, MANY = 20, 1000
QUICK = ("replicas-of-containers", "invalid-documents")
ORDINARY = f"{MANY} ordinary pods"
BLOCK_AIM_MS = 50.0
LOOK_SEC = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The measurements of one manifest directory."""

    name: str
    longest_ms: float
    """Processor time between two reads of the clock."""
    round_ms: float
    pods: int
    """The pods that are applied afterwards."""
    disturbed: bool


def run(_: None = None, *, quick: bool = False) -> Result:
    """Measure each bomb, and many ordinary pods."""
    names = QUICK if quick else (*BOMBS, ORDINARY)
    found = [asyncio.run(measure(name)) for name in names]
    worst = max(found, key=lambda held: held.longest_ms)
    return Result(
        name=NAME,
        title=TITLE,
        tables=(make_table(found),),
        aims=(
            Aim(
                text=f"longest block of the agent's loop ({worst.name})",
                value=worst.longest_ms,
                limit=BLOCK_AIM_MS,
                unit="ms",
            ),
        ),
        rounds=[asdict(held) for held in found],
    )


def make_table(found: list[Held]) -> Table:
    """Return a row for each."""
    return Table(
        title="Rounds that read a bomb beside 20 ordinary manifests",
        columns=("manifests", "longest block, ms", "round, ms", "pods applied"),
        rows=tuple(
            (held.name, f"{held.longest_ms:.0f}", f"{held.round_ms:.0f}", f"{held.pods}")
            for held in found
        ),
    )


async def measure(name: str) -> Held:
    """Let the agent read one of them."""
    sys.stderr.write(f"{name}\n")
    with tempfile.TemporaryDirectory() as directory:
        node = Node(Path(directory))
        for number in range(GOOD):
            node.put(f"good-{number}")
        await node.settle()
        for file, data in files_of(name).items():
            (node.directory / file).write_bytes(data)
        gaps: list[float] = []
        looking = asyncio.create_task(look(gaps))
        await asyncio.sleep(LOOK_SEC)
        began = time.monotonic()
        with watch_load() as load:
            await node.run_round()
        took = time.monotonic() - began
        await asyncio.sleep(LOOK_SEC)
        looking.cancel()
        return Held(
            name=name,
            longest_ms=1000 * max(gaps),
            round_ms=1000 * took,
            pods=len(node.records),
            disturbed=load.is_disturbed,
        )


def files_of(name: str) -> dict[str, bytes]:
    """Return the files of a bomb, or of the ordinary pods."""
    if name == ORDINARY:
        return {"many.yaml": make_manifests(MANY).encode()}
    return BOMBS[name]()


async def look(gaps: list[float]) -> None:
    """Record the processor time of other tasks from one turn to the next."""
    before = time.thread_time()
    while True:
        await asyncio.sleep(LOOK_SEC)
        now = time.thread_time()
        gaps.append(now - before)
        before = now
