"""How documents and values look on a terminal. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from podslice.cgroupfs import Usage
from podslice.errors import Problem, Severity
from podslice.model.desired import Desired, PodDecision
from podslice.model.node import Allocation
from podslice.model.pod import Pod
from podslice.model.properties import PROPERTIES
from podslice.model.resources import Amounts, format_amount, format_amounts
from podslice.model.unit import Setting, UnitKind
from podslice.policy.compare import Difference
from podslice.report import format_value
from podslice.status import MISSING, SettingStatus, UnitStatus

Row = Sequence[str]


def columns(rows: Iterable[Row], *, indent: str = "") -> Iterator[str]:
    """Rows as lines, each column as wide as its widest cell."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield (indent + "  ".join(cells)).rstrip()


def problem(found: Problem) -> str:
    """One problem as a line; what came from a hostile file can't reach the terminal raw."""
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(found))
    return f"{found.severity}: {text}"


def count_problems(problems: Sequence[Problem], pods: int) -> str:
    """`5 pods, 2 errors, 1 warning`."""
    errors = sum(found.severity is Severity.ERROR for found in problems)
    parts = [_count(pods, "pod"), _count(errors, "error")]
    return ", ".join([*parts, _count(len(problems) - errors, "warning")])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def setting(stated: Setting) -> str:
    """`CPUQuota=11%`, as a unit file has it."""
    return f"{PROPERTIES[stated.name].key}={format_value(stated.name, stated.value)}"


def explanation(decision: PodDecision) -> Iterator[str]:
    """Everything about one pod, line by line."""
    pod: Pod = decision.pod
    yield f"pod {pod.key}  {decision.qos}"
    head = [
        ("slice", decision.slice),
        ("requests", format_amounts(decision.requests) or "none"),
        ("limits", format_amounts(decision.limits) or "none"),
    ]
    yield from columns(head, indent="  ")
    for note in decision.notes:
        yield f"  {note}"
    yield from columns(((setting(s), s.why) for s in decision.settings), indent="  ")
    if decision.init_settings is not None:
        yield "  until the init containers have finished:"
        yield from columns(((setting(s), s.why) for s in decision.init_settings), indent="    ")
    for container in decision.containers:
        kind = "container" if container.kind == "container" else f"{container.kind} container"
        yield f"  {kind} {container.name}"
        yield f"    {container.scope}  oom_score_adj {container.oom_score_adj}"
        yield from columns(((setting(s), s.why) for s in container.settings), indent="    ")
    for found in decision.problems:
        yield f"  {problem(found)}"


def differences_of_rules(decision: PodDecision, found: Sequence[Difference]) -> Iterator[str]:
    """Where the rule sets differ for a pod: a table of values, then what is more or less grave."""
    yield f"pod {decision.pod.key}"
    if not found:
        yield "  the rules agree"
        return
    values = [each for each in found if each.proposal not in _GRAVITY]
    rows = [
        (each.what, _value(each, each.proposal), _value(each, each.kubernetes)) for each in values
    ]
    if rows:
        yield from columns([("", "PROPOSAL", "KUBERNETES"), *rows], indent="  ")
    for each in found:
        if each.proposal in _GRAVITY:
            yield f"  {each.what}: {each.proposal} (proposal), {each.kubernetes} (kubernetes)"


_GRAVITY = (*Severity, "fine")


def _value(difference: Difference, text: str) -> str:
    """A value as people read it, where it is one of a property."""
    name = difference.what.partition(" ")[0]
    return format_value(name, int(text)) if name in PROPERTIES and text.isdigit() else text


def units(desired: Desired, *, wide: bool) -> Iterator[str]:
    """The desired units, one a line."""
    rows = [
        (unit.name, " ".join(map(setting, unit.settings)))
        for unit in desired.lasting
        if unit.kind is UnitKind.SLICE or wide
    ]
    return columns([("UNIT", "SETTINGS"), *rows])


def node(allocation: Allocation, requested: Amounts) -> Iterator[str]:
    """A table of what the node has, what is reserved, and what is left."""
    parts = (
        allocation.capacity,
        allocation.kube_reserved,
        allocation.system_reserved,
        allocation.eviction,
        allocation.allocatable,
        requested,
    )
    rows = [["RESOURCE", "CAPACITY", "KUBE", "SYSTEM", "EVICTION", "ALLOCATABLE", "REQUESTED"]]
    for name in sorted(allocation.capacity):
        cells = (format_amount(name, part[name]) if name in part else "-" for part in parts)
        rows.append([name, *cells])
    return columns(rows)


_COLUMNS = {
    "WEIGHT": "CPUWeight",
    "QUOTA": "CPUQuotaPerSecUSec",
    "MEM LOW": "MemoryLow",
    "MEM MAX": "MemoryMax",
}


def status(units: Sequence[UnitStatus], *, wide: bool) -> Iterator[str]:
    """One line for each unit: state, systemd's values, usage; then every difference."""
    rows = [["UNIT" if wide else "NAME", "QOS", "STATE", *_COLUMNS, "USED", "CPU TIME", "TASKS"]]
    for unit in units:
        cells = [_systemd(unit, name) for name in _COLUMNS.values()]
        label = unit.name if wide else _indented(unit)
        rows.append([label, unit.qos or "-", unit.state, *cells, *_usage(unit.usage)])
    yield from columns(rows)
    if wide:
        yield from _kernel(units)
    yield from differences(units)


def tree(units: Sequence[UnitStatus], *, wide: bool) -> Iterator[str]:
    """The slices as a tree, with what each may use and what it uses."""
    rows = []
    for unit, branch in zip(units, _branches(units), strict=True):
        label = unit.name if wide or unit.pod is None else f"{unit.label}"
        extra = f" {unit.qos}" if unit.qos else ""
        limits = " ".join(_systemd_setting(setting) for setting in unit.settings)
        used = _usage(unit.usage)[0]
        rows.append([f"{branch}{label}{extra}", used, limits or unit.state])
    return columns([["NAME", "USED", "SETTINGS"], *rows])


def differences(units: Iterable[UnitStatus]) -> Iterator[str]:
    """What is not as it should be, one line each."""
    for unit in units:
        if unit.state == MISSING:
            yield f"{unit.name} is missing"
            continue
        for each in unit.settings:
            if each.differs:
                key = PROPERTIES[each.name].key
                yield (
                    f"{unit.name}: {key} is {format_value(each.name, each.systemd)},"
                    f" should be {format_value(each.name, each.desired)}"
                )


def _systemd(unit: UnitStatus, name: str) -> str:
    for each in unit.settings:
        if each.name == name and each.systemd is not None:
            return format_value(name, each.systemd) + ("!" if each.differs else "")
    return "-"


def _systemd_setting(each: SettingStatus) -> str:
    text = f"{PROPERTIES[each.name].key}={format_value(each.name, each.systemd)}"
    return f"{text}!" if each.differs else text


def _kernel(units: Sequence[UnitStatus]) -> Iterator[str]:
    """What the kernel holds, in its own words."""
    yield ""
    rows = [["UNIT", "PROPERTY", "DESIRED", "SYSTEMD", "KERNEL"]]
    for unit in units:
        for each in unit.settings:
            desired, systemd = (format_value(each.name, v) for v in (each.desired, each.systemd))
            key = PROPERTIES[each.name].key
            rows.append([unit.name, key, desired, systemd, each.kernel or "-"])
    yield from columns(rows)


def _usage(usage: Usage) -> tuple[str, str, str]:
    memory, cpu, tasks = usage.memory_bytes, usage.cpu_usec, usage.tasks
    return (
        "-" if memory is None else human_bytes(memory),
        "-" if cpu is None else f"{cpu / 1_000_000:.2f}s",
        "-" if tasks is None else str(tasks),
    )


def human_bytes(number: int) -> str:
    """Bytes for people: `1.3Mi`; never exact, so never for limits."""
    size = float(number)
    for suffix in ("", "Ki", "Mi", "Gi"):
        if size < 1024:
            return f"{size:.1f}{suffix}" if suffix and size < 10 else f"{size:.0f}{suffix}"
        size /= 1024
    return f"{size:.1f}Ti"


def _indented(unit: UnitStatus) -> str:
    return "  " * unit.depth + unit.label


def _branches(units: Sequence[UnitStatus]) -> Iterator[str]:
    """The lines that join a tree: `├─ ` and its kin, one prefix for each unit."""
    for index, unit in enumerate(units):
        if unit.depth == 0:
            yield ""
            continue
        parts = [
            ("│  " if _has_sibling(units, index, depth) else "   ")
            for depth in range(1, unit.depth)
        ]
        last = "├─ " if _has_sibling(units, index, unit.depth) else "└─ "
        yield "".join(parts) + last


def _has_sibling(units: Sequence[UnitStatus], index: int, depth: int) -> bool:
    """Whether something more follows at a depth before the tree goes back above it."""
    for unit in units[index + 1 :]:
        if unit.depth <= depth:
            return unit.depth == depth
    return False
