"""The start of each verb, with no pods and with one.

    python3 -m tests.bench start-up [--quick]

In a namespace, each command as a new process, in a random order. For comparison, in
the same round: a bare interpreter, `python3 -c pass`; and an interpreter that imports the packages
which the verb has imported, besides podslice and the standard library, in the same order. The list
of those is from a run of the verb. Verbs that start, stop or become processes are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from tests.bench import inside
from tests.bench.inside import DIR, ENVIRONMENT, WrongWork
from tests.bench.load import watch_load
from tests.bench.pods import make_manifests
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

NAME = "start-up"
TITLE = "The start of each verb"
MACHINE = "namespace"
ROUNDS = 15
TIMEOUT_SEC = 600.0
BARE = "python3 -c pass"
CHECK_AIM = 2.2
"""CPU time of `check` as a multiple of the interpreter's with its packages: typer, pydantic, PyYAML."""
CPU_AIM_MS = 300.0
"""CPU time of every command."""
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
    "--version": command("--version"),
    "--help": command("--help"),
    "completion": Command(
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


def run(machine: Namespace, *, quick: bool = False) -> Result:
    """Measure every command with no pods, then with one."""
    # the first round fills the caches, and is not counted
    rounds = range(1, 2) if quick else range(ROUNDS + 1)
    taken: list[Round] = []
    machine.put(MANIFEST, make_manifests(1))
    for pods in (1,) if quick else (0, 1):
        if pods:
            machine.run(*WITH_A_POD["apply"].argv, env=ENVIRONMENT)
        taken += _measure(machine, pods, rounds)
    inside.stop_all(machine)
    return Result(
        name=NAME,
        title=TITLE,
        tables=tuple(_table(taken, pods) for pods in sizes_of(taken)),
        aims=_aims(taken),
        rounds=taken,
    )


def _measure(machine: Namespace, pods: int, rounds: range) -> list[Round]:
    """Return the rounds with a number of pods, without round 0."""
    commands = {**COMMANDS, **(WITH_A_POD if pods else {})}
    work = {BARE: tuple(BARE.split())}
    for name, each in commands.items():
        path = f"{DIR}/start-{name.strip('-')}.modules"
        listing = (*each.environment, "python3", f"{DIR}/modules.py", "list", path)
        listing = (*listing, *each.arguments)
        inside.measure(machine, listing, codes=each.codes)
        work[name] = each.argv
        if machine.run("cat", f"{path}.packages").stdout:
            work[_packages_of(name)] = ("python3", f"{DIR}/modules.py", "packages", path)
    codes = {name: each.codes for name, each in commands.items()}
    found: list[Round] = []
    for number in rounds:
        sys.stderr.write(f"{pods} pods, round {number}\n")
        names = shuffled(work, pods, number)
        done = _take_round(machine, {name: work[name] for name in names}, codes)
        found += [{"round": number, "pods": pods, **each} for each in done if number]
    return found


def _take_round(
    machine: Namespace, work: dict[str, tuple[str, ...]], codes: dict[str, tuple[int, ...]]
) -> list[Round]:
    """Run every command once.

    Raises:
        WrongWork: one has failed.
    """
    argv = ("python3", "-SE", f"{DIR}/runner.py", "-")
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


def _packages_of(name: str) -> str:
    """Return the name of the interpreter with the packages of a command."""
    return f"packages of {name}"


def _cpu(taken: Iterable[Round], name: str, pods: int) -> float:
    return spread(values(taken, "client_cpu_ms", what=name, pods=pods)).middle


def _commands(taken: Iterable[Round], pods: int) -> list[str]:
    """Return the commands of podslice, in the order of their CPU time."""
    found = {each["what"] for each in chosen(taken, pods=pods)} & {*COMMANDS, *WITH_A_POD}
    return sorted(found, key=lambda name: _cpu(taken, name, pods))


def _table(taken: list[Round], pods: int) -> Table:
    """Return a row for each command, and one for the bare interpreter."""
    rounds = chosen(taken, pods=pods)
    return Table(
        title=f"{'One pod' if pods else 'No pods'}: milliseconds, median (least to most)",
        columns=("command", "wall", "CPU", "/ bare", "packages", "/ packages"),
        rows=tuple(_row(rounds, name) for name in [BARE, *_commands(taken, pods)]),
        note=f"{len(values(rounds, 'wall_ms', what=BARE))} rounds. `/ bare` is the CPU time as a"
        " multiple of the bare interpreter's, `/ packages` as one of an interpreter that imports"
        " the packages which the command imports, whose CPU time is `packages`.",
    )


def _row(rounds: list[Round], name: str) -> tuple[str, ...]:
    packages, base = ("", ""), _packages_of(name)
    if values(rounds, "client_cpu_ms", what=base):
        packages = (
            show(rounds, "client_cpu_ms", what=base),
            ratio(rounds, "client_cpu_ms", name, base).show(2),
        )
    return (
        name,
        show(rounds, "wall_ms", what=name),
        show(rounds, "client_cpu_ms", what=name),
        ratio(rounds, "client_cpu_ms", name, BARE).show(1),
        *packages,
    )


def _aims(taken: list[Round]) -> tuple[Aim, ...]:
    """Return the aims: of `check` beside its packages, and of the slowest command."""
    beside = ratio(taken, "client_cpu_ms", "check", _packages_of("check"), pods=1).middle
    most, name, pods = max(
        (_cpu(taken, name, pods), name, pods)
        for pods in sizes_of(taken)
        for name in _commands(taken, pods)
    )
    return (
        Aim(
            text="check, one pod, CPU time, ratio to the interpreter with its packages",
            value=beside,
            limit=CHECK_AIM,
        ),
        Aim(
            text=f"every command, CPU time (most: {name}, {pods} pods)",
            value=most,
            limit=CPU_AIM_MS,
            unit="ms",
        ),
    )
