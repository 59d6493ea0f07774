"""A client that passes every call on to another one; the base of those that add to some calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from podslice.model.unit import (
    Caps,
    ListedUnit,
    ObservedUnit,
    TransientUnit,
    UnitName,
    Value,
)
from podslice.systemd.client import Client

if TYPE_CHECKING:
    from podslice.model.inspected_unit import InspectedUnit
    from podslice.model.unit_definition import UnitDefinition


class DelegatingClient:
    """Passes every call on to another client."""

    def __init__(self, client: Client) -> None:
        self._client = client

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

    async def inspect(self, name: UnitName) -> InspectedUnit | None:
        return await self._client.inspect(name)

    async def read_definition(self, name: UnitName) -> UnitDefinition:
        return await self._client.read_definition(name)

    async def read_predecessors(self, name: UnitName) -> frozenset[UnitName]:
        return await self._client.read_predecessors(name)

    async def start(self, unit: TransientUnit) -> None:
        await self._client.start(unit)

    async def start_batch(self, units: Sequence[TransientUnit]) -> None:
        await self._client.start_batch(units)

    async def start_timer(self, timer: TransientUnit, service: TransientUnit) -> None:
        await self._client.start_timer(timer, service)

    async def start_existing(self, name: UnitName, *, timeout_sec: float | None = None) -> None:
        await self._client.start_existing(name, timeout_sec=timeout_sec)

    async def restart(self, name: UnitName) -> None:
        await self._client.restart(name)

    async def reload(self) -> None:
        await self._client.reload()

    async def set_properties(self, name: UnitName, properties: Mapping[str, Value]) -> None:
        await self._client.set_properties(name, properties)

    async def attach(self, name: UnitName, pids: Sequence[int]) -> None:
        await self._client.attach(name, pids)

    async def stop(self, name: UnitName, *, timeout_sec: float | None = None) -> None:
        await self._client.stop(name, timeout_sec=timeout_sec)

    async def stop_batch(self, names: Sequence[UnitName]) -> None:
        await self._client.stop_batch(names)

    async def kill(self, name: UnitName, signal_number: int) -> None:
        await self._client.kill(name, signal_number)

    async def reset_failed(self, name: UnitName) -> None:
        await self._client.reset_failed(name)
