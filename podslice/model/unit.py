"""Systemd units as values: names, what should be, and what is.

Nothing here talks to systemd; values of properties are those of the bus (see `properties`).
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NewType

from podslice.errors import invalid
from podslice.model.manager import SYSTEM, Manager

UnitName = NewType("UnitName", str)
Command = tuple[str, tuple[str, ...], bool]
"""A command line as systemd takes it: the file, its arguments from the zeroth on, and whether it
may fail."""
Delay = tuple[str, int]
"""When a timer elapses: systemd's word for what it counts from (`OnActiveSec`), microseconds."""
Value = (
    int | str | bool | tuple[str, ...] | tuple[int, ...] | tuple[Command, ...] | tuple[Delay, ...]
)

INFINITY = 2**64 - 1
"""No limit, as systemd writes it on the bus."""

UNIT_NAME_MAX = 255
"""Bytes of a unit's name with its suffix. Source: systemd, src/basic/unit-name.h, UNIT_NAME_MAX."""

_REMEMBERED = 256  # the root and the tiers are asked for with every pod

# `kubepods-burstable-pod0a1b_2c.slice`: what systemd takes as a unit's name
_UNIT_NAME = re.compile(r"[A-Za-z0-9:_.\\@-]+")
# what a component of an abstract name may be made of; `-` is turned into `_`
_COMPONENT = re.compile(r"[A-Za-z0-9.:-]+")
# what stands for itself in the unit's name of a path, but for a dot at its start
_PLAIN = frozenset(string.ascii_letters + string.digits + ":_.")


class UnitKind(StrEnum):
    """The kinds of units podslice deals with."""

    SLICE = "slice"
    SCOPE = "scope"
    """Holds processes that somebody else has started."""
    SERVICE = "service"
    """Holds a container that systemd itself has started (`run --detach`)."""
    MOUNT = "mount"
    """A pod's volume in memory."""
    TIMER = "timer"
    """Starts a service some time later, whatever becomes of us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyValue:
    """One property of a unit, its value, and which field and formula gave it."""

    name: str
    value: int | str
    why: str = field(default="", compare=False)
    is_return: bool = field(default=False, compare=False)
    """Whether it is the value that a unit outside the root had before podslice set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredUnit:
    """A unit that policy wants, with the properties that it states."""

    name: UnitName
    kind: UnitKind
    parent: UnitName
    control_group: str
    description: str
    properties: tuple[PropertyValue, ...]
    pod: str | None = None
    """`namespace/name` of the pod that the unit belongs to; None for tiers and reserved slices."""
    owned: bool = True
    """False for a unit that others own (a reserved slice): only what is stated is compared."""
    structure: Mapping[str, Value] = field(default_factory=dict)
    """What it is started with beside its properties, and keeps: a mount's type and options."""
    hugepages: Mapping[int, int] = field(default_factory=dict)
    """Size of a page in bytes → limit in bytes; not a property, see `hugetlb`."""

    @property
    def values(self) -> dict[str, int | str]:
        """Values by name of property."""
        return {property_.name: property_.value for property_ in self.properties}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedUnit:
    """What systemd tells of a unit when it lists them."""

    name: UnitName
    description: str = ""
    load_state: str = "loaded"
    active_state: str = "active"


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupants:
    """The processes in a slice and below, and the units that they belong to."""

    processes: int = 0
    units: tuple[UnitName, ...] = ()
    descriptions: tuple[str, ...] = ()
    """One for each unit: `container web: 2 processes (sh, nginx)`."""
    is_mixed: bool = False
    """Whether some processes are in control groups of no unit, where a stop misses them."""


NO_OCCUPANTS = Occupants()


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
    hugepages: Mapping[str, int] | None = None
    """File of the kernel → its limit in bytes; None where huge pages are not counted."""
    occupants: Occupants = NO_OCCUPANTS
    """Read only for the slices of pods that are to be stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What the service manager that is asked can do."""

    systemd_version: int
    manager: Manager = SYSTEM
    hugetlb: bool = False
    """Whether the kernel's controller of huge pages can be had for our slices."""
    pidfds: bool = False
    """Whether a scope can be given its processes as descriptors (`PIDFDs`)."""


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
    """Whether systemd takes this as the name of a unit of one of our kinds, dashes included.

    Dashes in slices and mounts stand for levels: `a--b`, `a-` and `-x` are refused by systemd with
    a misleading error, so they are refused here. Templates (`a@.service`) are no units.

    Source: systemd, src/basic/unit-name.c, unit_name_is_valid, slice_name_is_valid.
    """
    stem, dot, suffix = name.rpartition(".")
    if not dot or suffix not in tuple(UnitKind) or len(name) > UNIT_NAME_MAX:
        return False
    if name == "-.slice":
        return True
    if not _UNIT_NAME.fullmatch(stem) or stem[0] == "@" or stem[-1] == "@":
        return False
    has_levels = suffix in (UnitKind.SLICE, UnitKind.MOUNT)
    return not has_levels or not ("--" in stem or stem[0] == "-" or stem[-1] == "-")


def escape_component(component: str) -> str:
    """One component of an abstract name as it stands in a unit's name: each `-` becomes `_`.

    Raises:
        InputError: the component is empty or has a character that does not survive the way to
            systemd and back (`/`, `_`, spaces, control characters, non-ASCII).

    Source: Kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go, escapeSystemdCgroupName.
    """
    if not _COMPONENT.fullmatch(component):
        raise invalid(
            f"{component!r} can't be part of a slice's name",
            "use letters, digits, '-', '.' and ':'",
        )
    return component.replace("-", "_")


@lru_cache(maxsize=_REMEMBERED)
def slice_name(components: tuple[str, ...]) -> UnitName:
    """The slice for an abstract name: `("burstable", "pod1-2")` → `burstable-pod1_2.slice`.

    Raises:
        InputError: a component is not possible (see `escape_component`), or the name is too long.

    Source: seed 000, "Conversion of cgroupfs to systemd naming conventions".
    """
    if not components:
        return UnitName("-.slice")
    name = "-".join(map(escape_component, components)) + ".slice"
    if not is_unit_name(name):
        raise invalid(
            f"{name!r} has {len(name)} bytes", f"a unit's name has at most {UNIT_NAME_MAX}"
        )
    return UnitName(name)


def parent_slice(name: UnitName) -> UnitName:
    """The slice that a slice lies in: the part before its last dash, or the root slice.

    Source: systemd.slice(5).
    """
    stem = name.removesuffix(".slice")
    head, dash, _ = stem.rpartition("-")
    return UnitName(f"{head}.slice") if dash and head else UnitName("-.slice")


def mount_name(path: str) -> UnitName:
    r"""The unit that mounts on an absolute path: `/run/a-b/c` → `run-a\x2db-c.mount`.

    Raises:
        ValueError: the path is not absolute, is the root or has `..`, or the name is too long.

    Source: systemd.unit(5), "String Escaping for Inclusion in Unit Names"; systemd,
    src/basic/unit-name.c, unit_name_path_escape.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not path.startswith("/") or not parts or ".." in parts:
        raise ValueError(f"{path!r} can't be mounted on; use an absolute path without '..'")
    stem = "-".join("".join(map(_escape_byte, part.encode())) for part in parts)
    if stem[0] == ".":
        stem = _escape_always(ord(".")) + stem[1:]
    if not is_unit_name(f"{stem}.mount"):
        raise ValueError(f"{path!r} is too long: a unit's name has at most {UNIT_NAME_MAX} bytes")
    return UnitName(f"{stem}.mount")


def _escape_byte(byte: int) -> str:
    return chr(byte) if chr(byte) in _PLAIN else _escape_always(byte)


def _escape_always(byte: int) -> str:
    return f"\\x{byte:02x}"


def control_group_of(slice_: UnitName) -> str:
    """The control group of a slice below the manager's own: `a-b.slice` → `/a.slice/a-b.slice`."""
    if slice_ == "-.slice":
        return "/"
    parts = slice_.removesuffix(".slice").split("-")
    return "/" + "/".join("-".join(parts[: n + 1]) + ".slice" for n in range(len(parts)))
