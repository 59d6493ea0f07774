"""The recorded usage of pods and slices, from which amounts are recommended or compared."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from podslice.cli import host
from podslice.cli.options import Planning
from podslice.errors import HostError, invalid
from podslice.features.history.files import UsageFiles
from podslice.features.history.recommendation import REQUEST_PERCENTILE, used_amounts
from podslice.features.history.samples import is_expired
from podslice.model.resources import UsedAmounts
from podslice.model.unit import Manager
from podslice.reconcile.world import LiveWorld


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
