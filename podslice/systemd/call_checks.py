"""What is wrong with a call before anybody is asked: names, properties and types of values.

Both clients use it, so that they refuse the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from podslice.errors import BadProperty
from podslice.model.properties import PROPERTIES
from podslice.model.unit import TransientUnit, UnitKind, UnitName, Value, is_unit_name
from podslice.systemd.client import PIDFDS_MAX
from podslice.systemd.dbus.wire import split_types

CHANGEABLE = {"Description"} | {
    row.name for row in PROPERTIES.values() if row.managed or row.name.endswith("Accounting")
}
"""What can change while a unit is loaded; all else it has from its start on."""


def check_name(name: UnitName) -> None:
    """Check the name of a unit of one of our kinds.

    Raises:
        BadProperty: systemd refuses it, or takes it with a misleading error later.
    """
    if not is_unit_name(name):
        raise BadProperty(f"{name!r}: not the name of a slice, scope, service, mount or timer")


def check_unit(unit: TransientUnit) -> None:
    """Check a unit that is to be started.

    Raises:
        BadProperty: the name, a property or a value is not possible on any systemd.
        TypeError: a value has the wrong type, which is our own mistake.
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
        raise BadProperty(f"{timer.name}: no timer of {service.name}")
    if not service.properties.get("ExecStart"):
        # systemd would take it, and then fail to start the timer
        raise BadProperty(f"{service.name}: it needs ExecStart")


def check_properties(name: UnitName, properties: Mapping[str, Value]) -> None:
    """Check what is to be set on a unit.

    Raises:
        BadProperty: the unit has no such property, or the value is out of its range.
        TypeError: a value has the wrong type, which is our own mistake.
    """
    for key, value in properties.items():
        row = PROPERTIES.get(key)
        if row is None or kind_of(name) not in row.kinds:
            raise BadProperty(f"{name}: {key}: unknown property")
        if not _has_type(value, row.signature):
            raise TypeError(f"{name}: {key}: {value!r} is not of type {row.signature!r}")
        if not row.takes(value):
            raise BadProperty(
                f"{name}: {key}: {value} is out of range; {row.minimum} to {row.maximum}"
            )
        if key == "PIDFDs" and isinstance(value, tuple) and len(value) > PIDFDS_MAX:
            raise BadProperty(f"{name}: {key}: a call takes {PIDFDS_MAX} of them, not {len(value)}")


def kind_of(name: UnitName) -> UnitKind:
    """The kind of a unit, by its name."""
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
