"""A client that remembers what it saw of units, so that an idle look costs one call."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from podslice.kernel.cgroup import CgroupFs
from podslice.model.unit import (
    Caps,
    ListedUnit,
    ObservedUnit,
    TransientUnit,
    UnitName,
    Value,
    control_group_of,
    is_unit_name,
)
from podslice.systemd.client import Client
from podslice.systemd.delegating_client import DelegatingClient

# from here on it is cheaper to have all of them read than to name each
_MANY = 64
_SLICE = ".slice"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """What is known of a unit."""

    listed: ListedUnit
    """What systemd told of it in a list then."""
    unit: ObservedUnit | None
    """None: nothing but a name that other units refer to."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """What the kernel held then."""


class CachingClient(DelegatingClient):
    """Another client, of which units are read anew only where there is a reason to.

    The reasons: a unit is new, systemd lists it otherwise than before, something was done to it
    through this client, or somebody has said `forget`, as whoever watches systemd has to. Units
    that are asked for by their names only, without a glob, are read anew in any case.

    What a remembered unit uses (`tasks`, `memory_bytes`) is as old as the rest: forget a unit
    before its usage is to decide about something.
    """

    def __init__(self, client: Client, cgroups: CgroupFs) -> None:
        """Nothing is remembered yet; `cgroups` is where the kernel's limits are read."""
        super().__init__(client)
        self._cgroups = cgroups
        self._caps: Caps | None = None
        self._units: dict[UnitName, _Memory] = {}
        # what units were that were forgotten since, and whose limits only the kernel has otherwise
        self._before: dict[UnitName, _Memory] = {}
        self._edited: set[UnitName] = set()
        # the manager's own control group: empty for the system's
        self._above = ""
        # what was there when these patterns were last asked for
        self._there: dict[tuple[str, ...], frozenset[UnitName]] = {}
        # what was forgotten while something is being read, which may be older than that
        self._forgotten: set[UnitName | None] = set()
        self._readings = 0

    def forget(self, name: UnitName | None) -> None:
        """Have a unit read anew at the next look; with None all of them, and what systemd can do."""
        if self._readings:
            self._forgotten.add(name)
        if name is None:
            self._before |= self._units
            self._units.clear()
            self._caps = None
        elif name in self._units:
            self._before[name] = self._units.pop(name)

    def take_edited(self) -> frozenset[UnitName]:
        """The units whose limits somebody has written to the kernel behind systemd's back.

        Each is named once. systemd writes them again when it is told to set what it has.
        """
        edited, self._edited = frozenset(self._edited), set()
        return edited

    def verify(self, names: Collection[UnitName] | None = None) -> tuple[UnitName, ...]:
        """Forget the units whose limits in the kernel are not what they were; those still there.

        All are looked at, or those that are named.

        This finds what nobody told of: files that were written by hand, and properties that were
        set where nothing watches.
        """
        changed = []
        for name in self._units.keys() & (self._units if names is None else names):
            memory = self._units[name]
            now = self._limits_of(memory.unit)
            if now != memory.limits:
                self.forget(name)
                if now:
                    changed.append(name)
        return tuple(sorted(changed))

    # The client.

    async def caps(self) -> Caps:
        if self._caps is not None:
            return self._caps
        with self._reading() as forgotten:
            caps = await self._client.caps()
            self._caps = None if None in forgotten else caps
        return caps

    async def observe(self, patterns: Sequence[str]) -> tuple[ObservedUnit, ...]:
        if all(map(is_unit_name, patterns)):
            units = await self._read(patterns)
            for name in set(patterns).difference(unit.name for unit in units):
                self.forget(UnitName(name))
            return units
        listed = await self._client.list_units(patterns)
        self._forget_gone(tuple(patterns), frozenset(unit.name for unit in listed))
        unread = [unit for unit in listed if not self._is_known(unit)]
        known = [self._units[unit.name].unit for unit in listed if self._is_known(unit)]
        found = {unit.name: unit for unit in known if unit is not None}
        found |= {unit.name: unit for unit in await self._read_anew(unread, patterns)}
        return tuple(found[name] for name in sorted(found))

    async def start(self, unit: TransientUnit) -> None:
        with self._touching(unit.name):
            await self._client.start(unit)

    async def start_batch(self, units: Sequence[TransientUnit]) -> None:
        with self._touching(*(unit.name for unit in units)):
            await self._client.start_batch(units)

    async def start_timer(self, timer: TransientUnit, service: TransientUnit) -> None:
        with self._touching(timer.name, service.name):
            await self._client.start_timer(timer, service)

    async def set_properties(self, name: UnitName, properties: Mapping[str, Value]) -> None:
        with self._touching(name):
            await self._client.set_properties(name, properties)

    async def attach(self, name: UnitName, pids: Sequence[int]) -> None:
        with self._touching(name):
            await self._client.attach(name, pids)

    async def stop(self, name: UnitName, *, timeout_sec: float | None = None) -> None:
        with self._touching(name):
            await self._client.stop(name, timeout_sec=timeout_sec)

    async def stop_batch(self, names: Sequence[UnitName]) -> None:
        with self._touching(*names):
            await self._client.stop_batch(names)

    async def kill(self, name: UnitName, signal_number: int) -> None:
        with self._touching(name):
            await self._client.kill(name, signal_number)

    async def reset_failed(self, name: UnitName) -> None:
        with self._touching(name):
            await self._client.reset_failed(name)

    # How it works.

    def _is_known(self, unit: ListedUnit) -> bool:
        return unit.name in self._units and self._units[unit.name].listed == unit

    def _forget_gone(self, patterns: tuple[str, ...], there: frozenset[UnitName]) -> None:
        for name in self._there.get(patterns, frozenset()) - there:
            self.forget(name)
            self._before.pop(name, None)
        self._there[patterns] = there

    async def _read_anew(
        self, unread: Sequence[ListedUnit], patterns: Sequence[str]
    ) -> tuple[ObservedUnit, ...]:
        """The units to be read, or with many of them all that match the patterns."""
        if not unread:
            return ()
        if len(unread) > _MANY:
            return await self._read(patterns, unread)
        return await self._read([unit.name for unit in unread], unread)

    async def _read(
        self, patterns: Sequence[str], listed: Sequence[ListedUnit] = ()
    ) -> tuple[ObservedUnit, ...]:
        """Observe and remember; what was listed and is not to be seen is but a name."""
        with self._reading() as forgotten:
            # before systemd is asked: what is set between the two then differs, and is seen later
            limits = self._limits_before([unit.name for unit in listed] or patterns)
            units = await self._client.observe(patterns)
            seen = {unit.name for unit in units}
            fresh = [self._memory_of(unit, limits) for unit in units]
            fresh += [
                _Memory(listed=unit, unit=None)
                for unit in listed
                if unit.name not in seen and unit.active_state == "inactive"
            ]
            for memory in fresh:
                name = memory.listed.name
                if _is_edited(self._before.pop(name, None), memory):
                    self._edited.add(name)
                if not forgotten & {None, name}:
                    self._units[name] = memory
        return units

    def _memory_of(self, unit: ObservedUnit, limits: Mapping[str, Mapping[str, str]]) -> _Memory:
        listed = ListedUnit(
            name=unit.name,
            description=unit.description,
            load_state=unit.load_state,
            active_state=unit.active_state,
        )
        if unit.name.endswith(_SLICE) and unit.control_group:
            self._above = unit.control_group.removesuffix(control_group_of(unit.name))
        read = limits.get(unit.control_group)
        return _Memory(
            listed=listed, unit=unit, limits=self._limits_of(unit) if read is None else read
        )

    def _limits_before(self, names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """What the kernel holds of slices, by control group: their names tell where they are."""
        slices = (UnitName(name) for name in names if is_unit_name(name) and name.endswith(_SLICE))
        groups = (f"{self._above}{control_group_of(name)}" for name in slices)
        return {group: self._cgroups.limits(group) for group in groups}

    def _limits_of(self, unit: ObservedUnit | None) -> Mapping[str, str]:
        group = "" if unit is None else unit.control_group
        return self._cgroups.limits(group) if group else {}

    @contextmanager
    def _reading(self) -> Iterator[set[UnitName | None]]:
        """Read from the client; what is forgotten meanwhile may not be remembered."""
        self._readings += 1
        try:
            yield self._forgotten
        finally:
            self._readings -= 1
            if not self._readings:
                self._forgotten.clear()

    @contextmanager
    def _touching(self, *names: UnitName) -> Iterator[None]:
        """Do something to units; however it ends, they may be others now."""
        try:
            yield
        finally:
            for name in names:
                self.forget(name)
                self._before.pop(name, None)  # nobody else has changed it since


def _is_edited(before: _Memory | None, now: _Memory) -> bool:
    """Whether the kernel has other limits than before, while systemd has the same."""
    if before is None or before.unit is None or now.unit is None or not before.limits:
        return False
    same = before.unit.properties == now.unit.properties
    return same and now.limits != before.limits and bool(now.limits)
