"""The state of an agent that other podslice processes read."""

from __future__ import annotations

import os
from contextlib import suppress

from podslice.errors import HostError
from podslice.kernel.proc import read_process
from podslice.model.node_state import AgentState
from podslice.store import Store


def own_process() -> tuple[int, int]:
    """Return the id of this process, and its start in ticks since the boot; 0 if it is not known."""
    pid = os.getpid()
    process = read_process(pid)
    return pid, process.started_ticks if process else 0


def publish_state(store: Store, state: AgentState) -> None:
    """Write the state if it has changed; a failure is retried next time."""
    # compared with the file, which another program may have removed
    if state != store.agent():
        with suppress(HostError):
            store.save_agent(state)


def withdraw_state(store: Store) -> None:
    """Remove the state."""
    with suppress(HostError):
        store.drop_agent()
