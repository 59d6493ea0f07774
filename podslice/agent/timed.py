"""A client that measures how long systemd takes for what it is asked to change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from podslice.agent.counters import Operation
from podslice.model.unit import (
    Caps,
    ListedUnit,
    ObservedUnit,
    TransientUnit,
    UnitName,
    Value,
)
from podslice.systemd.client import Client

OnOperation = Callable[[Operation, float], None]


class Timed:
    """Another client; of each unit that is made, changed or removed, it tells how long that took.

    Units of a batch are up together, so each has taken as long as the batch.
    """

    def __init__(self, client: Client, on_operation: OnOperation) -> None:
        """`on_operation` is told of what has succeeded, with the seconds that it took."""
        self._client = client
        self._on_operation = on_operation

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def caps(self) -> Caps:
        return await self._client.caps()

    async def observe(self, patterns: Sequence[str]) -> tuple[ObservedUnit, ...]:
        return await self._client.observe(patterns)

    async def list_units(self, patterns: Sequence[str]) -> tuple[ListedUnit, ...]:
        return await self._client.list_units(patterns)

    async def start(self, unit: TransientUnit) -> None:
        await self._measure(Operation.CREATE, self._client.start(unit))

    async def start_batch(self, units: Sequence[TransientUnit]) -> None:
        await self._measure(Operation.CREATE, self._client.start_batch(units), len(units))

    async def start_timer(self, timer: TransientUnit, service: TransientUnit) -> None:
        await self._client.start_timer(timer, service)

    async def set_properties(self, name: UnitName, properties: Mapping[str, Value]) -> None:
        await self._measure(Operation.UPDATE, self._client.set_properties(name, properties))

    async def attach(self, name: UnitName, pids: Sequence[int]) -> None:
        await self._client.attach(name, pids)

    async def stop(self, name: UnitName, *, patience_sec: float | None = None) -> None:
        stopping = self._client.stop(name, patience_sec=patience_sec)
        await self._measure(Operation.DESTROY, stopping)

    async def stop_batch(self, names: Sequence[UnitName]) -> None:
        await self._measure(Operation.DESTROY, self._client.stop_batch(names), len(names))

    async def kill(self, name: UnitName, signal_number: int) -> None:
        await self._client.kill(name, signal_number)

    async def reset_failed(self, name: UnitName) -> None:
        await self._client.reset_failed(name)

    async def _measure(self, operation: Operation, call: Awaitable[None], units: int = 1) -> None:
        now = asyncio.get_running_loop().time
        begun = now()
        await call
        for _ in range(units):
            self._on_operation(operation, now() - begun)
