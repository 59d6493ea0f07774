"""Read marks, the agent's state, histories and values outside the root from JSON.

`dataclasses.asdict` has written them, so that the types of the fields state what is valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from podslice.model.desired import ReservedValues
from podslice.model.properties import PROPERTIES
from podslice.model.unit import INFINITY

T = TypeVar("T")

_hints = cache(get_type_hints)


def read(kind: type[T], found: object) -> T | None:
    """Return a value of a type made from JSON; None where that is damaged."""
    try:
        made: T = _read(kind, found)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None
    return made


def read_reserved(found: object) -> ReservedValues | None:
    """Return the values that podslice has set outside its root; None where they are damaged."""
    made = read(ReservedValues, found)
    for values in made.units.values() if made else ():
        if not values.keys() <= PROPERTIES.keys() or not all(each.ours for each in values.values()):
            return None
    return made


def _read(kind: Any, found: Any) -> Any:  # noqa: ANN401, PLR0911 - any type, and any JSON value
    """Return a value of a type: a text, a number, a flag, or one that is composed of them.

    Raises:
        KeyError, ValueError, TypeError, AttributeError: JSON has no such value.
    """
    kind = getattr(kind, "__supertype__", kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if found is None and NoneType in parts:
            return None
        others = [each for each in parts if each is not NoneType]
        return _read(str if str in others and isinstance(found, str) else others[0], found)
    if origin is tuple:
        return tuple(_read(parts[0], each) for each in found)
    if origin in (Mapping, dict):
        return {_read(parts[0], key): _read(parts[1], each) for key, each in found.items()}
    if kind is bool:
        return found is True
    if kind is int:
        is_valid = isinstance(found, int) and 0 <= found <= INFINITY
    elif issubclass(kind, str):
        is_valid = isinstance(found, str)
    else:
        return _read_fields(kind, found)
    if not is_valid:
        raise TypeError(found)
    return kind(found)


def _read_fields(kind: Any, found: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any dataclass
    """Return a dataclass; a flag that is missing is not set, and what is not compared is left out."""
    return kind(
        **{
            each.name: _read(hint, found.get(each.name) if hint is bool else found[each.name])
            for each in fields(kind)
            if each.compare and (hint := _hints(kind)[each.name])
        }
    )
