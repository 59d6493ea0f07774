"""systemd in memory: a client for tests, with state, held to the contract of the real one.

It knows units, what they hold and lie in, and what systemd refuses. It does not know time, what
processes do, or other people's units beyond the built-in slices; see the calls for tests.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Self, assert_never

from podslice.errors import (
    BadProperty,
    BusUnavailable,
    CallTimeout,
    NoSuchUnit,
    SystemdError,
    UnitExists,
)
from podslice.model.container_exit import ContainerExit
from podslice.model.properties import CONTAINER, PROPERTIES
from podslice.model.unit import (
    INFINITY,
    SYSTEM,
    Caps,
    InspectedUnit,
    ListedUnit,
    Manager,
    ObservedUnit,
    TransientUnit,
    UnitDefinition,
    UnitKind,
    UnitName,
    Value,
    kind_of,
    parent_slice,
)
from podslice.systemd.client import (
    Change,
    Client,
    OnChange,
    OnExit,
    Verb,
    check_change,
    check_name,
    is_changeable,
)
from tests.fake_unit import (
    ROOT,
    LoadedUnit,
    fresh,
    ids_of,
    missing_of,
    observed_of,
)

_BUILT_IN = (ROOT, UnitName("system.slice"))
# the first version seen to keep a quota in steps of 0.01 %; 252 keeps whole percents
_FINE_QUOTA_SINCE = 257
# as long as the real one waits for a job
_PATIENCE_SEC = 120


@dataclass(slots=True)
class _Faults:
    """The failures to simulate."""

    refused: dict[UnitName, SystemdError] = field(default_factory=dict)
    calls_left: int | None = None
    is_broken: bool = False


class FakeSystemd(Client):
    """A service manager in memory; closing the client does not change it."""

    def __init__(
        self,
        *,
        systemd_version: int = 257,
        manager: Manager = SYSTEM,
        on_change: OnChange = lambda _: None,
        on_exit: OnExit = lambda _name, _exit: None,
    ) -> None:
        self.calls: Counter[str] = Counter()
        """Calls by the name of the method."""
        self.signals: list[tuple[UnitName, int]] = []
        """The calls for each unit, in order."""
        pidfds = systemd_version >= PROPERTIES["PIDFDs"].since
        self._caps = Caps(
            systemd_version=systemd_version,
            manager=manager,
            pidfds=pidfds,
            reload_count=0 if systemd_version >= 261 else None,
        )
        self.on_change = on_change
        self.on_exit = on_exit
        self._faults = _Faults()
        self._ended: set[int] = set()
        self._units = {name: fresh(name, {}) for name in _BUILT_IN}
        for unit in self._units.values():
            unit.built_in = True
        self._files: dict[UnitName, LoadedUnit] = {}
        self.slices: dict[UnitName, str] = {}
        """The slices that files of units state since they were started."""
        self.drop_ins: dict[UnitName, tuple[str, ...]] = {}
        self.triggers: dict[UnitName, tuple[str, ...]] = {}
        self.predecessors: frozenset[UnitName] = frozenset()
        """The units that every unit is ordered after."""

    # The contract.

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        pass

    async def caps(self) -> Caps:
        await self._begin("caps")
        return self._caps

    async def observe(self, patterns: Sequence[str]) -> tuple[ObservedUnit, ...]:
        await self._begin("observe")
        return tuple(
            unit.observed(name, sum(self._units[below].tasks for below in self._below(name)))
            for name, unit in self._matching(patterns)
        )

    async def list_units(self, patterns: Sequence[str]) -> tuple[ListedUnit, ...]:
        await self._begin("list_units")
        return tuple(unit.listed(name) for name, unit in self._matching(patterns))

    async def inspect(self, name: UnitName) -> InspectedUnit | None:
        await self._begin("inspect")
        check_name(name)
        if name in self._files:
            file = self._files[name]
            observed = replace(file.observed(name, 0), active_state="inactive", control_group="")
            return InspectedUnit(observed=observed, further=file.further)
        if name not in self._units:
            return None
        (found,) = await self.observe([name])
        return InspectedUnit(observed=found, further=self._units[name].further)

    async def read_start(self, name: UnitName) -> int:
        await self._begin("read_start")
        check_name(name)
        return (await self.observe([name]))[0].started_usec if name in self._units else 0

    async def read_definition(self, name: UnitName) -> UnitDefinition:
        await self._begin("read_definition")
        check_name(name)
        unit = self._units.get(name) or self._files.get(name)
        if unit is None or unit.implied:
            return UnitDefinition(name=name, load_state="not-found")
        (found,) = await self.observe([name]) if name in self._units else (None,)
        return UnitDefinition(
            name=name,
            load_state=unit.load_state,
            active_state=found.active_state if found else "inactive",
            transient=unit.transient,
            fragment_path=unit.fragment_path,
            drop_ins=self.drop_ins.get(name, ()),
            slice=self.slices.get(name, str(unit.properties.get("Slice", ""))),
            control_group=found.control_group if found else "",
            triggers=self.triggers.get(name, ()),
        )

    async def read_predecessors(self, name: UnitName) -> frozenset[UnitName]:
        await self._begin("read_predecessors")
        check_name(name)
        return self.predecessors

    async def submit(self, change: Change) -> None:
        """Make a change by the method of its name, which tests replace."""
        names, units, timeout_sec = change.names, change.units, change.timeout_sec
        match change.verb:
            case Verb.START:
                await self.start(*units)
            case Verb.START_BATCH:
                await self.start_batch(units)
            case Verb.START_TIMER:
                await self.start_timer(*units)
            case Verb.START_EXISTING:
                await self.start_existing(*names, timeout_sec=timeout_sec)
            case Verb.RESTART:
                await self.restart(*names)
            case Verb.RELOAD:
                await self.reload()
            case Verb.SET_PROPERTIES:
                await self.set_properties(*names, change.properties)
            case Verb.ATTACH:
                await self.attach(*names, change.pids)
            case Verb.STOP:
                await self.stop(*names, timeout_sec=timeout_sec)
            case Verb.STOP_BATCH:
                await self.stop_batch(names)
            case Verb.KILL:
                await self.kill(*names, change.signal_number)
            case Verb.RESET_FAILED:
                await self.reset_failed(*names)
            case _:
                assert_never(change.verb)

    async def start(self, unit: TransientUnit) -> None:
        check_change(Change(Verb.START, (unit.name,), (unit,)))
        await self._begin("start", unit.name)
        self._check(unit)
        self._add(unit)

    async def start_batch(self, units: Sequence[TransientUnit]) -> None:
        names = tuple(unit.name for unit in units)
        check_change(Change(Verb.START_BATCH, names, tuple(units)))
        await self._begin("start_batch", *names)
        for unit in units:
            if unit.name in self._units and self._units[unit.name].failed:
                raise UnitExists(f"{unit.name}: a unit of that name failed and is still loaded")
            self._check(unit)
        for unit in units:
            self._add(unit)

    async def start_timer(self, timer: TransientUnit, service: TransientUnit) -> None:
        names = (timer.name, service.name)
        check_change(Change(Verb.START_TIMER, names, (timer, service)))
        await self._begin("start_timer", *names)
        for unit in (timer, service):
            if unit.name in self._units:
                raise UnitExists(f"{timer.name}: Unit {unit.name} was already loaded")
            self._check(unit)
        for unit in (timer, service):
            self._units[unit.name] = fresh(unit.name, unit.properties)
            self._units[unit.name].transient = True
        self._units[service.name].is_inactive = True
        self.on_change(timer.name)

    async def start_existing(self, name: UnitName, *, timeout_sec: float | None = None) -> None:
        check_name(name)
        await self._begin("start_existing", name)
        if name not in self._units:
            if name not in self._files:
                raise NoSuchUnit(f"{name}: Unit {name} not found.")
            self._units[name] = replace(self._files[name], more_tasks=1)
            self._add_parents(self._units[name].parent)
        self._units[name].failed = self._units[name].is_inactive = False
        self.on_change(name)

    async def restart(self, name: UnitName) -> None:
        check_name(name)
        await self._begin("restart", name)
        unit = self._units.pop(name, None) or self._files.get(name)
        if unit is None:
            raise NoSuchUnit(f"{name}: Unit {name} not found.")
        properties = dict(unit.properties)
        if name in self.slices:
            properties["Slice"] = self.slices[name]
        started = fresh(name, properties)
        started.fragment_path, started.more_tasks = unit.fragment_path, 1
        self._units[name] = started
        self._add_parents(started.parent)
        self.on_change(name)

    async def reload(self) -> None:
        await self._begin("reload")
        self.reload_externally()

    async def set_properties(self, name: UnitName, properties: Mapping[str, Value]) -> None:
        check_change(Change(Verb.SET_PROPERTIES, (name,), properties=properties))
        await self._begin("set_properties", name)
        unit = self._units.get(name)
        if unit is None:
            raise NoSuchUnit(f"{name}: Unit {name} not loaded")
        if fixed := sorted(key for key in properties if not is_changeable(key)):
            raise BadProperty(f"{name}: {fixed[0]} can't be changed")
        self._check_since(name, properties)
        unit.description = str(properties.get("Description", unit.description))
        unit.properties |= observed_of(kind_of(name), properties)
        unit.transient |= unit.implied

    async def attach(self, name: UnitName, pids: Sequence[int]) -> None:
        check_name(name)
        await self._begin("attach", name)
        if name not in self._units:
            raise NoSuchUnit(f"{name}: Unit {name} not loaded")
        if not self._units[name].properties.get("Delegate"):
            raise BadProperty(f"{name}: Process migration not available on non-delegated units")
        self._check_alive(name, pids)
        self._take(name, pids)

    async def stop(self, name: UnitName, *, timeout_sec: float | None = None) -> None:
        check_name(name)
        await self._begin("stop", name)
        await self._await_stubborn(name, _PATIENCE_SEC if timeout_sec is None else timeout_sec)
        self._remove(name)

    async def stop_batch(self, names: Sequence[UnitName]) -> None:
        for name in names:
            check_name(name)
        await self._begin("stop_batch", *names)
        for name in names:
            await self._await_stubborn(name, _PATIENCE_SEC)
            self._remove(name)

    async def kill(self, name: UnitName, signal_number: int) -> None:
        check_name(name)
        await self._begin("kill", name)
        self.signals.append((name, signal_number))
        for below in self._below(name):
            unit = self._units[below]
            if unit.tasks and (signal_number == signal.SIGKILL or not unit.is_stubborn):
                self.set_tasks(below, 0)

    async def reset_failed(self, name: UnitName) -> None:
        check_name(name)
        await self._begin("reset_failed", name)
        if name in self._units and self._units[name].failed:
            self._forget(name)

    # Control by tests.

    def refuse(self, name: UnitName, error: SystemdError | None) -> None:
        """Let every call that writes to a unit fail with an error; with None succeed again."""
        if error is None:
            self._faults.refused.pop(name, None)
        else:
            self._faults.refused[name] = error

    def break_after(self, calls: int) -> None:
        """Let the connection break once, after a number of further calls."""
        self._faults.calls_left = calls

    def provide(self, name: UnitName, **properties: Value) -> None:
        """Provide a unit with a file, started by another program."""
        self._add_parents(parent_slice(name))
        self._units[name] = fresh(name, properties)
        self._units[name].fragment_path = f"/usr/lib/systemd/system/{name}"

    def provide_file(self, name: UnitName, **properties: Value) -> None:
        """Provide a unit with a file that is not loaded."""
        self._files[name] = fresh(name, properties)
        self._files[name].fragment_path = f"/usr/lib/systemd/system/{name}"

    def set_further(self, name: UnitName, **further: str) -> None:
        """Set settings that podslice does not manage, as `inspect` has them."""
        (self._units.get(name) or self._files[name]).further = further

    def set_memory(self, name: UnitName, memory_bytes: int | None) -> None:
        """Set the memory of a unit."""
        self._units[name].memory_bytes = memory_bytes

    def set_tasks(self, name: UnitName, tasks: int) -> None:
        """Set the number of tasks in a unit itself; a scope and a service end with their last."""
        unit = self._units[name]
        unit.pids = unit.pids if tasks else set()
        unit.more_tasks = tasks - len(unit.pids)
        if not tasks:
            unit.emptied.set()
            if kind_of(name) in CONTAINER:
                self._forget(name)

    def make_stubborn(self, name: UnitName) -> None:
        """Let the processes of a unit ignore all signals but SIGKILL."""
        self._units[name].is_stubborn = True

    def end_process(self, pid: int) -> None:
        """End a process; it can no longer be moved."""
        self._ended.add(pid)
        self._leave(pid)

    def crash(self, name: UnitName, restarts: int, main_exit: ContainerExit | None = None) -> None:
        """Let the processes of a service fail; systemd is about to start it again."""
        self._units[name].is_starting = True
        self._units[name].restarts = restarts
        self._units[name].main_exit = main_exit
        if main_exit is not None:
            self.on_exit(name, main_exit)
        self.on_change(name)

    def run_again(self, name: UnitName, restarts: int) -> None:
        """Let a service run again after its end, so often."""
        unit = self._units[name]
        unit.is_starting, unit.restarts, unit.main_exit = False, restarts, None
        self.on_change(name)

    def finish(self, name: UnitName) -> None:
        """Let the command of a service end, which remains active (RemainAfterExit)."""
        self._units[name].is_finished = True

    def end(self, name: UnitName, main_exit: ContainerExit) -> None:
        """Let the processes of a service end, which stays loaded: another unit refers to it."""
        unit = self._units[name]
        unit.is_inactive, unit.main_exit, unit.pids, unit.more_tasks = True, main_exit, set(), 0
        self.on_exit(name, main_exit)
        self.on_change(name)

    def fail(self, name: UnitName, main_exit: ContainerExit | None = None) -> None:
        """Let a unit fail: its processes have ended, the unit stays until it is reset."""
        unit = self._units[name]
        unit.main_exit = main_exit
        unit.failed, unit.pids, unit.more_tasks = True, set(), 0
        if main_exit is not None:
            self.on_exit(name, main_exit)
        self.on_change(name)

    def remove_file(self, name: UnitName) -> None:
        """Remove a file of `provide_file`; its unit stays as it is."""
        self._files.pop(name, None)

    def reload_externally(self) -> None:
        """As `systemctl daemon-reload`: a quota has the precision of the drop-in file afterwards."""
        if self._caps.reload_count is not None:
            self._caps = replace(self._caps, reload_count=self._caps.reload_count + 1)
        step_usec = 100 if self._caps.systemd_version >= _FINE_QUOTA_SINCE else 10_000
        for unit in self._units.values():
            quota = unit.properties.get("CPUQuotaPerSecUSec", INFINITY)
            if quota != INFINITY:
                unit.properties["CPUQuotaPerSecUSec"] = int(str(quota)) // step_usec * step_usec
        self.on_change(None)

    # Implementation.

    async def _begin(self, call: str, *writes: UnitName) -> None:
        """Count a call, yield to other tasks as on a bus, and simulate failures."""
        self.calls[call] += 1
        await asyncio.sleep(0)
        if self._faults.is_broken:
            self._faults.is_broken = False
            self.on_change(None)
        if self._faults.calls_left == 0:
            self._faults.calls_left, self._faults.is_broken = None, True
            self.on_change(None)
            raise BusUnavailable(f"{call}: the connection to the bus was lost")
        if self._faults.calls_left is not None:
            self._faults.calls_left -= 1
        for name in writes:
            if name in self._faults.refused:
                raise self._faults.refused[name]

    def _matching(self, patterns: Sequence[str]) -> list[tuple[UnitName, LoadedUnit]]:
        return sorted(
            (name, unit)
            for name, unit in self._units.items()
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        )

    def _check(self, unit: TransientUnit) -> None:
        there = self._units.get(unit.name)
        if there is not None and not (there.implied or there.failed):
            raise UnitExists(f"{unit.name}: Unit {unit.name} was already loaded")
        self._check_since(unit.name, unit.properties)
        if missing := missing_of(unit):
            raise BadProperty(f"{unit.name}: it needs {missing}")
        self._check_alive(unit.name, ids_of(unit, "PIDs"))

    def _check_alive(self, name: UnitName, pids: Iterable[int]) -> None:
        for pid in self._ended.intersection(pids):
            raise BadProperty(f"{name}: a process has exited ({pid})")

    def _check_since(self, name: UnitName, properties: Mapping[str, Value]) -> None:
        for key in properties:
            if PROPERTIES[key].since > self._caps.systemd_version:
                raise BadProperty(f"{name}: {key}: unknown property")

    def _add(self, unit: TransientUnit) -> None:
        added = fresh(unit.name, unit.properties)
        added.transient = True
        if unit.name in self._units:
            added.started_usec = self._units[unit.name].started_usec
        added.more_tasks = len(ids_of(unit, "PIDFDs")) or int("ExecStart" in unit.properties)
        self._add_parents(added.parent)
        if unit.properties.get("Type") != "oneshot":  # ends with its start
            self._units[unit.name] = added
            self._take(unit.name, ids_of(unit, "PIDs"))
            self.on_change(unit.name)

    def _take(self, name: UnitName, pids: Iterable[int]) -> None:
        """Move processes into a unit."""
        for pid in pids:
            if pid not in self._units[name].pids:
                self._leave(pid)
                self._units[name].pids.add(pid)

    def _leave(self, pid: int) -> None:
        """Remove a process from its unit."""
        for name, unit in list(self._units.items()):
            if pid in unit.pids:
                unit.pids.remove(pid)
                self.set_tasks(name, unit.tasks)

    def _add_parents(self, name: UnitName) -> None:
        while name not in self._units:
            self._units[name] = fresh(name, {})
            self.on_change(name)
            name = parent_slice(name)

    def _remove(self, name: UnitName) -> None:
        if name in self._units and self._units[name].built_in:
            raise SystemdError(f"{name}: Job type stop is not applicable for unit {name}")
        for below in self._below(name):
            self._forget(below)
        if name.endswith(f".{UnitKind.TIMER}"):
            self._forget(UnitName(f"{name.removesuffix(UnitKind.TIMER)}{UnitKind.SERVICE}"))

    def _forget(self, name: UnitName) -> None:
        if self._units.pop(name, None) is not None:
            self.on_change(name)

    async def _await_stubborn(self, name: UnitName, timeout_sec: float) -> None:
        """Wait until processes that ignore the stop have been killed."""
        stubborn = [self._units[below] for below in self._below(name)]
        try:
            async with asyncio.timeout(timeout_sec):
                for unit in stubborn:
                    if unit.is_stubborn and unit.tasks:
                        await unit.emptied.wait()
        except TimeoutError as error:
            raise CallTimeout(f"{name}: no reply within {timeout_sec:g} s") from error

    def _below(self, name: UnitName) -> list[UnitName]:
        """Return a unit and all units below it."""
        return [below for below in self._units if name in self._line(below)]

    def _line(self, name: UnitName) -> Iterator[UnitName]:
        """Return a unit and all slices above it."""
        yield name
        while name != ROOT:
            name = self._units[name].parent if name in self._units else parent_slice(name)
            yield name
