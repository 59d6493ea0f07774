"""The machine of `sharing`: pods that podslice has created, and the workers in their containers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from tests.bench.load import watch_load
from tests.bench.sharing_pods import CPUS, PINNED, Part, Pod, Row, Scale, operations, pods_of
from tests.lab.vm import Vm

WORK = ("/usr/bin/python3", "-I", "-S", "/src/tests/bench/guest/work.py")
MANIFEST, CONFIG_FILE = "/run/sharing.json", "/etc/podslice/podslice.toml"
CONFIG = 'oom-policy = "process"\n'
"""The worker must survive the process that leaks, to report its size."""
EXCLUSIVE = ("--set=cpu-manager-policy=static", "--set=reserved-cpus=0")
LIMIT_SEC, WHOLE_LIMIT_SEC = 120.0, 3600.0
# a poll from outside costs more than the process that is waited for
AWAIT_PIPE = 'until test -p "$1"; do sleep 0.3; done'
GAP_MS = 150
"""Before a step: longer than a quota's period, so that the whole quota is available."""

Orders = Sequence[tuple[str, int, str]]
"""Pod, container, and command."""


class Node:
    """The machine, its pods, and the workers in their containers."""

    def __init__(self, vm: Vm, executor: ThreadPoolExecutor, *, quick: bool) -> None:
        self._vm = vm
        self._executor = executor
        self._quick = quick
        self._in_place: dict[str, Future[object]] = {}
        self._pods: dict[str, Pod] = {}

    def begin(self, scale: Scale) -> None:
        """Apply the pods, start their containers, and check the limits."""
        print_progress("making pods\n")
        staff = pods_of(scale)
        self._pods = {pod.name: pod for pod in staff}
        items = [pod.manifest() for pod in staff]
        self._vm.put(MANIFEST, json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        self._vm.put(CONFIG_FILE, CONFIG)
        self.assign(are_exclusive=False)
        everyone = [(pod, at) for pod, count in staff.items() for at in range(count)]
        for pod, at in everyone:
            self._start(pod, at)
        # spinning processes are forked now, and not by the first operation
        found = self.conduct([track(warm_up(pod, at) for pod, at in everyone)])
        if found["cpus"] != CPUS:
            raise RuntimeError(f"the machine has {found['cpus']} CPUs instead of {CPUS}")

    def _start(self, pod: Pod, at: int) -> None:
        name = f"{pod.name}.{at}"
        command = (pod.name, "-c", f"c{at}", "--", *WORK, "worker", name)
        if not pod.is_for_memory:
            self._vm.podslice("run", "--detach", *command)
            return
        # in the foreground: the policy of a service would stop the worker, too
        future = self._executor.submit(
            self._vm.podslice, "run", *command, timeout_sec=WHOLE_LIMIT_SEC
        )
        argv = ("timeout", f"{LIMIT_SEC}", "sh", "-c", AWAIT_PIPE, "sh", f"/run/work/{name}.out")
        if self._vm.run(*argv, check=False, timeout_sec=2 * LIMIT_SEC).exit_code:
            raise RuntimeError(f"{name} does not answer: {future}")
        self._in_place[name] = future

    def assign(self, *, are_exclusive: bool) -> None:
        """Apply the pods, with or without a CPU that only the pinned pod may use."""
        options = EXCLUSIVE if are_exclusive else ()
        self._vm.podslice("apply", "-f", MANIFEST, "--set=admission=false", *options)
        self._pods[PINNED] = replace(self._pods[PINNED], has_own_cpus=are_exclusive)

    def end(self) -> None:
        """Stop the containers in the foreground; the others end with the machine."""
        for name, future in self._in_place.items():
            self._vm.run("sh", "-c", f"echo quit >/run/work/{name}.in")
            future.result()

    def conduct(self, tracks: Sequence[Row], for_ms: int = 0, at_least: int = 0) -> Row:
        """Execute steps, see guest/work.py; return their results.

        With `for_ms`, each track repeats its steps for this time, and takes at least `at_least`
        steps: on a slow machine the time ends later.

        Raises:
            RuntimeError: the limits are not those of the manifests.
        """
        script = json.dumps({"for_ms": for_ms, "at_least": at_least, "tracks": tracks})
        with watch_load() as load:
            done = self._vm.run(*WORK, "conduct", input=script, timeout_sec=LIMIT_SEC)
        found: Row = json.loads(done.stdout)
        for name, limits in found["limits"].items():
            pod, _, at = name.rpartition(".")
            if limits != (wanted := self._pods[pod].in_kernel(int(at))):
                raise RuntimeError(f"{name} has {limits} instead of {wanted}")
        is_exact = not (self._quick or load.is_disturbed)
        return {**found, "disturbed": load.is_disturbed, "is_exact": is_exact}


def track(steps: Iterable[Orders], pauses: Iterable[int] = (), *, first_ms: int = 0) -> Row:
    """Return steps one after the other; without a given pause, with a gap before each."""
    given = iter(pauses)
    commands = [
        {
            "pause_ms": next(given, GAP_MS),
            "parts": [[f"{pod}.{at}", command] for pod, at, command in step],
        }
        for step in steps
    ]
    return {"first_ms": first_ms, "steps": commands}


def warm_up(pod: Pod, at: int) -> Orders:
    """Return a moment of work with the largest number of processes of a container."""
    known = operations(pod.size).values()
    width = max(part.width for parts in known for part in parts if part.container == at)
    return orders(pod.name, (Part(at, width, width),))


def orders(pod: str, parts: Sequence[Part]) -> Orders:
    """Return the commands for the containers of a pod in an operation."""
    return [
        (pod, part.container, f"spin {part.width} {part.cpu_ms} {part.wait_ms}") for part in parts
    ]


def delays(
    node: Node, place: tuple[str, int], tick: tuple[int, int, int], busy: Orders = ()
) -> tuple[Row, Row, list[float]]:
    """Measure periodic work in one container while others are busy.

    Returns:
        Everything that was found, the step of the work, and the delays in ms, from the least.

    Raises:
        RuntimeError: the answer is incomplete.
    """
    work = [(*place, "tick " + " ".join(map(str, tick)))]
    rest = [(pod, at, "rest") for pod, at, _ in busy]
    found = node.conduct([track([busy, work, rest] if busy else [work])])
    step = found["steps"][1 if busy else 0]
    times = sorted(int(usec) / 1000 for usec in step["answers"][0].split())
    if len(times) != tick[0]:
        raise RuntimeError(f"{len(times)} answers to {tick[0]} ticks")
    return found, step, times


def row_of(number: int, part: str, what: str, way: str, found: Row) -> Row:
    """Return the fields of every row."""
    same = {"round": number, "part": part, "what": what, "way": way}
    return same | {"disturbed": found["disturbed"]}


def at_percent(ordered: Sequence[float], percent: int) -> float:
    """Return the value at a percentile."""
    return ordered[-(-len(ordered) * percent // 100) - 1]


def print_progress(text: str) -> None:
    """Print the progress."""
    sys.stderr.write(text)
    sys.stderr.flush()
