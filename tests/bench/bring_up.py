"""From nothing to every pod's limits in the kernel: podslice against systemd's own time.

    python3 -m tests.bench bring-up [--quick]

A namespace machine of the lab has a private systemd at this host's speed. Each client starts
there as a new process, creates the slices of all pods and returns when they are active; the time is
from its fork to its end. `podslice apply` is the whole command: interpreter, imports, manifests,
policy, records, and the final check. All others get a plan: a file with podslice's own calls,
property by property, written before.

- C: floor.c on libsystemd, 32 calls in flight: the time of systemd itself.
- dbus-fast: the same in Python, 32 in flight. pystemd: one call after the other, its only mode.
- busctl: a shell script with one busctl for each slice.

After each run the properties in systemd, its files in /run and the kernel are compared with those
of podslice, and everything is stopped. runc creates scopes with a process instead, in slices without
limits: it has its own table, beside the C client.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from typing import Any

from tests.bench import bring_up_tables as tables
from tests.bench import inside, runc
from tests.bench.inside import DIR, FLOOR, MANIFESTS, OPTIONS, WORK, WrongWork
from tests.bench.result import Result
from tests.lab.namespace import Namespace
from tests.lab.recipe import DEFAULT_SUITE

NAME = "bring-up"
TITLE = "Bring-up: from nothing to every pod's limits in the kernel"
ROUNDS = {100: 7, 500: 7, 1000: 3}
QUICK_ROUNDS = {20: 1}
STAGE_ROUNDS = 3
STAGES_FILE = f"{DIR}/stages.json"
APPLY = ("apply", f"--filename={MANIFESTS}", "--output=name")
CLIENTS: dict[str, tuple[str, ...]] = {
    tables.APPLY: inside.podslice(*APPLY),
    tables.UNBATCHED: ("python3", f"{DIR}/unbatched.py", *APPLY, *OPTIONS),
    tables.FLOOR: (FLOOR, "create", WORK),
    "dbus-fast": ("python3", f"{DIR}/client_dbus_fast.py", WORK),
    "pystemd": ("python3", f"{DIR}/client_pystemd.py", WORK),
    "busctl": (f"{DIR}/client_busctl.sh", WORK),
}


def run(*, quick: bool = False) -> Result:
    """Run every client in turn, for each number of pods."""
    sizes = QUICK_ROUNDS if quick else ROUNDS
    taken: list[dict[str, object]] = []
    stages: list[dict[str, object]] = []
    with Namespace(DEFAULT_SUITE) as machine:
        inside.prepare(machine, DEFAULT_SUITE)
        for pods, rounds in sizes.items():
            inside.put_pods(machine, pods)
            expected = warm_up(machine)
            for number in range(1, rounds + 1):
                sys.stderr.write(f"{pods} pods, round {number}\n")
                taken += take_round(machine, pods, number, expected)
            stages += [take_stages(machine, pods) for _ in range(1 if quick else STAGE_ROUNDS)]
    beside = runc.run(quick=quick)
    return Result(
        name=NAME,
        title=TITLE,
        tables=(
            *(tables.clients(taken, pods) for pods in sizes),
            tables.stages(stages),
            tables.runc(beside),
        ),
        aims=tables.aims(taken),
        plots=tables.plots(taken),
        rounds=[*taken, *stages, *beside],
    )


def warm_up(machine: Namespace) -> dict[str, Any]:
    """Run every client once; the result of podslice is the reference for the others.

    Raises:
        WrongWork: podslice sends batches where it should send none.
    """
    expected: dict[str, Any] = {}
    jobs = {}
    for name, argv in CLIENTS.items():
        before = inside.count_jobs(machine)
        inside.measure(machine, argv)
        jobs[name] = inside.count_jobs(machine) - before
        expected = expected or inside.read_state(machine)
        check_same(name, expected, inside.read_state(machine))
        inside.stop_all(machine)
    # a batch has a job of its own
    if jobs[tables.UNBATCHED] != jobs[tables.FLOOR]:
        raise WrongWork(f"{tables.UNBATCHED}: jobs of systemd, by client: {jobs}")
    return expected


def take_round(
    machine: Namespace, pods: int, number: int, expected: Mapping[str, Any]
) -> list[dict[str, object]]:
    """Run every client once, in a random order."""
    names = list(CLIENTS)
    random.Random(1000 * pods + number).shuffle(names)
    taken: list[dict[str, object]] = []
    for name in names:
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


def take_stages(machine: Namespace, pods: int) -> dict[str, object]:
    """Measure the parts of one `podslice apply`."""
    done = inside.measure(machine, ("python3", f"{DIR}/stages.py", STAGES_FILE, *APPLY, *OPTIONS))
    inside.stop_all(machine)
    parts: dict[str, float] = json.loads(machine.get(STAGES_FILE))
    parts["process"] = done.wall - parts.pop("total")
    return {
        "what": "stages of podslice apply",
        "pods": pods,
        "wall_ms": done.wall,
        **{f"{name}_ms": round(value, 3) for name, value in parts.items()},
        "disturbed": done.disturbed,
    }
