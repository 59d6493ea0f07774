"""One unit of the service manager in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from podslice.model.container_exit import ContainerExit
from podslice.model.properties import OBSERVED, PROPERTIES
from podslice.model.unit import (
    ListedUnit,
    ObservedUnit,
    TransientUnit,
    UnitKind,
    UnitName,
    Value,
    control_group_of,
    kind_of,
    parent_slice,
)

ROOT = UnitName("-.slice")

# the parent of units other than slices that state none
_DEFAULT_SLICE = UnitName("system.slice")

# what a unit can't be started without: one of these
_NEEDED = {
    UnitKind.SLICE: (),
    UnitKind.SCOPE: ("PIDs", "PIDFDs"),
    UnitKind.SERVICE: ("ExecStart",),
    UnitKind.MOUNT: ("What",),
    UnitKind.TIMER: ("TimersMonotonic",),
}

_DEFAULTS: dict[str, Value] = {
    "IOAccounting": False,
    "MemoryAccounting": True,
    "TasksAccounting": True,
    "Delegate": False,
    "What": "",
    "Type": "",
    "Options": "",
}


@dataclass(slots=True, kw_only=True)
class LoadedUnit:
    """A loaded unit."""

    parent: UnitName
    description: str
    properties: dict[str, Value]
    transient: bool = False
    fragment_path: str = ""
    started_usec: int = field(default_factory=lambda: time.time_ns() // 1000)
    load_state: str = "loaded"
    built_in: bool = False
    failed: bool = False
    is_inactive: bool = False
    """It is kept loaded by its timer, or by another unit that refers to it."""
    is_starting: bool = False
    is_finished: bool = False
    """A service that remains active after its command."""
    pids: set[int] = field(default_factory=set)
    """The processes in it with known ids."""
    more_tasks: int = 0
    memory_bytes: int | None = None
    restarts: int = 0
    main_exit: ContainerExit | None = None
    further: Mapping[str, str] = field(default_factory=dict)
    """Settings that podslice does not manage."""
    is_stubborn: bool = False
    emptied: asyncio.Event = field(default_factory=asyncio.Event)
    """Its last process has ended."""

    @property
    def implied(self) -> bool:
        """Whether it exists only because a child unit does."""
        return not (self.transient or self.fragment_path or self.built_in)

    @property
    def tasks(self) -> int:
        """The number of processes and threads in the unit itself."""
        return len(self.pids) + self.more_tasks

    @property
    def active_state(self) -> str:
        """The state in systemd's terms."""
        if self.failed:
            return "failed"
        if self.is_starting:
            return "activating"
        return "inactive" if self.is_inactive else "active"

    def listed(self, name: UnitName) -> ListedUnit:
        """Return the unit as systemd lists it."""
        return ListedUnit(name=name, description=self.description, active_state=self.active_state)

    def observed(self, name: UnitName, tasks: int) -> ObservedUnit:
        """Return the unit as it is observed; `tasks` are those in it and below."""
        parent_group = control_group_of(self.parent).rstrip("/")
        group = "/" if name == ROOT else f"{parent_group}/{name}"
        is_timer = kind_of(name) is UnitKind.TIMER
        has_group = self.active_state == "active" and not is_timer and not self.is_finished
        return ObservedUnit(
            name=name,
            description=self.description,
            active_state=self.active_state,
            properties=dict(self.properties),
            control_group=group if has_group else "",
            transient=self.transient,
            fragment_path=self.fragment_path,
            started_usec=self.started_usec if kind_of(name) is UnitKind.SLICE else 0,
            tasks=tasks,
            memory_bytes=self.memory_bytes,
            restarts=self.restarts,
            main_exit=self.main_exit,
        )


def fresh(name: UnitName, properties: Mapping[str, Value]) -> LoadedUnit:
    """Return a new unit as systemd creates it."""
    kind = kind_of(name)
    in_slice = parent_slice(name) if kind is UnitKind.SLICE else _DEFAULT_SLICE
    parent = UnitName(str(properties.get("Slice", in_slice)))
    unset = {row.name: row.unset for row in PROPERTIES.values() if row.unset is not None}
    shown = {**unset, **_DEFAULTS, "Slice": "" if name == ROOT else parent, **properties}
    return LoadedUnit(
        parent=parent,
        description=str(properties.get("Description", name)),
        properties=observed_of(kind, shown),
    )


def observed_of(kind: UnitKind, properties: Mapping[str, Value]) -> dict[str, Value]:
    """Return the properties that an observation contains."""
    return {key: value for key, value in properties.items() if key in OBSERVED[kind]}


def missing_of(unit: TransientUnit) -> str:
    """Return the missing requirement for starting a unit; empty if there is none."""
    needed = _NEEDED[kind_of(unit.name)]
    return "" if not needed or any(map(unit.properties.get, needed)) else needed[0]


def ids_of(unit: TransientUnit, key: str) -> list[int]:
    """Return the processes or descriptors that a unit takes over."""
    value = unit.properties.get(key, ())
    return [one for one in value if isinstance(one, int)] if isinstance(value, tuple) else []
