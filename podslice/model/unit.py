"""Systemd units as values: names, what should be, and what is.

Nothing here talks to systemd; values of properties are those of the bus (see `properties`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NewType

UnitName = NewType("UnitName", str)
Value = int | str | bool | tuple[str, ...] | tuple[int, ...]

INFINITY = 2**64 - 1
"""No limit, as systemd writes it on the bus."""

UNIT_NAME_MAX = 255
"""Bytes of a unit's name with its suffix. Source: systemd, src/basic/unit-name.h, UNIT_NAME_MAX."""

_REMEMBERED = 256  # the root and the tiers are asked for with every pod

# `kubepods-burstable-pod0a1b_2c.slice`: what systemd takes as a unit's name
_UNIT_NAME = re.compile(r"[A-Za-z0-9:_.\\@-]+")
# what a component of an abstract name may be made of; `-` is turned into `_`
_COMPONENT = re.compile(r"[A-Za-z0-9.:-]+")


class UnitKind(StrEnum):
    """The kinds of units podslice deals with."""

    SLICE = "slice"
    SCOPE = "scope"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One property of a unit, its value, and which field and formula gave it."""

    name: str
    value: int
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredUnit:
    """A unit that policy wants, with the settings that it states."""

    name: UnitName
    kind: UnitKind
    parent: UnitName
    control_group: str
    description: str
    settings: tuple[Setting, ...]
    pod: str | None = None
    """`namespace/name` of the pod that the unit belongs to; None for tiers and reserved slices."""
    owned: bool = True
    """False for a unit that others own (a reserved slice): only what is stated is compared."""

    @property
    def values(self) -> dict[str, int]:
        """Values by name of property."""
        return {setting.name: setting.value for setting in self.settings}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedUnit:
    """A unit that systemd has loaded, as one snapshot shows it."""

    name: UnitName
    description: str = ""
    load_state: str = "loaded"
    active_state: str = "active"
    properties: Mapping[str, Value] = field(default_factory=dict)
    """The properties of `PROPERTIES` that systemd told, by their names on the bus."""
    control_group: str = ""
    transient: bool = True
    """Started over the bus; otherwise from a unit file, or only because something lies in it."""
    fragment_path: str = ""
    """Its unit file, if it has one."""
    tasks: int = 0
    """Processes and threads in the unit's control group and below, as systemd counts them."""
    memory_bytes: int | None = None
    """What the unit uses now; None where nobody counts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What the service manager that is asked can do."""

    systemd_version: int
    user: bool = False
    """A user's manager, not the system's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One snapshot of the units that matter."""

    caps: Caps
    units: Mapping[UnitName, ObservedUnit] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransientUnit:
    """What is needed to start a transient unit: its name and every property, structure included."""

    name: UnitName
    properties: Mapping[str, Value]


def is_unit_name(name: str) -> bool:
    """Whether systemd takes this as the name of a slice or scope, dashes included.

    `a--b`, `a-` and `-x` are refused by systemd with a misleading error, so they are refused here.

    Source: systemd, src/basic/unit-name.c, slice_name_is_valid.
    """
    stem, dot, suffix = name.rpartition(".")
    if not dot or suffix not in tuple(UnitKind) or len(name.encode()) > UNIT_NAME_MAX:
        return False
    if name == "-.slice":
        return True
    if not _UNIT_NAME.fullmatch(stem):
        return False
    return suffix != UnitKind.SLICE or not ("--" in stem or stem[0] == "-" or stem[-1] == "-")


def escape_component(component: str) -> str:
    """One component of an abstract name as it stands in a unit's name: each `-` becomes `_`.

    Raises:
        ValueError: the component is empty or has a character that does not survive the way to
            systemd and back (`/`, `_`, spaces, control characters, non-ASCII).

    Source: Kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go, escapeSystemdCgroupName.
    """
    if not _COMPONENT.fullmatch(component):
        raise ValueError(
            f"{component!r} can't be part of a slice's name; use letters, digits, '-', '.' and ':'"
        )
    return component.replace("-", "_")


@lru_cache(maxsize=_REMEMBERED)
def slice_name(components: tuple[str, ...]) -> UnitName:
    """The slice for an abstract name: `("burstable", "pod1-2")` → `burstable-pod1_2.slice`.

    Raises:
        ValueError: a component is not possible (see `escape_component`), or the name is too long.

    Source: seed 000, "Conversion of cgroupfs to systemd naming conventions".
    """
    if not components:
        return UnitName("-.slice")
    name = "-".join(map(escape_component, components)) + ".slice"
    if not is_unit_name(name):
        raise ValueError(
            f"{name!r} has {len(name)} bytes; a unit's name has at most {UNIT_NAME_MAX}"
        )
    return UnitName(name)


def parent_slice(name: UnitName) -> UnitName:
    """The slice that a slice lies in: the part before its last dash, or the root slice.

    Source: systemd.slice(5).
    """
    stem = name.removesuffix(".slice")
    head, dash, _ = stem.rpartition("-")
    return UnitName(f"{head}.slice") if dash and head else UnitName("-.slice")


def control_group_of(slice_: UnitName) -> str:
    """The control group of a slice below the manager's own: `a-b.slice` → `/a.slice/a-b.slice`."""
    if slice_ == "-.slice":
        return "/"
    parts = slice_.removesuffix(".slice").split("-")
    return "/" + "/".join("-".join(parts[: n + 1]) + ".slice" for n in range(len(parts)))
