"""The one table of systemd's unit properties that podslice uses.

A row serves encoding for the bus, unit files, drift detection and feasibility. To add a property,
add a row; policy then may state it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from podslice.model.unit import INFINITY, UnitKind, Value

BOTH = frozenset(UnitKind)
SLICE = frozenset({UnitKind.SLICE})
SCOPE = frozenset({UnitKind.SCOPE})

QUOTA_PERIOD_USEC = 100_000
"""The CFS period that systemd and Kubernetes use unless told otherwise: 100 ms.

Source: systemd.resource-control(5), CPUQuotaPeriodSec=; seed 000, "Conversion of CPU millicores".
"""


def _plain(value: Value) -> str:
    return "infinity" if value == INFINITY else str(value)


def _boolean(value: Value) -> str:
    return "yes" if value else "no"


def _words(value: Value) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _percent(value: Value) -> str:
    """CPUQuota= in percent of one CPU, with the two decimals that unit files take; empty = none."""
    if value == INFINITY:
        return ""
    whole, rest = divmod(int(str(value)), 10_000)
    return f"{whole}.{rest // 100:02}%".replace(".00%", "%")


def _usec(value: Value) -> str:
    return "" if value == INFINITY else f"{value}us"


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One property of a unit."""

    name: str
    """Its name on the bus."""
    key: str
    """Its key in a unit file."""
    signature: str
    """The type of its value on the bus."""
    section: str = "resource"
    """`Unit`, or `resource` for the section of the unit's own kind (`[Slice]`, `[Scope]`)."""
    kinds: frozenset[UnitKind] = BOTH
    since: int = 230
    """The first version of systemd that knows it."""
    unset: Value | None = None
    """What it reads when nobody has set it; None where there is nothing to compare with."""
    managed: frozenset[UnitKind] = frozenset()
    """The kinds of units of ours on which it is kept as desired, and unset where it is not stated;
    it can change while the unit lives."""
    minimum: int = 0
    maximum: int = INFINITY - 1
    """The range of values beside `unset` that systemd takes."""
    text: Callable[[Value], str] = _plain

    def takes(self, value: Value) -> bool:
        """Whether systemd takes the value."""
        if value == self.unset or not isinstance(value, int):
            return True
        return self.minimum <= value <= self.maximum


# Since-versions: systemd's NEWS file. Ranges and "infinity" for unset: SYSTEMD.md, section 3.
_ROWS = (
    Property(name="Description", key="Description", signature="s", section="Unit"),
    Property(
        name="DefaultDependencies",
        key="DefaultDependencies",
        signature="b",
        section="Unit",
        text=_boolean,
    ),
    Property(name="Wants", key="Wants", signature="as", section="Unit", text=_words),
    Property(name="After", key="After", signature="as", section="Unit", text=_words),
    Property(name="Conflicts", key="Conflicts", signature="as", section="Unit", text=_words),
    Property(name="CollectMode", key="CollectMode", signature="s", section="Unit", since=236),
    Property(name="Slice", key="Slice", signature="s", kinds=SCOPE),
    Property(name="PIDs", key="PIDs", signature="au", kinds=SCOPE),
    Property(name="Delegate", key="Delegate", signature="b", kinds=SCOPE, text=_boolean),
    Property(name="CPUAccounting", key="CPUAccounting", signature="b", text=_boolean),
    Property(name="MemoryAccounting", key="MemoryAccounting", signature="b", text=_boolean),
    Property(name="IOAccounting", key="IOAccounting", signature="b", text=_boolean),
    Property(name="TasksAccounting", key="TasksAccounting", signature="b", text=_boolean),
    Property(
        name="CPUWeight",
        key="CPUWeight",
        signature="t",
        since=232,
        unset=INFINITY,
        managed=BOTH,
        minimum=0,
        maximum=10_000,
    ),
    Property(
        name="CPUQuotaPerSecUSec",
        key="CPUQuota",
        signature="t",
        unset=INFINITY,
        managed=BOTH,
        minimum=1,
        text=_percent,
    ),
    Property(
        name="CPUQuotaPeriodUSec",
        key="CPUQuotaPeriodSec",
        signature="t",
        since=242,
        unset=INFINITY,
        managed=BOTH,
        minimum=1_000,
        maximum=1_000_000,
        text=_usec,
    ),
    Property(name="MemoryMin", key="MemoryMin", signature="t", since=240, unset=0, managed=BOTH),
    Property(name="MemoryLow", key="MemoryLow", signature="t", since=231, unset=0, managed=BOTH),
    Property(
        name="MemoryHigh",
        key="MemoryHigh",
        signature="t",
        since=231,
        unset=INFINITY,
        managed=BOTH,
        minimum=1,
    ),
    Property(
        name="MemoryMax",
        key="MemoryMax",
        signature="t",
        since=231,
        unset=INFINITY,
        managed=BOTH,
        minimum=1,
    ),
    # a scope that states none has the manager's DefaultTasksMax=, which is not ours to lift
    Property(
        name="TasksMax", key="TasksMax", signature="t", unset=INFINITY, managed=SLICE, minimum=1
    ),
)

PROPERTIES = {row.name: row for row in _ROWS}
"""Every property that podslice writes or compares, by its name on the bus."""

MANAGED = {
    kind: tuple(sorted(row.name for row in _ROWS if kind in row.managed)) for kind in UnitKind
}
"""The properties that an owned unit has at the desired value, or unset, by its kind."""
