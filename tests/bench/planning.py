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
from tests.bench.result import Aim, Result, Round, Spread, Table, ratios, sizes_of, spread, values

T = TypeVar("T")

NAME = "planning"
TITLE = "Planning: from the text of manifests to the plan, against the YAML parser alone"
MACHINE = "none"
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


def run(_: None = None, *, quick: bool = False) -> Result:
    """Measure each size, with the garbage collector off and on in turn."""
    sizes, rounds = (QUICK_SIZES, 1) if quick else (SIZES, ROUNDS)
    taken: list[Round] = []
    for pods in sizes:
        data = make_manifests(pods)
        for number in range(2 * rounds):
            sys.stderr.write(f"{pods} pods, round {number // 2 + 1}\n")
            taken.append(take_round(data, pods, number // 2 + 1, collecting=number % 2 == 1))
    off, on = ([each for each in taken if each["collector"] is is_on] for is_on in (False, True))
    return Result(
        name=NAME,
        title=TITLE,
        tables=(
            make_table(off, "collector off, as on the command line"),
            make_table(on, "collector on"),
        ),
        aims=make_aims(off),
        rounds=taken,
    )


def take_round(data: bytes, pods: int, number: int, *, collecting: bool) -> Round:
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


def total_ms(taken: list[Round], pods: int) -> float:
    """Return the median time from text to plan."""
    return spread(values(taken, "total_ms", pods=pods)).middle


def beside_loader(taken: list[Round], pods: int) -> Spread:
    """Return the total as a multiple of the loader's time."""
    total, loader = (values(taken, f"{name}_ms", pods=pods) for name in ("total", "loader"))
    return ratios(total, loader)


def make_table(taken: list[Round], title: str) -> Table:
    """Return a row for each size."""
    rows = []
    for pods in sizes_of(taken):
        middles = (spread(values(taken, f"{name}_ms", pods=pods)).middle for name in MEASURED)
        each = 1000 * total_ms(taken, pods) / pods
        ratio = beside_loader(taken, pods).show(2)
        rows.append((f"{pods:,}", *(f"{ms:.1f}" for ms in middles), f"{each:.0f}", ratio))
    return Table(
        title=f"Milliseconds from text to plan; {title}",
        columns=("pods", *MEASURED, "µs a pod", "total / loader"),
        rows=tuple(rows),
    )


def make_aims(taken: list[Round]) -> tuple[Aim, ...]:
    """Return the aims for the largest number of pods; linear growth requires more than one size."""
    fewest, most = sizes_of(taken)[0], sizes_of(taken)[-1]
    ratio = Aim(
        text=f"from text to plan, {most:,} pods, ratio to the loader",
        value=beside_loader(taken, most).middle,
        limit=RATIO_AIM,
    )
    if fewest == most:
        return (ratio,)
    few, many = (total_ms(taken, pods) / pods for pods in (fewest, most))
    text = f"growth: what a pod costs among {most:,} against one among {fewest:,}"
    return (ratio, Aim(text=text, value=many / few, limit=LINEAR_AIM))


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
