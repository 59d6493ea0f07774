"""Read and describe the occupants of a slice that is to be stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import PurePosixPath

from podslice.errors import printable
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.proc import process_name
from podslice.model.naming import scope_name
from podslice.model.unit import Occupants, UnitKind, UnitName, is_unit_name

_LISTED = 8
_LISTED_NAMES = 4
_NAME_LENGTH = 32
_STOPPED_WITH_SLICE = (f".{UnitKind.SCOPE}", f".{UnitKind.SERVICE}")
_SLICE = f".{UnitKind.SLICE}"


def read_occupants(cgroups: CgroupFs, control_group: str, uid: str) -> Occupants:
    """Return the occupants of a slice; `uid` is that of its pod."""
    by_unit: dict[str, list[int]] = {}
    units = set()
    is_mixed = False
    for group, pids in sorted(cgroups.processes(control_group).items()):
        unit, is_unit = _unit_of(PurePosixPath(group).relative_to(control_group))
        by_unit.setdefault(unit, []).extend(pids)
        is_mixed |= not is_unit
        units |= {UnitName(unit)} if is_unit and is_unit_name(unit) else set()
    return Occupants(
        processes=sum(map(len, by_unit.values())),
        units=tuple(sorted(units)),
        descriptions=tuple(_shorten(_describe(by_unit, uid))),
        is_mixed=is_mixed,
    )


def describe_processes(groups: Mapping[str, tuple[int, ...]]) -> str:
    """Describe processes by name and id: `nginx (4711), sh (4712)`."""
    pids = sorted(pid for pids in groups.values() for pid in pids)
    named = (f"{printable(process_name(pid))} ({pid})" for pid in pids[:_LISTED])
    return ", ".join([*named, *([f"{len(pids) - _LISTED} more"] if len(pids) > _LISTED else [])])


def _unit_of(path: PurePosixPath) -> tuple[str, bool]:
    """Return the unit of a control group below a slice, and whether a stop of the slice ends it."""
    for part in path.parts:
        if part.endswith(_STOPPED_WITH_SLICE):
            return part, True
        if not part.endswith(_SLICE):
            return f"control group {part}", False
    return path.name or "the slice itself", False


def _describe(by_unit: Mapping[str, list[int]], uid: str) -> Iterator[str]:
    prefix = scope_name(uid, "").removesuffix(".scope")
    for unit, pids in by_unit.items():
        stem = unit.rpartition(".")[0]
        is_ours = unit.startswith(prefix) and unit.endswith(_STOPPED_WITH_SLICE)
        name = f"container {stem.removeprefix(prefix)}" if is_ours else _short_name(unit)
        count = "1 process" if len(pids) == 1 else f"{len(pids)} processes"
        # dict: each name once, in order
        names = dict.fromkeys(process_name(pid) for pid in pids)
        listed = [*islice(names, _LISTED_NAMES), *(["…"] if len(names) > _LISTED_NAMES else [])]
        yield printable(f"{name}: {count} ({', '.join(listed)})")


def _short_name(unit: str) -> str:
    """Shorten `libpod-0a1b…9c.scope`: runtimes use long ids."""
    if len(unit) <= _NAME_LENGTH:
        return unit
    stem, _, suffix = unit.rpartition(".")
    return f"{stem[: _NAME_LENGTH // 2]}….{suffix}" if stem else f"{unit[:_NAME_LENGTH]}…"


def _shorten(descriptions: Iterator[str]) -> Iterator[str]:
    yield from islice(descriptions, _LISTED)
    rest = sum(1 for _ in descriptions)
    if rest:
        yield f"{rest} more"
