"""Histories of usage: a file for each pod, `pods/NAMESPACE/NAME`, and each slice, `slices/UNIT`.

Names of pods may have 253 characters and a name of a file 255, so that there is no suffix. A file is
written beside both directories first; only the agent writes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from podslice.cli import host
from podslice.cli.options import Planning
from podslice.errors import HostError, invalid
from podslice.features.history.model import PodHistory, format_pod_history, parse_pod_history
from podslice.features.history.recommendation import REQUEST_PERCENTILE, used_amounts
from podslice.features.history.samples import is_expired
from podslice.kernel.files import read_regular
from podslice.model.resources import UsedAmounts
from podslice.model.unit import Manager, UnitName
from podslice.reconcile.world import LiveWorld
from podslice.store.files import remove, scan, write_text, writing

FILE_BYTES_MAX = 2**20
"""The largest file, of a pod with hundreds of containers."""
_FILES_MAX = 20_000
"""The most files of pods that no longer exist; those with the oldest samples are removed."""


class UsageFiles:
    """The histories below one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._pods = directory / "pods"

    def pod_path(self, key: str) -> Path:
        """Return the file of a pod, `namespace/name`."""
        return self._pods / key

    def slice_path(self, unit: UnitName) -> Path:
        """Return the file of a slice."""
        return self.directory / "slices" / unit

    def read(self, path: Path) -> PodHistory | None:
        """Return a history; None without a file.

        Raises:
            HostError: the file can't be read, or is not a history.
        """
        try:
            text = read_regular(path, limit_bytes=FILE_BYTES_MAX)
            return parse_pod_history(json.loads(text))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise HostError(f"{path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise HostError(f"{path}: not a history of usage: {error}") from error

    def write(self, path: Path, history: PodHistory) -> None:
        """Write a history; the file is replaced as a whole.

        Raises:
            HostError: it can't be written.
        """
        text = json.dumps(format_pod_history(history), separators=(",", ":"))
        new = self.directory / "new"
        with writing(path):
            write_text(path, text, new=new)

    def pods(self) -> tuple[str, ...]:
        """Return the pods with a file, as `namespace/name`."""
        return tuple(sorted(f"{path.parent.name}/{path.name}" for path, _ in self._files()))

    def prune(self, kept: Collection[str], oldest_sec: float) -> None:
        """Remove the files of pods, except `kept` ones, that were written before a time.

        Raises:
            HostError: one can't be removed.
        """
        others = [
            (written_sec, path)
            for path, written_sec in self._files()
            if f"{path.parent.name}/{path.name}" not in kept
        ]
        too_many = max(len(others) - _FILES_MAX, 0)
        for index, (written_sec, path) in enumerate(sorted(others)):
            if index < too_many or written_sec < oldest_sec:
                with writing(path):
                    remove(path)
        for directory in scan(self._pods):
            with suppress(OSError):  # it has files
                Path(directory.path).rmdir()

    def _files(self) -> Iterator[tuple[Path, float]]:
        """Yield the files of pods, and when each was written in seconds since the Unix epoch."""
        for directory in scan(self._pods):
            for file in scan(Path(directory.path)):
                with suppress(OSError):
                    yield Path(file.path), file.stat(follow_symlinks=False).st_mtime


def recorded_files(planning: Planning) -> UsageFiles:
    """Return the files of what the agent has recorded.

    Raises:
        InputError: it records nothing.
    """
    directory = host.usage_directory(planning.config, planning.manager)
    if not directory:
        raise invalid("no usage is recorded", "set usage-history to a directory")
    return UsageFiles(Path(directory))


def see_agent(manager: Manager) -> str:
    """Return how to find out whether the agent, which records the usage, is running."""
    return f"see: systemctl {'--user ' if manager.is_user else ''}status podslice-agent"


class RecordedUsage:
    """Reads the 90th percentile of what pods have used, again only after the agent has written."""

    def __init__(self, world: LiveWorld) -> None:
        directory = host.usage_directory(world.config, world.manager)
        self._files = UsageFiles(Path(directory)) if directory else None
        self._known: dict[str, tuple[int, UsedAmounts | None]] = {}
        """By the key of the pod, with the time at which its file was written."""

    def read(self, pod: str) -> UsedAmounts | None:
        """Return the amounts of a pod; None without a valid history."""
        if self._files is None:
            return None
        try:
            written_nsec = self._files.pod_path(pod).stat().st_mtime_ns
        except OSError:
            return None
        known = self._known.get(pod)
        if known is None or known[0] != written_nsec:
            known = self._known[pod] = written_nsec, _read(self._files, pod)
        return known[1]


def _read(files: UsageFiles, pod: str) -> UsedAmounts | None:
    with suppress(HostError):  # recommend reports it
        history, now_sec = files.read(files.pod_path(pod)), int(time.time())
        if history is not None and history.pod.samples and not is_expired(history.pod, now_sec):
            return used_amounts(history.pod, now_sec, REQUEST_PERCENTILE)
    return None
