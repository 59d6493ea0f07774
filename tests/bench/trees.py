"""Shares of the CPUs in random trees of pods, compared with `podslice simulate`.

    python3 -m tests.bench trees [--quick]

Random pods of all classes with requests, limits, containers, threads and allowed CPUs become the
units that podslice would create, and control groups with their values, in a virtual machine. Slices of
the host are beside them. Each container has as many busy processes as threads. The CPU time of each
control group is read from its cpu.stat, as a part of the time in which the CPUs were idle or used by
these groups.

The clock of the machine counts instructions. Otherwise, while this host is busy, the kernel of the
machine would seem to run a process for longer than it decides, and small weights would get more.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podslice.features.simulate.sharing import Assumptions, CpuGroup, cpu_tree, share_cpu
from podslice.model.config import Config
from podslice.model.node import Node
from podslice.model.pod import Container, Pod
from podslice.model.resources import Resources
from podslice.policy.decide import decide
from podslice.policy.desire import desire
from tests.bench.result import Aim, Result, Table
from tests.lab.vm import Vm

NAME = "trees"
TITLE = "Simulation: CPU time in random trees of pods against what simulate shows"
MACHINE = "counting vm"
CPUS = 2
CONFIG = Config(admission=False)
SEEDS, QUICK_SEEDS = range(20), range(1)
AIM_POINTS = 5.0
SETTLE_SEC, WINDOW_SEC, QUICK_SEC = 1.5, 4.0, 0.5
STARTS = 5
"""The kernel places the threads of each start by chance, and may leave them there."""
LIMIT_SEC = 600.0
GUEST = Path(__file__).parent / "guest/share.py"
GUEST_FILE = "/run/share.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One tree; shares are in percent of the machine, by control group."""

    seed: int
    tree: tuple[CpuGroup, ...]
    predicted: dict[str, float]
    starts: tuple[dict[str, float], ...]
    """The measured shares of each start."""

    @property
    def measured(self) -> dict[str, float]:
        """The averages of all starts."""
        names = self.starts[0]
        return {name: statistics.fmean(each[name] for each in self.starts) for name in names}

    @property
    def most_of_one_start(self) -> float:
        """The largest difference in a single start."""
        return max(
            abs(each[name] - self.predicted[name])
            for each in self.starts
            for name in self.predicted
        )

    @property
    def off_points(self) -> list[float]:
        """The differences from the prediction."""
        measured = self.measured
        return [abs(measured[name] - self.predicted[name]) for name in self.predicted]


def run(machine: Vm, *, quick: bool = False) -> Result:
    """Measure every tree in one machine."""
    settle_sec, window_sec, starts = (
        (QUICK_SEC, QUICK_SEC, 1) if quick else (SETTLE_SEC, WINDOW_SEC, STARTS)
    )
    rounds = []
    machine.put(GUEST_FILE, GUEST.read_text())
    for seed in QUICK_SEEDS if quick else SEEDS:
        sys.stderr.write(f"trees: tree {seed}\n")
        rounds.append(measure(machine, seed, settle_sec, window_sec, starts))
    return make_result(rounds)


def measure(machine: Vm, seed: int, settle_sec: float, window_sec: float, starts: int) -> Round:
    """Let the processes of one tree run, several times from their start."""
    tree = make_tree(seed)
    argv = ("python3", GUEST_FILE, f"{settle_sec}", f"{window_sec}")
    text = json.dumps([*map(plain_group, tree)])
    found: tuple[dict[str, float], ...] = tuple(
        json.loads(machine.run(*argv, input=text, timeout_sec=LIMIT_SEC).stdout)
        for _ in range(starts)
    )
    predicted = {name: 100 * used / CPUS for name, used in share_cpu(tree, CPUS).items()}
    return Round(seed=seed, tree=tree, predicted=predicted, starts=found)


def make_tree(seed: int, cpu_count: int = CPUS) -> tuple[CpuGroup, ...]:
    """Return the control groups of random pods and of the host."""
    chance = random.Random(seed)
    node = Node(capacity={"cpu": 1000 * cpu_count, "memory": 2**30 * 1000})
    pods = [make_pod(chance, f"pod-{number}") for number in range(chance.randint(2, 7))]
    names = [pod.key for pod in pods]
    idle = [name for name in names if chance.random() < 0.1]
    threads = {name: chance.randint(1, 4) for name in (*names, "system.slice", "user.slice")}
    assumed = Assumptions(
        threads={**threads, **dict.fromkeys(idle, 0)},
        cpus={
            name: frozenset({chance.randrange(cpu_count)})
            for name in names
            if chance.random() < 0.1
        },
    )
    host = [
        CpuGroup(name=name, weight=chance.choice((25, 50, 100, 200)))
        for name in ("system.slice", "user.slice")
        if chance.random() < 0.7
    ]
    desired = desire([decide(pod, node, CONFIG) for pod in pods], node, CONFIG)
    return cpu_tree(desired, host, assumed)


def make_pod(chance: random.Random, name: str) -> Pod:
    """Return a pod of a random class, with one container to three."""
    containers = tuple(
        Container(name=f"c{number}", resources=make_resources(chance))
        for number in range(chance.choice((1, 1, 2, 3)))
    )
    limit = {"cpu": chance.choice((300, 600, 1000, 1500))} if chance.random() < 0.3 else {}
    return Pod(name=name, uid=name, containers=containers, resources=Resources(limits=limit))


def make_resources(chance: random.Random) -> Resources:
    """Return a container's request and limit: both, one or none of them."""
    request = chance.choice((10, 20, 50, 100, 200, 400))
    kind = chance.random()
    if kind < 0.2:
        return Resources()
    if kind < 0.4:
        both = {"cpu": 2 * request, "memory": 16 * 2**20 * 1000}
        return Resources(requests=both, limits=both)
    limits = {"cpu": chance.choice((1, 2, 4)) * request} if kind < 0.6 else {}
    return Resources(requests={"cpu": request}, limits=limits)


def plain_group(group: CpuGroup) -> dict[str, Any]:
    """Return a control group for the guest, with the processes that it needs."""
    threads = CPUS if group.threads is None else group.threads
    return {
        "name": group.name,
        "weight": group.weight,
        "quota_milli": group.quota_milli,
        "threads": 0 if group.children else threads,
        "cpus": None if group.cpus is None else sorted(group.cpus),
        "children": [*map(plain_group, group.children)],
    }


def make_result(rounds: Sequence[Round]) -> Result:
    """Return the table of all trees."""
    return Result(
        name=NAME,
        title=TITLE,
        tables=(make_table(rounds),),
        aims=(
            Aim(
                text=f"largest difference of a measured share, {len(rounds)} trees",
                value=max(max(each.off_points) for each in rounds),
                limit=AIM_POINTS,
                unit="points",
            ),
        ),
        rounds=[
            {
                "seed": each.seed,
                "predicted": each.predicted,
                "measured": each.measured,
                "worst_off_points": max(each.off_points),
                "starts": each.starts,
            }
            for each in rounds
        ],
    )


def make_table(rounds: Sequence[Round]) -> Table:
    """Return a row for each tree."""
    return Table(
        title="Shares of the machine: deviation from the simulation, in points",
        columns=(
            "tree",
            "groups",
            "threads",
            "quotas",
            "used",
            "largest deviation",
            "median",
            "one start",
        ),
        rows=tuple(
            (
                f"{each.seed}",
                f"{len(each.predicted)}",
                f"{sum(_threads(group) for group in _walk(each.tree))}",
                f"{sum(group.quota_milli is not None for group in _walk(each.tree))}",
                f"{sum(each.measured[group.name] for group in each.tree):.0f} %",
                f"{max(each.off_points):.2f}",
                f"{statistics.median(each.off_points):.2f}",
                f"{each.most_of_one_start:.2f}",
            )
            for each in rounds
        ),
        note=f"Points are percent of the machine's {CPUS} processors. Shares are averages of"
        f" {len(rounds[0].starts)} starts; the last column is the largest deviation in one of them.",
    )


def _walk(groups: Iterable[CpuGroup]) -> Iterator[CpuGroup]:
    for group in groups:
        yield group
        yield from _walk(group.children)


def _threads(group: CpuGroup) -> int:
    threads: int = plain_group(group)["threads"]
    return threads
