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

Cases without a benefit, or with harm: all containers at work at once, a node that is full, and a
small piece of work beside a greedy container of the same pod.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence

from tests.bench.load import watch_load
from tests.bench.result import (
    Plot,
    Result,
    Round,
    Spread,
    Table,
    chosen,
    ratios,
    show,
    spread,
    values,
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
    Pod,
    Scale,
    by_quotas,
    operations,
    pods_of,
)
from tests.lab.vm import Vm

NAME = "sharing"
TITLE = "Containers that share their pod's CPU, against an even split (Pod-Level Resource Limits)"
MACHINE = "vm"

TURNS = ("300 ms", "450 ms by 2", "150 ms, waits")
PAUSE_MS = 480
"""0.4 of the time of these in a split pod, as 30 s are of the proposal's 50 to 90 s."""
FULL = ("300 ms", "450 ms by 2")
TICK_USEC = (37_000, 2_000)
"""Some CPU time in a fixed interval, which is not a divisor of the quota's period."""
GREEDY_WIDTH = 4
SPARE_MS = 50
"""While the host does other work, the guest assumes that its processes run."""
WORK = ("/usr/bin/python3", "-I", "-S", "/src/tests/bench/guest/work.py")
MANIFEST, CONFIG_FILE = "/run/sharing.json", "/etc/podslice/podslice.toml"
LIMIT_SEC = 120.0
GAP_MS = 150
"""Before a step: longer than a quota's period, so that the whole quota is available."""
# Source: Pod-Level Resource Limits, "Proof of Concept", "Test Results"; seconds without and with
# pod-level limits
SEED = {
    "npm install": (60, 43),
    "cds watch": (5, 2),
    "cds deploy (Node.js)": (2, 0.8),
    "mbt build": (90, 29),
    "mvn clean install": (85, 42),
    "mvn run": (50, 13.5),
    "cds deploy (Java)": (2, 0.9),
    "start-up": (60, 10),
}
SEED_USE_PERCENT = {SPLIT: 50, SHARED: 70}
LATENCY = {
    SPLIT: "an even split",
    SHARED: "shared",
    "weighed": "shared, requests 28 : 1",
    "capped": "shared, the greedy one limited to 1 CPU",
}

Orders = Sequence[tuple[str, int, str]]
"""Pod, container, and command."""


def run(machine: Vm, *, quick: bool = False) -> Result:
    """Measure all of it in one machine."""
    scale = QUICK if quick else Scale()
    rounds: list[Round] = []
    node = Node(machine, quick=quick)
    node.begin(scale)
    for number in range(1, scale.rounds + 1):
        sys.stderr.write(f"round {number} of {scale.rounds}\n")
        ways = WAYS if number % 2 else WAYS[::-1]
        for size in scale.sizes:
            rounds += alone(node, number, size, ways)
        for way in ways:
            rounds += turns(node, number, scale, way)
        rounds += full(node, number, scale, ways)
        rounds += latency(node, number, scale)
    return make_result(rounds, scale)


class Node:
    """The machine, its pods, and the workers in their containers."""

    def __init__(self, vm: Vm, *, quick: bool) -> None:
        self._vm = vm
        self._quick = quick
        self._pods: dict[str, Pod] = {}

    def begin(self, scale: Scale) -> None:
        """Apply the pods, start their containers, and check the limits."""
        sys.stderr.write("making pods\n")
        staff = pods_of(scale)
        self._pods = {pod.name: pod for pod in staff}
        items = [pod.manifest() for pod in staff]
        self._vm.put(MANIFEST, json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        self._vm.put(CONFIG_FILE, "")
        self._vm.podslice("apply", "-f", MANIFEST, "--set=admission=false")
        everyone = [(pod, at) for pod, count in staff.items() for at in range(count)]
        for pod, at in everyone:
            command = (*WORK, "worker", f"{pod.name}.{at}")
            self._vm.podslice("run", "--detach", pod.name, "-c", f"c{at}", "--", *command)
        # spinning processes are forked now, and not by the first operation
        found = self.conduct([track(warm_up(pod, at) for pod, at in everyone)])
        if found["cpus"] != CPUS:
            raise RuntimeError(f"the machine has {found['cpus']} CPUs instead of {CPUS}")

    def conduct(self, tracks: Sequence[Round], for_ms: int = 0, at_least: int = 0) -> Round:
        """Execute steps, see guest/work.py; return their results.

        With `for_ms`, each track repeats its steps for this time, and takes at least `at_least`
        steps: on a slow machine the time ends later.

        Raises:
            RuntimeError: the limits are not those of the manifests.
        """
        script = json.dumps({"for_ms": for_ms, "at_least": at_least, "tracks": tracks})
        with watch_load() as load:
            done = self._vm.run(*WORK, "conduct", input=script, timeout_sec=LIMIT_SEC)
        found: Round = json.loads(done.stdout)
        for name, limits in found["limits"].items():
            pod, _, at = name.rpartition(".")
            if limits != (wanted := self._pods[pod].in_kernel(int(at))):
                raise RuntimeError(f"{name} has {limits} instead of {wanted}")
        is_exact = not (self._quick or load.is_disturbed)
        return {**found, "disturbed": load.is_disturbed, "is_exact": is_exact}


def track(steps: Iterable[Orders], pauses: Iterable[int] = (), *, first_ms: int = 0) -> Round:
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


def row_of(number: int, part: str, what: str, way: str, found: Round) -> Round:
    """Return the fields of every row."""
    same = {"round": number, "part": part, "what": what, "way": way}
    return same | {"disturbed": found["disturbed"]}


def at_percent(ordered: Sequence[float], percent: int) -> float:
    """Return the value at a percentile."""
    return ordered[-(-len(ordered) * percent // 100) - 1]


def alone(node: Node, number: int, size: int, ways: Sequence[str]) -> Iterator[Round]:
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


def turns(node: Node, number: int, scale: Scale, way: str) -> Iterator[Round]:
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


def full(node: Node, number: int, scale: Scale, ways: Sequence[str]) -> Iterator[Round]:
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


def latency(node: Node, number: int, scale: Scale) -> Iterator[Round]:
    """Measure small periodic work in one container, while another one uses all available CPU."""
    pods = {way: f"{way}-{scale.sizes[-1]}-0" for way in WAYS} | {
        "weighed": "weighed",
        "capped": "capped",
    }
    order = list(pods)
    order = order[number % 4 :] + order[: number % 4]
    tick = " ".join(map(str, ("tick", scale.ticks, *TICK_USEC)))
    for way in order:
        commands = ((1, f"burn {GREEDY_WIDTH}"), (0, tick), (1, "rest"))
        found = node.conduct([track([(pods[way], *each)] for each in commands)])
        step = found["steps"][1]
        times = sorted(int(usec) / 1000 for usec in step["answers"][0].split())
        if len(times) != scale.ticks:
            raise RuntimeError(f"{len(times)} answers to {scale.ticks} ticks")
        greedy_ms = step["pod"]["used_ms"] - step["containers"][0]["used_ms"]
        yield row_of(number, "latency", "small work", way, found) | {
            "p50_ms": at_percent(times, 50),
            "p99_ms": at_percent(times, 99),
            "greedy_cpus": greedy_ms / step["ms"],
        }


def check(
    what: str, parts: Sequence[Part], size: int, way: str, step: Round, *, is_exact: bool
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


def excesses(parts: Sequence[Part], size: int, way: str, step: Round) -> Iterator[str]:
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


def make_result(rounds: list[Round], scale: Scale) -> Result:
    """Return the tables of all parts, beside the figures of the proposal, and a plot."""
    return Result(
        name=NAME,
        title=TITLE,
        tables=(
            alone_table(rounds, scale),
            turns_table(rounds, scale),
            beside_seed(rounds, scale),
            full_table(rounds, scale),
            latency_table(rounds),
        ),
        plots=(ratio_plot(rounds, scale),),
        rounds=rounds,
    )


def both_ways(rounds: Sequence[Round], key: str = "ms", **wanted: object) -> tuple[Spread, ...]:
    """Return split, shared, and the ratio of the two."""
    split, shared = (values(rounds, key, way=way, **wanted) for way in WAYS)
    return spread(split), spread(shared), ratios(split, shared)


def alone_table(rounds: Sequence[Round], scale: Scale) -> Table:
    lines = []
    for size in scale.sizes:
        for name, parts in operations(size).items():
            found = both_ways(rounds, part="alone", what=name, containers=size)
            expected = by_quotas(parts, size)
            lines.append(
                (
                    f"{name}, {size} containers",
                    *(each.show() for each in found[:2]),
                    found[2].show(1),
                    f"{expected[SPLIT] / expected[SHARED]:.1f}",
                )
            )
    return Table(
        title="An operation alone on the node: ms, median (least to most)",
        columns=("CPU time", "split", "shared", "split / shared", "by the quotas"),
        rows=tuple(lines),
        note="In one container, except for the last two of each size, in which all containers"
        " work: in `start-up` mostly the first one, in `all at once` all equally. Work that fits"
        " into a period's quota (25 or 50 ms of 100) or two is done before the quota takes effect.",
    )


def turns_table(rounds: Sequence[Round], scale: Scale) -> Table:
    lines = []
    for name in dict.fromkeys(row["what"] for row in chosen(rounds, part="turns") if "ms" in row):
        *times, ratio = both_ways(rounds, part="turns", what=name)
        lines.append((f"{name}, ms", *(each.show() for each in times), ratio.show(1)))
    *use, ratio = both_ways(rounds, "percent", part="turns", what="use")
    lines.append(("use of the node, %", *(each.show() for each in use), ratio.show(2)))
    *done, ratio = both_ways(rounds, "operations", part="turns", what="use")
    lines.append(("operations done", *(each.show() for each in done), ratio.show(2)))
    return Table(
        title=f"{scale.pods} pods of {scale.sizes[0]} containers take turns: work, pause, work",
        columns=("", "split", "shared", "split / shared"),
        rows=tuple(lines),
        note=f"In {scale.turns_ms / 1000:g} s each; the times are medians of such a stretch.",
    )


def beside_seed(rounds: Sequence[Round], scale: Scale) -> Table:
    """Return the proposal's figures, and ours for the same question."""
    lines = []
    for name, (without, with_) in SEED.items():
        here = ""
        if name == "start-up":
            size = scale.sizes[0]
            here = both_ways(rounds, part="alone", what=name, containers=size)[2].show(1)
        lines.append((name, f"{without:g} s", f"{with_:g} s", f"{without / with_:.1f}", here))
    of_seed = [without / with_ for name, (without, with_) in SEED.items() if name != "start-up"]
    lines.append(("operations", "", "", _range(of_seed), _range(turn_ratios(rounds))))
    *found, ratio = both_ways(rounds, "percent", part="turns", what="use")
    seed = [SEED_USE_PERCENT[way] for way in WAYS]
    here = f"{ratio.show(2)}: " + " → ".join(f"{each.middle:.0f} %" for each in found)
    lines.append(
        ("use of the node", *(f"{each} %" for each in seed), f"{seed[0] / seed[1]:.2f}", here)
    )
    return Table(
        title="Results of Pod-Level Resource Limits, and of this run",
        columns=("proposal", "split", "shared", "split / shared", "here"),
        rows=tuple(lines),
        note="The proposal's operations are builds of other software on 8 CPUs, with work that is not"
        " CPU: only the range can be compared. The line `operations` has the medians of those that"
        f" take turns. With {scale.sizes[0]} containers quotas alone make {scale.sizes[0]} at most.",
    )


def full_table(rounds: Sequence[Round], scale: Scale) -> Table:
    lines = []
    for name in dict.fromkeys(row["what"] for row in chosen(rounds, part="full")):
        *times, ratio = both_ways(rounds, part="full", what=name)
        lines.append((name, *(each.show() for each in times), ratio.show(1)))
    others = scale.pods - 1
    return Table(
        title=f"The node is full: {others} other pods take all they may (ms)",
        columns=(f"CPU time, {scale.sizes[-1]} containers", "split", "shared", "split / shared"),
        rows=tuple(lines),
        note="An even share of the node is less than the quota of one container, so that the quota"
        " has no effect.",
    )


def latency_table(rounds: Sequence[Round]) -> Table:
    lines = []
    for way, label in LATENCY.items():
        figures = (("p50_ms", 1), ("p99_ms", 1), ("greedy_cpus", 2))
        found = (show(rounds, key, digits, part="latency", way=way) for key, digits in figures)
        lines.append((label, *found))
    return Table(
        title="2 ms of work every 37 ms, beside a greedy container of the same pod",
        columns=("", "p50 ms", "p99 ms", "CPUs of the greedy one"),
        rows=tuple(lines),
        note="When the greedy container has used up the pod's quota, the whole pod waits for the"
        " next period. Requests (CPUWeight) divide the time before that; they do not avoid the"
        " wait. A limit on the greedy container leaves some of the quota to the others.",
    )


def turn_ratios(rounds: Sequence[Round]) -> list[float]:
    """Return the median of each operation that takes turns."""
    names = dict.fromkeys(row["what"] for row in chosen(rounds, part="turns") if "ms" in row)
    return [both_ways(rounds, part="turns", what=name)[2].middle for name in names]


def _range(numbers: Sequence[float]) -> str:
    return f"{min(numbers):.1f} to {max(numbers):.1f}"


def ratio_plot(rounds: Sequence[Round], scale: Scale) -> Plot:
    first, last = scale.sizes[0], scale.sizes[-1]
    return Plot(
        name="sharing-ratio",
        title="How many times faster with the budget at the pod level",
        x="CPU time of the operation",
        y="time split / time shared",
        series={
            **{f"alone, {size} containers": _bars(rounds, "alone", size) for size in scale.sizes},
            f"in turns, {first} containers": _bars(rounds, "turns", first),
            f"node full, {last} containers": _bars(rounds, "full", last),
        },
        guide=1.0,
    )


def _bars(rounds: Sequence[Round], part: str, size: int) -> dict[str, Spread]:
    known = [row for row in chosen(rounds, part=part, containers=size) if "ms" in row]
    found = {}
    for name in dict.fromkeys(row["what"] for row in known):
        label = name.replace(" by", "\nby").replace(", ", ",\n").replace("all ", "all\n")
        found[label] = both_ways(rounds, part=part, what=name, containers=size)[2]
    return found
