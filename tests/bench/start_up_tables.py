"""Results of start-up as tables and aims."""

from __future__ import annotations

from collections.abc import Iterable

from tests.bench.bring_up_tables import Round, column, ratio
from tests.bench.result import Aim, Table, spread

BARE = "python3 -c pass"
VERSION, HELP, COMPLETION = "--version", "--help", "completion"
CHECK_AIM = 2.2
"""CPU time of `check` as a multiple of the interpreter's with its packages: typer, pydantic, PyYAML."""
CPU_AIM_MS = 300.0
"""CPU time of every command."""


def packages_of(name: str) -> str:
    """Return the name of the interpreter with the packages of a command."""
    return f"packages of {name}"


def _commands(taken: Iterable[Round], pods: int) -> list[str]:
    """Return the commands of podslice, in the order of their CPU time."""
    found = {str(each["what"]) for each in taken if each["pods"] == pods} - {BARE}
    names = [name for name in found if not name.startswith(packages_of(""))]
    return sorted(names, key=lambda name: _cpu(taken, name, pods))


def _cpu(taken: Iterable[Round], name: str, pods: int) -> float:
    return spread(column(taken, name, pods, "client_cpu")).middle


def _has_packages(taken: Iterable[Round], name: str, pods: int) -> bool:
    return bool(column(taken, packages_of(name), pods, "client_cpu"))


def commands(taken: list[Round], pods: int) -> Table:
    """Return a row for each command, and one for the bare interpreter."""
    rows = [_row(taken, name, pods) for name in [BARE, *_commands(taken, pods)]]
    state = "One pod" if pods else "No pods"
    return Table(
        title=f"{state}: milliseconds, median (least to most)",
        columns=("command", "wall", "CPU", "/ bare", "packages", "/ packages"),
        rows=tuple(rows),
        note=f"{len(column(taken, BARE, pods, 'wall'))} rounds. `/ bare` is the CPU time as a"
        " multiple of the bare interpreter's, `/ packages` as one of an interpreter that imports"
        " the packages which the command imports, whose CPU time is `packages`.",
    )


def _row(taken: list[Round], name: str, pods: int) -> tuple[str, ...]:
    packages = ("", "")
    if _has_packages(taken, name, pods):
        base = packages_of(name)
        packages = (
            spread(column(taken, base, pods, "client_cpu")).show(),
            ratio(taken, name, pods, "client_cpu", base).show(2),
        )
    return (
        name,
        spread(column(taken, name, pods, "wall")).show(),
        spread(column(taken, name, pods, "client_cpu")).show(),
        ratio(taken, name, pods, "client_cpu", BARE).show(1),
        *packages,
    )


def aims(taken: list[Round]) -> tuple[Aim, ...]:
    """Return the aims: of `check` beside its packages, and of the slowest command."""
    beside = ratio(taken, "check", 1, "client_cpu", packages_of("check")).middle
    middles = {
        (name, pods): _cpu(taken, name, pods) for pods in (0, 1) for name in _commands(taken, pods)
    }
    name, pods = max(middles, key=lambda each: middles[each])
    return (
        Aim(
            text="check, one pod, CPU time, ratio to the interpreter with its packages",
            value=beside,
            limit=CHECK_AIM,
        ),
        Aim(
            text=f"every command, CPU time (most: {name}, {pods} pods)",
            value=middles[name, pods],
            limit=CPU_AIM_MS,
            unit="ms",
        ),
    )
