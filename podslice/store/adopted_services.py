"""Services that start in a pod for good: the drop-ins that say so.

The drop-in outlasts a reboot, which the record of its pod does not; so it names the pod itself.
What reads or writes one raises HostError if the file system refuses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from podslice.kernel.files import read_present
from podslice.model.unit import Manager, UnitKind, UnitName
from podslice.store.files import failed, write_text, writing

DROP_IN = "50-podslice.conf"
SECTION = "X-Podslice"
"""Ignored by systemd. Source: systemd.unit(5), "Description"."""

_BYTES_MAX = 2**20
_DIRECTORY = f".{UnitKind.SERVICE}.d"
_OWNER = re.compile(rf"^\[{SECTION}\]\nPod=(\S+)\nContainer=(\S+)$", re.MULTILINE)
_SLICE = re.compile(r"^Slice=(\S+)$", re.MULTILINE)
_MODE = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedService:
    """A service and its drop-in."""

    unit: UnitName
    pod: str
    """`namespace/name`, applied or not."""
    container: str
    """The container of the pod; one of its manifest, or the name of the service."""
    slice: str
    text: str


def drop_in_path(unit: str, manager: Manager) -> Path:
    """Return the path of a service's drop-in."""
    return Path(manager.unit_directory, f"{unit}.d", DROP_IN)


def read_adopted(manager: Manager) -> tuple[AdoptedService, ...]:
    """Return all adopted services, by name."""
    return tuple(filter(None, (read_drop_in(each, manager) for each in _list_units(manager))))


def by_pod(services: Iterable[AdoptedService]) -> dict[str, tuple[AdoptedService, ...]]:
    """Return services by the keys of their pods."""
    found: dict[str, tuple[AdoptedService, ...]] = {}
    for each in services:
        found[each.pod] = (*found.get(each.pod, ()), each)
    return found


def read_drop_in(unit: UnitName, manager: Manager) -> AdoptedService | None:
    """Return an adopted service; None if it has no drop-in of podslice."""
    path = drop_in_path(unit, manager)
    try:
        content = read_present(path, limit_bytes=_BYTES_MAX)
    except OSError as error:
        raise failed(error, path) from error
    text = (content or b"").decode(errors="replace")
    owner, slice_ = _OWNER.search(text), _SLICE.search(text)
    if owner is None or slice_ is None:
        return None
    return AdoptedService(unit=unit, pod=owner[1], container=owner[2], slice=slice_[1], text=text)


def write_drop_in(service: AdoptedService, manager: Manager) -> None:
    """Write the drop-in of a service, whole or not at all."""
    path = drop_in_path(service.unit, manager)
    with writing(path):
        write_text(path, service.text, mode=_MODE)


def remove_drop_in(unit: UnitName, manager: Manager) -> None:
    """Remove the drop-in of a service, and its directory if nothing else is in it."""
    path = drop_in_path(unit, manager)
    with writing(path):
        path.unlink(missing_ok=True)
    with suppress(OSError):  # there are other drop-ins
        path.parent.rmdir()


def _list_units(manager: Manager) -> Iterator[UnitName]:
    """Yield the services with a directory of drop-ins, by name."""
    directory = Path(manager.unit_directory)
    try:
        with os.scandir(directory) as found:
            names = sorted(each.name for each in found if each.name.endswith(_DIRECTORY))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise failed(error, directory) from error
    for name in names:
        yield UnitName(name.removesuffix(".d"))
