"""What `status` and `tree` show, as lines and JSON: units, processes and problems. Pure: values in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from podslice.cli.views.layout import (
    Align,
    Column,
    Shorten,
    fold,
    hidden_columns,
    remedy_section,
    table,
    text_of,
)
from podslice.cli.views.style import Cell, Display, Role, Styled
from podslice.errors import printable
from podslice.kernel.cgroup import Usage
from podslice.model.codec import BYTES
from podslice.model.container_exit import SIGNAL, SUCCESS, UNKNOWN, ContainerExit
from podslice.model.desired import ReservedValues
from podslice.model.naming import natural_key
from podslice.model.node_state import JobState, PendingPod
from podslice.model.properties import (
    CPU_QUOTA,
    CPU_WEIGHT,
    MEMORY_LOW,
    MEMORY_MAX,
    PROPERTIES,
    format_value,
)
from podslice.model.quantity import format_bytes, human_bytes
from podslice.model.unit import INFINITY, UnitKind, UnitName, Value
from podslice.usage.health import HealthProblem
from podslice.usage.location import Located, Other, Placement, Running, Stray
from podslice.usage.unit_status import (
    ELSEWHERE,
    EXITED,
    HOLDS_PROCESSES,
    MISSING,
    NOT_STARTED,
    UNOBSERVED,
    WITHOUT_UNIT,
    PodFacts,
    UnitStatus,
)

SHOWN = 10
"""The number of processes of a unit that are listed."""

OTHER = "other"
"""The state of a unit in a pod that podslice does not manage."""
_SHOWN_PROPERTIES = (CPU_WEIGHT, CPU_QUOTA, MEMORY_LOW, MEMORY_MAX)
# runtimes use these in the names of their units; twelve digits identify one
_LONG_ID = re.compile(r"([0-9a-f]{12})[0-9a-f]{20,}")


class UnitRow(NamedTuple):
    """A unit with its processes."""

    unit: UnitStatus
    processes: tuple[Running, ...] = ()


def rows(
    units: Sequence[UnitStatus], placement: Placement, usage: Callable[[str], Usage]
) -> Iterator[UnitRow]:
    """Yield units in tree order; foreign units follow the containers of their pod.

    The unit of a container that a runtime runs replaces the container's row.
    """
    others = list(placement.others)
    for index, unit in enumerate(units):
        held = _held_elsewhere(unit, others)
        if held is None:
            yield UnitRow(unit=unit, processes=placement.held.get(unit.name, ()))
        else:
            others.remove(held)
            shown = _status_of(held, unit.depth, usage(held.control_group))
            yield UnitRow(unit=replace(shown, label=unit.label), processes=held.processes)
        is_last = index + 1 == len(units) or units[index + 1].pod != unit.pod
        for other in others if is_last else ():
            if other.pod == unit.pod:
                depth = unit.depth + (unit.kind is UnitKind.SLICE)
                shown = _status_of(other, depth, usage(other.control_group))
                yield UnitRow(unit=shown, processes=other.processes)


def _held_elsewhere(unit: UnitStatus, others: Iterable[Other]) -> Other | None:
    """Return the runtime's unit of a container that has no unit of podslice."""
    if unit.state not in WITHOUT_UNIT:
        return None
    what = (unit.pod, unit.label)
    return next((other for other in others if (other.pod, other.container) == what), None)


def _status_of(other: Other, depth: int, usage: Usage) -> UnitStatus:
    return UnitStatus(
        name=UnitName(printable(other.unit)),
        kind=UnitKind.SCOPE,
        pod=other.pod,
        qos="",
        label=_short(other.unit),
        depth=depth,
        state=other.runtime or OTHER,
        restarts=other.restarts,
        control_group=other.control_group,
        usage=usage,
    )


def state(unit: UnitStatus) -> str:
    """Return the state of a unit; of a container that has ended, how."""
    if unit.state == EXITED and unit.last_exit is not None:
        return exit_summary(unit.last_exit)
    return unit.state


def _short(name: str) -> str:
    """Shorten the name of a unit or a control group."""
    return _LONG_ID.sub(r"\1…", printable(name))


STATE = Column(title="STATE", min_width=22)
"""As wide as `killed by systemd-oomd`: of all but the reasons of pending pods, nothing is cut off."""
_NUMBER = Column(title="", align=Align.RIGHT)
_STATUS = (
    Column(title="NAME", min_width=28, shorten=Shorten.MIDDLE),
    Column(title="QOS", drop=2),
    STATE,
    _NUMBER._replace(title="WEIGHT", drop=1),
    _NUMBER._replace(title="QUOTA", drop=6),
    _NUMBER._replace(title="MEM LOW", drop=5),
    _NUMBER._replace(title="MEM MAX", drop=7),
    _NUMBER._replace(title="USED"),
    _NUMBER._replace(title="CPU TIME", drop=4),
    _NUMBER._replace(title="TASKS", drop=3),
)
_VALUES = ("WEIGHT", "QUOTA", "MEM LOW", "MEM MAX")
MARK = "!"
"""Follows a value of systemd that differs from the desired one."""
_FACTS = tuple(_NUMBER._replace(title=title) for title in ("READY", "RESTARTS", "AGE"))
_TREE = (
    Column(title="NAME", min_width=32, shorten=Shorten.MIDDLE),
    Column(title="USED"),
    Column(title="PROPERTIES", min_width=12),
)
_JOBS = (
    Column(title="JOB", min_width=8, shorten=Shorten.MIDDLE),
    Column(title="STATE", min_width=8, shorten=Shorten.MIDDLE),
    Column(title="LAST RUN", drop=1),
    Column(title="NEXT RUN", drop=2),
)
_UNIT = Column(title="UNIT", min_width=20, shorten=Shorten.MIDDLE)


def status(
    shown: Sequence[UnitRow],
    display: Display,
    *,
    facts: Mapping[str, PodFacts] = MappingProxyType({}),
    now_usec: int = 0,
) -> Iterator[str]:
    """Yield one line for each unit with its state, systemd's values and usage.

    A column with a value that differs is shown in every width. Further columns of the wide form
    have the `facts` about pods, by key, and names of units.
    """
    wide = display.wide
    made = [
        [
            "  " * row.unit.depth + row.unit.label,
            row.unit.qos or "-",
            _state_cell(row.unit),
            *(_systemd(row.unit, name, wide=wide) for name in _SHOWN_PROPERTIES),
            *usage(row.unit.usage, wide=wide),
        ]
        for row in shown
    ]
    if not wide:
        columns = [_kept(column, (row[i] for row in made)) for i, column in enumerate(_STATUS)]
        yield from table(columns, made, display)
        yield from _hidden(columns, made, display)
    else:
        more = (_fact_cells(row.unit, facts, now_usec) for row in shown)
        joined = (
            [*cells[:3], *counts, *cells[3:], row.unit.name]
            for row, cells, counts in zip(shown, made, more, strict=True)
        )
        yield from table((*_STATUS[:3], *_FACTS, *_STATUS[3:], _UNIT), joined, display)
        yield from _kernel([row.unit for row in shown], display)
        yield from _processes(shown, display)


def _kept(column: Column, cells: Iterable[Cell]) -> Column:
    """Return the column, which is not dropped, nor the mark cut off, if a value in it differs."""
    if column.title in _VALUES and any(text_of(cell).endswith(MARK) for cell in cells):
        return column._replace(drop=None, shorten=Shorten.MIDDLE)
    return column


def _hidden(
    columns: Sequence[Column], cells: Iterable[Sequence[Cell]], display: Display
) -> Iterator[str]:
    """Yield a line with the columns that do not fit, if any."""
    if hidden := hidden_columns(columns, cells, display):
        text = f"hidden at this width: {', '.join(hidden)}; shown with -o wide"
        yield from fold(text, display, hanging="  ", role=Role.DIM)


def _fact_cells(unit: UnitStatus, facts: Mapping[str, PodFacts], now_usec: int) -> list[Cell]:
    """Return the running containers, restarts and age of a pod, or the restarts of a container."""
    if unit.kind is not UnitKind.SLICE:
        is_container = unit.kind in HOLDS_PROCESSES and unit.state != OTHER
        return ["-", str(unit.restarts) if is_container else "-", "-"]
    found = facts.get(unit.pod or "")
    if found is None:
        return ["-", "-", "-"]
    age = duration(max(now_usec - found.started_usec, 0)) if found.started_usec else "-"
    return [f"{found.ready}/{found.containers}", str(found.restarts), age]


def _name(unit: UnitStatus) -> str:
    """Return the name of a unit that stands alone: `shop/web`, or of a container `shop/web main`."""
    if unit.pod in (None, unit.label):
        return unit.label
    is_other = unit.label == _short(unit.name)
    return f"{unit.pod} {unit.name if is_other else unit.label}"


_STATE_ROLES = {
    "active": Role.GOOD,
    NOT_STARTED: Role.DIM,
    MISSING: Role.ERROR,
    "failed": Role.ERROR,
    ELSEWHERE: Role.WARNING,
    UNOBSERVED: Role.WARNING,
}


def _state_cell(unit: UnitStatus) -> Cell:
    """Return the state, colored by how well the unit is."""
    role = _STATE_ROLES.get(unit.state)
    if unit.state == EXITED:
        is_good = unit.last_exit is not None and unit.last_exit.result == SUCCESS
        role = Role.DIM if is_good else Role.WARNING
    return state(unit) if role is None else Styled(state(unit), role)


def tree(shown: Sequence[UnitRow], display: Display) -> Iterator[str]:
    """Return the slices as a tree, with their limits, usage and processes."""
    lines: list[tuple[int, Sequence[Cell]]] = []
    for row in shown:
        unit = row.unit
        label = unit.name if display.wide or unit.pod is None else unit.label
        used = usage(unit.usage, wide=display.wide)[0]
        name = f"{label} {unit.qos}".rstrip()
        lines.append((unit.depth, [name, used, _properties(unit)]))
        lines += [(unit.depth + 1, [text, "", ""]) for text in list_processes(row.processes)]
    depths = [depth for depth, _ in lines]
    joined = (
        [branch + text_of(cells[0]), *cells[1:]]
        for branch, (_, cells) in zip(_branches(depths), lines, strict=True)
    )
    return table(_TREE, joined, display)


def _properties(unit: UnitStatus) -> Cell:
    """Return the properties that systemd has; the state where it has none."""
    has = [each for each in unit.properties if each.systemd is not None]
    # differing properties first: what does not fit is cut off at the end
    has.sort(key=lambda each: not each.differs)
    if not has:
        return _state_cell(unit)
    text = " ".join(
        f"{PROPERTIES[each.name].key}={format_value(each.name, each.systemd)}{MARK * each.differs}"
        for each in has
    )
    return Styled(text, Role.WARNING) if any(each.differs for each in has) else text


def pending_rows(found: Iterable[PendingPod]) -> Iterator[UnitRow]:
    """Yield a row for each pod that is wanted and has no slice."""
    for each in sorted(found, key=lambda each: natural_key(each.pod)):
        if not each.is_applied:
            yield UnitRow(
                unit=UnitStatus(
                    name=UnitName(printable(each.pod)),
                    kind=UnitKind.SLICE,
                    pod=each.pod,
                    qos=each.qos,
                    label=printable(each.pod),
                    depth=0,
                    state=f"pending ({printable(each.reason)})",
                    control_group="",
                )
            )


def jobs(found: Sequence[JobState], display: Display) -> Iterator[str]:
    """Yield the Jobs and CronJobs, with their last and next run."""
    if found:
        yield ""
        cells = (
            (
                each.pod,
                each.state,
                format_time(each.started_usec or each.ended_usec),
                format_time(each.next_usec),
            )
            for each in found
        )
        yield from table(_JOBS, cells, display)


def format_time(usec: int | None) -> str:
    """Return a time of the host's zone; a dash if there is none."""
    return f"{datetime.fromtimestamp(usec / 1e6).astimezone():%Y-%m-%d %H:%M:%S}" if usec else "-"


def problems(found: Sequence[HealthProblem], display: Display) -> Iterator[str]:
    """Return the problems as lines, with their remedies."""
    listed = [(str(each), each.hint) for each in found]
    more = "more problems; to see all: podslice status -o json"
    return remedy_section("PROBLEMS", listed, display, more)


def summary(shown: Sequence[UnitRow], problems: int) -> str:
    """Return the last line: `63 pods, no problems`; without pods, `1 problem`."""
    count = len({row.unit.pod for row in shown} - {None})
    parts = [f"{count} pod{'s' * (count != 1)}"] if count else []
    parts.append(f"{problems or 'no'} problem{'s' * (problems != 1)}")
    return ", ".join(parts)


def describe_stray(stray: Stray) -> str:
    """Describe processes that belong to a pod and run outside of it."""
    container = f"container {stray.container}: " if stray.container else ""
    inside = ", ".join(list_processes(stray.processes)) or "no process"
    where = _short(stray.control_group.removesuffix(f"/{stray.what}")) or "/"
    if not stray.pod:
        return f"({inside}) runs in {where}, and belongs to no applied pod"
    return f"{container}{stray.what} ({inside}) runs in {where}, outside of the pod"


def reserved(held: ReservedValues, display: Display) -> Iterator[str]:
    """Yield the values that podslice has set outside its root, one line for each slice."""
    for unit, values in sorted(held.units.items()):
        properties = (
            f"{PROPERTIES[name].key}={format_value(name, each.ours[-1])}"
            f" (previously: {format_value(name, each.before)})"
            for name, each in sorted(values.items())
        )
        text = f"{unit}: podslice has set {', '.join(properties)}"
        yield from fold(text, display, hanging="    ")


_LOCATED = (
    Column(title="PID"),
    Column(title="NAME", min_width=8),
    Column(title="POD", min_width=12, shorten=Shorten.MIDDLE),
    Column(title="CONTAINER", drop=2, min_width=8, shorten=Shorten.MIDDLE),
    _UNIT._replace(drop=1),
)


def located(found: Iterable[Located], display: Display) -> Iterator[str]:
    """Yield a table of processes and their pods, then a hint for each that is not in a pod."""
    found = tuple(found)
    made = []
    for each in found:
        home = each.home
        pod, container = (home.pod, home.container or "-") if home else ("-", "-")
        unit = home.unit if home else each.control_group or "-"
        made.append([str(each.pid), each.name, pod, container, unit])
    yield from table(_LOCATED, made, display)
    for each in found:
        if not each.control_group:
            yield display.paint(f"process {each.pid} does not exist", Role.WARNING)
        elif each.home is None:
            hint = f"; to move it into a pod: {each.hint}" if each.hint else ""
            yield from fold(f"{each.pid} {each.name} is not in a pod{hint}", display, hanging="  ")


def list_processes(processes: Sequence[Running], most: int | None = SHOWN) -> Iterator[str]:
    """Yield the first processes as `812 nginx`, and the number of the others."""
    shown = processes[:most]
    for each in shown:
        yield f"{each.pid} {each.name}"
    if len(processes) > len(shown):
        yield f"… and {len(processes) - len(shown)} more"


def _systemd(unit: UnitStatus, name: str, *, wide: bool) -> Cell:
    for each in unit.properties:
        if each.name == name and each.systemd is not None:
            text = _readable(name, each.systemd, wide=wide)
            return Styled(f"{text}{MARK}", Role.WARNING) if each.differs else text
    return "-"


def _readable(name: str, value: Value, *, wide: bool) -> str:
    """Format a value in readable units, or exactly."""
    if wide or PROPERTIES[name].codec != BYTES or not isinstance(value, int):
        return format_value(name, value)
    is_size = value not in (INFINITY, PROPERTIES[name].unset)
    return human_bytes(value) if is_size else format_value(name, value)


_KERNEL = tuple(
    Column(title=title) for title in ("NAME", "PROPERTY", "DESIRED", "SYSTEMD", "KERNEL")
)


def _kernel(units: Sequence[UnitStatus], display: Display) -> Iterator[str]:
    """Yield a table of desired values, systemd's and the kernel's."""
    yield ""
    made = (cells for unit in units for cells in property_cells(_name(unit), unit))
    yield from table(_KERNEL, made, display)


def property_cells(name: str, unit: UnitStatus, *, mark: str = "") -> Iterator[Sequence[Cell]]:
    """Yield the properties of a unit that was started; a value that differs has the mark."""
    for each in unit.properties if unit.state not in WITHOUT_UNIT else ():
        desired, systemd = (format_value(each.name, v) for v in (each.desired, each.systemd))
        found: Cell = Styled(f"{systemd}{mark}", Role.WARNING) if each.differs else systemd
        yield name, PROPERTIES[each.name].key, desired, found, each.kernel or "-"


def _processes(shown: Iterable[UnitRow], display: Display) -> Iterator[str]:
    """Yield a table of units and their processes."""
    made = [
        [_name(row.unit), ", ".join(list_processes(row.processes))]
        for row in shown
        if row.processes
    ]
    if made:
        yield ""
        yield from table((Column(title="NAME"), Column(title="PROCESSES")), made, display)


def usage(used: Usage, *, wide: bool = False) -> tuple[str, str, str]:
    """Return memory, CPU time and tasks in readable units; the memory exactly if `wide`."""
    memory, cpu, tasks = used.memory_bytes, used.cpu_usec, used.tasks
    format_memory = format_bytes if wide else human_bytes
    return (
        "-" if memory is None else format_memory(memory),
        "-" if cpu is None else f"{cpu / 1_000_000:.2f}s",
        "-" if tasks is None else str(tasks),
    )


def _branches(depths: Sequence[int]) -> list[str]:
    """Return the prefix of each line of a tree, such as `├─ `."""
    made = []
    follows: set[int] = set()
    for depth in reversed(depths):
        above = ("│  " if level in follows else "   " for level in range(1, depth))
        last = "├─ " if depth in follows else "└─ "
        made.append("".join(above) + last if depth else "")
        follows = {level for level in follows if level < depth} | {depth}
    return made[::-1]


def exit_summary(last: ContainerExit) -> str:
    """Return `exited 7`, `OOM-killed`, `killed SIGTERM`; `exited` where the rest is unknown."""
    if last.is_oomd:
        return "killed by systemd-oomd"
    if last.is_oom:
        return "OOM-killed"
    if last.signal is not None:
        return f"killed {last.signal}"
    if last.exit_code is not None:
        return f"exited {last.exit_code}"
    return "exited" if last.result == UNKNOWN else last.result


def exit_sentence(last: ContainerExit, restarts: int) -> str:
    """Return the last exit with its time, the duration of the run and the restarts."""
    parts = [_how(last)]
    if last.ended_usec is not None:
        parts[0] += f" at {format_time(last.ended_usec)}"
    if last.duration_usec is not None:
        parts[0] += f" after {duration(last.duration_usec)}"
    if last.result == UNKNOWN:
        parts.append("exit status not recorded")
    if restarts:
        parts.append("1 restart" if restarts == 1 else f"{restarts} restarts")
    return ", ".join(parts)


def _how(last: ContainerExit) -> str:
    """Return how it ended, with what the summary leaves out."""
    if last.result == UNKNOWN:
        return "ended"
    details = []
    if last.is_oom or last.is_oomd:
        details += [last.signal] if last.signal else []
        details += [f"exit code {last.exit_code}"] if last.exit_code is not None else []
    elif last.signal is not None:
        return f"killed by {last.signal}" + (
            "" if last.result in _PLAIN_RESULTS else f" ({last.result})"
        )
    elif last.exit_code is not None:
        return f"exited with {last.exit_code}"
    return exit_summary(last) + (f" ({', '.join(details)})" if details else "")


_PLAIN_RESULTS = (SUCCESS, SIGNAL)


def duration(usec: int) -> str:
    """Format a measured duration with two units: `450ms`, `12s`, `3min 20s`, `5h 2min`, `2d 3h`."""
    if usec < 1_000_000:
        return f"{usec // 1000}ms"
    seconds = usec // 1_000_000
    for size, name, small, small_name in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            return (
                f"{whole}{name} {rest // small}{small_name}" if rest // small else f"{whole}{name}"
            )
    return f"{seconds}s"
