"""The decorator of all dataclasses: the definition of a frozen one costs a quarter.

Every command defines more than a hundred values when it starts. `dataclasses.dataclass` writes and
compiles six methods for each, which was a quarter of the CPU time of `podslice check`. Here a frozen
class has only `__init__` of its own; the methods that compare, hash and print it are shared.

The type checker sees `dataclasses.dataclass` itself, and refuses assignments to frozen values. They
are not refused at run time, so that a value is also created in half the time.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
else:

    def dataclass(
        *, frozen: bool = False, order: bool = False, **options: bool
    ) -> Callable[[type], type]:
        """Return a decorator with the options of `dataclasses.dataclass`."""
        if order or not frozen:
            return dataclasses.dataclass(frozen=frozen, order=order, **options)
        return _decorator(dataclasses.dataclass(eq=False, repr=False, **options))


Made = TypeVar("Made", bound=type)
__all__ = ["dataclass"]


class _Value(Protocol):
    _compared: Callable[[Any], object]
    """Returns the values of the fields that are compared."""


def _decorator(with_init: Callable[[Made], Made]) -> Callable[[Made], Made]:
    def decorate(cls: Made) -> Made:
        for name, method in _SHARED.items():
            if name not in cls.__dict__:
                setattr(cls, name, method)
        made = with_init(cls)
        compared = [each.name for each in dataclasses.fields(made) if each.compare]
        type.__setattr__(made, "_compared", attrgetter(*(compared or ["__class__"])))
        return made

    return decorate


def _equal(self: _Value, other: _Value) -> object:
    if self.__class__ is not other.__class__:
        return NotImplemented
    return self._compared(self) == self._compared(other)


def _hash(self: _Value) -> int:
    return hash(self._compared(self))


def _repr(self: Any) -> str:  # noqa: ANN401 (any value)
    shown = (each.name for each in dataclasses.fields(self) if each.repr)
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({values})"


_SHARED = {"__eq__": _equal, "__hash__": _hash, "__repr__": _repr}
