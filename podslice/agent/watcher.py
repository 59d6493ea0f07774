"""Watches files and memory pressure.

External changes are not always signalled on the bus: `systemctl set-property` writes a drop-in file
and to the control group, `echo` to the control group only. Both are files.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from podslice.inputs.source import is_manifest_name
from podslice.kernel import watch
from podslice.kernel.cgroup import CgroupFs
from podslice.model.unit import Manager, UnitName

_CHANGED = watch.IN_CLOSE_WRITE | watch.IN_MOVED_TO | watch.IN_MOVED_FROM | watch.IN_DELETE
# files that the kernel writes to, or that move processes
_NO_LIMIT = re.compile(r"cgroup\..*|.*\.(events|events\.local|pressure|peak|reclaim)")
_MEMORY_EVENTS = "memory.events"
# systemd does not write these
_HUGEPAGES = re.compile(r"hugetlb\..*\.max")
_QUIET_SEC = 0.01


class WatchEvents(NamedTuple):
    """The callbacks of a watcher."""

    on_manifests: Callable[[], None]
    """A directory of manifests may have changed."""
    on_complete_manifests: Callable[[], None]
    """The same; no manifest was removed, which may be a part of its replacement."""
    on_unit: Callable[[UnitName | None], None]
    """A followed unit may have been changed externally; None: any of them."""
    on_memory_event: Callable[[UnitName], None]
    """The kernel has counted an event in a unit's memory.events."""
    on_pressure: Callable[[], None]
    """Processes of the host are waiting for memory."""
    on_exit_file: Callable[[str], None]
    """A file with the exit of a container was written; called with its name."""


class Watcher:
    """Reports manifests and units that may have changed, and memory pressure.

    Control groups are watched in cgroup v2 only.
    """

    def __init__(
        self,
        manifests: Iterable[str],
        events: WatchEvents,
        *,
        manager: Manager,
        root: Path = Path("/"),
    ) -> None:
        """Begin, in the running loop.

        Args:
            manifests: the directories of manifests, which need not exist.
            events: the callbacks.
            manager: the service manager whose drop-ins are watched, and podman's directory.
            root: the root directory of the host.

        Raises:
            OSError: the user has too many instances of inotify.
        """
        self._root = root
        self._cgroups = CgroupFs(mount=root / "sys/fs/cgroup")
        self._events = events
        self._inotify = watch.Inotify(self.rescan)
        self._loop = asyncio.get_running_loop()
        self._units: dict[UnitName, dict[Path, watch.Watched]] = {}
        self._groups: dict[UnitName, str] = {}
        self._limits: dict[str, Mapping[str, str]] = {}
        self._written: dict[str, UnitName] = {}
        self._comparing: asyncio.TimerHandle | None = None
        self._group_error: OSError | None = None
        self._errors: list[tuple[str, OSError]] = []
        """What cannot be watched, and why."""
        self._manifests: list[watch.Following] = []
        self.set_directories(manifests)
        self._drop_ins = {
            path: watch.Following(
                self._inotify,
                path,
                watch.IN_CREATE | watch.IN_MOVED_TO,
                partial(self._on_place, path),
            )
            for path in (root / each.lstrip("/") for each in manager.drop_in_directories)
        }
        self._exits = watch.Following(
            self._inotify,
            root / manager.podman_exits_directory.lstrip("/"),
            watch.IN_CLOSE_WRITE | watch.IN_MOVED_TO,
            lambda name, _mask: events.on_exit_file(name),
        )
        self._alarms: list[watch.MemoryAlarm | watch.MountAlarm] = []
        for alarm, on_event, what in (
            (watch.MemoryAlarm, events.on_pressure, "the kernel does not report memory pressure"),
            (watch.MountAlarm, self.check_mounts, "cannot watch mounts over manifest directories"),
        ):
            try:
                self._alarms.append(alarm(on_event, root))
            except OSError as error:
                self._errors.append((what, error))

    @property
    def _directories(self) -> tuple[watch.Following, ...]:
        return (*self._manifests, *self._drop_ins.values(), self._exits)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences on what cannot be watched."""
        errors = [
            (f"cannot watch {each.path}", each.error) for each in self._directories if each.error
        ]
        if self._group_error:
            errors.append(("cannot watch every control group", self._group_error))
        return tuple(f"{what}: {_describe(error)}" for what, error in (*errors, *self._errors))

    def set_directories(self, manifests: Iterable[str]) -> None:
        """Watch these directories of manifests only."""
        for following in self._manifests:
            following.close()
        mask = _CHANGED | watch.IN_CREATE | watch.IN_ATTRIB
        self._manifests = [
            watch.Following(self._inotify, path, mask, partial(self._on_manifest, path))
            for path in (self._root / each.lstrip("/") for each in manifests)
        ]

    def follow(self, groups: Mapping[UnitName, str]) -> frozenset[UnitName]:
        """Watch these units only; do not interrupt the watches of those watched already.

        Args:
            groups: the control groups of the units.

        Returns:
            The units that were not watched before, and may have changed meanwhile.
        """
        self._group_error = None
        self._groups = dict(groups)
        # a removed control group has ended its watches itself; one of a drop-in may remain
        for name in self._units.keys() - groups.keys():
            for watched in self._units.pop(name).values():
                self._inotify.unwatch(watched)
        here = set(groups.values())
        self._limits = {group: held for group, held in self._limits.items() if group in here}
        return frozenset(name for name, group in groups.items() if self._follow(name, group))

    def close(self) -> None:
        """Stop watching."""
        if self._comparing is not None:
            self._comparing.cancel()
        for alarm in self._alarms:
            alarm.close()
        self._inotify.close()

    def _follow(self, name: UnitName, group: str) -> bool:
        """Watch a unit; return whether anything of it was not watched before."""
        is_new = name not in self._units
        watched = self._units.setdefault(name, {})
        if is_new:
            for place in self._drop_ins:
                self._watch_drop_ins(place, name)
        directory = self._cgroups.mount / group.strip("/")
        # In cgroup v1 each controller has its own directory, and memory.events does not exist.
        if directory in watched or not self._cgroups.is_v2:
            return is_new
        events = directory / _MEMORY_EVENTS
        # the kernel reports its own changes only while it keeps the inode: a watch keeps it
        self._add(name, events, watch.IN_MODIFY, partial(self._on_events, name, events))
        self._add(
            name, directory, watch.IN_MODIFY, partial(self._on_written, name, group, directory)
        )
        self._limits[group] = self._cgroups.limits(group)
        return directory in watched

    def _watch_drop_ins(self, place: Path, name: UnitName) -> bool:
        """Watch the drop-ins of a unit; return whether it has any, or had some."""
        path = place / f"{name}.d"
        before = self._units[name].pop(path, None)
        if before is not None:
            self._inotify.unwatch(before)
        self._add(name, path, _CHANGED, lambda *_: self._events.on_unit(name))
        return before is not None or path in self._units[name]

    def _add(self, name: UnitName, path: Path, mask: int, on_event: watch.OnEvent) -> None:
        try:
            self._units[name][path] = self._inotify.watch(path, mask, on_event)
        except FileNotFoundError:
            pass  # the unit has no drop-ins, or was removed meanwhile
        except OSError as error:
            self._group_error = error

    # Events of the kernel.

    def rescan(self) -> None:
        """Watch and report everything again, after events were lost."""
        for following in self._directories:
            following.renew()
        groups = self._groups
        # an empty set first: everything that is watched again counts as new, and is read
        self.follow({})
        self.follow(groups)
        self._events.on_manifests()
        self._events.on_unit(None)
        for name in self._units:
            self._events.on_memory_event(name)

    def check_mounts(self) -> None:
        """Follow the paths of directories again, after mounts have changed."""
        for following in self._directories:
            following.check()

    def _on_manifest(self, directory: Path, name: str, mask: int) -> None:
        # a new file is still empty, unless it is a link
        if name and mask & watch.IN_CREATE and not _is_link(directory / name):
            return
        is_removal = mask & (watch.IN_MOVED_FROM | watch.IN_DELETE) and is_manifest_name(name)
        if not name or is_removal:
            self._events.on_manifests()
        else:
            self._events.on_complete_manifests()

    def _on_place(self, place: Path, name: str, _: int) -> None:
        """Watch the new drop-ins of a unit, in a directory that contains directories of drop-ins."""
        unit = UnitName(name.removesuffix(".d"))
        for each in [unit] if name else list(self._units):
            if each in self._units and self._watch_drop_ins(place, each):
                self._events.on_unit(each)

    def _on_written(
        self, unit: UnitName, group: str, directory: Path, name: str, mask: int
    ) -> None:
        if mask & watch.IN_IGNORED:
            self._units[unit].pop(directory, None)
            self._events.on_unit(unit)
        elif _HUGEPAGES.fullmatch(name):
            self._events.on_unit(unit)
        elif not _NO_LIMIT.fullmatch(name):
            self._written[group] = unit
            if self._comparing is None:
                self._comparing = self._loop.call_later(_QUIET_SEC, self._compare)

    def _compare(self) -> None:
        """Report the units whose limits have changed.

        Whenever a slice is started or stopped, systemd writes all files of its siblings again,
        unchanged.
        """
        written, self._written, self._comparing = self._written, {}, None
        for group, unit in written.items():
            limits = self._cgroups.limits(group)
            if group in self._limits and limits != self._limits[group]:
                self._limits[group] = limits
                self._events.on_unit(unit)

    def _on_events(self, unit: UnitName, path: Path, _: str, mask: int) -> None:
        if mask & watch.IN_IGNORED:
            self._units[unit].pop(path, None)
        else:
            self._events.on_memory_event(unit)


def _describe(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the limit of the kernel is reached (sysctl fs.inotify.max_user_watches)"
    return error.strerror or str(error)


def _is_link(path: Path) -> bool:
    """Return whether a path is a symbolic link, or one of several names of a file."""
    try:
        return path.is_symlink() or path.stat().st_nlink > 1
    except OSError:
        return False
