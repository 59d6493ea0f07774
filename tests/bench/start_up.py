"""The start of each verb, with no pods and with one.

    python3 -m tests.bench start-up [--quick]

In the machine of `bring_up`, each command as a new process, in a random order. For comparison, in
the same round: a bare interpreter, `python3 -c pass`; and an interpreter that imports the packages
which the verb has imported, besides podslice and the standard library, in the same order. The list
of those is from a run of the verb. Verbs that start, stop or become processes are left out.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass

from tests.bench import inside
from tests.bench import start_up_tables as tables
from tests.bench.inside import DIR, ENVIRONMENT, WrongWork
from tests.bench.load import watch_load
from tests.bench.pods import make_manifests
from tests.bench.result import Result
from tests.lab.namespace import Namespace
from tests.lab.recipe import DEFAULT_SUITE

NAME = "start-up"
TITLE = "The start of each verb"
ROUNDS, QUICK_ROUNDS = 15, 1
TIMEOUT_SEC = 600.0
BARE = ("python3", "-c", "pass")
POD = "team-0/worker-0"
MANIFEST = f"{DIR}/pod.yaml"
FILE = f"--filename={MANIFEST}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command line, and its exit codes."""

    arguments: tuple[str, ...]
    codes: tuple[int, ...] = (0,)
    variables: tuple[str, ...] = ()
    """Of its environment, such as those of the shell's completion."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The arguments of a new interpreter, as a package starts it."""
        start = "from podslice.__main__ import main; main()"
        return (*self.environment, "python3", "-c", start, *self.arguments)

    @property
    def environment(self) -> tuple[str, ...]:
        """The command before it that sets its variables."""
        return ("env", *self.variables) if self.variables else ()


def command(*arguments: str, codes: tuple[int, ...] = (0,)) -> Command:
    """Return a command."""
    return Command(arguments=arguments, codes=codes)


COMMANDS = {
    tables.VERSION: command("--version"),
    tables.HELP: command("--help"),
    tables.COMPLETION: Command(
        arguments=(),
        variables=(
            "_PODSLICE_COMPLETE=complete_bash",
            "COMP_WORDS=podslice delete ",
            "COMP_CWORD=2",
        ),
    ),
    "new": command("new", "web"),
    "check": command("check", FILE),
    "explain": command("explain", FILE),
    "render": command("render", FILE),
    "node": command("node"),
    # there is a step, or a finding about this machine
    "plan": command("plan", FILE, codes=(0, 3)),
    "status": command("status", codes=(0, 3)),
    "tree": command("tree", codes=(0, 3)),
    "events": command("events"),
    "doctor": command("doctor", codes=(0, 3)),
    "cgroup-parent": command("cgroup-parent", POD, FILE),
}
WITH_A_POD = {
    "apply": command("apply", FILE),
    "phase": command("phase", POD),
}
"""Verbs that need an applied pod."""


def run(*, quick: bool = False) -> Result:
    """Measure every command with no pods, then with one."""
    # the first round fills the caches, and is not counted
    rounds = range(1, QUICK_ROUNDS + 1) if quick else range(ROUNDS + 1)
    taken: list[dict[str, object]] = []
    with Namespace(DEFAULT_SUITE) as machine:
        inside.prepare(machine, DEFAULT_SUITE)
        machine.put(MANIFEST, make_manifests(1))
        for pods in (0, 1):
            if pods:
                machine.run(*WITH_A_POD["apply"].argv, env=ENVIRONMENT)
            taken += _measure(machine, pods, rounds)
        inside.stop_all(machine)
    return Result(
        name=NAME,
        title=TITLE,
        tables=tuple(tables.commands(taken, pods) for pods in (0, 1)),
        aims=tables.aims(taken),
        rounds=taken,
    )


def _measure(machine: Namespace, pods: int, rounds: range) -> list[dict[str, object]]:
    """Return the rounds with a number of pods, without round 0."""
    commands = {**COMMANDS, **(WITH_A_POD if pods else {})}
    work = {tables.BARE: BARE}
    for name, each in commands.items():
        path = f"{DIR}/start-{name.strip('-')}.modules"
        listing = (*each.environment, "python3", f"{DIR}/modules.py", "list", path)
        listing = (*listing, *each.arguments)
        inside.measure(machine, listing, codes=each.codes)
        work[name] = each.argv
        if machine.run("cat", f"{path}.packages").stdout:
            packages = ("python3", f"{DIR}/modules.py", "packages", path)
            work[tables.packages_of(name)] = packages
    codes = {name: each.codes for name, each in commands.items()}
    found: list[dict[str, object]] = []
    for number in rounds:
        sys.stderr.write(f"{pods} pods, round {number}\n")
        names = list(work)
        random.Random(1000 * pods + number).shuffle(names)
        done = _take_round(machine, {name: work[name] for name in names}, codes)
        found += [{"round": number, "pods": pods, **each} for each in done if number]
    return found


def _take_round(
    machine: Namespace, work: dict[str, tuple[str, ...]], codes: dict[str, tuple[int, ...]]
) -> list[dict[str, object]]:
    """Run every command once.

    Raises:
        WrongWork: one has failed.
    """
    argv = ("python3", "-SE", f"{DIR}/starts.py")
    with watch_load() as load:
        done = machine.run(*argv, env=ENVIRONMENT, input=json.dumps(work), timeout_sec=TIMEOUT_SEC)
    found = json.loads(done.stdout)
    for name, each in found.items():
        if each["code"] not in codes.get(name, (0,)):
            raise WrongWork(f"{name}: exit code {each['code']}\n{each['stderr']}")
    return [
        {
            "what": name,
            "wall_ms": each["wall_ms"],
            "client_cpu_ms": each["cpu_ms"],
            "disturbed": load.is_disturbed,
        }
        for name, each in found.items()
    ]
