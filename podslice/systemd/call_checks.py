"""Checks of calls before they are sent: names, properties and types of values.

The client and the fake of the tests use them, so that both reject the same calls.
"""

from __future__ import annotations

from collections.abc import Mapping

from podslice.errors import BadProperty
from podslice.model.properties import PROPERTIES
from podslice.model.unit import TransientUnit, UnitKind, UnitName, Value, is_unit_name
from podslice.systemd.client import PIDFDS_MAX, Change, SetValues, Start, StartBatch, StartTimer
from podslice.systemd.dbus.wire import split_types


def is_changeable(name: str) -> bool:
    """Return whether a property can change while a unit is loaded."""
    if name == "Description" or name.endswith("Accounting"):
        return True
    return name in PROPERTIES and bool(PROPERTIES[name].managed)


def check_name(name: UnitName) -> None:
    """Check the name of a unit.

    Raises:
        BadProperty: systemd rejects it, at once or with a misleading error later.
    """
    if not is_unit_name(name):
        raise BadProperty(f"{name!r}: not the name of a slice, scope, service, mount or timer")


def check_change(change: Change) -> None:
    """Check a change before it is sent.

    Raises:
        BadProperty: no version of systemd accepts a name, a property or a value.
        TypeError: a value has the wrong type, which is an internal error.
    """
    for name in change.names:
        check_name(name)
    match change:
        case Start(unit=unit):
            check_unit(unit)
        case StartBatch(units=units):
            for unit in units:
                check_unit(unit)
        case StartTimer(timer=timer, service=service):
            check_timer(timer, service)
        case SetValues(name=name, properties=properties):
            check_properties(name, properties)
        case _:
            pass


def check_unit(unit: TransientUnit) -> None:
    """Check a unit to start.

    Raises:
        BadProperty: no version of systemd accepts the name, a property or a value.
        TypeError: a value has the wrong type, which is an internal error.
    """
    check_name(unit.name)
    check_properties(unit.name, unit.properties)


def check_timer(timer: TransientUnit, service: TransientUnit) -> None:
    """Check a timer and the service that it starts.

    Raises:
        BadProperty, TypeError: as `check_unit`, or the names do not belong together.
    """
    check_unit(timer)
    check_unit(service)
    stem = timer.name.removesuffix(f".{UnitKind.TIMER}")
    if stem == timer.name or service.name != f"{stem}.{UnitKind.SERVICE}":
        raise BadProperty(f"{timer.name}: not a timer of {service.name}")
    if not service.properties.get("ExecStart"):
        # systemd accepts it, and then fails to start the timer
        raise BadProperty(f"{service.name}: ExecStart is required")


def check_properties(name: UnitName, properties: Mapping[str, Value]) -> None:
    """Check properties to set on a unit.

    Raises:
        BadProperty: the unit has no such property, or a value is out of range.
        TypeError: a value has the wrong type, which is an internal error.
    """
    for key, value in properties.items():
        row = PROPERTIES.get(key)
        if row is None or kind_of(name) not in row.kinds:
            raise BadProperty(f"{name}: {key}: unknown property")
        if not _has_type(value, "s" if row.is_text else row.signature):
            raise TypeError(f"{name}: {key}: {value!r} is not of type {row.signature!r}")
        if row.is_text and row.parse(str(value)) != value:
            raise BadProperty(f"{name}: {key}: {value!r:.80} is not a value in its shortest form")
        if not row.takes(value):
            raise BadProperty(
                f"{name}: {key}: {value} is out of range; must be {row.minimum} to {row.maximum}"
            )
        if key == "PIDFDs" and isinstance(value, tuple) and len(value) > PIDFDS_MAX:
            raise BadProperty(
                f"{name}: {key}: a call carries at most {PIDFDS_MAX} descriptors, not {len(value)}"
            )


def kind_of(name: UnitName) -> UnitKind:
    """Return the kind of a unit from its name."""
    return UnitKind(name.rpartition(".")[2])


_TYPES = {"s": str, "b": bool, "t": int, "u": int, "i": int, "h": int}


def _has_type(value: object, signature: str) -> bool:
    if type_ := _TYPES.get(signature):
        return type(value) is type_ or (type_ is str and isinstance(value, str))
    if not isinstance(value, tuple):
        return False
    if signature[0] == "a":
        return all(_has_type(one, signature[1:]) for one in value)
    members = split_types(signature[1:-1])
    return len(value) == len(members) and all(map(_has_type, value, members))
