"""From text to plan, compared with the time of PyYAML's C loader for the same text.

    python3 -m tests.bench planning [--quick]

Manifests are ordinary: Pods and Deployments in turn, 25 lines each, every one a pod. In each round
every measurement is taken once, so that other load of the machine affects all of them equally.
`total` is load + decide + desire + plan, for an empty host; `again` is the plan for a
host on which all slices exist already. The garbage collector is off as on the command line, and on
as in a program that uses the library.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import yaml

from podslice.inputs.manifest.load import load_pods
from podslice.model.config import Config
from podslice.model.desired import Desired
from podslice.model.node import Node
from podslice.model.pod import Pod
from podslice.model.unit import Caps, Observed, ObservedUnit
from podslice.plan.make import make_plan
from podslice.policy.decide import decide
from podslice.policy.desire import desire
from tests.bench.load import watch_load
from tests.bench.result import Aim, Plot, Point, Result, Table, ratios, spread

T = TypeVar("T")

NAME = "planning"
TITLE = "Planning: from the text of manifests to the plan, against the YAML parser alone"
SIZES, QUICK_SIZES = (100, 1000, 10_000), (100,)
ROUNDS = 5
RATIO_AIM = 2.0
"""The ratio of the total to the loader, at most. Source: README."""
LINEAR_AIM = 1.25
"""The ratio of a pod's cost in the largest set to that in the smallest, at most."""
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TOTAL = ("load", "decide", "desire", "plan")
MEASURED = ("loader", *TOTAL, "again", "total")
CAPS = Caps(systemd_version=257)
CONFIG = Config()
NODE = Node(capacity={"cpu": 10**9, "memory": 2**60 * 1000, "ephemeral-storage": 2**60 * 1000})

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: worker-{number}
  namespace: team-{team}
  labels:
    app: worker
spec:
  priority: {priority}
  containers:
  - name: main
    image: registry.example.com/team/worker:1.{number}
    args: ["--queue", "jobs", "--verbose"]
    resources:
      requests: {{cpu: {cpu}m, memory: {memory}Mi}}
      limits:
        cpu: {cpu}m
        memory: {memory}Mi
  - name: log
    image: registry.example.com/base/log:2.4
    resources:
      limits:
        cpu: 100m
        memory: 64Mi
---
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web-{number}
  namespace: team-{team}
spec:
  selector:
    matchLabels: {{app: web-{number}}}
  template:
    metadata:
      labels: {{app: web-{number}}}
    spec:
      containers:
      - name: web
        image: registry.example.com/team/web:3.{number}
        ports:
        - containerPort: 8080
        readinessProbe:
          httpGet: {{path: /healthz, port: 8080}}
        resources:
          requests:
            cpu: {cpu}m
            memory: {memory}Mi
          limits:
            memory: {memory}Mi
---
"""


def run(*, quick: bool = False) -> Result:
    """Measure each size, with the garbage collector off and on in turn."""
    sizes, rounds = (QUICK_SIZES, 1) if quick else (SIZES, ROUNDS)
    taken: list[dict[str, object]] = []
    for pods in sizes:
        data = make_manifests(pods)
        for number in range(2 * rounds):
            sys.stderr.write(f"{pods} pods, round {number // 2 + 1}\n")
            taken.append(take_round(data, pods, number // 2 + 1, collecting=number % 2 == 1))
    off = {pods: [r for r in taken if r["pods"] == pods and not r["collector"]] for pods in sizes}
    on = {pods: [r for r in taken if r["pods"] == pods and r["collector"]] for pods in sizes}
    return Result(
        name=NAME,
        title=TITLE,
        tables=(
            make_table(off, "collector off, as on the command line"),
            make_table(on, "collector on"),
        ),
        aims=make_aims(off),
        plots=(make_plot(off),),
        rounds=taken,
    )


def take_round(data: bytes, pods: int, number: int, *, collecting: bool) -> dict[str, object]:
    """Take every measurement once."""
    with watch_load() as load:
        seconds = measure(data, pods, collecting=collecting)
    seconds["total"] = sum(seconds[stage] for stage in TOTAL)
    timed = {f"{name}_ms": 1000 * seconds[name] for name in MEASURED}
    return {
        "round": number,
        "pods": pods,
        "bytes": len(data),
        "collector": collecting,
        **timed,
        "disturbed": load.is_disturbed,
    }


def column(rounds: list[dict[str, object]], name: str) -> list[float]:
    """Return one measurement of all rounds, in milliseconds."""
    return [float(each[f"{name}_ms"]) for each in rounds]  # type: ignore[arg-type]


def make_table(by_size: dict[int, list[dict[str, object]]], title: str) -> Table:
    """Return a row for each size."""
    rows = []
    for pods, rounds in by_size.items():
        cells = [f"{spread(column(rounds, name)).middle:.1f}" for name in MEASURED]
        each = 1000 * spread(column(rounds, "total")).middle / pods
        ratio = ratios(column(rounds, "total"), column(rounds, "loader"))
        rows.append((f"{pods:,}", *cells, f"{each:.0f}", ratio.show(2)))
    return Table(
        title=f"Milliseconds from text to plan; {title}",
        columns=("pods", *MEASURED, "µs a pod", "total / loader"),
        rows=tuple(rows),
    )


def make_aims(by_size: dict[int, list[dict[str, object]]]) -> tuple[Aim, ...]:
    """Return the aims for the largest number of pods; linear growth requires more than one size."""
    fewest, most = min(by_size), max(by_size)
    ratio = ratios(column(by_size[most], "total"), column(by_size[most], "loader"))
    aims = [
        Aim(
            text=f"from text to plan, {most:,} pods, ratio to the loader",
            value=ratio.middle,
            limit=RATIO_AIM,
        )
    ]
    if fewest != most:
        few, many = (spread(column(by_size[p], "total")).middle / p for p in (fewest, most))
        text = f"growth: what a pod costs among {most:,} against one among {fewest:,}"
        aims.append(Aim(text=text, value=many / few, limit=LINEAR_AIM))
    return tuple(aims)


def make_plot(by_size: dict[int, list[dict[str, object]]]) -> Plot:
    """Return a plot of the cost of a pod in each stage."""
    series = {
        name: tuple(
            Point(x=f"{pods:,}", y=spread([1000 * each / pods for each in column(rounds, name)]))
            for pods, rounds in by_size.items()
        )
        for name in MEASURED
    }
    return Plot(
        name="planning",
        title="From text to plan: what one pod costs",
        x="pods",
        y="µs a pod",
        kind="bars",
        series=series,
    )


def measure(data: bytes, pods: int, *, collecting: bool) -> dict[str, float]:
    """Take every measurement once, in seconds. Results of a stage stay in memory, as in a verb."""
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = work()
        seconds[name] = time.perf_counter() - start
        return result

    gc.collect()
    if not collecting:
        gc.disable()
    try:
        timed("loader", lambda: list(yaml.load_all(data, LOADER)))
        gc.collect()
        loaded = timed("load", lambda: load(data))
        decisions = timed("decide", lambda: [decide(pod, NODE, CONFIG) for pod in loaded])
        desired = timed("desire", lambda: desire(decisions, NODE, CONFIG))
        plan = timed("plan", lambda: make_plan(desired, Observed(caps=CAPS)))
        there = converged(desired)
        again = timed("again", lambda: make_plan(desired, there))
    finally:
        gc.enable()
    if len(plan.steps) != pods + 3 or again.steps or desired.refused:
        raise RuntimeError("the plan is not what it should be")
    return seconds


def load(data: bytes) -> tuple[Pod, ...]:
    """Return the pods of the text, as `-f -` reads them."""
    loaded = load_pods(("-",), stdin=lambda: data)
    if loaded.all_problems:
        raise RuntimeError(str(loaded.all_problems[0]))
    return loaded.pods


def converged(desired: Desired) -> Observed:
    """Return a host on which all units are as desired."""
    units = {
        unit.name: ObservedUnit(name=unit.name, properties=dict(unit.values))
        for unit in desired.units
    }
    return Observed(caps=CAPS, units=units)


def make_manifests(pods: int) -> bytes:
    """Yield Pods and Deployments in turn, with different amounts."""
    texts = (
        (POD, DEPLOYMENT)[number % 2].format(
            number=number,
            team=number % 12,
            priority=number % 3,
            cpu=(50, 100, 250, 500, 1000)[number % 5],
            memory=(64, 128, 256, 512, 1024, 2048, 3000)[number % 7],
        )
        for number in range(pods)
    )
    return "".join(texts).encode()
