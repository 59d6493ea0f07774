"""What lies in the slice of a pod that is to go, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath

from podslice.errors import printable
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.proc import process_name
from podslice.model.naming import scope_name
from podslice.model.unit import UnitKind, UnitName, is_unit_name

_SHOWN = 8
_SHOWN_NAMES = 4
_NAME_LENGTH = 32
_ENDS_WITH_ITS_SLICE = (f".{UnitKind.SCOPE}", f".{UnitKind.SERVICE}")
_SLICE = f".{UnitKind.SLICE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """What a control group holds."""

    words: tuple[str, ...] = ()
    processes: int = 0
    units: tuple[UnitName, ...] = ()
    is_mixed: bool = False
    """Whether some processes lie in control groups that are no unit's."""


def read_holds(cgroups: CgroupFs, control_group: str, uid: str) -> Holds:
    """What the slice of a pod holds, by the units that lie in it."""
    by_unit: dict[str, list[int]] = {}
    units = set()
    is_mixed = False
    for group, pids in sorted(cgroups.processes(control_group).items()):
        unit, is_unit = _unit_of(PurePosixPath(group).relative_to(control_group))
        by_unit.setdefault(unit, []).extend(pids)
        is_mixed |= not is_unit
        units |= {UnitName(unit)} if is_unit and is_unit_name(unit) else set()
    return Holds(
        words=tuple(_shorten(_words(by_unit, uid))),
        processes=sum(map(len, by_unit.values())),
        units=tuple(sorted(units)),
        is_mixed=is_mixed,
    )


def name_processes(groups: Mapping[str, tuple[int, ...]]) -> str:
    """Processes by name and id: `nginx (4711), sh (4712)`."""
    pids = sorted(pid for pids in groups.values() for pid in pids)
    named = (f"{printable(process_name(pid))} ({pid})" for pid in pids[:_SHOWN])
    return ", ".join([*named, *([f"{len(pids) - _SHOWN} more"] if len(pids) > _SHOWN else [])])


def _unit_of(below: PurePosixPath) -> tuple[str, bool]:
    """The unit that a control group in a slice belongs to, and whether a stop ends it."""
    for part in below.parts:
        if part.endswith(_ENDS_WITH_ITS_SLICE):
            return part, True
        if not part.endswith(_SLICE):
            return f"control group {part}", False
    return below.name or "the slice itself", False


def _words(by_unit: Mapping[str, list[int]], uid: str) -> Iterator[str]:
    prefix = scope_name(uid, "").removesuffix(".scope")
    for unit, pids in by_unit.items():
        stem = unit.rpartition(".")[0]
        is_ours = unit.startswith(prefix) and unit.endswith(_ENDS_WITH_ITS_SLICE)
        name = f"container {stem.removeprefix(prefix)}" if is_ours else _short_name(unit)
        count = "1 process" if len(pids) == 1 else f"{len(pids)} processes"
        # dict: each name once, in their order
        names = dict.fromkeys(process_name(pid) for pid in pids)
        shown = [*islice(names, _SHOWN_NAMES), *(["…"] if len(names) > _SHOWN_NAMES else [])]
        yield printable(f"{name}: {count} ({', '.join(shown)})")


def _short_name(unit: str) -> str:
    """`libpod-0a1b…9c.scope`: ids of runtimes are long, and nobody reads them."""
    if len(unit) <= _NAME_LENGTH:
        return unit
    stem, _, suffix = unit.rpartition(".")
    return f"{stem[: _NAME_LENGTH // 2]}….{suffix}" if stem else f"{unit[:_NAME_LENGTH]}…"


def _shorten(words: Iterator[str]) -> Iterator[str]:
    yield from islice(words, _SHOWN)
    rest = sum(1 for _ in words)
    if rest:
        yield f"{rest} more"
