"""The cost of podslice when all pods run: nothing to do, one pod changed, status.

    python3 -m tests.bench steady [--quick]

In a namespace, each command as a new process. For comparison: the C client
that lists the slices, and that reads of each the properties that podslice compares
(Properties.GetAll, 32 in flight); and the interpreter with the imports of the verb. podslice's own
reading is measured in a separate process that has the bus open.

systemd's count of jobs and its files show that a second apply writes nothing: see
`peers/marks.py`.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Mapping
from functools import partial

from podslice.model.naming import Tree
from podslice.model.properties import OBSERVED
from podslice.model.unit import UnitKind
from tests.bench import inside
from tests.bench.inside import DIR, FLOOR, MANIFESTS, OPTIONS, Run, WrongWork
from tests.bench.pods import CAPACITY, make_manifests
from tests.bench.result import (
    Aim,
    Result,
    Round,
    Table,
    chosen,
    ratio,
    show,
    shuffled,
    sizes_of,
    spread,
    values,
)
from tests.lab.namespace import Namespace

NAME = "steady"
TITLE = "Steady state: nothing to do, one pod changed, status"
MACHINE = "namespace"
ROUNDS = {100: 7, 500: 7, 1000: 5}
QUICK_ROUNDS = {5: 0}
"""Without a round, that to warm up counts."""
AIM_PODS = 500
IMPORTS_AIM, READING_AIM = 2.0, 40.0
"""Relative to the interpreter with its imports; µs. Source: issue 7."""
READINGS = 5
CHANGED_MANIFESTS = f"{DIR}/changed.yaml"
PATTERNS = Tree().patterns
PROPERTIES = ",".join(
    sorted(OBSERVED[UnitKind.SLICE] | {"ControlGroup", "MemoryCurrent", "TasksCurrent"})
)
APPLY_AGAIN = inside.podslice("apply", f"--filename={MANIFESTS}")
APPLY_CHANGED = inside.podslice("apply", f"--filename={CHANGED_MANIFESTS}")
APPLY, CHANGED, STATUS = "second apply", "one pod changed", "status"
LIST, READ = "C: list", "C: list and read"
IMPORTS_APPLY, IMPORTS_STATUS = "imports of apply", "imports of status"
READING = "reading of podslice"
IMPORTS = {
    IMPORTS_APPLY: ("apply", f"--filename={MANIFESTS}", *OPTIONS),
    IMPORTS_STATUS: ("status", *OPTIONS),
}
BASES = {APPLY: IMPORTS_APPLY, CHANGED: IMPORTS_APPLY, STATUS: IMPORTS_STATUS}
"""The interpreter that each verb is compared with."""
# the pod itself, its tier, and the root, whose sums change as well
MOST_WRITES = 3


def run(machine: Namespace, *, quick: bool = False) -> Result:
    """Run every command in turn, for each number of pods."""
    taken: list[Round] = []
    for pods, rounds in (QUICK_ROUNDS if quick else ROUNDS).items():
        bench = Bench(machine, pods)
        bench.bring_up()
        first = bench.take_round(0)
        taken += [] if rounds else first
        for number in range(1, rounds + 1):
            sys.stderr.write(f"{pods} pods, round {number}\n")
            taken += bench.take_round(number)
        inside.stop_all(machine)
    return Result(
        name=NAME,
        title=TITLE,
        tables=(*(command_table(taken, pods) for pods in sizes_of(taken)), reading_table(taken)),
        aims=make_aims(taken),
        rounds=taken,
    )


class Bench:
    """A number of running pods in a machine."""

    def __init__(self, machine: Namespace, pods: int) -> None:
        self.machine = machine
        self.pods = pods

    def bring_up(self) -> None:
        """Create the pods, and list the imports of the verbs."""
        inside.put_pods(self.machine, self.pods)
        # a Burstable pod, which is part of the sums of its tier and root
        changed = make_manifests(self.pods, changed=self.pods // 2 // 5 * 5 + 1)
        self.machine.put(CHANGED_MANIFESTS, changed)
        inside.measure(self.machine, APPLY_AGAIN)
        for name, verb in IMPORTS.items():
            argv = ("python3", f"{DIR}/modules.py", "list", module_file(name), *verb)
            inside.measure(self.machine, argv)

    def take_round(self, number: int) -> list[Round]:
        """Run every command once, in a random order."""
        works: dict[str, Callable[[], Round]] = {
            APPLY: self.apply_again,
            CHANGED: self.apply_changed,
            STATUS: lambda: inside.measure(self.machine, inside.podslice("status")).figures(),
            LIST: lambda: self.floor("list", *PATTERNS),
            READ: lambda: self.floor("read", PROPERTIES, *PATTERNS),
            READING: self.read,
            **{name: partial(self.import_only, name) for name in IMPORTS},
        }
        return [
            {"round": number, "what": name, "pods": self.pods, **works[name]()}
            for name in shuffled(works, self.pods, number)
        ]

    def apply_again(self) -> Round:
        """Measure an apply without changes; the figures include the number of writes."""
        before = self.marks()
        done = inside.measure(self.machine, APPLY_AGAIN)
        writes = count_writes(before, self.marks())
        return {**done.figures(), "writes": writes}

    def apply_changed(self) -> Round:
        """Measure a change of one pod; its old limits are restored afterwards, which is not measured.

        Raises:
            WrongWork: another pod has changed, or further ones.
        """
        expected = inside.read_state(self.machine)["groups"]
        done = inside.measure(self.machine, APPLY_CHANGED)
        found = inside.read_state(self.machine)["groups"]
        changed = {
            group.rpartition("/")[2] for group in expected if expected[group] != found[group]
        }
        if not 1 <= len(changed) <= MOST_WRITES or not any("-pod" in name for name in changed):
            raise WrongWork(f"one pod has another limit, and these changed: {sorted(changed)}")
        inside.measure(self.machine, APPLY_AGAIN)
        return done.figures()

    def floor(self, *arguments: str) -> Round:
        """Measure the C client."""
        done = inside.measure(self.machine, (FLOOR, *arguments))
        return {**done.figures(), **self.output_of(done)}

    def read(self) -> Round:
        """Measure podslice's own reading."""
        argv = ("python3", f"{DIR}/reading.py", CAPACITY, str(READINGS))
        done = inside.measure(self.machine, argv)
        return {**self.output_of(done), "disturbed": done.disturbed}

    def output_of(self, done: Run) -> Round:
        """Return the output of a command.

        Raises:
            WrongWork: it has not read every slice.
        """
        found: Round = json.loads(done.stdout)
        slices = self.pods + 3
        if found["units"] != slices:
            raise WrongWork(f"{found['units']} slices are seen, and there are {slices}")
        return found

    def import_only(self, name: str) -> Round:
        """Measure the interpreter with the imports of a verb."""
        argv = ("python3", f"{DIR}/modules.py", "import", module_file(name))
        return inside.measure(self.machine, argv).figures()

    def marks(self) -> dict[str, int]:
        """Return the values that every write changes."""
        done = self.machine.run("python3", "-SE", f"{DIR}/marks.py")
        return json.loads(done.stdout)  # type: ignore[no-any-return]


def module_file(name: str) -> str:
    """Return the file with the modules of a verb."""
    return f"{DIR}/{name.replace(' ', '-')}.modules"


def count_writes(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Return the number of queued jobs and of files that were written, created or removed."""
    files = (before.keys() | after.keys()) - {"jobs"}
    jobs = after["jobs"] - before["jobs"]
    return jobs + sum(before.get(name) != after.get(name) for name in files)


def command_table(taken: list[Round], pods: int) -> Table:
    """Return a row for each command."""
    rounds = chosen(taken, pods=pods)
    rows = []
    for name in (*BASES, *IMPORTS, LIST, READ):
        base = BASES.get(name)
        rows.append(
            (
                name,
                show(rounds, "wall_ms", what=name),
                ratio(rounds, "wall_ms", name, base).show(2) if base else "",
                *(show(rounds, f"{key}_cpu_ms", what=name) for key in ("client", "pid1", "bus")),
            )
        )
    return Table(
        title=f"{pods:,} running pods: milliseconds, median (least to most)",
        columns=("command", "wall", "/ imports", "its CPU", "PID 1's CPU", "bus's CPU"),
        rows=tuple(rows),
        note=f"{len(chosen(rounds, what=APPLY))} rounds. `/ imports` is the wall time as a multiple of"
        " the interpreter's with the same imports, which finalizes at exit. podslice does not.",
    )


def reading_table(taken: list[Round]) -> Table:
    """Return the cost of reading a slice, besides the list."""
    rows = []
    for pods in sizes_of(taken):
        in_c, ours = (chosen(taken, what=what, pods=pods) for what in (READ, READING))
        listed = spread(statistics.median(each["list_ms"]) for each in ours)
        rows.append(
            (
                f"{pods:,}",
                show(in_c, "list_ms", 1),
                listed.show(1),
                spread(1000 * each["read_ms"] / each["units"] for each in in_c).show(),
                spread(reading_usec(taken, pods)).show(),
            )
        )
    return Table(
        title="Reading every slice, with the bus open",
        columns=(
            *("pods", "list in C, ms", "list in podslice, ms"),
            *("each slice in C, µs", "each slice in podslice, µs"),
        ),
        rows=tuple(rows),
        note="A slice's time is that of reading all, beside the list, by the number of slices.",
    )


def reading_usec(taken: list[Round], pods: int) -> list[float]:
    """Return podslice's microseconds for each slice, besides the list; each round's median."""
    found = []
    for each in chosen(taken, what=READING, pods=pods):
        both = zip(each["observe_ms"], each["list_ms"], strict=True)
        beside_ms = statistics.median(read - listed for read, listed in both)
        found.append(1000 * beside_ms / each["units"])
    return found


def make_aims(taken: list[Round]) -> tuple[Aim, ...]:
    """Return the aims of the issue, at 500 pods or, in a quick run, at the largest number."""
    sizes = sizes_of(taken)
    pods = AIM_PODS if AIM_PODS in sizes else sizes[-1]
    writes = max(values(taken, "writes", what=APPLY))
    whole = (
        Aim(
            text=f"{name}, {pods:,} pods, ratio to the interpreter with its imports",
            value=ratio(taken, "wall_ms", name, base, pods=pods).middle,
            limit=IMPORTS_AIM,
        )
        for name, base in BASES.items()
    )
    return (
        Aim(text="writes to systemd of a second apply, any round", value=writes, limit=0),
        Aim(
            text=f"reading a slice beside the list, {pods:,} pods",
            value=spread(reading_usec(taken, pods)).middle,
            limit=READING_AIM,
            unit="µs",
        ),
        *whole,
    )
