"""The cost of podslice when all pods run: nothing to do, one pod changed, status.

    python3 -m tests.bench steady [--quick]

In the machine of `bring_up`, each command as a new process. For comparison: the C client
that lists the slices, and that reads of each the properties that podslice compares
(Properties.GetAll, 32 in flight); and the interpreter with the imports of the verb. podslice's own
reading is measured in a separate process that has the bus open.

systemd's count of jobs and its files show that a second apply writes nothing: see
`peers/marks.py`.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Mapping
from functools import partial

from podslice.model.naming import Tree
from podslice.model.properties import OBSERVED
from podslice.model.unit import UnitKind
from tests.bench import inside
from tests.bench import steady_tables as tables
from tests.bench.inside import DIR, FLOOR, MANIFESTS, OPTIONS, Run, WrongWork
from tests.bench.pods import CAPACITY, make_manifests
from tests.bench.result import Result
from tests.lab.namespace import Namespace
from tests.lab.recipe import DEFAULT_SUITE

NAME = "steady"
TITLE = "Steady state: nothing to do, one pod changed, status"
ROUNDS = {100: 7, 500: 7, 1000: 5}
QUICK_ROUNDS = {20: 1}
READINGS = 5
CHANGED_MANIFESTS = f"{DIR}/changed.yaml"
PATTERNS = Tree().patterns
READ = ",".join(
    sorted(OBSERVED[UnitKind.SLICE] | {"ControlGroup", "MemoryCurrent", "TasksCurrent"})
)
APPLY = inside.podslice("apply", f"--filename={MANIFESTS}")
APPLY_CHANGED = inside.podslice("apply", f"--filename={CHANGED_MANIFESTS}")
STATUS = inside.podslice("status")
IMPORTS = {
    tables.IMPORTS_APPLY: ("apply", f"--filename={MANIFESTS}", *OPTIONS),
    tables.IMPORTS_STATUS: ("status", *OPTIONS),
}
# the pod itself, its tier, and the root, whose sums change as well
MOST_WRITES = 3


def run(*, quick: bool = False) -> Result:
    """Run every command in turn, for each number of pods."""
    sizes = QUICK_ROUNDS if quick else ROUNDS
    taken: list[dict[str, object]] = []
    with Namespace(DEFAULT_SUITE) as machine:
        inside.prepare(machine, DEFAULT_SUITE)
        for pods, rounds in sizes.items():
            bench = Bench(machine, pods)
            bench.bring_up()
            for number in range(1, rounds + 1):
                sys.stderr.write(f"{pods} pods, round {number}\n")
                taken += bench.take_round(number)
            inside.stop_all(machine)
    return Result(
        name=NAME,
        title=TITLE,
        tables=(*(tables.commands(taken, pods) for pods in sizes), tables.reading(taken)),
        aims=tables.aims(taken),
        plots=tables.plots(taken),
        rounds=taken,
    )


class Bench:
    """A number of running pods in a machine."""

    def __init__(self, machine: Namespace, pods: int) -> None:
        self.machine = machine
        self.pods = pods

    def bring_up(self) -> None:
        """Create the pods, list the imports of the verbs, and run every command once."""
        inside.put_pods(self.machine, self.pods)
        # a Burstable pod, which is part of the sums of its tier and root
        changed = make_manifests(self.pods, changed=self.pods // 2 // 5 * 5 + 1)
        self.machine.put(CHANGED_MANIFESTS, changed)
        inside.measure(self.machine, APPLY)
        for name, verb in IMPORTS.items():
            argv = ("python3", f"{DIR}/modules.py", "list", module_file(name), *verb)
            inside.measure(self.machine, argv)
        self.take_round(0)

    def take_round(self, number: int) -> list[dict[str, object]]:
        """Run every command once, in a random order."""
        works: dict[str, Callable[[], dict[str, object]]] = {
            tables.APPLY: self.apply_again,
            tables.CHANGED: self.apply_changed,
            tables.STATUS: lambda: inside.measure(self.machine, STATUS).figures(),
            tables.LIST: lambda: self.floor("list", *PATTERNS),
            tables.READ: lambda: self.floor("read", READ, *PATTERNS),
            tables.READING: self.read,
            **{name: partial(self.import_only, name) for name in IMPORTS},
        }
        names = list(works)
        random.Random(1000 * self.pods + number).shuffle(names)
        return [
            {"round": number, "what": name, "pods": self.pods, **works[name]()} for name in names
        ]

    def apply_again(self) -> dict[str, object]:
        """Measure an apply without changes; the figures include the number of writes."""
        before = self.marks()
        done = inside.measure(self.machine, APPLY)
        writes = count_writes(before, self.marks())
        return {**done.figures(), "writes": writes}

    def apply_changed(self) -> dict[str, object]:
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
        inside.measure(self.machine, APPLY)
        return done.figures()

    def floor(self, *arguments: str) -> dict[str, object]:
        """Measure the C client."""
        done = inside.measure(self.machine, (FLOOR, *arguments))
        return {**done.figures(), **self.output_of(done)}

    def read(self) -> dict[str, object]:
        """Measure podslice's own reading."""
        argv = ("python3", f"{DIR}/reading.py", CAPACITY, str(READINGS))
        done = inside.measure(self.machine, argv)
        return {**self.output_of(done), "disturbed": done.disturbed}

    def output_of(self, done: Run) -> dict[str, object]:
        """Return the output of a command.

        Raises:
            WrongWork: it has not read every slice.
        """
        found: dict[str, object] = json.loads(done.stdout)
        slices = self.pods + 3
        if found["units"] != slices:
            raise WrongWork(f"{found['units']} slices are seen, and there are {slices}")
        return found

    def import_only(self, name: str) -> dict[str, object]:
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
