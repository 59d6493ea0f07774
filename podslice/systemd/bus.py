"""The client of systemd over D-Bus: what `client.Client` describes, as calls of `manager`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import Self, assert_never

from podslice.errors import BadMessage, NoSuchUnit, UnitExists
from podslice.kernel.host import read_possible
from podslice.model.properties import (
    FURTHER_SETTINGS,
    MANAGED,
    NEWER,
    OBSERVED,
    PROPERTIES,
    TASKS_MAX,
)
from podslice.model.unit import (
    INFINITY,
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
    run_concurrently,
)
from podslice.systemd.dbus.wire import Wire
from podslice.systemd.manager import Systemd, twice
from podslice.systemd.slice_files import SliceFiles
from podslice.systemd.values import (
    ALWAYS,
    EXIT_TYPES,
    STARTED,
    USAGE,
    decode_all,
    encode,
    exists,
    is_as_requested,
    is_implied,
    main_exit,
)

_RELOAD_COUNT_SINCE = 261
_RELOAD_TIMEOUT_SEC = 180.0
"""Source: systemd, src/basic/constants.h, DAEMON_RELOAD_TIMEOUT_SEC."""
# With "fail", a stop that is still queued for the unit or its parent makes the call fail with
# TransactionIsDestructive; "replace" cancels the stop. The latest call wins, as with systemctl.
_MODE = "replace"
_SUFFIXES = tuple(f".{kind}" for kind in UnitKind)
_STATE = USAGE | EXIT_TYPES.keys() | ALWAYS | {STARTED}


class Bus(Client):
    """A client of a service manager over D-Bus."""

    def __init__(
        self,
        manager: Manager,
        *,
        timeout_sec: float = 30,
        in_flight: int = 32,
        on_change: OnChange | None = None,
        on_exit: OnExit | None = None,
        files: SliceFiles | None = None,
    ) -> None:
        """Prepare a client; `async with` connects it.

        Args:
            manager: the service manager to connect to.
            timeout_sec: for connecting and for every reply; a job may take four times as long.
            in_flight: calls without a reply at any time.
            on_change: called on changes; without it the client does not subscribe to any.
            on_exit: called on exits of services, for a client that subscribes.
            files: the files of slices that are as they were started. Not together with `on_change`:
                a file exists for some moments before it is in force.
        """
        self._manager = manager
        self._files = files
        self.systemd = Systemd(
            manager,
            timeout_sec=timeout_sec,
            in_flight=in_flight,
            on_change=on_change,
            on_exit=on_exit,
        )

    async def __aenter__(self) -> Self:
        await self.systemd.open()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.systemd.close()

    # Reading

    async def caps(self) -> Caps:
        text = await self.systemd.own_property("Version")
        digits = re.search(r"\d+", text)  # `252.39-1~deb12u1`, `v245.4`
        version = int(digits[0]) if digits else 0
        takes_descriptors = (await self.systemd.connected()).takes_descriptors
        has_count = version >= _RELOAD_COUNT_SINCE
        return Caps(
            systemd_version=version,
            manager=self._manager,
            pidfds=version >= PROPERTIES["PIDFDs"].since and takes_descriptors,
            reload_count=await self.systemd.own_property("ReloadCount") if has_count else None,
        )

    async def default_tasks_max(self) -> int:
        """Return the limit of tasks of a service or scope that states none."""
        return int(await self.systemd.own_property("DefaultTasksMax"))

    async def list_units(self, patterns: Sequence[str]) -> tuple[ListedUnit, ...]:
        if not patterns:
            return ()  # systemd takes no pattern for all units
        about = " ".join(patterns)
        reply = await self.systemd.call(
            "ListUnitsByPatterns", "asas", [], list(patterns), about=about
        )
        (rows,) = reply.body("a(ssssssouso)")
        # systemd also lists names that other units refer to, and that have no file.
        units = [
            ListedUnit(
                name=name,
                description=words,
                load_state=sys.intern(load_state),
                active_state=sys.intern(state),
            )
            for name, words, load_state, state, *_ in rows
            if name.endswith(_SUFFIXES) and load_state != "not-found"
        ]
        return tuple(sorted(units, key=attrgetter("name")))

    async def observe(self, patterns: Sequence[str]) -> tuple[ObservedUnit, ...]:
        listed = await self.list_units(patterns)
        read: Mapping[UnitName, ObservedUnit] = {}
        if self._files and listed:
            names = ("UnitPath", "ControlGroup")
            directories, top = await run_concurrently(map(self.systemd.own_property, names))
            read = self._files.observe(listed, directories, top)
        left = [unit for unit in listed if unit.name not in read]
        observed = await run_concurrently(map(self._observe, left))
        found = {unit.name: unit for unit in (*read.values(), *observed) if unit is not None}
        return tuple(found[unit.name] for unit in listed if unit.name in found)

    async def _observe(self, unit: ListedUnit) -> ObservedUnit | None:
        """Return a unit; None if it was unloaded since it was listed, or is only referenced.

        Most units are transient, which one more cheap call confirms. That call is the second: then
        the reply to the first was about the transient unit.
        """
        name, kind = unit.name, kind_of(unit.name)
        reply = await self.systemd.all_properties(name, kind.capitalize())
        exits = EXIT_TYPES.keys() if kind is UnitKind.SERVICE else set()
        found = decode_all(reply.properties(OBSERVED[kind] | USAGE | exits))
        transient = bool(await self.systemd.unit_property(name, "Transient"))
        if not transient:
            found = await self.properties(name)
            if not exists(found):
                return None
        elif kind is UnitKind.SLICE:
            found[STARTED] = await self.read_start(name)
        observed = _observed(unit, found, transient=transient)
        if found.get("TasksCurrent", INFINITY) == INFINITY and observed.control_group:
            # no pids controller, or no accounting
            with suppress(NoSuchUnit):
                reply = await self.systemd.call("GetUnitProcesses", "s", name, about=name)
                (processes,) = reply.body("a(sus)")
                return replace(observed, tasks=len(processes))
        return observed

    async def properties(self, name: UnitName, further: Collection[str] = ()) -> dict[str, Wire]:
        """Return all properties that podslice reads, also of a unit that does not `exist`.

        With the `further` ones, whose types are not checked.
        """
        reply = await self.systemd.all_properties(name, "")
        found = decode_all(reply.properties(_STATE.union(PROPERTIES, further)))
        if missing := ALWAYS - found.keys():
            raise BadMessage(f"{name}: systemd's reply lacks {', '.join(sorted(missing))}")
        return found

    async def inspect(self, name: UnitName) -> InspectedUnit | None:
        check_name(name)
        kind = kind_of(name)
        found = await self.properties(name, FURTHER_SETTINGS[kind])
        is_loaded = found["LoadState"] == "loaded"
        if found["LoadState"] == "not-found" or (is_loaded and not exists(found)):
            return None
        listed = ListedUnit(
            name=name,
            description=found.get("Description", ""),
            load_state=found["LoadState"],
            active_state=found["ActiveState"],
        )
        observed = _observed(listed, found, transient=found["Transient"])
        if not is_loaded:
            return InspectedUnit(observed=replace(observed, properties={}))
        # a slice has no default
        unset = INFINITY if kind is UnitKind.SLICE else await self.default_tasks_max()
        return InspectedUnit(observed=observed, further=dict(_further(kind, found, unset)))

    async def read_start(self, name: UnitName) -> int:
        check_name(name)
        return int(await self.systemd.unit_property(name, STARTED))

    async def read_definition(self, name: UnitName) -> UnitDefinition:
        check_name(name)
        found = await self.properties(name, ("Id", "DropInPaths", "Triggers"))
        return UnitDefinition(
            name=UnitName(found["Id"]),
            load_state=found["LoadState"],
            active_state=found["ActiveState"],
            transient=found["Transient"],
            fragment_path=found["FragmentPath"],
            drop_ins=tuple(found.get("DropInPaths", ())),
            slice=found.get("Slice", ""),
            control_group=found.get("ControlGroup", ""),
            triggers=tuple(found.get("Triggers", ())),
        )

    async def read_predecessors(self, name: UnitName) -> frozenset[UnitName]:
        check_name(name)
        found: set[UnitName] = set()
        todo = {name}
        while todo:
            # Dependencies may be cyclic: what was found before is not read again.
            after = await run_concurrently(
                self.systemd.unit_property(each, "After") for each in todo
            )
            todo = {UnitName(each) for names in after for each in names} - found
            found |= todo
        return frozenset(found)

    # Changes

    async def submit(self, change: Change) -> None:  # noqa: C901, PLR0912 - a case for each verb
        check_change(change)
        systemd, names, units = self.systemd, change.names, change.units
        match change.verb:
            case Verb.START:
                # An interrupted call may have started the unit, whose name is then taken for the
                # second one.
                await twice(lambda: self._start(units[0]), lambda: self._start_again(units[0]))
            case Verb.START_BATCH:
                if units:
                    await self._start_batch(units)
            case Verb.START_TIMER:
                timer, service = units
                await twice(
                    lambda: self.start_transient(timer, service),
                    lambda: self._start_timer_again(timer, service),
                )
            case Verb.START_EXISTING:
                await self._run("StartUnit", names[0], change.timeout_sec)
            case Verb.RESTART:
                await self._run("RestartUnit", names[0])
            case Verb.RELOAD:
                # systemd replies when the generators have run and all files are read
                about = "systemd's reload"
                await systemd.call("Reload", about=about, timeout_sec=_RELOAD_TIMEOUT_SEC)
            case Verb.SET_PROPERTIES:
                await twice(lambda: self._set_properties(names[0], change.properties))
            case Verb.ATTACH:
                processes = list(change.pids)
                await systemd.call(
                    "AttachProcessesToUnit", "ssau", *names, "", processes, about=names[0]
                )
            case Verb.STOP:
                with suppress(NoSuchUnit):
                    await self._run("StopUnit", names[0], change.timeout_sec)
                    # A unit that fails to stop in time stays loaded as failed, and keeps its name.
                    await self._reset_if_failed(names[0])
            case Verb.STOP_BATCH:
                if names:
                    # The start of a slice that conflicts with units stops them, and its job waits
                    # for theirs.
                    await twice(lambda: self._wait({"Conflicts": names, "After": names}, names))
                    await run_concurrently(map(self._reset_if_failed, names))
            case Verb.KILL:
                # the processes in the unit's control group and below
                with suppress(NoSuchUnit):
                    number = change.signal_number
                    await systemd.call("KillUnit", "ssi", *names, "all", number, about=names[0])
            case Verb.RESET_FAILED:
                await self._reset_failed(names[0])
            case _:
                assert_never(change.verb)

    async def start_transient(
        self, unit: TransientUnit, *beside: TransientUnit, about: str = ""
    ) -> None:
        """Start a transient unit, or turn an implied slice into one.

        The units `beside` it are loaded, not started; `about` is the subject of errors, if not the unit.
        """
        descriptors: list[int] = []
        encoded = encode(unit.properties, descriptors)
        auxiliary = [[each.name, encode(each.properties, descriptors)] for each in beside]
        await self.systemd.run_once(
            "StartTransientUnit",
            "ssa(sv)a(sa(sv))",
            *(unit.name, _MODE, encoded, auxiliary),
            about=about or unit.name,
            descriptors=descriptors,
        )

    async def _run(self, member: str, name: UnitName, timeout_sec: float | None = None) -> None:
        """Wait for a job of a loaded unit; a job that is queued already is merged with it."""
        await self.systemd.run(member, "ss", name, _MODE, about=name, timeout_sec=timeout_sec)

    async def _start(self, unit: TransientUnit) -> None:
        try:
            await self.start_transient(unit)
        except UnitExists:
            state = await self.systemd.unit_property(unit.name, "ActiveState")
            if state == "failed":
                # once reset, systemd unloads it, and the name is free
                await self._reset_failed(unit.name)
                await self.start_transient(unit)
            elif state == "inactive" and kind_of(unit.name) is UnitKind.MOUNT:
                # it was unmounted externally, while a container ordered after it keeps it loaded
                await self._run("StartUnit", unit.name)
            elif state == "inactive" and await self.systemd.unit_property(unit.name, "Transient"):
                await self._start_down(unit)
            else:
                raise

    async def _start_down(self, unit: TransientUnit) -> None:
        """Start an inactive unit that a failed unit in it keeps loaded.

        Properties that it had before, and that are not requested now, are unset, except those that
        are managed on the units of pods only.
        """
        found = await self.properties(unit.name)
        managed = {name: PROPERTIES[name] for name in MANAGED[kind_of(unit.name)] if name in found}
        unset = {
            name: row.unset
            for name, row in managed.items()
            if row.unset is not None and found[name] != row.unset and not row.of_pods
        }
        requested = {name: value for name, value in unit.properties.items() if is_changeable(name)}
        await self._write_properties(unit.name, {**unset, **requested})
        await self._run("StartUnit", unit.name)

    async def _start_again(self, unit: TransientUnit) -> None:
        """Start a unit after a call without a reply, which may have started it already."""
        try:
            await self._start(unit)
        except UnitExists:
            if not is_as_requested(unit, await self.properties(unit.name)):
                raise
            await self._run("StartUnit", unit.name)

    async def _start_timer_again(self, timer: TransientUnit, service: TransientUnit) -> None:
        try:
            await self.start_transient(timer, service)
        except UnitExists:
            for unit in (timer, service):
                if not is_as_requested(unit, await self.properties(unit.name)):
                    raise
            await self._run("StartUnit", timer.name)

    async def _start_batch(self, units: Sequence[TransientUnit]) -> None:
        names = tuple(unit.name for unit in units)

        async def start() -> None:
            # Requires, not Wants: a unit that does not come up fails the job
            await self._wait({"Requires": names, "After": names}, names, units)

        async def start_again() -> None:
            try:
                await start()
            except UnitExists:
                await run_concurrently(map(self._start_again, units))

        await twice(start, start_again)

    async def _wait(
        self,
        relations: Mapping[str, Value],
        names: Sequence[UnitName],
        units: Sequence[TransientUnit] = (),
    ) -> None:
        """Start a temporary slice whose job finishes after those of the units it names.

        systemd stops an unneeded slice by itself, so it is removed even if this process is killed.
        Stopping it here unloads the units that it names sooner.
        """
        # unique, and without dashes, which would create parents that remain
        name = UnitName(f"podslicebatch{os.urandom(8).hex()}.slice")
        about = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        properties: dict[str, Value] = {
            "Description": f"podslice waiting for {about}",
            "DefaultDependencies": False,
            "StopWhenUnneeded": True,
            "CollectMode": "inactive-or-failed",
            **relations,
        }
        waiter = TransientUnit(name=name, properties=properties)
        await self.start_transient(waiter, *units, about=about)
        # systemd may have unloaded the slice already, in particular before a stop that is repeated
        with suppress(NoSuchUnit):
            await self._run("StopUnit", name)

    async def _set_properties(self, name: UnitName, values: Mapping[str, Value]) -> None:
        # systemd also accepts properties of a unit that does not exist, and keeps them in a drop-in;
        # most calls would load the unit, GetUnit does not
        await self.systemd.call("GetUnit", "s", name, about=name)
        if not await self.systemd.unit_property(name, "Transient"):
            found = await self.properties(name)
            if not exists(found):
                raise NoSuchUnit(f"{name}: not loaded, only referenced by other units")
            if is_implied(found):
                # A drop-in of a unit that is not transient outlives it, and overrides the properties
                # of a later unit of that name. Those of a transient unit are removed with it.
                await self.start_transient(TransientUnit(name=name, properties=values))
                return
        # The kernel refuses an empty list of CPUs or NUMA nodes for a control group with processes,
        # which would keep its limit: it becomes all possible ones first.
        # Source: Linux, kernel/cgroup/cpuset.c, validate_change.
        possible = {key: read_possible(key) for key, value in values.items() if value == ""}
        if any(possible.values()):
            before = {key: possible.get(key) or value for key, value in values.items()}
            await self._write_properties(name, before)
        await self._write_properties(name, values)

    async def _write_properties(self, name: UnitName, values: Mapping[str, Value]) -> None:
        """Set properties until the next boot, also of a unit that is not loaded."""
        # true: in /run, not in /etc
        arguments = (name, True, encode(values, []))
        await self.systemd.call("SetUnitProperties", "sba(sv)", *arguments, about=name)

    async def _reset_failed(self, name: UnitName) -> None:
        with suppress(NoSuchUnit):
            await self.systemd.call("ResetFailedUnit", "s", name, about=name)

    async def _reset_if_failed(self, name: UnitName) -> None:
        """Reset a unit that can be in the state "failed", which slices cannot."""
        if kind_of(name) is not UnitKind.SLICE:
            await self._reset_failed(name)


def _further(
    kind: UnitKind, found: Mapping[str, Wire], unset_tasks: int
) -> Iterator[tuple[str, str]]:
    """Yield the settings that are set and that podslice does not manage: key → value."""
    for name, row in FURTHER_SETTINGS[kind].items():
        if name in found and found[name] not in (row.unset, ()):
            yield row.key, row.format(found[name])
    if found.get(TASKS_MAX, unset_tasks) != unset_tasks:
        yield TASKS_MAX, PROPERTIES[TASKS_MAX].format(found[TASKS_MAX])


def _observed(unit: ListedUnit, found: Mapping[str, Wire], *, transient: bool) -> ObservedUnit:
    kind = kind_of(unit.name)
    shown = {key: _shared(value) for key, value in found.items() if key in OBSERVED[kind]}
    # systemd's value for a counter that it cannot read is 2^64 - 1.
    memory, tasks = (found.get(f"{what}Current", INFINITY) for what in ("Memory", "Tasks"))
    return ObservedUnit(
        name=unit.name,
        description=unit.description,
        load_state=unit.load_state,
        active_state=unit.active_state,
        properties={**NEWER[kind], **shown},
        control_group=found.get("ControlGroup", ""),  # a timer has none
        transient=transient,
        # that of a transient unit is systemd's own
        fragment_path="" if transient else found["FragmentPath"],
        started_usec=int(found.get(STARTED, 0)),
        tasks=0 if tasks == INFINITY else tasks,
        main_exit=main_exit(found),
        restarts=int(found.get("NRestarts", 0)),
        memory_bytes=None if memory == INFINITY else memory,
    )


def _shared(value: Wire) -> Wire:
    """Return one object for equal values that many units have, and that a cache may keep."""
    if isinstance(value, str):
        return sys.intern(value)
    return INFINITY if value == INFINITY else value
