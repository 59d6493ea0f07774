"""Desired units as unit files: the same tree without podslice running."""

from __future__ import annotations

from podslice.model.desired import Desired
from podslice.model.properties import PROPERTIES
from podslice.model.unit import GENERATED, DesiredUnit, UnitKind

# without CPUAccounting=, which is always on with cgroup v2, and which systemd 258 warns of
_ACCOUNTING = ("IOAccounting", "MemoryAccounting", "TasksAccounting")


def unit_files(desired: Desired) -> dict[str, str]:
    """Return file name → text: unit files of podslice's slices, drop-ins of other slices.

    Scopes hold running processes and cannot be files, and mounts of volumes would exist before and
    after their pods; `explain` shows their values.
    """
    return {
        (unit.name if unit.owned else f"{unit.name}.d/50-podslice.conf"): _text(unit)
        for unit in desired.lasting
        if unit.kind is UnitKind.SLICE
    }


def _text(unit: DesiredUnit) -> str:
    sections = [_resource_section(unit)]
    if unit.owned:
        # if enabled, the slices start at boot; otherwise with the first unit in them
        sections = [_unit_section(unit), *sections, ["[Install]", "WantedBy=slices.target"]]
    return "\n\n".join("\n".join(lines) for lines in ([GENERATED], *sections)) + "\n"


def _unit_section(unit: DesiredUnit) -> list[str]:
    description = unit.description.replace("%", "%%")
    lines = ["[Unit]", f"Description={description}", "DefaultDependencies=no"]
    return [*lines, f"Wants={unit.parent}"] if unit.parent != "-.slice" else lines


def _resource_section(unit: DesiredUnit) -> list[str]:
    lines = ["[Slice]"]
    if unit.owned:
        lines += [f"{name}=yes" for name in _ACCOUNTING]
    for property_ in unit.properties:
        row = PROPERTIES[property_.name]
        lines += [f"# {property_.why}"] if property_.why else []
        lines += [f"{row.key}={text}" for text in row.texts(property_.value)]
    return lines
