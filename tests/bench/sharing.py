"""A pod's CPU split evenly among its containers, compared with CPU that they share.

    python3 -m tests.bench sharing [--quick]

In the virtual machine, because it requires cgroup v2. podslice itself creates both kinds of pods:
`podslice apply` of manifests with the limits at the containers or at the pod level, and
`podslice run POD -c CONTAINER` for their processes. The limits are read back from the kernel.

The experiment of "Pod-Level Resource Limits" had a node of 8 CPUs and 10 pods of 3 CPUs; the text
does not state the number of containers. As far as CPU explains its figures, they do: an N-th of the
budget makes work at most N times as slow, so 3.7 requires 4 containers, and a start in a sixth of the time 6. With one container of each pod
at work, split pods use at most 30/8/N of the node, which at N = 6 is 62 %, less the pauses: about
the proposal's 50 %. So the pods here have 6 containers, and one with 3 shows the influence of
that number. The node has 2 CPUs, so there are 5 pods of 1.5 CPUs: the same overcommitment, 3.75, and
still more than the one CPU that a single thread can use.

Work is CPU time: a process spins until its own CPU clock reaches it. So the speed of the
emulated processor does not matter, only the share of it. Times are by the guest's monotonic clock,
from the command to the end of the last process. Rounds alternate (split first, shared first), and
ratios are those of one round.

`By the quotas` is the result of limits, widths and CPUs alone, as if quotas were even
streams. The kernel assigns them in periods of 100 ms: work that fits into the first is done before
the quota takes effect, and work that ends early in a period ends a little sooner.

Cases without a benefit, or with harm: all containers at work at once, a node that is full, a small
piece of work beside a greedy container of the same pod, and a container that leaks memory.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.bench.result import Result
from tests.bench.sharing_bursts import GREEDY_WIDTH, TICK_USEC, bursts, pinned
from tests.bench.sharing_node import (
    Node,
    at_percent,
    delays,
    orders,
    print_progress,
    row_of,
    track,
)
from tests.bench.sharing_pods import (
    CPU_MILLI,
    CPUS,
    PERIOD_MS,
    QUICK,
    SHARED,
    SPLIT,
    WAYS,
    Part,
    Row,
    Scale,
    operations,
)
from tests.bench.sharing_tables import summarize
from tests.lab.paths import require_host
from tests.lab.vm import Vm

NAME = "sharing"
TITLE = "Containers that share their pod's CPU, against an even split (Pod-Level Resource Limits)"

TURNS = ("300 ms", "450 ms by 2", "150 ms, waits")
PAUSE_MS = 480
"""0.4 of the time of these in a split pod, as 30 s are of the proposal's 50 to 90 s."""
FULL = ("300 ms", "450 ms by 2")
SPARE_MS = 50
"""While the host does other work, the guest assumes that its processes run."""
HELD_MIB = {"siblings below an even share": (14, 14), "one sibling above an even share": (46, 4)}
"""Of the two containers beside the one that leaks; an even share is 32."""


def run(*, quick: bool = False) -> Result:
    """Measure all of it in one machine."""
    require_host()
    scale = QUICK if quick else Scale()
    rows: list[Row] = []
    with ThreadPoolExecutor() as executor, Vm(has_source=True) as vm:
        node = Node(vm, executor, quick=quick)
        node.begin(scale)
        for number in range(1, scale.rounds + 1):
            print_progress(f"round {number} of {scale.rounds}\n")
            ways = WAYS if number % 2 else WAYS[::-1]
            for size in scale.sizes:
                rows += alone(node, number, size, ways)
            for way in ways:
                rows += turns(node, number, scale, way)
            rows += full(node, number, scale, ways)
            rows += latency(node, number, scale)
            rows += bursts(node, number, scale)
            rows += pinned(node, number, scale)
        for number in range(1, scale.memory_rounds + 1):
            rows += memory(node, number)
        node.end()
    return summarize(NAME, TITLE, rows, scale)


def alone(node: Node, number: int, size: int, ways: Sequence[str]) -> Iterator[Row]:
    """Measure each operation in one pod, both ways one after the other, while other pods are idle."""
    todo = [
        (name, way, parts)
        for at, (name, parts) in enumerate(operations(size).items())
        for way in (ways if at % 2 else ways[::-1])
    ]
    found = node.conduct([track(orders(f"{way}-{size}-0", parts) for _, way, parts in todo)])
    for (name, way, parts), step in zip(todo, found["steps"], strict=True):
        check(
            f"{name}, {way}, {size} containers", parts, size, way, step, is_exact=found["is_exact"]
        )
        held_back = any(each["throttled"] for each in step["containers"])
        if way == SPLIT and is_long_for(parts[0], size) and not held_back:
            raise RuntimeError(f"{name}, {size} containers: no quota held it back: {step}")
        yield row_of(number, "alone", name, way, found) | {"containers": size, "ms": step["ms"]}


def turns(node: Node, number: int, scale: Scale, way: str) -> Iterator[Row]:
    """Run the proposal's loop in all pods at once: an operation, a pause, and again."""
    size, tracks, names = scale.sizes[0], [], []
    known = operations(size)
    for pod in range(scale.pods):
        chance = random.Random(1000 * number + pod)  # the same for both ways
        todo = [name for _ in range(20) for name in chance.sample(TURNS, len(TURNS))]
        pauses = [int(chance.uniform(0.5, 1.5) * PAUSE_MS) for _ in todo]
        steps = (orders(f"{way}-{size}-{pod}", known[name]) for name in todo)
        tracks.append(track(steps, pauses, first_ms=chance.randrange(2 * PAUSE_MS)))
        names.append(todo)
    found = node.conduct(tracks, scale.turns_ms, at_least=len(TURNS))  # each of them once
    taken: dict[str, list[float]] = {name: [] for name in TURNS}
    for at, todo in enumerate(names):
        own = [step for step in found["steps"] if step["track"] == at]
        for name, step in zip(todo, own, strict=False):
            check(
                f"{name}, {way}, in turns", known[name], size, way, step, is_exact=found["is_exact"]
            )
            taken[name].append(step["ms"])
    for name, times in taken.items():
        figures = {"containers": size, "ms": statistics.median(times), "count": len(times)}
        yield row_of(number, "turns", name, way, found) | figures
    percent = 100 * found["used_ms"] / (CPUS * found["wall_ms"])
    figures = {"percent": percent, "operations": sum(map(len, taken.values()))}
    yield row_of(number, "turns", "use", way, found) | figures


def full(node: Node, number: int, scale: Scale, ways: Sequence[str]) -> Iterator[Row]:
    """Measure operations of one pod while the others use all that they may."""
    size, first = scale.sizes[-1], scale.sizes[0]
    todo = [(name, way, operations(size)[name]) for name in FULL for way in ways]
    others = [f"{SHARED}-{first}-{pod}" for pod in range(1, scale.pods)]
    steps = [
        [(pod, 1, f"burn {CPUS}") for pod in others],
        *(orders(f"{way}-{size}-0", parts) for _, way, parts in todo),
        [(pod, 1, "rest") for pod in others],
    ]
    found = node.conduct([track(steps)])
    for (name, way, parts), step in zip(todo, found["steps"][1:-1], strict=True):
        check(f"{name}, {way}, node full", parts, size, way, step, is_exact=found["is_exact"])
        yield row_of(number, "full", name, way, found) | {"containers": size, "ms": step["ms"]}


def latency(node: Node, number: int, scale: Scale) -> Iterator[Row]:
    """Measure small periodic work in one container, while another one uses all available CPU."""
    pods = {way: f"{way}-{scale.sizes[-1]}-0" for way in WAYS} | {
        "weighed": "weighed",
        "capped": "capped",
    }
    order = list(pods)
    order = order[number % 4 :] + order[: number % 4]
    tick = (scale.ticks, *TICK_USEC)
    for way in order:
        busy = [(pods[way], 1, f"burn {GREEDY_WIDTH}")]
        found, step, times = delays(node, (pods[way], 0), tick, busy)
        greedy_ms = step["pod"]["used_ms"] - step["containers"][0]["used_ms"]
        yield row_of(number, "latency", "small work", way, found) | {
            "p50_ms": at_percent(times, 50),
            "p99_ms": at_percent(times, 99),
            "greedy_cpus": greedy_ms / step["ms"],
        }


def memory(node: Node, number: int) -> Iterator[Row]:
    """Measure a container that leaks beside two others; which does the kernel kill?"""
    for name, held in HELD_MIB.items():
        for way in WAYS if number % 2 else WAYS[::-1]:
            pod = f"memory-{way}"
            commands = (
                *((at, f"hold {mebibytes}") for at, mebibytes in enumerate(held)),
                *((2, "leak"), (0, "rest"), (1, "rest")),
            )
            found = node.conduct([track([(pod, at, command)] for at, command in commands)])
            kills = [found["kills"][f"{pod}.{at}"] for at in range(3)]
            if kills[2]["killed"] != 1:
                raise RuntimeError(f"{name}, {way}: the leak was not killed once: {kills}")
            yield row_of(number, "memory", name, way, found) | {
                "killed": [each["killed"] for each in kills],
                "own_limit_met": [each["container_full"] for each in kills],
                "pod_limit_met": kills[0]["pod_full"],
                "leak_mib": int(found["steps"][len(held)]["answers"][0]),
            }


def check(
    what: str, parts: Sequence[Part], size: int, way: str, step: Row, *, is_exact: bool
) -> None:
    """Check that it was this work, and that the quotas applied.

    Upper bounds hold only if the host does no other work: while it does, the guest's clocks
    continue, and its kernel charges that time to the process on the processor.

    Raises:
        RuntimeError: it was not.
    """
    asked = sum(part.cpu_ms for part in parts)
    used = sum(each["used_ms"] for each in step["containers"])
    wrong = []
    if used < 0.95 * asked:
        wrong.append(f"{asked} ms of work were {used:.0f}")
    for part, each in zip(parts, step["containers"], strict=True):
        if way == SHARED and each["throttled"]:
            wrong.append(f"container {part.container} was held back")
    if is_exact:
        wrong += excesses(parts, size, way, step)
    if wrong:
        raise RuntimeError(f"{what}: {', '.join(wrong)}: {step}")


def excesses(parts: Sequence[Part], size: int, way: str, step: Row) -> Iterator[str]:
    """Return what used more CPU time than its work, or than its quota permits."""
    asked = sum(part.cpu_ms for part in parts)
    used = sum(each["used_ms"] for each in step["containers"])
    time_ms, share = step["ms"] + 2 * PERIOD_MS, CPU_MILLI / size / 1000
    if used > 1.3 * asked + SPARE_MS:
        yield f"{asked} ms of work were {used:.0f}"
    for part, each in zip(parts, step["containers"], strict=True):
        if way == SPLIT and each["used_ms"] > 1.1 * share * time_ms + SPARE_MS:
            yield f"container {part.container} had more than its share"
    if step["pod"]["used_ms"] > 1.1 * CPU_MILLI / 1000 * time_ms + SPARE_MS:
        yield "the pod had more than its budget"


def is_long_for(part: Part, size: int) -> bool:
    """Return whether it takes several periods of an even share."""
    return part.cpu_ms > 3 * PERIOD_MS * CPU_MILLI / size / 1000
