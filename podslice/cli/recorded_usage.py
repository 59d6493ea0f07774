"""The recorded usage of pods, which is compared with their requests."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from podslice.cli import session
from podslice.errors import HostError
from podslice.policy.recommendation import REQUEST_PERCENTILE, UsedAmounts, used_amounts
from podslice.reconcile.world import LiveWorld
from podslice.store.usage_files import UsageFiles


class RecordedUsage:
    """Reads the 90th percentile of what pods have used, again only after the agent has written."""

    def __init__(self, world: LiveWorld) -> None:
        directory = session.usage_directory(world.config, world.manager)
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
        history = files.read(files.pod_path(pod))
        if history is not None and history.pod.samples:
            return used_amounts(history.pod, int(time.time()), REQUEST_PERCENTILE)
    return None
