"""Changes by verbs, so that the agent does not take them for external ones.

A verb records what it is about to change, and after it that it is over. The agent reads the record
before it judges what has changed. No time is compared: a record is in force until it is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from podslice.errors import HostError
from podslice.kernel.proc import read_process
from podslice.model.node_state import ManualChange
from podslice.model.unit import UnitName
from podslice.reconcile.assess import living_agent
from podslice.store.store import Store


def record(
    store: Store, verb: str, *, pods: Iterable[str], units: Iterable[UnitName]
) -> ManualChange:
    """Record what this process is about to change.

    Raises:
        HostError: /run can't be written.
    """
    process = read_process(os.getpid())
    change = ManualChange(
        verb=verb,
        pods=tuple(pods),
        units=tuple(units),
        pid=os.getpid(),
        # Distinguishes this process from a later one with the same id.
        started_ticks=process.started_ticks if process else 0,
    )
    store.manual_changes.save(change)
    return change


def finish(store: Store, change: ManualChange) -> None:
    """Record that a change is over; where no agent runs, remove all that are."""
    with suppress(HostError):
        if living_agent(store) is not None:
            store.manual_changes.save(replace(change, is_over=True))
            return
        store.manual_changes.drop(change)
        take_over(store)


def take_over(store: Store) -> tuple[ManualChange, ...]:
    """Return the changes that are over, and remove their records."""
    over = tuple(change for change in store.manual_changes.load() if _is_over(change))
    for change in over:
        with suppress(HostError):
            store.manual_changes.drop(change)
    return over


def _is_over(change: ManualChange) -> bool:
    """Return whether a verb has finished, or was killed."""
    process = None if change.is_over else read_process(change.pid)
    return process is None or process.started_ticks != change.started_ticks
