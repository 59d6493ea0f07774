"""A client that measures the duration of changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum

from podslice.model.unit import (
    TransientUnit,
    UnitName,
    Value,
)
from podslice.systemd.client import Client
from podslice.systemd.delegating_client import DelegatingClient


class Operation(StrEnum):
    """An operation on a control group, named as in the kubelet's metrics.

    Source: Kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go, CgroupManagerDuration.
    """

    CREATE = "create"
    UPDATE = "update"
    DESTROY = "destroy"


OnOperation = Callable[[Operation, float], None]


class TimedClient(DelegatingClient):
    """Measures how long another client takes to create, change or remove each unit.

    The units of a batch are started together, so that each takes as long as the batch.
    """

    def __init__(self, client: Client, on_operation: OnOperation) -> None:
        """Call `on_operation` with each operation that succeeds and its duration in seconds."""
        super().__init__(client)
        self._on_operation = on_operation

    async def start(self, unit: TransientUnit) -> None:
        await self._measure(Operation.CREATE, self._client.start(unit))

    async def start_batch(self, units: Sequence[TransientUnit]) -> None:
        await self._measure(Operation.CREATE, self._client.start_batch(units), len(units))

    async def set_properties(self, name: UnitName, properties: Mapping[str, Value]) -> None:
        await self._measure(Operation.UPDATE, self._client.set_properties(name, properties))

    async def stop(self, name: UnitName, *, timeout_sec: float | None = None) -> None:
        stopping = self._client.stop(name, timeout_sec=timeout_sec)
        await self._measure(Operation.DESTROY, stopping)

    async def stop_batch(self, names: Sequence[UnitName]) -> None:
        await self._measure(Operation.DESTROY, self._client.stop_batch(names), len(names))

    async def _measure(self, operation: Operation, call: Awaitable[None], units: int = 1) -> None:
        now = asyncio.get_running_loop().time
        begun = now()
        await call
        for _ in range(units):
            self._on_operation(operation, now() - begun)
