"""A row of the table of systemd's unit properties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from podslice.model.codec import DEVICES, STRING, Codec
from podslice.model.device_limits import SEPARATOR
from podslice.model.unit import INFINITY, UnitKind, Value

CONTAINER = frozenset({UnitKind.SCOPE, UnitKind.SERVICE})
LIMITED = frozenset({UnitKind.SLICE}) | CONTAINER


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One property of a unit."""

    name: str
    """Its name on the bus."""
    key: str
    """Its key in a unit file."""
    signature: str
    """The type of its value on the bus."""
    section: str = "resource"
    """`Unit`, or `resource` for the section of the unit's own kind (`[Slice]`, `[Scope]`)."""
    kinds: frozenset[UnitKind] = LIMITED
    """The kinds of units for which it may be stated."""
    since: int = 230
    """The first version of systemd that supports it."""
    observed: frozenset[UnitKind] = frozenset()
    """The kinds of units of which it is observed, beside those on which it is managed; the others
    have it for their start only."""
    unset: Value | None = None
    """Its value when it was never set; None if it is not compared."""
    managed: frozenset[UnitKind] = frozenset()
    """The kinds of podslice's units on which it is kept at the desired value, or unset; it can change
    while the unit is active."""
    minimum: int = 0
    maximum: int = INFINITY - 1
    """The range of values beside `unset` that systemd accepts."""
    codec: Codec = STRING
    """Its value as text in a unit file."""
    is_text: bool = False
    """Whether its value is that text, whatever its type on the bus."""
    kernel_file: str = ""
    """The file of a control group that has its value; empty if there is none."""
    kernel_file_v1: str = ""
    """The same with cgroup v1, below the controller's directory. Remove once systemd < 258 is no
    longer supported."""
    of_kernel: Callable[[str], str] = str
    """Returns its part of the text of that file."""
    of_pods: bool = False
    """Whether it is managed on the units of pods only: on other slices administrators set it."""
    of_tiers: bool = False
    """Whether it is managed on tiers as well."""

    def format(self, value: Value) -> str:
        """Return a value as text in a unit file."""
        return self.codec.format(value)

    def texts(self, value: Value) -> list[str]:
        """Return a value as the texts of one or more lines: of devices, each has its own."""
        text = self.format(value)
        return text.split(f"{SEPARATOR} ") if self.codec == DEVICES else [text]

    def parse(self, text: str) -> Value | None:
        """Return the value of a text in a unit file; None if podslice does not know the text."""
        return self.codec.parse(text)

    def takes(self, value: Value) -> bool:
        """Return whether systemd accepts the value."""
        if value == self.unset or not isinstance(value, int):
            return True
        return self.minimum <= value <= self.maximum
