"""A client that caches units, so that observing unchanged ones costs one call."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.host import read_possible
from podslice.model.unit import (
    Caps,
    ListedUnit,
    ObservedUnit,
    UnitName,
    control_group_of,
    is_unit_name,
)
from podslice.systemd.client import Change, Client, ClientAround, Verb

# above this number it is cheaper to read all units than to name each
_MANY = 64
# the limits of a unit that changed as often during as many calls are changed by another program
_SETTLE_TIMES = 10
_SLICE = ".slice"


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedUnit:
    """A unit as it was read last."""

    listed: ListedUnit
    """Its entry in the list of units at that time."""
    unit: ObservedUnit | None
    """None: not loaded, only referenced by other units."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """The limits in the kernel at that time."""


class EditedLimits(NamedTuple):
    """Limits of a unit that were changed in the kernel only."""

    properties: frozenset[str]
    intact: Mapping[str, str]
    """All limits of the unit before, by property."""


class CachingClient(ClientAround):
    """Reads units from another client only where they may have changed.

    A unit is read again if it is new, if its entry in systemd's list differs, after a call of this
    client for it, and after `forget`, which the receiver of systemd's signals calls. Units that are
    observed by name, without a glob, are always read again.

    The usage of a cached unit (`tasks`, `memory_bytes`) is as old as its properties: forget the
    unit before a decision that depends on its usage.
    """

    def __init__(self, client: Client, cgroups: CgroupFs) -> None:
        """Begin with an empty cache; `cgroups` reads the kernel's limits."""
        super().__init__(client)
        self._cgroups = cgroups
        self._caps: Caps | None = None
        self.units: dict[UnitName, _CachedUnit] = {}
        """The cached units by name."""
        # forgotten units as they were read last, to find limits that changed in the kernel only
        self._before: dict[UnitName, _CachedUnit] = {}
        self._edited: dict[UnitName, EditedLimits] = {}
        # the manager's own control group: empty for the system's
        self._above = ""
        # the names that matched these patterns last
        self._there: dict[tuple[str, ...], frozenset[UnitName]] = {}
        # the patterns of the last list if nothing was forgotten since, and whether none is needed
        self._listed: tuple[str, ...] | None = None
        self._trusts_signals = False
        # the names that were forgotten during a read, whose result may be older than that
        self.forgotten: set[UnitName | None] = set()
        self._readings = 0

    def forget(self, name: UnitName | None) -> None:
        """Read a unit again when it is next observed; with None all units, and the capabilities."""
        self._listed = None
        if self._readings:
            self.forgotten.add(name)
        if name is None:
            self._before |= self.units
            self.units.clear()
            self._caps = None
        elif name in self.units:
            self._before[name] = self.units.pop(name)

    def take_edited(self) -> Mapping[UnitName, EditedLimits]:
        """Return the limits that were changed in the kernel only, by unit; each of them once.

        systemd writes them again when the same properties are set.
        """
        edited, self._edited = self._edited, {}
        return edited

    def observed_limits(self, name: UnitName) -> Mapping[str, str]:
        """Return the kernel's limits of a unit when it was observed last; none if it was not."""
        cached = self.units.get(name) or self._before.get(name)
        return {} if cached is None else cached.limits

    async def settled_limits(self, unit: ObservedUnit) -> Mapping[str, str]:
        """Return the kernel's limits of a unit while systemd is not writing them.

        When a unit starts, systemd enables controllers in the slices above. The files of all their
        children then have the kernel's defaults until systemd has written them, which it does
        before it handles further calls: limits are settled if they are the same before and after a
        call.

        Source: systemd, src/core/manager.c, manager_loop; src/core/cgroup.c,
        unit_add_family_to_cgroup_realize_queue.
        """
        limits = self._limits_of(unit)
        for _ in range(_SETTLE_TIMES):
            before = limits
            await self._client.list_units([unit.name])
            limits = self._limits_of(unit)
            if limits == before:
                break
        return limits

    def trust_signals(self) -> None:
        """Have the next `observe` by patterns skip the list of units if no unit was forgotten since.

        For a receiver of systemd's signals that lists the units again after its changes: a list of
        hundreds of units takes longer than starting one.
        """
        self._trusts_signals = True

    def verify(self, names: Collection[UnitName] | None = None) -> tuple[UnitName, ...]:
        """Forget the units, or those of `names`, whose limits in the kernel changed.

        Return those that still exist. This finds changes without a signal: files that were written
        externally, and properties that were set while no drop-in directory was watched.
        """
        changed = []
        for name in self.units.keys() & (self.units if names is None else names):
            cached = self.units[name]
            now = self._limits_of(cached.unit)
            if now != cached.limits:
                self.forget(name)
                # A control group that no longer exists has no limits.
                if now:
                    changed.append(name)
        return tuple(sorted(changed))

    # client.Client

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
        if (known := self._still_current(tuple(patterns))) is not None:
            return known
        # Before the call: `forget` resets it if a unit changes meanwhile.
        self._listed = tuple(patterns)
        listed = await self._client.list_units(patterns)
        there = frozenset(unit.name for unit in listed)
        # A later unit of the same name is another one: it is not compared with this.
        for name in self._there.get(tuple(patterns), frozenset()) - there:
            self.forget(name)
            self._before.pop(name, None)
        self._there[tuple(patterns)] = there
        unread: list[ListedUnit] = []
        found: dict[UnitName, ObservedUnit] = {}
        for unit in listed:
            cached = self.units.get(unit.name)
            if cached is None or cached.listed != unit:
                unread.append(unit)
            elif cached.unit is not None:
                found[unit.name] = cached.unit
        if unread:
            names = [unit.name for unit in unread]
            read = await self._read(patterns if len(unread) > _MANY else names, unread)
            found |= {unit.name: unit for unit in read}
        return tuple([found[name] for name in sorted(found)])

    async def submit(self, change: Change) -> None:
        try:
            await self._client.submit(change)
        finally:
            # also after a failure, which may have changed something
            for name in change.names:
                self.forget(name)
                self._before.pop(name, None)  # the change was not external
            if change.verb is Verb.RELOAD:
                self.forget(None)

    # Internals

    def _still_current(self, patterns: tuple[str, ...]) -> tuple[ObservedUnit, ...] | None:
        """Return the cached units of these patterns if no list is needed."""
        is_trusted, self._trusts_signals = self._trusts_signals, False
        names = self._there.get(patterns, frozenset())
        if not is_trusted or self._listed != patterns or names - self.units.keys():
            return None
        cached = (self.units[name].unit for name in sorted(names))
        return tuple(unit for unit in cached if unit is not None)

    async def _read(
        self, patterns: Sequence[str], listed: Sequence[ListedUnit] = ()
    ) -> tuple[ObservedUnit, ...]:
        """Observe and cache units; an inactive one that is listed only is a referenced name."""
        with self._reading() as forgotten:
            # before systemd is read: a value that is set in between then differs later
            limits = self._limits_before([unit.name for unit in listed] or patterns)
            units = await self._client.observe(patterns)
            observed = {unit.name for unit in units}
            fresh = [self._cached_of(unit, limits) for unit in units]
            fresh += [
                _CachedUnit(listed=unit, unit=None)
                for unit in listed
                if unit.name not in observed and unit.active_state == "inactive"
            ]
            for cached in fresh:
                name = cached.listed.name
                before = self._before.pop(name, None)
                if before is not None and (edited := _edited(before, cached)):
                    self._edited[name] = EditedLimits(edited, before.limits)
                # a unit that was forgotten meanwhile is compared with this when it is read again
                kept = self._before if forgotten & {None, name} else self.units
                kept[name] = cached
        return units

    def _cached_of(
        self, unit: ObservedUnit, limits: Mapping[str, Mapping[str, str]]
    ) -> _CachedUnit:
        listed = ListedUnit(
            name=unit.name,
            description=unit.description,
            load_state=unit.load_state,
            active_state=unit.active_state,
        )
        if unit.name.endswith(_SLICE) and unit.control_group:
            self._above = unit.control_group.removesuffix(control_group_of(unit.name))
        read = limits.get(unit.control_group)
        return _CachedUnit(
            listed=listed, unit=unit, limits=self._limits_of(unit) if read is None else read
        )

    def _limits_before(self, names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the kernel's limits of slices by control group, which follows from their names."""
        slices = (UnitName(name) for name in names if is_unit_name(name) and name.endswith(_SLICE))
        groups = (f"{self._above}{control_group_of(name)}" for name in slices)
        return {group: self._cgroups.limits(group) for group in groups}

    def _limits_of(self, unit: ObservedUnit | None) -> Mapping[str, str]:
        group = "" if unit is None else unit.control_group
        return self._cgroups.limits(group) if group else {}

    @contextmanager
    def _reading(self) -> Iterator[set[UnitName | None]]:
        """Read from the client; units that are forgotten meanwhile must not be cached."""
        self._readings += 1
        try:
            yield self.forgotten
        finally:
            self._readings -= 1
            if not self._readings:
                self.forgotten.clear()


def _edited(before: _CachedUnit, now: _CachedUnit) -> frozenset[str]:
    """Return the properties whose limits changed in the kernel while systemd has the same ones.

    A new or removed file is not a change of a limit: systemd enables a controller for the first
    child of a slice that needs it, and disables it after the last one; runtimes enable controllers
    in all slices above their containers.
    """
    if before.unit is None or now.unit is None:
        return frozenset()
    if before.unit.properties != now.unit.properties:
        return frozenset()
    return changed_limits(before.limits, now.limits)


def changed_limits(before: Mapping[str, str], now: Mapping[str, str]) -> frozenset[str]:
    """Return the properties whose files exist before and now, with different limits.

    No list of CPUs and the list of all possible ones are the same limit. The kernel refuses the former
    for a control group with processes, which then has the latter (see `bus`) until systemd writes
    the former once the processes are gone.
    """
    changed = (name for name, text in now.items() if before.get(name, text) != text)
    return frozenset(
        name for name in changed if {before[name], now[name]} != {"", read_possible(name)}
    )
