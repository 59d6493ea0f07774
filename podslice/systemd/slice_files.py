"""Slices read from systemd's own files, which takes a fraction of the time of a call for each.

systemd stores the properties that a transient unit is started with in a file,
`/run/systemd/transient/NAME`. The properties of an unchanged slice are those of the file. If
anything indicates a difference (a drop-in, another file of that name, an unknown property, a usage
that the kernel does not count), the slice is left to a call. Manual changes of a file below
/run/systemd/transient are read at once, not only after the next daemon-reload.

Source: systemd.unit(5), "Unit File Load Path"; systemd, src/core/dbus-cgroup.c for what is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.text import read_text
from podslice.model.codec import SHARE
from podslice.model.properties import OBSERVED, PROPERTIES
from podslice.model.unit import (
    ListedUnit,
    ObservedUnit,
    UnitKind,
    UnitName,
    Value,
    control_group_of,
    parent_slice,
)

_SLICE = f".{UnitKind.SLICE}"
_DROP_INS = f"{_SLICE}.d"
_TRANSIENT = "transient"
_OF_ALL = "slice.d"
_SECTION = "[Slice]"

# where the file does not state these, they have the defaults of the manager's configuration
_STATED = {f"{what}Accounting" for what in ("Memory", "IO", "Tasks")}


def parse_slice(text: str) -> Mapping[str, Value] | None:
    """Parse the properties in a slice's file, without `Slice`; None if they are not certain."""
    _, header, rest = text.partition(f"\n{_SECTION}\n")
    section, _, others = rest.partition("\n[")
    # A second section and continued lines are left to systemd to parse.
    if not header or _SECTION[1:] in others or "\\\n" in text:
        return None
    return _parse_section(section)


@lru_cache(maxsize=1024)
def _parse_section(section: str) -> Mapping[str, Value] | None:
    """Parse the lines below `[Slice]`, cached because many pods have the same."""
    # a file has fewer digits of a share than the bus, and several lines of it are one text
    rows = {
        row.key: row
        for row in PROPERTIES.values()
        if UnitKind.SLICE in row.kinds and row.section == "resource"
        if row.codec != SHARE and not row.is_text
    }
    observed = OBSERVED[UnitKind.SLICE]
    found: dict[str, Value] = {}
    for line in section.split("\n"):
        if not line or line[0] in "#;":
            continue
        key, _, text = line.partition("=")
        row = rows.get(key)
        value = None if row is None else row.parse(text)
        if row is None or value is None:
            return None
        if row.name in observed:
            found[row.name] = value
    if not found.keys() >= _STATED:
        return None
    unset = {name: PROPERTIES[name].unset for name in observed}
    return {**{name: value for name, value in unset.items() if value is not None}, **found}


class SliceFiles(NamedTuple):
    """The directories of systemd's files and of the kernel's."""

    root: Path
    cgroups: CgroupFs

    def observe(
        self, listed: Sequence[ListedUnit], unit_path: Iterable[str], top: str
    ) -> dict[UnitName, ObservedUnit]:
        """Return the listed slices whose properties follow from their files.

        Args:
            listed: the units as systemd lists them.
            unit_path: the directories that systemd loads units from.
            top: the control group of the manager, `/` for the system's.
        """
        others: set[str] = set()
        transient, names = "", frozenset[str]()
        for directory in unit_path:
            path = f"{self.root}/{directory.lstrip('/')}"
            if directory.endswith(f"/{_TRANSIENT}"):
                transient, names = path, _names_in(path)
            else:
                others |= _names_in(path)
        # A drop-in for all slices concerns each of them.
        if _OF_ALL in others | names:
            return {}
        # slices with further files or drop-ins; a drop-in for `user-` concerns all below `user.slice`
        drop_ins = [name for name in (*others, *names) if name.endswith(_DROP_INS)]
        left_out = others | {name.removesuffix(".d") for name in drop_ins}
        stems = (name.removesuffix(_DROP_INS) for name in drop_ins)
        prefixes = tuple(stem for stem in stems if stem.endswith("-"))
        found = {}
        for unit in listed:
            is_alone = unit.name in names and unit.name not in left_out
            if is_alone and unit.active_state == "active" and not unit.name.startswith(prefixes):
                observed = _observe(unit, f"{transient}/{unit.name}", top, self.cgroups)
                if observed is not None:
                    found[unit.name] = observed
        return found


def _observe(unit: ListedUnit, path: str, top: str, cgroups: CgroupFs) -> ObservedUnit | None:
    try:
        properties = parse_slice(read_text(path))
    except OSError:
        return None  # it was removed since it was listed, or cannot be read
    group = f"{top.rstrip('/')}{control_group_of(unit.name)}"
    if properties is None:
        return None
    usage = cgroups.counters(group, ("memory_bytes", "tasks"))
    memory_bytes, tasks = usage["memory_bytes"], usage["tasks"]
    if memory_bytes is None or tasks is None:
        return None
    return ObservedUnit(
        name=unit.name,
        description=unit.description,
        properties={**properties, "Slice": parent_slice(unit.name)},
        control_group=group,
        tasks=tasks,
        memory_bytes=memory_bytes,
    )


def _names_in(directory: str) -> frozenset[str]:
    """Return the names of slices and of their drop-in directories."""
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        return frozenset()
    return frozenset(
        name for name in names if name.endswith((_SLICE, _DROP_INS)) or name == _OF_ALL
    )
