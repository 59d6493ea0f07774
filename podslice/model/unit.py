"""Systemd units as values: names, desired and observed.

Values of properties are those of the bus, or text for it (see `properties`).
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, NewType

from podslice.errors import invalid
from podslice.model.container_exit import ContainerExit

SYSTEM_BUS_ADDRESS = "unix:path=/run/dbus/system_bus_socket"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """A service manager, and where its bus, files and control groups are; the system's by default.

    Source: systemd.unit(5), "Unit File Load Path"; systemd, src/libsystemd/sd-path/path-lookup.c.
    """

    uid: int | None = None
    """The user whose manager it is; None for the system's."""
    bus_address: str = SYSTEM_BUS_ADDRESS
    runtime_directory: str = "/run"
    has_session: bool = True
    """Whether the environment names the runtime directory; without that it is a guess."""
    control_group: str = "/"
    """The control group that all its units are in."""
    config_directory: str = "/etc"
    """The directory of configuration files, of other programs too."""
    state_directory: str = "/var/lib"
    """The directory of files that outlast a reboot."""
    drop_in_directories: tuple[str, ...] = (
        "/run/systemd/transient",
        "/run/systemd/system.control",
        "/etc/systemd/system.control",
    )
    """The directories that `set-property` writes to, and that of transient units."""

    @property
    def is_user(self) -> bool:
        """Return whether it is a user's own manager."""
        return self.uid is not None

    @property
    def generator_directory(self) -> str:
        """Return the directory that podman's generator reads.

        Source: podman-systemd.unit(5), "Podman rootful unit search path".
        """
        return f"{self.config_directory}/containers/systemd"

    @property
    def podman_exits_directory(self) -> str:
        """Return the default directory of the exit codes of podman's containers.

        Source: containers.conf(5), tmp_dir; podman 5.4, libpod/oci_conmon_common.go, exitsDir.
        """
        return f"{self.runtime_directory}/libpod/{'tmp/' if self.is_user else ''}exits"

    @property
    def own_state_directory(self) -> str:
        """Return the directory of podslice's own files that outlast a reboot."""
        return f"{self.state_directory}/podslice"

    @property
    def unit_directory(self) -> str:
        """Return the directory of the administrator's unit files, or of the user's.

        Source: systemd.unit(5), "Unit File Load Path".
        """
        return f"{self.config_directory}/systemd/{'user' if self.is_user else 'system'}"

    @property
    def flag(self) -> str:
        """Return the option that selects it on a command line, after a space: ` --user`."""
        return "".join(f" {each}" for each in self.options)

    @property
    def options(self) -> tuple[str, ...]:
        """Return the arguments that select it in a command: `--user`."""
        return ("--user",) if self.is_user else ()

    def path_of(self, control_group: str) -> str:
        """Return the path of a control group that is named below the manager's own."""
        return f"{self.control_group.rstrip('/')}/{control_group.lstrip('/')}"


SYSTEM = Manager()


def user_manager(uid: int, environment: Mapping[str, str]) -> Manager:
    """Return the manager of a user whose programs have this environment."""
    session = environment.get("XDG_RUNTIME_DIR")
    runtime = session or f"/run/user/{uid}"
    config = _user_directory(environment, "XDG_CONFIG_HOME", ".config")
    return Manager(
        uid=uid,
        bus_address=f"unix:path={runtime}/bus",
        runtime_directory=runtime,
        has_session=bool(session),
        config_directory=config,
        state_directory=_user_directory(environment, "XDG_STATE_HOME", ".local/state"),
        control_group=f"/user.slice/user-{uid}.slice/user@{uid}.service",
        drop_in_directories=(
            f"{runtime}/systemd/transient",
            f"{runtime}/systemd/user.control",
            f"{config}/systemd/user.control",
        ),
    )


def _user_directory(environment: Mapping[str, str], variable: str, default: str) -> str:
    """Return the directory in a variable, or else the default one in HOME; relative paths are ignored.

    Source: XDG Base Directory Specification, "Environment variables"; without HOME it is in `/`.
    """
    stated, home = environment.get(variable, ""), environment.get("HOME", "")
    if stated.startswith("/"):
        return stated
    return f"{home.rstrip('/') if home.startswith('/') else ''}/{default}"


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

GENERATED = "# Generated by podslice render; changes are lost when it is generated again."
"""The first line of a unit file that podslice has written."""

UNIT_NAME_MAX = 255
"""Bytes of a unit's name with its suffix.

Source: systemd, src/basic/unit-name.h, UNIT_NAME_MAX, which counts the zero at the end, too.
"""

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


def kind_of(name: UnitName) -> UnitKind:
    """Return the kind of a unit from its name."""
    return UnitKind(name.rpartition(".")[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyValue:
    """The value of one property of a unit, with the field and formula that determine it."""

    name: str
    value: int | str
    why: str = field(default="", compare=False)
    is_return: bool = field(default=False, compare=False)
    """Whether it restores the value of a unit outside the root before podslice set it."""


def limit_of(properties: Iterable[PropertyValue], name: str) -> int | None:
    """Return the number that a property is limited to; None if it is not stated, or infinite."""
    found = next((int(each.value) for each in properties if each.name == name), None)
    return None if found == INFINITY else found


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
    is_tier: bool = False
    """Whether it is the slice of a QoS class."""
    structure: Mapping[str, Value] = field(default_factory=dict)
    """Further properties for its start, which do not change: a mount's type and options."""
    hugepages: Mapping[int, int] = field(default_factory=dict)
    """Size of a page in bytes → limit in bytes; not a property, see `hugetlb`."""

    @property
    def values(self) -> dict[str, int | str]:
        """Return the values by property name."""
        return {property_.name: property_.value for property_ in self.properties}


def slice_unit(
    name: UnitName,
    description: str,
    properties: tuple[PropertyValue, ...] = (),
    *,
    owned: bool = False,
    is_tier: bool = False,
) -> DesiredUnit:
    """Return a slice outside of pods."""
    return DesiredUnit(
        name=name,
        kind=UnitKind.SLICE,
        parent=parent_slice(name),
        control_group=control_group_of(name),
        description=description,
        properties=properties,
        owned=owned,
        is_tier=is_tier,
    )


class ListedUnit(NamedTuple):
    """A unit in systemd's list of units."""

    name: UnitName
    description: str = ""
    load_state: str = "loaded"
    active_state: str = "active"


class Occupants(NamedTuple):
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
    started_usec: int = 0
    """When a slice became active last, since the epoch; 0 where the observation leaves it out, as
    that of a slice's file."""
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
    reload_count: int | None = field(default=None, compare=False)
    """How many times systemd has read its unit files again since its start; None before 261."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The relevant units at one moment."""

    caps: Caps
    units: Mapping[UnitName, ObservedUnit] = field(default_factory=dict)
    ended: Mapping[UnitName, ObservedUnit] = field(default_factory=dict)
    """The services that are inactive because their main process has ended."""


class TransientUnit(NamedTuple):
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


_SUFFIXES = tuple(
    f".{kind}"
    for kind in (
        *("service", "socket", "device", "mount", "automount", "swap", "target", "path"),
        *("timer", "slice", "scope"),
    )
)
"""The suffixes of all units. Source: systemd.unit(5)."""


def complete_name(name: str) -> str:
    """Return the name of a unit as systemctl takes it: without a suffix it is a service.

    Source: systemctl(1), "Parameter Syntax"; systemd, src/basic/unit-name.c,
    unit_name_mangle_with_suffix.
    """
    return name if name.endswith(_SUFFIXES) else f"{name}.service"


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

    Source: Kubelet pod level resource management, "Conversion of cgroupfs to systemd naming
    conventions".
    """
    if not components:
        return UnitName("-.slice")
    name = "-".join(map(escape_component, components)) + ".slice"
    if not is_unit_name(name):
        raise invalid(
            f"{name!r} has {len(name)} bytes", f"a unit's name has at most {UNIT_NAME_MAX}"
        )
    return UnitName(name)


TOP_SLICE = UnitName("-.slice")
"""The slice that all others are below. Source: systemd.special(7), -.slice."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedUnit:
    """A unit that is loaded, or was loaded to inspect it."""

    observed: ObservedUnit
    further: Mapping[str, str] = field(default_factory=dict)
    """Settings that are set and that podslice does not manage: key in a unit file → value, empty
    for a list of structures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitDefinition:
    """The definition of a unit, which may not exist."""

    name: UnitName
    """Its own name, where it was named by an alias."""
    load_state: str
    """`loaded`, `not-found`, `masked`, `bad-setting`, …"""
    active_state: str = "inactive"
    transient: bool = False
    fragment_path: str = ""
    """Its own file; empty if it has none."""
    drop_ins: tuple[str, ...] = ()
    """The paths of its drop-ins, in the order in which systemd reads them."""
    slice: str = ""
    """The slice that its next start uses."""
    control_group: str = ""
    """The control group of its processes; empty if it has none."""
    triggers: tuple[str, ...] = ()
    """The units that it starts, where it is a timer, a socket or a path."""

    @property
    def is_running(self) -> bool:
        """Return whether it has been started, and has not stopped yet."""
        return self.active_state not in ("inactive", "failed")


def is_inside(control_group: str, parent: str) -> bool:
    """Return whether a control group is another one or below it."""
    # With the slashes, `/a-b.slice` is not inside of `/a`.
    return bool(parent) and f"{control_group}/".startswith(f"{parent.rstrip('/')}/")
