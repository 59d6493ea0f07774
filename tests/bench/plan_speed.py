"""From text to plan, beside the time that PyYAML's C loader alone takes for the same text.

    python3 -m tests.bench.plan_speed [--pods 100,1000,10000] [--rounds N] [--json FILE]

Manifests are ordinary: Pods and Deployments by turns, 25 lines each, every one a pod. In each round
every measurement is taken once, so that what else the machine does falls on all of them alike.
`total` is load + decide + desire + plan, onto a host with nothing on it; `again` is the plan for a
host where all of it is there already. The collector of cycles is off as on the command line, and on
as in a program that uses the library.

README: the aim is a total of at most 2 × the loader at 10,000 pods, growing linearly.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import yaml

from podslice.inputs.manifests import load_pods
from podslice.model.config import Config
from podslice.model.desired import Desired
from podslice.model.node import Node
from podslice.model.pod import Pod
from podslice.model.unit import Caps, Observed, ObservedUnit
from podslice.plan import make_plan
from podslice.policy.decide import decide
from podslice.policy.desire import desire

T = TypeVar("T")

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TOTAL = ("load", "decide", "desire", "plan")
MEASURED = ("loader", *TOTAL, "again")
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


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table for each size and write the figures."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.bench.plan_speed")
    parser.add_argument("--pods", default="100,1000,10000", metavar="N,N", help="how many pods")
    parser.add_argument("--rounds", default=5, type=int, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    arguments = parser.parse_args(argv)
    if LOADER is yaml.SafeLoader:
        say("PyYAML has no C loader here; its Python one is about ten times as slow\n")
    document = {
        "version": 1,
        "c_loader": LOADER is not yaml.SafeLoader,
        "rounds": arguments.rounds,
        "sizes": [run(int(pods), arguments.rounds) for pods in arguments.pods.split(",")],
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def run(pods: int, rounds: int) -> dict[str, object]:
    """Measure one size, print it, and return its figures."""
    data = make_manifests(pods)
    taken: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for number in range(2 * rounds):
        collecting = number % 2 == 1
        taken[collecting].append(measure(data, pods, collecting=collecting))
    lines = len(data.splitlines())
    say(f"{pods} pods, {lines} lines, {len(data) / 1e6:.2f} MB, {rounds} rounds\n")
    figures = {
        "off": summarize(taken[False], pods, "collector off, as on the command line"),
        "on": summarize(taken[True], pods, "collector on"),
    }
    return {"pods": pods, "bytes": len(data), "collector": figures}


def summarize(rounds: list[dict[str, float]], pods: int, title: str) -> dict[str, object]:
    """The median of each measurement with the least and the most, and the ratio to the loader."""
    for each in rounds:
        each["total"] = sum(each[stage] for stage in TOTAL)
    ratios = [each["total"] / each["loader"] for each in rounds]
    figures: dict[str, object] = {"ratio": spread(ratios)}
    say(f"  {title}\n")
    for name in (*MEASURED, "total"):
        seconds = spread([each[name] for each in rounds])
        figures[f"{name}_sec"] = seconds
        low, middle, high = (1000 * second for second in seconds)
        each_usec = 1000 * middle / pods
        say(f"    {name:8}{middle:9.1f} ms  ({low:.1f} to {high:.1f}) {each_usec:8.1f} µs a pod\n")
    low, middle, high = spread(ratios)
    say(f"    total / loader {middle:7.2f}     ({low:.2f} to {high:.2f})\n")
    return figures


def spread(numbers: list[float]) -> tuple[float, float, float]:
    """The least, the median and the most."""
    return min(numbers), statistics.median(numbers), max(numbers)


def measure(data: bytes, pods: int, *, collecting: bool) -> dict[str, float]:
    """Every measurement once, in seconds. What a stage has made stays, as it does in a verb."""
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
    """The pods of the text, as `-f -` reads them."""
    loaded = load_pods(("-",), stdin=lambda: data)
    if loaded.all_problems:
        raise RuntimeError(str(loaded.all_problems[0]))
    return loaded.pods


def converged(desired: Desired) -> Observed:
    """A host where everything is as it should be."""
    units = {
        unit.name: ObservedUnit(name=unit.name, properties=dict(unit.values))
        for unit in desired.units
    }
    return Observed(caps=CAPS, units=units)


def make_manifests(pods: int) -> bytes:
    """Pods and Deployments by turns, with amounts that differ."""
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


def say(text: str) -> None:
    """Print at once; a size can take a while."""
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
