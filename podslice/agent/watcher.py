"""What the agent waits for from the kernel.

Changes by hand send no signal on the bus: `systemctl set-property` writes a drop-in file and to the
control group, `echo` to the control group alone. Both are files.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.inotify import (
    IN_ATTRIB,
    IN_CLOSE_WRITE,
    IN_CREATE,
    IN_DELETE,
    IN_IGNORED,
    IN_MODIFY,
    IN_MOVED_FROM,
    IN_MOVED_TO,
    Inotify,
    OnEvent,
    Watched,
)
from podslice.kernel.path_watch import Following
from podslice.kernel.priority_events import MountAlarm
from podslice.kernel.psi import MemoryAlarm
from podslice.model.manager import Manager
from podslice.model.unit import UnitName

_CHANGED = IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE
# what the kernel itself counts or tells by, and what moves processes
_NO_LIMIT = re.compile(r"cgroup\..*|.*\.(events|events\.local|pressure|peak|reclaim)")
_MEMORY_EVENTS = "memory.events"
# systemd does not write these
_HUGEPAGES = re.compile(r"hugetlb\..*\.max")
_QUIET_SEC = 0.01

_Alarm = TypeVar("_Alarm")


class Watch:
    """Tells of manifests and units that may have changed, and of memory that gets short.

    Control groups are watched with version 2 only: nothing is told of the others.
    """

    def __init__(  # noqa: PLR0913 - everything goes by name
        self,
        manifests: Iterable[str],
        *,
        manager: Manager,
        on_manifests: Callable[[], None],
        on_unit: Callable[[UnitName | None], None],
        on_memory_event: Callable[[UnitName], None],
        on_pressure: Callable[[], None],
        root: Path = Path("/"),
    ) -> None:
        """Begin, in the running loop.

        Args:
            manifests: the directories of manifests; they need not be there.
            manager: the service manager whose drop-ins are watched.
            on_manifests: something in one of those may have changed.
            on_unit: a unit that is followed may have been changed by hand; None: any of them.
            on_memory_event: the kernel has counted something in a unit's memory.events.
            on_pressure: processes of the host wait for memory.
            root: the host.

        Raises:
            OSError: the user has too many instances of inotify.
        """
        self._root = root
        self._cgroups = CgroupFs(mount=root / "sys/fs/cgroup")
        self._on_manifests = on_manifests
        self._on_unit = on_unit
        self._on_memory_event = on_memory_event
        self._inotify = Inotify(self._on_lost)
        self._loop = asyncio.get_running_loop()
        self._units: dict[UnitName, dict[Path, Watched]] = {}
        self._groups: dict[UnitName, str] = {}
        self._limits: dict[str, Mapping[str, str]] = {}
        self._written: dict[str, UnitName] = {}
        self._comparing: asyncio.TimerHandle | None = None
        self._group_error: OSError | None = None
        self._manifests: list[Following] = []
        self.direct(manifests)
        self._drop_ins = {
            path: Following(self._inotify, path, IN_CREATE | IN_MOVED_TO, self._on_place(path))
            for path in (root / each.lstrip("/") for each in manager.drop_in_directories)
        }
        self._alarm, self._alarm_error = _alarm(MemoryAlarm, on_pressure, root)
        self._mounts, self._mounts_error = _alarm(MountAlarm, self._on_mounts, root)

    @property
    def notes(self) -> tuple[str, ...]:
        """What can't be watched, and what comes of it, in sentences."""
        notes = [
            f"{following.path} can't be watched: {_why(following.error)}"
            for following in (*self._manifests, *self._drop_ins.values())
            if following.error
        ]
        if self._group_error:
            notes.append(f"not every control group can be watched: {_why(self._group_error)}")
        if self._alarm_error:
            why = _why(self._alarm_error)
            notes.append(f"the kernel does not tell when memory gets short: {why}")
        if self._mounts_error:
            why = _why(self._mounts_error)
            notes.append(f"mounts over directories of manifests are not noticed: {why}")
        return tuple(notes)

    def direct(self, manifests: Iterable[str]) -> None:
        """Watch these directories of manifests, and no others."""
        for following in self._manifests:
            following.close()
        mask = _CHANGED | IN_CREATE | IN_ATTRIB
        self._manifests = [
            Following(self._inotify, path, mask, self._on_manifest(path))
            for path in (self._root / each.lstrip("/") for each in manifests)
        ]

    def follow(self, groups: Mapping[UnitName, str]) -> frozenset[UnitName]:
        """Watch these units, and no others; what is watched already stays so.

        Args:
            groups: the control group of each.

        Returns:
            The units that are watched only from now on: nobody has told what happened to them
            before.
        """
        self._group_error = None
        self._groups = dict(groups)
        for name in self._units.keys() - groups.keys():
            for watched in self._units.pop(name).values():
                self._inotify.unwatch(watched)
        here = set(groups.values())
        self._limits = {group: held for group, held in self._limits.items() if group in here}
        return frozenset(name for name, group in groups.items() if self._follow(name, group))

    def close(self) -> None:
        """Tell nothing more."""
        if self._comparing is not None:
            self._comparing.cancel()
        for alarm in (self._alarm, self._mounts):
            if alarm is not None:
                alarm.close()
        self._inotify.close()

    def _follow(self, name: UnitName, group: str) -> bool:
        """Watch a unit; whether anything of it was not watched before."""
        is_new = name not in self._units
        watched = self._units.setdefault(name, {})
        if is_new:
            for place in self._drop_ins:
                self._watch_drop_ins(place, name)
        directory = self._cgroups.mount / group.strip("/")
        if directory in watched or not self._cgroups.is_v2:
            return is_new
        events = directory / _MEMORY_EVENTS
        # the kernel tells of its own changes only while it has the file in mind: watched, it has
        self._add(name, events, IN_MODIFY, self._on_events(name, events))
        self._add(name, directory, IN_MODIFY, self._on_written(name, group, directory))
        self._limits[group] = self._cgroups.limits(group)
        return directory in watched

    def _watch_drop_ins(self, place: Path, name: UnitName) -> bool:
        """Watch a unit's drop-ins where it has any; whether it has, or had."""
        path = place / f"{name}.d"
        before = self._units[name].pop(path, None)
        if before is not None:
            self._inotify.unwatch(before)
        self._add(name, path, _CHANGED, self._on_drop_in(name))
        return before is not None or path in self._units[name]

    def _add(self, name: UnitName, path: Path, mask: int, on_event: OnEvent) -> None:
        try:
            self._units[name][path] = self._inotify.watch(path, mask, on_event)
        except FileNotFoundError:
            pass  # it has no drop-ins, or has gone since it was seen
        except OSError as error:
            self._group_error = error

    # What the kernel tells.

    def _on_lost(self) -> None:
        """Anything may have happened, and what was watched may have been replaced."""
        for following in (*self._manifests, *self._drop_ins.values()):
            following.renew()
        groups = self._groups
        self.follow({})
        self.follow(groups)
        self._on_manifests()
        self._on_unit(None)
        for name in self._units:
            self._on_memory_event(name)

    def _on_mounts(self) -> None:
        for following in (*self._manifests, *self._drop_ins.values()):
            following.check()

    def _on_manifest(self, directory: Path) -> OnEvent:
        def on_event(name: str, mask: int) -> None:
            # what is created is empty yet, unless it is a link
            if not name or not mask & IN_CREATE or _is_link(directory / name):
                self._on_manifests()

        return on_event

    def _on_place(self, place: Path) -> OnEvent:
        """What happens in a directory of drop-ins' directories."""

        def on_event(name: str, _: int) -> None:
            unit = UnitName(name.removesuffix(".d"))
            for each in [unit] if name else list(self._units):
                if each in self._units and self._watch_drop_ins(place, each):
                    self._on_unit(each)

        return on_event

    def _on_drop_in(self, unit: UnitName) -> OnEvent:
        return lambda _name, _mask: self._on_unit(unit)

    def _on_written(self, unit: UnitName, group: str, directory: Path) -> OnEvent:
        def on_event(name: str, mask: int) -> None:
            if mask & IN_IGNORED:
                self._units[unit].pop(directory, None)
                self._on_unit(unit)
            elif _HUGEPAGES.fullmatch(name):
                self._on_unit(unit)
            elif not _NO_LIMIT.fullmatch(name):
                self._written[group] = unit
                if self._comparing is None:
                    self._comparing = self._loop.call_later(_QUIET_SEC, self._compare)

        return on_event

    def _compare(self) -> None:
        """Tell of the units whose limits are others now.

        With every slice that is started or stopped systemd writes all files of all its siblings
        anew, as they were.
        """
        written, self._written, self._comparing = self._written, {}, None
        for group, unit in written.items():
            limits = self._cgroups.limits(group)
            if group in self._limits and limits != self._limits[group]:
                self._limits[group] = limits
                self._on_unit(unit)

    def _on_events(self, unit: UnitName, path: Path) -> OnEvent:
        def on_event(_: str, mask: int) -> None:
            if mask & IN_IGNORED:
                self._units[unit].pop(path, None)
            else:
                self._on_memory_event(unit)

        return on_event


def _alarm(
    kind: Callable[[Callable[[], None], Path], _Alarm], on_event: Callable[[], None], root: Path
) -> tuple[_Alarm | None, OSError | None]:
    """Return the alarm, or why there is none."""
    try:
        return kind(on_event, root), None
    except OSError as error:
        return None, error


def _why(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the kernel allows no more (sysctl fs.inotify.max_user_watches)"
    return error.strerror or str(error)


def _is_link(path: Path) -> bool:
    """Whether it is a symbolic link, or one more name of a file."""
    try:
        return path.is_symlink() or path.stat().st_nlink > 1
    except OSError:
        return False
