"""Systemd units as values: names, desired and observed.

Values of properties are those of the bus (see `properties`).
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from functools import lru_cache
from typing import NewType

from podslice.dataclass import dataclass
from podslice.errors import invalid
from podslice.model.container_exit import ContainerExit
from podslice.model.manager import SYSTEM, Manager

UnitName = NewType("UnitName", str)
Command = tuple[str, tuple[str, ...], bool]
"""A command line for systemd: the file, the arguments from the zeroth on, and whether it may
fail."""
Delay = tuple[str, int]
"""When a timer elapses: systemd's name for the base (`OnActiveSec`), and microseconds."""
Value = (
    int | str | bool | tuple[str, ...] | tuple[int, ...] | tuple[Command, ...] | tuple[Delay, ...]
)

INFINITY = 2**64 - 1
"""No limit, as systemd writes it on the bus."""

UNIT_NAME_MAX = 255
"""Bytes of a unit's name with its suffix. Source: systemd, src/basic/unit-name.h, UNIT_NAME_MAX."""

_REMEMBERED = 256  # the root and the tiers are looked up for every pod

# `kubepods-burstable-pod0a1b_2c.slice`: a valid unit name
_UNIT_NAME = re.compile(r"[A-Za-z0-9:_.\\@-]+")
# a component of an abstract name; `-` becomes `_`
_COMPONENT = re.compile(r"[A-Za-z0-9.:-]+")
# not escaped in the unit name of a path, except for a dot at its start
_PLAIN = frozenset(string.ascii_letters + string.digits + ":_.")


class UnitKind(StrEnum):
    """The kinds of units that podslice manages."""

    SLICE = "slice"
    SCOPE = "scope"
    """Contains processes that were not started by systemd."""
    SERVICE = "service"
    """Contains a container that systemd has started (`run --detach`)."""
    MOUNT = "mount"
    """A pod's volume in memory."""
    TIMER = "timer"
    """Starts a service later, independently of the process that created it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyValue:
    """The value of one property of a unit, with the field and formula that determine it."""

    name: str
    value: int | str
    why: str = field(default="", compare=False)
    is_return: bool = field(default=False, compare=False)
    """Whether it restores the value of a unit outside the root before podslice set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredUnit:
    """A unit that should exist, with the properties that policy states."""

    name: UnitName
    kind: UnitKind
    parent: UnitName
    control_group: str
    description: str
    properties: tuple[PropertyValue, ...]
    pod: str | None = None
    """`namespace/name` of the pod that the unit belongs to; None for tiers and reserved slices."""
    owned: bool = True
    """False for a unit that podslice did not create (a reserved slice): only stated properties are
    compared."""
    structure: Mapping[str, Value] = field(default_factory=dict)
    """Further properties for its start, which do not change: a mount's type and options."""
    hugepages: Mapping[int, int] = field(default_factory=dict)
    """Size of a page in bytes → limit in bytes; not a property, see `hugetlb`."""

    @property
    def values(self) -> dict[str, int | str]:
        """Return the values by property name."""
        return {property_.name: property_.value for property_ in self.properties}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedUnit:
    """A unit in systemd's list of units."""

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
    """A loaded unit at one moment."""

    name: UnitName
    description: str = ""
    load_state: str = "loaded"
    active_state: str = "active"
    properties: Mapping[str, Value] = field(default_factory=dict)
    """The properties of `PROPERTIES` that systemd reported, by their names on the bus."""
    control_group: str = ""
    transient: bool = True
    """Started over the bus; otherwise from a unit file, or implied by a child."""
    fragment_path: str = ""
    """Its unit file, if it has one."""
    tasks: int = 0
    """Processes and threads in the unit's control group and below, as systemd counts them."""
    memory_bytes: int | None = None
    """The current memory usage; None where it is not counted."""
    main_exit: ContainerExit | None = None
    """How the main process of a service exited last; None while it runs."""
    restarts: int = 0
    """How often systemd has restarted a service."""
    hugepages: Mapping[str, int] | None = None
    """File of the kernel → its limit in bytes; None where huge pages are not counted."""
    occupants: Occupants = NO_OCCUPANTS
    """Read only for the slices of pods that are to be stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The capabilities of a service manager and its kernel."""

    systemd_version: int
    manager: Manager = SYSTEM
    hugetlb: bool = False
    """Whether the kernel's hugetlb controller is available for podslice's slices."""
    pidfds: bool = False
    """Whether a scope accepts its processes as descriptors (`PIDFDs`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The relevant units at one moment."""

    caps: Caps
    units: Mapping[UnitName, ObservedUnit] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransientUnit:
    """The name and every property of a transient unit, structure included."""

    name: UnitName
    properties: Mapping[str, Value]


def is_unit_name(name: str) -> bool:
    """Return whether systemd accepts the name for a unit of one of our kinds, dashes included.

    Dashes in slices and mounts separate levels: systemd refuses `a--b`, `a-` and `-x` with a
    misleading error, so they are refused here. Templates (`a@.service`) are not units.

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
    """Return a component of an abstract name as part of a unit's name: each `-` becomes `_`.

    Raises:
        InputError: the component is empty or has a character that systemd does not preserve
            (`/`, `_`, spaces, control characters, non-ASCII).

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
    """Return the slice for an abstract name: `("burstable", "pod1-2")` → `burstable-pod1_2.slice`.

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
    """Return the parent of a slice: the part before its last dash, or the root slice.

    Source: systemd.slice(5).
    """
    stem = name.removesuffix(".slice")
    head, dash, _ = stem.rpartition("-")
    return UnitName(f"{head}.slice") if dash and head else UnitName("-.slice")


def mount_name(path: str) -> UnitName:
    r"""Return the unit that mounts on an absolute path: `/run/a-b/c` → `run-a\x2db-c.mount`.

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
    """Return the control group of a slice below the manager's own: `a-b.slice` → `/a.slice/a-b.slice`."""
    if slice_ == "-.slice":
        return "/"
    parts = slice_.removesuffix(".slice").split("-")
    return "/" + "/".join("-".join(parts[: n + 1]) + ".slice" for n in range(len(parts)))
