"""Desired units as unit files: the same tree without podslice running."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from podslice.errors import HostError, InputError, Problem
from podslice.files import NotRegularError, read_regular
from podslice.model.desired import Desired
from podslice.model.properties import PROPERTIES
from podslice.model.unit import DesiredUnit, UnitKind

HEAD = "# Made by podslice render; changes are lost when it is made anew."
_BYTES_MAX = 2**16
"""Bytes of a unit file of ours; a larger one is not."""
# without CPUAccounting=, which is always on with cgroup v2: systemd 258 and later warn of it
_ACCOUNTING = ("IOAccounting", "MemoryAccounting", "TasksAccounting")


def unit_files(desired: Desired) -> dict[str, str]:
    """File name → text. Slices of ours are units; slices of others get a drop-in.

    Scopes hold running processes and can't be files, and mounts of volumes would outlive their pods
    and be there before them; their numbers are in `explain`.
    """
    return {
        (unit.name if unit.owned else f"{unit.name}.d/50-podslice.conf"): _text(unit)
        for unit in desired.lasting
        if unit.kind is UnitKind.SLICE
    }


def _text(unit: DesiredUnit) -> str:
    sections = [_resource_section(unit)]
    if unit.owned:
        # enabled, the slices are up after every boot; else when the first unit is put into them
        sections = [_unit_section(unit), *sections, ["[Install]", "WantedBy=slices.target"]]
    return "\n\n".join("\n".join(lines) for lines in ([HEAD], *sections)) + "\n"


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
        lines += _comment(property_.why)
        lines.append(f"{row.key}={row.format(property_.value)}")
    return lines


def _comment(why: str) -> Iterable[str]:
    return [f"# {why}"] if why else []


def write_unit_files(files: dict[str, str], directory: Path) -> list[str]:
    """Write unit files and return their paths.

    Raises:
        InputError: a file is there that podslice did not write; nothing was written.
        HostError: the directory can't be written.
    """
    foreign = [
        Problem(
            where=str(directory / name),
            message="the file is there already, and not from podslice",
            hint="remove it, or choose another directory",
        )
        for name in files
        if _is_foreign(directory / name)
    ]
    if foreign:
        raise InputError(foreign)
    try:
        for name, text in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except OSError as error:
        raise HostError(f"{error.filename or directory}: {error.strerror}") from error
    return [str(directory / name) for name in files]


def _is_foreign(path: Path) -> bool:
    try:
        return not read_regular(path, limit_bytes=_BYTES_MAX).startswith(HEAD.encode())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (PermissionError, NotRegularError):
        return True
    except OSError as error:
        raise HostError(f"{path}: {error.strerror}") from error
