"""systemd in memory: a client for tests, with state, held to the contract of the real one.

It knows slices and scopes, what they hold and lie in, and what systemd refuses. It does not know
time, processes, or other people's units beyond the built-in slices; see `Memory.provide` for those.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Self

from podslice.errors import BadProperty, BusUnavailable, NoSuchUnit, SystemdError, UnitExists
from podslice.model.properties import PROPERTIES
from podslice.model.unit import (
    Caps,
    ObservedUnit,
    TransientUnit,
    UnitName,
    Value,
    control_group_of,
    parent_slice,
)
from podslice.systemd.checks import check_name, check_properties, check_unit

_ROOT = UnitName("-.slice")
_BUILT_IN = (_ROOT, UnitName("system.slice"))
# the first version seen to keep a quota in steps of 0.01 %; 252 keeps whole percents
_FINE_QUOTA_SINCE = 257

# where a scope lies that does not say
_DEFAULT_SLICE = UnitName("system.slice")

_DEFAULTS: dict[str, Value] = {
    **{row.name: row.unset for row in PROPERTIES.values() if row.unset is not None},
    "CPUAccounting": False,
    "IOAccounting": False,
    "MemoryAccounting": True,
    "TasksAccounting": True,
    "Delegate": False,
}

# what a unit has from its start on and systemd then refuses to change
_FIXED = {"DefaultDependencies", "Wants", "After", "Conflicts", "Slice", "PIDs", "Delegate"}


@dataclass(slots=True, kw_only=True)
class _Unit:
    """A unit that is loaded."""

    parent: UnitName
    description: str
    properties: dict[str, Value]
    transient: bool = False
    fragment_path: str = ""
    built_in: bool = False
    failed: bool = False
    tasks: int = 0
    memory_bytes: int | None = None

    @property
    def implied(self) -> bool:
        """Whether it is there only because something lies below it."""
        return not (self.transient or self.fragment_path or self.built_in)


@dataclass(slots=True)
class _Faults:
    """What is to go wrong."""

    refused: dict[UnitName, SystemdError] = field(default_factory=dict)
    calls_left: int | None = None


class Memory:
    """A service manager that exists only here; it stays as it is when the client is closed."""

    def __init__(self, *, systemd_version: int = 257, user: bool = False) -> None:
        self.calls: Counter[str] = Counter()
        """Calls by the name of the method."""
        self._caps = Caps(systemd_version=systemd_version, user=user)
        self._faults = _Faults()
        self._units = {name: _fresh(name, {}) for name in _BUILT_IN}
        for unit in self._units.values():
            unit.built_in = True

    # The contract.

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        pass

    async def caps(self) -> Caps:
        await self._begin("caps")
        return self._caps

    async def observe(self, patterns: Sequence[str]) -> tuple[ObservedUnit, ...]:
        await self._begin("observe")
        return tuple(
            self._observed(name, unit)
            for name, unit in sorted(self._units.items())
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        )

    async def start(self, unit: TransientUnit) -> None:
        check_unit(unit)
        await self._begin("start", unit.name)
        self._check(unit)
        self._add(unit)

    async def start_batch(self, units: Sequence[TransientUnit]) -> None:
        for unit in units:
            check_unit(unit)
        await self._begin("start_batch", *(unit.name for unit in units))
        for unit in units:
            if unit.name in self._units and self._units[unit.name].failed:
                raise UnitExists(f"{unit.name}: a unit of that name failed and is still loaded")
            self._check(unit)
        for unit in units:
            self._add(unit)

    async def set_properties(self, name: UnitName, properties: Mapping[str, Value]) -> None:
        check_name(name)
        check_properties(name, properties)
        await self._begin("set_properties", name)
        unit = self._units.get(name)
        if unit is None:
            raise NoSuchUnit(f"{name}: Unit {name} not loaded")
        if fixed := sorted(_FIXED & properties.keys()):
            raise BadProperty(f"{name}: {fixed[0]} can't be changed")
        self._check_since(name, properties)
        unit.description = str(properties.get("Description", unit.description))
        unit.properties |= _resources(properties)
        unit.transient |= unit.implied

    async def stop(self, name: UnitName) -> None:
        check_name(name)
        await self._begin("stop", name)
        self._remove(name)

    async def stop_batch(self, names: Sequence[UnitName]) -> None:
        for name in names:
            check_name(name)
        await self._begin("stop_batch", *names)
        for name in names:
            self._remove(name)

    async def reset_failed(self, name: UnitName) -> None:
        check_name(name)
        await self._begin("reset_failed", name)
        if name in self._units and self._units[name].failed:
            del self._units[name]

    # What tests do to it.

    def refuse(self, name: UnitName, error: SystemdError | None) -> None:
        """Let every call that writes to a unit end with an error; with None no longer."""
        if error is None:
            self._faults.refused.pop(name, None)
        else:
            self._faults.refused[name] = error

    def break_after(self, calls: int) -> None:
        """Let the connection break when that many more calls have been answered, once."""
        self._faults.calls_left = calls

    def provide(self, name: UnitName, **properties: Value) -> None:
        """Have a unit that somebody has written a file for and started."""
        self._add_parents(parent_slice(name))
        self._units[name] = _fresh(name, properties)
        self._units[name].fragment_path = f"/usr/lib/systemd/system/{name}"

    def set_memory(self, name: UnitName, memory_bytes: int | None) -> None:
        """Have a unit use so much memory."""
        self._units[name].memory_bytes = memory_bytes

    def set_tasks(self, name: UnitName, tasks: int) -> None:
        """Have so many tasks in a unit itself; a scope ends with its last."""
        self._units[name].tasks = tasks
        if not tasks and name.endswith(".scope"):
            del self._units[name]

    def fail(self, name: UnitName) -> None:
        """Let a scope have failed: its processes are gone, the unit stays until it is reset."""
        self._units[name].failed = True
        self._units[name].tasks = 0

    def reload(self) -> None:
        """As `systemctl daemon-reload`: of a quota there is left what the drop-in file held."""
        step_usec = 100 if self._caps.systemd_version >= _FINE_QUOTA_SINCE else 10_000
        for unit in self._units.values():
            quota = unit.properties["CPUQuotaPerSecUSec"]
            if quota != PROPERTIES["CPUQuotaPerSecUSec"].unset:
                unit.properties["CPUQuotaPerSecUSec"] = int(str(quota)) // step_usec * step_usec

    # How it works.

    async def _begin(self, call: str, *writes: UnitName) -> None:
        """Count a call, let others have their turn as on a bus, and let happen what is to fail."""
        self.calls[call] += 1
        await asyncio.sleep(0)
        if self._faults.calls_left == 0:
            self._faults.calls_left = None
            raise BusUnavailable(f"{call}: the connection to the bus was lost")
        if self._faults.calls_left is not None:
            self._faults.calls_left -= 1
        for name in writes:
            if name in self._faults.refused:
                raise self._faults.refused[name]

    def _check(self, unit: TransientUnit) -> None:
        there = self._units.get(unit.name)
        if there is not None and not (there.implied or there.failed):
            raise UnitExists(f"{unit.name}: Unit {unit.name} was already loaded")
        self._check_since(unit.name, unit.properties)
        if unit.name.endswith(".scope") and not unit.properties.get("PIDs"):
            raise BadProperty(f"{unit.name}: a scope needs processes")

    def _check_since(self, name: UnitName, properties: Mapping[str, Value]) -> None:
        for key in properties:
            if PROPERTIES[key].since > self._caps.systemd_version:
                raise BadProperty(f"{name}: {key}: unknown property")

    def _add(self, unit: TransientUnit) -> None:
        fresh = _fresh(unit.name, unit.properties)
        fresh.transient = True
        pids = unit.properties.get("PIDs", ())
        fresh.tasks = len(pids) if isinstance(pids, tuple) else 0
        self._add_parents(fresh.parent)
        self._units[unit.name] = fresh

    def _add_parents(self, name: UnitName) -> None:
        while name not in self._units:
            self._units[name] = _fresh(name, {})
            name = parent_slice(name)

    def _remove(self, name: UnitName) -> None:
        if name in self._units and self._units[name].built_in:
            raise SystemdError(f"{name}: Job type stop is not applicable for unit {name}")
        for below in [below for below in self._units if name in self._line(below)]:
            del self._units[below]

    def _line(self, name: UnitName) -> Iterator[UnitName]:
        """A unit and every slice it lies in."""
        yield name
        while name != _ROOT:
            name = self._units[name].parent if name in self._units else parent_slice(name)
            yield name

    def _observed(self, name: UnitName, unit: _Unit) -> ObservedUnit:
        parent_group = control_group_of(unit.parent).rstrip("/")
        return ObservedUnit(
            name=name,
            description=unit.description,
            active_state="failed" if unit.failed else "active",
            properties=dict(unit.properties),
            control_group="" if unit.failed else _control_group(name, parent_group),
            transient=unit.transient,
            fragment_path=unit.fragment_path,
            tasks=sum(
                below.tasks for other, below in self._units.items() if name in self._line(other)
            ),
            memory_bytes=unit.memory_bytes,
        )


def _control_group(name: UnitName, parent_group: str) -> str:
    return "/" if name == _ROOT else f"{parent_group}/{name}"


def _resources(properties: Mapping[str, Value]) -> dict[str, Value]:
    """What `observe` shows: limits and the like, neither dependencies nor processes."""
    return {
        key: value
        for key, value in properties.items()
        if PROPERTIES[key].section != "Unit" and key != "PIDs"
    }


def _fresh(name: UnitName, properties: Mapping[str, Value]) -> _Unit:
    """A new unit as systemd makes it."""
    in_slice = parent_slice(name) if name.endswith(".slice") else _DEFAULT_SLICE
    parent = UnitName(str(properties.get("Slice", in_slice)))
    shown = {**_DEFAULTS, "Slice": "" if name == _ROOT else parent, **_resources(properties)}
    return _Unit(
        parent=parent, description=str(properties.get("Description", name)), properties=shown
    )
