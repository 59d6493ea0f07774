"""From nothing to every pod's limits in the kernel: podslice against systemd's own time.

    python3 -m tests.bench bring-up [--quick]

Each client starts in a namespace as a new process, creates the slices of all pods and returns when they are active; the time is
from its fork to its end. `podslice apply` is the whole command: interpreter, imports, manifests,
policy, records, and the final check. All others get a plan: a file with podslice's own calls,
property by property, written before.

- C: floor.c on libsystemd, 32 calls in flight: the time of systemd itself.
- dbus-fast: the same in Python, 32 in flight.
- busctl: a shell script with one busctl for each slice.

After each run the properties in systemd, its files in /run and the kernel are compared with those
of podslice, and everything is stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tests.bench import inside
from tests.bench.inside import DIR, FLOOR, MANIFESTS, OPTIONS, WORK, WrongWork
from tests.bench.result import (
    Aim,
    Plot,
    Result,
    Round,
    Table,
    chosen,
    ratio,
    show,
    shuffled,
    sizes_of,
)
from tests.lab.namespace import Namespace

NAME = "bring-up"
TITLE = "Bring-up: from nothing to every pod's limits in the kernel"
MACHINE = "namespace"
ROUNDS = {100: 7, 500: 7, 1000: 3}
QUICK_ROUNDS = {5: 0}
"""Without a round, that to warm up counts."""
APPLY_ARGUMENTS = ("apply", f"--filename={MANIFESTS}", "--output=name")
APPLY, UNBATCHED, C = "podslice apply", "podslice, no batches", "C, libsystemd"
CLIENTS: dict[str, tuple[str, ...]] = {
    APPLY: inside.podslice(*APPLY_ARGUMENTS),
    UNBATCHED: ("python3", f"{DIR}/unbatched.py", *APPLY_ARGUMENTS, *OPTIONS),
    C: (FLOOR, "create", WORK),
    "busctl": (f"{DIR}/client_busctl.sh", WORK),
    "dbus-fast": ("python3", f"{DIR}/client_dbus_fast.py", WORK),
}
AIMS = (
    (APPLY, "wall_ms", 500, "wall time of the whole command", 1.0),
    (APPLY, "wall_ms", 100, "wall time of the whole command", 1.7),
    (UNBATCHED, "wall_ms", 500, "the same without batches", 1.3),
    (APPLY, "pid1_cpu_ms", 500, "PID 1's CPU time", 0.85),
)
"""Relative to the C client. Source: issue 14; without batches: issue 7."""


def run(machine: Namespace, *, quick: bool = False) -> Result:
    """Run every client in turn, for each number of pods."""
    taken: list[Round] = []
    for pods, rounds in (QUICK_ROUNDS if quick else ROUNDS).items():
        inside.put_pods(machine, pods)
        first, expected = warm_up(machine, pods)
        taken += [] if rounds else first
        for number in range(1, rounds + 1):
            sys.stderr.write(f"{pods} pods, round {number}\n")
            taken += take_round(machine, pods, number, expected)
    return Result(
        name=NAME,
        title=TITLE,
        tables=tuple(client_table(taken, pods) for pods in sizes_of(taken)),
        aims=make_aims(taken),
        plots=(make_plot(taken),),
        rounds=taken,
    )


def warm_up(machine: Namespace, pods: int) -> tuple[list[Round], dict[str, Any]]:
    """Run every client once; the state that podslice leaves is the reference for the others.

    Raises:
        WrongWork: podslice sends batches where it should send none.
    """
    taken: list[Round] = []
    expected: dict[str, Any] = {}
    jobs = {}
    for name, argv in CLIENTS.items():
        before = inside.count_jobs(machine)
        done = inside.measure(machine, argv)
        jobs[name] = inside.count_jobs(machine) - before
        found = inside.read_state(machine)
        expected = expected or found
        check_same(name, expected, found)
        inside.stop_all(machine)
        taken.append({"round": 0, "what": name, "pods": pods, **done.figures()})
    # a batch has a job of its own
    if jobs[UNBATCHED] != jobs[C]:
        raise WrongWork(f"{UNBATCHED}: jobs of systemd, by client: {jobs}")
    return taken, expected


def take_round(
    machine: Namespace, pods: int, number: int, expected: Mapping[str, Any]
) -> list[Round]:
    """Run every client once, in a random order."""
    taken: list[Round] = []
    for name in shuffled(CLIENTS, pods, number):
        done = inside.measure(machine, CLIENTS[name])
        check_same(name, expected, inside.read_state(machine))
        inside.stop_all(machine)
        taken.append({"round": number, "what": name, "pods": pods, **done.figures()})
    return taken


def check_same(name: str, expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Check that a client has done the work that was measured.

    Raises:
        WrongWork: it has not.
    """
    difference = inside.first_difference(expected, found)
    if difference is not None:
        raise WrongWork(f"{name} has left something else: {difference}")


def client_table(taken: list[Round], pods: int) -> Table:
    """Return a row for each client."""
    rounds = chosen(taken, pods=pods)
    return Table(
        title=f"{pods:,} pods: milliseconds, median (least to most)",
        columns=("client", "wall", "wall / C", "client's CPU", "PID 1's CPU", "/ C", "bus's CPU"),
        rows=tuple(
            (
                name,
                show(rounds, "wall_ms", what=name),
                ratio(rounds, "wall_ms", name, C).show(2),
                show(rounds, "client_cpu_ms", what=name),
                show(rounds, "pid1_cpu_ms", what=name),
                ratio(rounds, "pid1_cpu_ms", name, C).show(2),
                show(rounds, "bus_cpu_ms", what=name),
            )
            for name in CLIENTS
        ),
        note=f"{len(chosen(rounds, what=C))} rounds. Ratios are formed round by round.",
    )


def make_aims(taken: list[Round]) -> tuple[Aim, ...]:
    """Return the aims of the issues; in a quick run, at the largest number of pods."""
    sizes = sizes_of(taken)
    found: dict[str, Aim] = {}
    for what, key, wanted, text, limit in AIMS:
        pods = wanted if wanted in sizes else sizes[-1]
        value = ratio(taken, key, what, C, pods=pods).middle
        shown = f"{text}, {pods:,} pods, ratio to the C client"
        found.setdefault(shown, Aim(text=shown, value=value, limit=limit))
    return tuple(found.values())


def make_plot(taken: list[Round]) -> Plot:
    """Return a plot of wall time as a multiple of the C client's."""
    return Plot(
        name="bring-up",
        title="From nothing to enforced: wall time, as a multiple of the C client's",
        x="",
        y="wall time / C",
        series={
            name: {
                f"{pods:,} pods": ratio(taken, "wall_ms", name, C, pods=pods)
                for pods in sizes_of(taken)
            }
            for name in CLIENTS
            if name != C
        },
        guide=1.0,
    )
