"""Verbs about values outside the root: `confirm` keeps them, `__restore_reserved` returns them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podslice.cli import session
from podslice.cli.arguments import DONE, FAILED
from podslice.cli.output import note, write
from podslice.errors import HostError
from podslice.model.config import Config
from podslice.model.node import Node
from podslice.model.reserved import Pending, Standing
from podslice.reconcile.report import Report, told, told_skipped, told_unconfirmed
from podslice.reconcile.rollback import confirm as let_stay
from podslice.reconcile.rollback import halt, recorded
from podslice.reconcile.world import World
from podslice.store import Store


def confirm() -> int:
    """Keep the new values of reserved slices that were set with `apply --confirm`."""
    found = asyncio.run(_confirm())
    if found is None:
        note("there is nothing to confirm")
        return FAILED
    if found.standing is Standing.RETURNED:
        note(told_unconfirmed(found))
        return FAILED
    write([f"confirmed the new values of {', '.join(sorted(found.values.old))}"])
    return DONE


def restore_reserved() -> int:
    """Return the values of slices outside the root, when podslice is removed from the host."""
    report = asyncio.run(_restore_reserved())
    write([*map(told, report.results), *map(told_skipped, report.skipped)])
    return report.exit_code


async def _confirm() -> Pending | None:
    store = Store(session.runtime_directory(user=False))
    if recorded(store).unconfirmed is None:
        return None
    async with _world_of(store) as world:
        client = world.client
        if client is None:
            return None
        await world.guard.claim(world)
        # at once, for who holds the lock may take longer than the timer
        await halt(client)
        with store.lock(session.on_wait):
            return await let_stay(store, client)


async def _restore_reserved() -> Report:
    from podslice.reconcile.reserved import give_back as return_all

    store = Store(session.runtime_directory(user=False))
    if store.reserved() is None:
        raise HostError(
            f"{store.reserved_path} is damaged: which values podslice has set on other slices is not"
            " known; to return those of a slice: systemctl revert SLICE"
        )
    if not recorded(store):
        return Report()
    async with _world_of(store) as world:
        with store.lock(session.on_wait):
            return await return_all(world)


@asynccontextmanager
async def _world_of(store: Store) -> AsyncIterator[World]:
    """Connect, with the root that the record names: no configuration is needed, nor may be wrong."""
    from podslice.reconcile.guard import Guarded
    from podslice.systemd.bus import Bus

    async with Bus(user=False) as bus:
        root = recorded(store).cgroup_root
        world = World(
            node=Node(capacity={}),
            config=Config(cgroup_root=root),
            store=Store(store.root, cgroup_root=root),
            client=Guarded(bus, lambda: world.guard.claim(world)),
        )
        yield world
