"""Results of bring-up as tables, aims and plots."""

from __future__ import annotations

from collections.abc import Iterable

from tests.bench.result import Aim, Plot, Point, Spread, Table, ratios, spread

Round = dict[str, object]

APPLY, UNBATCHED, FLOOR = "podslice apply", "podslice, no batches", "C, libsystemd"
AIM_PODS = 500
AIMS = (
    (APPLY, "wall", 500, "wall time of the whole command", 1.0),
    (APPLY, "wall", 100, "wall time of the whole command", 1.7),
    (UNBATCHED, "wall", 500, "the same without batches", 1.3),
    (APPLY, "pid1_cpu", 500, "PID 1's CPU time", 0.85),
)
"""Relative to the C client. Source: issue 14; without batches: issue 7."""
STAGES = {
    "process": "start and end of Python",
    "imports": "imports",
    "manifests": "reading manifests",
    "connect": "connecting",
    "read": "reading from systemd",
    "write": "making slices",
    "rest": "policy, plan, first records",
}
CPU_PARTS = {"client_cpu": "the client", "pid1_cpu": "PID 1", "bus_cpu": "dbus-daemon"}


def column(taken: Iterable[Round], what: str, pods: int, key: str) -> list[float]:
    """Return one figure of one client, round by round."""
    return [
        float(each[f"{key}_ms"])  # type: ignore[arg-type]
        for each in taken
        if each["what"] == what and each["pods"] == pods
    ]


def names(taken: Iterable[Round]) -> list[str]:
    """Return the clients, podslice first and the reference after it."""
    found = {str(each["what"]) for each in taken}
    first = [name for name in (APPLY, UNBATCHED, FLOOR) if name in found]
    return [*first, *sorted(found.difference(first))]


def ratio(taken: Iterable[Round], what: str, pods: int, key: str, floor: str = FLOOR) -> Spread:
    """Return the figures of a client as multiples of the C client's in the same round."""
    taken = list(taken)
    return ratios(column(taken, what, pods, key), column(taken, floor, pods, key))


def clients(taken: list[Round], pods: int) -> Table:
    """Return a row for each client."""
    return Table(
        title=f"{pods:,} pods: milliseconds, median (least to most)",
        columns=("client", "wall", "wall / C", "client's CPU", "PID 1's CPU", "/ C", "bus's CPU"),
        rows=tuple(_row(taken, name, pods, FLOOR) for name in names(taken)),
        note=f"{len(column(taken, FLOOR, pods, 'wall'))} rounds. Ratios are formed round by round.",
    )


def _row(taken: list[Round], name: str, pods: int, floor: str) -> tuple[str, ...]:
    def shown(key: str) -> str:
        return spread(column(taken, name, pods, key)).show()

    return (
        name,
        shown("wall"),
        ratio(taken, name, pods, "wall", floor).show(2),
        shown("client_cpu"),
        shown("pid1_cpu"),
        ratio(taken, name, pods, "pid1_cpu", floor).show(2),
        shown("bus_cpu"),
    )


def runc(taken: list[Round]) -> Table:
    """Return a table of runc and the C client."""
    pods = int(str(taken[0]["pods"]))
    floor = next(name for name in names(taken) if name != "runc")
    return Table(
        title=f"runc --systemd-cgroup, {pods:,} pods: milliseconds, median (least to most)",
        columns=("client", "wall", "wall / C", "client's CPU", "PID 1's CPU", "/ C", "bus's CPU"),
        rows=tuple(_row(taken, name, pods, floor) for name in names(taken)),
        note=(
            "runc creates a scope and a waiting process for each pod, not its slice with limits:"
            " only the time until the kernel enforces the limits is comparable. It cannot create"
            " several at once, so further pods take as long each."
        ),
    )


def stages(taken: list[Round]) -> Table:
    """Return the parts of `podslice apply`."""
    sizes = sorted({int(str(each["pods"])) for each in taken})
    cells = {
        (key, pods): spread(float(str(e.get(f"{key}_ms", 0))) for e in taken if e["pods"] == pods)
        for key in STAGES
        for pods in sizes
    }
    rows = []
    for key, label in STAGES.items():
        cell = [f"{cells[key, pods].middle:.0f}" for pods in sizes]
        each = [f"{1000 * cells[key, pods].middle / pods:.0f}" for pods in sizes]
        rows.append((label, *cell, *each))
    return Table(
        title="Time of one podslice apply, by part",
        columns=(
            "part",
            *(f"ms, {pods:,} pods" for pods in sizes),
            *(f"µs a pod, {pods:,}" for pods in sizes),
        ),
        rows=tuple(rows),
        note=(
            "From separate, instrumented runs. Reading includes the check afterwards; most records"
            " are written, and modules for the report are imported, while slices are made."
        ),
    )


def aims(taken: list[Round]) -> tuple[Aim, ...]:
    """Return the aims of the issues; in a quick run, at the largest number of pods."""
    sizes = {int(str(each["pods"])) for each in taken}
    found: dict[str, Aim] = {}
    for what, key, wanted, text, limit in AIMS:
        pods = wanted if wanted in sizes else max(sizes)
        value = ratio(taken, what, pods, key).middle
        shown = f"{text}, {pods:,} pods, ratio to the C client"
        found.setdefault(shown, Aim(text=shown, value=value, limit=limit))
    return tuple(found.values())


def plots(taken: list[Round]) -> tuple[Plot, ...]:
    """Return plots of wall time as a multiple of the C client's, and of CPU time by process."""
    sizes = sorted({int(str(each["pods"])) for each in taken})
    largest = AIM_PODS if AIM_PODS in sizes else sizes[-1]
    wall = {
        name: tuple(Point(x=f"{pods:,} pods", y=ratio(taken, name, pods, "wall")) for pods in sizes)
        for name in names(taken)
        if name != FLOOR
    }
    cpu = {
        label: tuple(
            Point(x=name.replace(" ", "\n", 1), y=spread(column(taken, name, largest, key)))
            for name in names(taken)
        )
        for key, label in CPU_PARTS.items()
    }
    return (
        Plot(
            name="bring-up",
            title="From nothing to enforced: wall time, as a multiple of the C client's",
            x="",
            y="wall time / C",
            kind="bars",
            series=wall,
            guide=1.0,
        ),
        Plot(
            name="bring-up-cpu",
            title=f"Who spends the CPU time, {largest:,} pods",
            x="",
            y="CPU ms",
            kind="bars",
            series=cpu,
        ),
    )
