"""Marks of evicted pods, which keep them from running again."""

from __future__ import annotations

from collections.abc import Callable

from podslice.agent.node_status import NodeStatus
from podslice.errors import HostError
from podslice.model.node_state import Eviction
from podslice.store import Store


class EvictionMarks:
    """Writes marks; a mark that cannot be written is in force as long as the agent runs."""

    def __init__(self, store: Callable[[], Store], status: NodeStatus) -> None:
        """`store` returns the store of the current configuration."""
        self._store = store
        self._status = status
        self._unwritten: dict[str, Eviction] = {}

    @property
    def unwritten(self) -> dict[str, Eviction]:
        """Return the marks that could not be written, by the uids of their pods."""
        return dict(self._unwritten)

    def get_unwritten(self, uid: str) -> Eviction | None:
        """Return the mark of a pod that could not be written."""
        return self._unwritten.get(uid)

    def retry(self) -> None:
        """Write the marks that could not be written before."""
        for mark in self.unwritten.values():
            self.write(mark)

    def write(self, mark: Eviction) -> None:
        """Write a mark, or keep it in memory and report why."""
        try:
            self._store().mark_evicted(mark)
        except HostError as error:
            is_known = mark.uid in self._unwritten
            self._unwritten[mark.uid] = mark
            if not is_known:
                pods = ", ".join(sorted(each.pod for each in self._unwritten.values()))
                self._status.fail(
                    "marks",
                    f"cannot write the marks of evicted pods: {error}; only as long as this agent"
                    f" runs, these pods are kept from running again: {pods}",
                )
        else:
            self._unwritten.pop(mark.uid, None)
            if not self._unwritten:
                self._status.recover("marks")
