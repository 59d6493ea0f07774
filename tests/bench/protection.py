"""The protection of a Guaranteed pod's memory from BestEffort pods by each reservation.

    python3 -m tests.bench memory [--quick]

In a virtual machine of the lab with cgroup v2. A Guaranteed pod reads a file of 128 MiB repeatedly,
and touches as much anonymous memory; it requests 320 MiB. Beside it a BestEffort pod reads a
file of 600 MiB and allocates anonymous memory, more than available. kubepods.slice is limited to the
memory of the machine less 200 MiB for the system, so that the pods are short of memory and the system
is not. The reservations are

- `nothing`: `memory-protection = "none"`;
- `MemoryLow`: the requests as protection, which is the default;
- `MemoryMin`: the same, unconditionally (`memory-protection = "min"`);
- `qos-reserved`: no protection, and `qos-reserved = "memory=100%"`, which limits the BestEffort tier
  to what the requests of the others leave.

Each is measured with a swap file, where anonymous memory can be reclaimed, and without one, where
the BestEffort pod grows until the kernel kills it; and once with an idle Guaranteed pod, for the
memory that other pods can use then. No agent runs, so there is no eviction. Refaults are pages of
the Guaranteed pod that were reclaimed and read again. The machine is emulated and its disk is a file
in this host's memory: times are comparable with each other only, and refaults are quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict

from tests.bench import pressure
from tests.bench.pressure import (
    CONTAINERS,
    PAGES_PER_MIB,
    PRESSURE_SEC,
    REQUEST_MIB,
    WAYS,
    WORKING_SET_MIB,
    Idle,
    Round,
)
from tests.bench.result import Plot, Point, Result, Table, spread
from tests.lab.paths import require_host
from tests.lab.vm import Vm

NAME = "memory"
TITLE = "Memory: what a reservation saves of a Guaranteed pod under pressure from BestEffort"
ROUNDS, QUICK_ROUNDS = 4, 1
# with swap other memory can always be reclaimed, so that MemoryMin has the effect of MemoryLow
MEASURED = (
    *((way, True) for way in WAYS if way != "MemoryMin"),
    *((way, False) for way in WAYS),
)
"""Each reservation with swap or without."""
QUICK_MEASURED = (("MemoryLow", True), ("nothing", False))
QUICK_IDLE = ("qos-reserved",)
QUICK_PRESSURE_SEC = 1.0


def run(*, quick: bool = False) -> Result:
    """Measure every reservation in one machine, in turn."""
    require_host()
    measured, count = (QUICK_MEASURED, QUICK_ROUNDS) if quick else (MEASURED, ROUNDS)
    seconds = QUICK_PRESSURE_SEC if quick else PRESSURE_SEC
    rounds: list[Round] = []
    with Vm(has_source=True) as machine:
        pressure.prepare(machine)
        for number in range(1, count + 1):
            sys.stderr.write(f"memory, round {number}\n")
            turn = (number - 1) * len(measured) // count
            rounds += [
                pressure.measure(machine, way, number, swap=swap, seconds=seconds)
                for way, swap in measured[turn:] + measured[:turn]
            ]
        # only the amount, not the speed: one round is enough
        idle = [
            pressure.measure_idle(machine, way, seconds=seconds)
            for way in (QUICK_IDLE if quick else WAYS)
        ]
    return make_result(rounds, idle)


def make_result(rounds: list[Round], idle: list[Idle]) -> Result:
    """Return the tables and plots of the rounds."""
    return Result(
        name=NAME,
        title=TITLE,
        tables=(
            *(guard_table(rounds, swap=swap) for swap in (True, False)),
            cost_table(rounds),
            idle_table(idle),
        ),
        plots=(refault_plot(rounds), *(latency_plot(rounds, each) for each in CONTAINERS)),
        rounds=[*map(plain, rounds), *({"idle": True, **asdict(each)} for each in idle)],
    )


def guard_table(rounds: list[Round], *, swap: bool) -> Table:
    """Return the effect on the Guaranteed pod."""
    chosen = [each for each in rounds if each.swap == swap]
    return Table(
        title=f"The Guaranteed pod under pressure, {_with(swap=swap)}",
        columns=(
            *("reservation", "file refaults, MiB", "anonymous, MiB", "file pass, ms", "worst"),
            *("anonymous pass, ms", "worst", "low events", "kills"),
        ),
        rows=(
            _quiet_row(chosen),
            *((way, *_guard_row(each)) for way, each in by_way(chosen).items()),
        ),
        note=(
            f"`low events`: how often the kernel took memory although the pod had less than what"
            f" MemoryLow protects. A pass is {WORKING_SET_MIB} MiB; the first row is without"
            " BestEffort."
        ),
    )


def _quiet_row(rounds: list[Round]) -> tuple[str, ...]:
    times = []
    for name in CONTAINERS:
        times += [spread(one.quiet_ms(name) for one in rounds).show(1)]
        times += [f"{max(max(one.quiet.ms(name)[1:]) for one in rounds):.1f}"]
    return ("alone", "-", "-", *times, "-", "-")


def _guard_row(rounds: list[Round]) -> tuple[str, ...]:
    times = []
    for name in CONTAINERS:
        times += [spread(one.median_ms(name) for one in rounds).show(1)]
        times += [f"{max(one.worst_ms(name) for one in rounds):.1f}"]
    return (
        *(spread(one.refaults_mib(kind) for one in rounds).show() for kind in CONTAINERS),
        *times,
        spread(one.guard.counters["low"] for one in rounds).show(),
        f"{sum(one.guard.counters['oom_kill'] for one in rounds)}",
    )


def cost_table(rounds: list[Round]) -> Table:
    """Return the cost for other pods."""
    rows = [
        (
            f"{way}, {_with(swap=swap)}",
            spread(one.hog.held_mib for one in each).show(),
            spread(one.read_mib_per_sec for one in each).show(),
            spread(
                one.hog.counters["workingset_refault_anon"] / PAGES_PER_MIB for one in each
            ).show(),
            f"{sum(bool(one.hog.counters['oom_kill']) for one in each)} of {len(each)}",
        )
        for swap in (True, False)
        for way, each in by_way([one for one in rounds if one.swap == swap]).items()
    ]
    return Table(
        title="The BestEffort pod beside it",
        columns=(
            *("reservation", "anonymous held, MiB", "file read, MiB/s", "anonymous refaults, MiB"),
            "killed in rounds",
        ),
        rows=tuple(rows),
        note=(
            f"It allocates {pressure.HELD_MIB} MiB of anonymous memory with swap, and"
            f" {pressure.GROWING_MIB} MiB where there is none. Held is the most that it has gone through"
            " in one pass."
        ),
    )


def idle_table(idle: list[Idle]) -> Table:
    """Return the memory that an unused reservation withholds from other pods."""
    requested_mib = len(CONTAINERS) * REQUEST_MIB
    return Table(
        title="Memory of the BestEffort pod while the Guaranteed one is idle, without swap",
        columns=("reservation", "anonymous held, MiB", "killed"),
        rows=tuple((each.way, f"{each.held_mib}", "yes" if each.killed else "no") for each in idle),
        note=f"It allocates {pressure.GROWING_MIB} MiB; the Guaranteed pod requests {requested_mib} MiB.",
    )


def by_way(rounds: Iterable[Round]) -> dict[str, list[Round]]:
    """In the order of WAYS."""
    rounds = list(rounds)
    found = {way: [each for each in rounds if each.way == way] for way in WAYS}
    return {way: each for way, each in found.items() if each}


def _with(*, swap: bool) -> str:
    return "with swap" if swap else "without swap"


def _points(rounds: list[Round], *, swap: bool, of: Callable[[Round], float]) -> tuple[Point, ...]:
    ways = by_way(each for each in rounds if each.swap == swap)
    return tuple(Point(x=way, y=spread(map(of, each))) for way, each in ways.items())


def refault_plot(rounds: list[Round]) -> Plot:
    """Return a plot of refaults."""
    return Plot(
        name="memory-refaults",
        title=f"Guaranteed pod: memory that came back in {pressure.PRESSURE_SEC:.0f} s and more of pressure",
        x="reservation",
        y="refaults, MiB",
        kind="bars",
        series={
            f"{kind}, {_with(swap=swap)}": _points(
                rounds, swap=swap, of=lambda one, kind=kind: one.refaults_mib(kind)
            )
            for kind, swap in (("file", True), ("anon", True), ("file", False))
        },
    )


def latency_plot(rounds: list[Round], container: str) -> Plot:
    """Return plots of the durations of passes."""
    alone = spread(one.quiet_ms(container) for one in rounds)
    series = {
        f"{name}, {_with(swap=swap)}": _points(rounds, swap=swap, of=of)
        for swap in (True, False)
        for name, of in (
            ("median", lambda one: one.median_ms(container)),
            ("worst", lambda one: one.worst_ms(container)),
        )
    }
    return Plot(
        name=f"memory-{container}-latency",
        title=f"Guaranteed pod: a pass through {WORKING_SET_MIB} MiB ({container}); dashed: alone",
        x="reservation",
        y="ms",
        kind="bars",
        series=series,
        guide=alone.middle,
    )


def plain(one: Round) -> dict[str, object]:
    """Return a round as figures."""
    return {
        "round": one.number,
        "what": one.way,
        "swap": one.swap,
        "pressed_sec": one.pressed_sec,
        "guard": one.guard.counters,
        "guard_ms": {name: one.guard.ms(name) for name in CONTAINERS},
        "guard_quiet_ms": {name: one.quiet.ms(name)[1:] for name in CONTAINERS},
        "best_effort": one.hog.counters,
        "best_effort_held_mib": one.hog.held_mib,
        "best_effort_read_mib_per_sec": one.read_mib_per_sec,
        "disturbed": one.disturbed,
    }
