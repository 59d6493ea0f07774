"""systemd's own calls, one method each, and what it says of a unit. What to make of it: `bus`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping, Sequence
from operator import attrgetter

from podslice.errors import BadMessage, JobFailed
from podslice.model.properties import OBSERVED, PROPERTIES
from podslice.model.unit import ListedUnit, TransientUnit, UnitKind, UnitName, Value
from podslice.systemd.call_checks import kind_of
from podslice.systemd.dbus.connection import Connection, variant
from podslice.systemd.dbus.wire import Received, Wire
from podslice.systemd.jobs import MANAGER, MANAGER_PATH, Jobs

_TYPES: Mapping[str, type] = {
    **{name: type(row.unset) for name, row in PROPERTIES.items() if row.unset is not None},
    **dict.fromkeys(("MemoryCurrent", "TasksCurrent"), int),
    **dict.fromkeys(("ControlGroup", "FragmentPath", "LoadState", "ActiveState", "Version"), str),
    **dict.fromkeys(("Transient", "Perpetual"), bool),
    "UnitPath": tuple,
}
"""The types of the properties that podslice reads."""
_ALWAYS = {"LoadState", "ActiveState", "FragmentPath", "Transient", "Perpetual"}
"""What every unit has."""

_INTERFACES = {
    UnitKind.SLICE: "org.freedesktop.systemd1.Slice",
    UnitKind.SCOPE: "org.freedesktop.systemd1.Scope",
    UnitKind.SERVICE: "org.freedesktop.systemd1.Service",
    UnitKind.MOUNT: "org.freedesktop.systemd1.Mount",
    UnitKind.TIMER: "org.freedesktop.systemd1.Timer",
}
_SUFFIXES = tuple(f".{kind}" for kind in UnitKind)
_PROPERTIES = "org.freedesktop.DBus.Properties"
_UNIT = "org.freedesktop.systemd1.Unit"

# Against a stop that is still queued for the unit or its parent, "fail" would end as
# TransactionIsDestructive; "replace" cancels the stop. The latest wish wins, as with systemctl.
_MODE = "replace"

_USAGE = frozenset({"ControlGroup", "MemoryCurrent", "TasksCurrent"})
_RESOURCES = {kind: names | _USAGE for kind, names in OBSERVED.items()}
_STATE = (
    frozenset(PROPERTIES)
    | _USAGE
    | {"Transient", "Perpetual", "FragmentPath", "LoadState", "ActiveState"}
)

# what a delay of a timer has: what it counts from, how long, and when it elapses next
_DELAY = 3

# what `run_waiter` needs that policy never states
_WAITER = {"Requires": "as", "StopWhenUnneeded": "b"}
_SIGNATURES = _WAITER | {name: row.signature for name, row in PROPERTIES.items()}


class ManagerCalls:
    """The service manager at the other end of a connection."""

    def __init__(self, connection: Connection, jobs: Jobs) -> None:
        self._connection = connection
        self._jobs = jobs

    @property
    def takes_descriptors(self) -> bool:
        """Whether it can be given descriptors."""
        return self._connection.takes_descriptors

    async def subscribe(self) -> None:
        """Have systemd tell of units, too, for as long as the connection lasts."""
        await self._call("Subscribe", "", about="systemd's signals")

    async def version(self) -> int:
        """The number of systemd's version."""
        version = await self.own_property("Version")
        digits = re.search(r"\d+", version)  # `252.39-1~deb12u1`, `v245.4`
        return int(digits[0]) if digits else 0

    async def own_property(self, key: str) -> Wire:
        """One property of the manager itself."""
        reply = await self._connection.call(
            "Get",
            "ss",
            [MANAGER, key],
            path=MANAGER_PATH,
            interface=_PROPERTIES,
            about=f"systemd's {key}",
        )
        (value,) = reply.body("v")
        return _typed(key, value)

    async def list_units(self, patterns: Sequence[str]) -> list[ListedUnit]:
        """The loaded units of our kinds that match a pattern, by name; all when there is none."""
        about = " ".join(patterns)
        reply = await self._call("ListUnitsByPatterns", "asas", [], list(patterns), about=about)
        (rows,) = reply.body("a(ssssssouso)")
        units = [
            ListedUnit(name=name, description=words, load_state=load_state, active_state=state)
            for name, words, load_state, state, *_ in rows
            if name.endswith(_SUFFIXES) and load_state != "not-found"
        ]
        return sorted(units, key=attrgetter("name"))

    async def prove_loaded(self, name: UnitName) -> None:
        """Find out whether a unit is loaded; most other calls would load it.

        Raises:
            NoSuchUnit: it isn't.
        """
        await self._call("GetUnit", "s", name, about=name)

    async def unit_property(self, name: UnitName, key: str) -> Wire:
        """One property that every kind of unit has."""
        (value,) = (await self._read("Get", "ss", name, _UNIT, key)).body("v")
        return _typed(key, value)

    async def resources(self, name: UnitName) -> dict[str, Wire]:
        """The limits and the usage of a unit, also of one that isn't there (all unset)."""
        kind = kind_of(name)
        reply = await self._read("GetAll", "s", name, _INTERFACES[kind])
        return _all_typed(reply.properties(_RESOURCES[kind]))

    async def properties(self, name: UnitName) -> dict[str, Wire]:
        """What podslice can want to know of a unit, also of one that isn't there (see `exists`).

        The first time for a unit this takes systemd 0.5 ms, five times as long as `resources`: it
        looks for presets.
        """
        found = _all_typed((await self._read("GetAll", "s", name, "")).properties(_STATE))
        if missing := _ALWAYS - found.keys():
            raise BadMessage(f"{name}: systemd's answer lacks {', '.join(sorted(missing))}")
        return found

    async def count_processes(self, name: UnitName) -> int:
        """Processes in a unit's control group and below, counted one by one."""
        reply = await self._call("GetUnitProcesses", "s", name, about=name)
        (processes,) = reply.body("a(sus)")
        return len(processes)

    async def start_transient(self, unit: TransientUnit, *beside: TransientUnit) -> None:
        """Start a transient unit, or make one of a slice that is merely implied.

        Those beside it are loaded, not started.
        """
        about = unit.name
        await self._run(self._start_transient(unit.name, unit.properties, beside, about), about)

    async def start_loaded(self, name: UnitName) -> None:
        """Start a loaded unit; merged with a start that is under way, nothing when it is up."""
        await self._run(self._call("StartUnit", "ss", name, _MODE, about=name), name)

    async def stop(self, name: UnitName, timeout_sec: float | None = None) -> None:
        """Stop a unit."""
        asking = self._call("StopUnit", "ss", name, _MODE, about=name)
        await self._run(asking, name, timeout_sec=timeout_sec)

    async def attach(self, name: UnitName, pids: Sequence[int]) -> None:
        """Move processes into a unit."""
        await self._call("AttachProcessesToUnit", "ssau", name, "", list(pids), about=name)

    async def kill(self, name: UnitName, signal_number: int) -> None:
        """Send a signal to every process in a unit's control group and below."""
        await self._call("KillUnit", "ssi", name, "all", signal_number, about=name)

    async def run_waiter(
        self,
        name: UnitName,
        relations: Mapping[str, Value],
        units: Sequence[TransientUnit],
        about: str,
    ) -> None:
        """Start a throw-away slice whose job is done when those of the units it names are.

        systemd would stop it by itself, since nobody needs it: nothing stays behind, whatever
        becomes of us. We wait for that, because it keeps the units that it names loaded.
        """
        waiter: dict[str, Value] = {
            "Description": f"podslice waiting for {about}",
            "DefaultDependencies": False,
            "StopWhenUnneeded": True,
            "CollectMode": "inactive-or-failed",
            **relations,
        }
        await self._run(self._start_transient(name, waiter, units, about), about)
        await self.stop(name)

    async def set_properties(self, name: UnitName, values: Mapping[str, Value]) -> None:
        """Set properties until the end of the boot, also of a unit that isn't loaded."""
        encoded = _encode(values, [])
        # true: not in /etc
        await self._call("SetUnitProperties", "sba(sv)", name, True, encoded, about=name)  # noqa: FBT003 - a value of the bus

    async def reset_failed(self, name: UnitName) -> None:
        """Forget that a unit failed."""
        await self._call("ResetFailedUnit", "s", name, about=name)

    async def _run(
        self, asking: Awaitable[Received], about: str, *, timeout_sec: float | None = None
    ) -> None:
        """Wait for the job that a call queues.

        Raises:
            JobFailed: it ended otherwise than "done".
        """
        result = await self._jobs.result(asking, about, timeout_sec=timeout_sec)
        if result != "done":
            raise JobFailed(f"{about}: systemd's job ended as {result!r}", result=result)

    async def _start_transient(
        self,
        name: UnitName,
        values: Mapping[str, Value],
        others: Sequence[TransientUnit],
        about: str,
    ) -> Received:
        descriptors: list[int] = []
        encoded = _encode(values, descriptors)
        auxiliary = [[unit.name, _encode(unit.properties, descriptors)] for unit in others]
        return await self._connection.call(
            "StartTransientUnit",
            "ssa(sv)a(sa(sv))",
            (name, _MODE, encoded, auxiliary),
            path=MANAGER_PATH,
            interface=MANAGER,
            about=about,
            descriptors=descriptors,
        )

    async def _call(self, member: str, signature: str, *body: object, about: str) -> Received:
        return await self._connection.call(
            member, signature, body, path=MANAGER_PATH, interface=MANAGER, about=about
        )

    async def _read(self, member: str, signature: str, name: UnitName, *body: object) -> Received:
        return await self._connection.call(
            member, signature, body, path=_path_of(name), interface=_PROPERTIES, about=name
        )


def _typed(key: str, value: Wire) -> Wire:
    """Return the value of a property, which is of the type that it has to be.

    Raises:
        BadMessage: it is not.
    """
    if not isinstance(value, _TYPES.get(key, object)):
        raise BadMessage(f"systemd's {key} is {value!r:.80}, which podslice does not understand")
    return value


def _all_typed(found: dict[str, Wire]) -> dict[str, Wire]:
    for key, value in found.items():
        _typed(key, value)
    return found


def exists(found: Mapping[str, Wire]) -> bool:
    """Whether there is a unit behind these properties, and not a mere name.

    systemd shows a slice for every name that is asked for, or that another unit refers to.
    """
    if found["LoadState"] == "not-found":
        return False
    return bool(found["ActiveState"] != "inactive" or found["Transient"] or found["FragmentPath"])


def is_implied(found: Mapping[str, Wire]) -> bool:
    """Whether a unit is there only because something lies below it."""
    return not (found["Transient"] or found["FragmentPath"] or found["Perpetual"])


def is_as_requested(unit: TransientUnit, found: Mapping[str, Wire]) -> bool:
    """Whether a unit has every property that we would give it, and so must have been made by us."""
    return bool(found["Transient"]) and all(
        _agrees(asked, found[key])
        for key, asked in unit.properties.items()
        if key in found and key != "Options"  # what is mounted has the kernel's words for them
    )


def _agrees(asked: Value, found: object) -> bool:
    """Whether a property is as asked for; systemd adds to lists of dependencies and commands."""
    if isinstance(asked, tuple) and isinstance(found, tuple):
        return all(one in found or one in _as_asked(found) for one in asked)
    return asked == found


def _as_asked(found: tuple[Wire, ...]) -> list[Wire]:
    """Commands and delays as they were asked for, without when they ran, end or elapse."""
    structs = [one for one in found if isinstance(one, tuple)]
    delays = [(one[0].replace("USec", "Sec"), one[1]) for one in structs if len(one) == _DELAY]
    return [*delays, *(one[:3] for one in structs)]


def _encode(values: Mapping[str, Value], descriptors: list[int]) -> list[list[object]]:
    """Return values as the body of a message has them; descriptors are appended to those given."""
    encoded: list[list[object]] = []
    for name, value in values.items():
        signature = _SIGNATURES[name]
        if signature == "ah" and isinstance(value, tuple):
            first = len(descriptors)
            descriptors += (one for one in value if isinstance(one, int))
            value = tuple(range(first, len(descriptors)))  # noqa: PLW2901
        encoded.append([name, variant(signature, value)])
    return encoded


def name_of(path: str) -> UnitName:
    """The unit that an object path is that of."""
    label = path.rpartition("/")[2]
    return UnitName(re.sub("_([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), label))


def _path_of(name: UnitName) -> str:
    """The object path of a unit: `a-b.slice` → `…/unit/a_2db_2eslice`.

    Source: systemd, src/shared/bus-util or src/libsystemd/sd-bus/bus-internal, bus_label_escape.
    """
    escaped = re.sub(r"^[0-9]|[^A-Za-z0-9]", lambda found: f"_{ord(found[0]):02x}", name)
    return f"{MANAGER_PATH}/unit/{escaped}"
