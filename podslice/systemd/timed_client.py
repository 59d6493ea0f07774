"""A client that measures the duration of changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum

from podslice.systemd.client import (
    Change,
    Client,
    ClientAround,
    SetValues,
    Start,
    StartBatch,
    Stop,
    StopBatch,
)


class Operation(StrEnum):
    """An operation on a control group, named as in the kubelet's metrics.

    Source: Kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go, CgroupManagerDuration.
    """

    CREATE = "create"
    UPDATE = "update"
    DESTROY = "destroy"


OnOperation = Callable[[Operation, float], None]


_OPERATIONS = {
    Start: Operation.CREATE,
    StartBatch: Operation.CREATE,
    SetValues: Operation.UPDATE,
    Stop: Operation.DESTROY,
    StopBatch: Operation.DESTROY,
}


class TimedClient(ClientAround):
    """Measures how long another client takes to create, change or remove each unit.

    The units of a batch are started together, so that each takes as long as the batch.
    """

    def __init__(self, client: Client, on_operation: OnOperation) -> None:
        """Call `on_operation` with each operation that succeeds and its duration in seconds."""
        super().__init__(client)
        self._on_operation = on_operation

    async def submit(self, change: Change) -> None:
        now = asyncio.get_running_loop().time
        begun = now()
        await self._client.submit(change)
        operation = _OPERATIONS.get(type(change))
        if operation is not None:
            for _ in change.names:
                self._on_operation(operation, now() - begun)
