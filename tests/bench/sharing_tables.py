"""The rounds of `sharing` as tables and plots, beside the figures of the proposal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.bench.result import Plot, Point, Result, Spread, Table, ratios, spread
from tests.bench.sharing_bursts import BURST_USEC, BUSY, IDLE, OWN
from tests.bench.sharing_pods import (
    BURST_MILLI,
    CPU_MILLI,
    CPUS,
    SHARED,
    SPLIT,
    WAYS,
    Row,
    Scale,
    by_quotas,
    operations,
)

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
FIGURES = ("p50_ms", "p99_ms", "longest_ms")
LATENCY = {
    SPLIT: "an even split",
    SHARED: "shared",
    "weighed": "shared, requests 28 : 1",
    "capped": "shared, the greedy one limited to 1 CPU",
}


def summarize(name: str, title: str, rows: list[Row], scale: Scale) -> Result:
    """Return the whole result."""
    tables = [alone_table(rows, scale), turns_table(rows, scale), beside_seed(rows, scale)]
    tables += [full_table(rows, scale), latency_table(rows), *burst_tables(rows, scale)]
    tables += [pinned_table(rows), memory_table(rows)]
    return Result(
        name=name,
        title=title,
        tables=tuple(tables),
        plots=(ratio_plot(rows, scale), use_plot(rows)),
        rounds=rows,
    )


def chosen(rows: Sequence[Row], **wanted: object) -> list[Row]:
    """Return the rows with these values, in the order of their rounds."""
    found = [row for row in rows if all(row.get(key) == wanted[key] for key in wanted)]
    return sorted(found, key=lambda row: int(row["round"]))


def values(rows: Sequence[Row], key: str, **wanted: object) -> list[float]:
    """Return one of their figures, round by round."""
    return [row[key] for row in chosen(rows, **wanted)]


def both_ways(rows: Sequence[Row], key: str = "ms", **wanted: object) -> tuple[Spread, ...]:
    """Return split, shared, and the ratio of the two."""
    split, shared = (values(rows, key, way=way, **wanted) for way in WAYS)
    return spread(split), spread(shared), ratios(split, shared)


def alone_table(rows: Sequence[Row], scale: Scale) -> Table:
    lines = []
    for size in scale.sizes:
        for name, parts in operations(size).items():
            found = both_ways(rows, part="alone", what=name, containers=size)
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


def turns_table(rows: Sequence[Row], scale: Scale) -> Table:
    lines = []
    for name in dict.fromkeys(row["what"] for row in chosen(rows, part="turns") if "ms" in row):
        *times, ratio = both_ways(rows, part="turns", what=name)
        lines.append((f"{name}, ms", *(each.show() for each in times), ratio.show(1)))
    *use, ratio = both_ways(rows, "percent", part="turns", what="use")
    lines.append(("use of the node, %", *(each.show() for each in use), ratio.show(2)))
    *done, ratio = both_ways(rows, "operations", part="turns", what="use")
    lines.append(("operations done", *(each.show() for each in done), ratio.show(2)))
    return Table(
        title=f"{scale.pods} pods of {scale.sizes[0]} containers take turns: work, pause, work",
        columns=("", "split", "shared", "split / shared"),
        rows=tuple(lines),
        note=f"In {scale.turns_ms / 1000:g} s each; the times are medians of such a stretch.",
    )


def beside_seed(rows: Sequence[Row], scale: Scale) -> Table:
    """Return the proposal's figures, and ours for the same question."""
    lines = []
    for name, (without, with_) in SEED.items():
        here = ""
        if name == "start-up":
            size = scale.sizes[0]
            here = both_ways(rows, part="alone", what=name, containers=size)[2].show(1)
        lines.append((name, f"{without:g} s", f"{with_:g} s", f"{without / with_:.1f}", here))
    of_seed = [without / with_ for name, (without, with_) in SEED.items() if name != "start-up"]
    lines.append(("operations", "", "", _range(of_seed), _range(turn_ratios(rows))))
    *found, ratio = both_ways(rows, "percent", part="turns", what="use")
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


def full_table(rows: Sequence[Row], scale: Scale) -> Table:
    lines = []
    for name in dict.fromkeys(row["what"] for row in chosen(rows, part="full")):
        *times, ratio = both_ways(rows, part="full", what=name)
        lines.append((name, *(each.show() for each in times), ratio.show(1)))
    others = scale.pods - 1
    return Table(
        title=f"The node is full: {others} other pods take all they may (ms)",
        columns=(f"CPU time, {scale.sizes[-1]} containers", "split", "shared", "split / shared"),
        rows=tuple(lines),
        note="An even share of the node is less than the quota of one container, so that the quota"
        " has no effect.",
    )


def latency_table(rows: Sequence[Row]) -> Table:
    lines = []
    for way, label in LATENCY.items():
        found = (values(rows, key, part="latency", way=way) for key in ("p50_ms", "p99_ms"))
        greedy = spread(values(rows, "greedy_cpus", part="latency", way=way))
        lines.append((label, *(spread(each).show(1) for each in found), greedy.show(2)))
    return Table(
        title="2 ms of work every 37 ms, beside a greedy container of the same pod",
        columns=("", "p50 ms", "p99 ms", "CPUs of the greedy one"),
        rows=tuple(lines),
        note="When the greedy container has used up the pod's quota, the whole pod waits for the"
        " next period. Requests (CPUWeight) divide the time before that; they do not avoid the"
        " wait. A limit on the greedy container leaves some of the quota to the others.",
    )


def burst_tables(rows: Sequence[Row], scale: Scale) -> Iterator[Table]:
    """Yield the gain of a longer period, and its price."""
    periods = list(map(str, scale.periods_ms))
    yield Table(
        title=f"{BURST_USEC[1] / 1000:g} ms of work every {BURST_USEC[0] / 1000:g} ms, alone in a pod"
        f" limited to {BURST_MILLI}m",
        columns=("quota period, ms", "p50 ms", "longest ms"),
        rows=tuple(
            (period, *_times(rows, ("p50_ms", "longest_ms"), what="work", way=period))
            for period in periods
        ),
        note="Annotation podslice.io/cpu-quota-period. The limit in the long run is the same.",
    )
    yield Table(
        title="2 ms of work every 37 ms, beside a greedy container of the same pod, by quota period",
        columns=("quota period, ms", "p50 ms", "p99 ms", "longest ms", "stall by the quota, ms"),
        rows=tuple(
            (
                period,
                *_times(rows, FIGURES, what="sibling", way=period),
                f"{int(period) * (1 - CPU_MILLI / 1000 / CPUS):g}",
            )
            for period in periods
        ),
        note=f"The pod is limited to {CPU_MILLI}m of {CPUS} CPUs. The last column is what `explain`"
        " states for the pod: the rest of a period in which all CPUs have used up the quota.",
    )


def pinned_table(rows: Sequence[Row]) -> Table:
    return Table(
        title="2 ms of work every 37 ms in a Guaranteed pod of one CPU, beside other pods",
        columns=("", "p50 ms", "p99 ms", "longest ms"),
        rows=tuple(
            (way, *_times(rows, FIGURES, part="pinned", way=way)) for way in (IDLE, BUSY, OWN)
        ),
        note="The other pods take all they may. With `cpu-manager-policy = static` they have only"
        " the other CPU.",
    )


def _times(rows: Sequence[Row], keys: Sequence[str], **wanted: object) -> Iterator[str]:
    for key in keys:
        yield spread(values(rows, key, **wanted)).show(1)


def memory_table(rows: Sequence[Row]) -> Table:
    lines = []
    for name in dict.fromkeys(row["what"] for row in chosen(rows, part="memory")):
        for way in WAYS:
            found = chosen(rows, part="memory", what=name, way=way)
            leak = spread([row["leak_mib"] for row in found])
            victims = dict.fromkeys(victims_of(row) for row in found)
            lines.append((f"{name}, {way}", "; ".join(victims), leak.show()))
    return Table(
        title="A container leaks: what the kernel kills (memory.events), pod of 96 MiB",
        columns=("", "killed", "size of the leak, MiB"),
        rows=tuple(lines),
        note="Split: each container has 32 MiB. The kernel kills the largest process below the"
        " limit that was met, in parentheses.",
    )


def victims_of(row: Row) -> str:
    """Describe the kills: `the first sibling (pod's limit), the leak (its own limit)`."""
    names = ("the first sibling", "the second sibling", "the leak")
    kinds = ("its own limit" if met else "pod's limit" for met in row["own_limit_met"])
    found = zip(names, row["killed"], kinds, strict=True)
    return ", ".join(f"{name} ({kind})" for name, count, kind in found if count)


def turn_ratios(rows: Sequence[Row]) -> list[float]:
    """Return the median of each operation that takes turns."""
    names = dict.fromkeys(row["what"] for row in chosen(rows, part="turns") if "ms" in row)
    return [both_ways(rows, part="turns", what=name)[2].middle for name in names]


def _range(numbers: Sequence[float]) -> str:
    return f"{min(numbers):.1f} to {max(numbers):.1f}"


def ratio_plot(rows: Sequence[Row], scale: Scale) -> Plot:
    series = {
        f"alone, {size} containers": tuple(_points(rows, "alone", size)) for size in scale.sizes
    }
    series[f"in turns, {scale.sizes[0]} containers"] = tuple(_points(rows, "turns", scale.sizes[0]))
    series[f"node full, {scale.sizes[-1]} containers"] = tuple(
        _points(rows, "full", scale.sizes[-1])
    )
    return Plot(
        name="sharing-ratio",
        title="How many times faster with the budget at the pod level",
        x="CPU time of the operation",
        y="time split / time shared",
        kind="bars",
        series=series,
        guide=1.0,
    )


def _points(rows: Sequence[Row], part: str, size: int) -> Iterator[Point]:
    known = [row for row in chosen(rows, part=part, containers=size) if "ms" in row]
    for name in dict.fromkeys(row["what"] for row in known):
        found = both_ways(rows, part=part, what=name, containers=size)[2]
        label = name.replace(" by", "\nby").replace(", ", ",\n").replace("all ", "all\n")
        yield Point(x=label, y=found)


def use_plot(rows: Sequence[Row]) -> Plot:
    here = [
        Point(x=way, y=spread(values(rows, "percent", part="turns", what="use", way=way)))
        for way in WAYS
    ]
    seed = [
        Point(x=way, y=Spread(percent, percent, percent))
        for way, percent in SEED_USE_PERCENT.items()
    ]
    return Plot(
        name="sharing-use",
        title="Use of the node while the pods take turns",
        x="the pods' CPU",
        y="% of the node's CPUs",
        kind="bars",
        series={"here": tuple(here), "proposal": tuple(seed)},
    )
