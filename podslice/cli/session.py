"""The world of a verb: configuration, node, records and a connection to systemd."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

from podslice.cli import coroutines, interrupts
from podslice.cli.extensions import cpu_stage
from podslice.cli.host import load_node, open_store
from podslice.cli.options import Planning
from podslice.cli.output import note
from podslice.errors import BusUnavailable
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.proc import find_manager
from podslice.model.config import Config
from podslice.model.node import Node
from podslice.reconcile.rollback import recorded
from podslice.reconcile.world import Guarded, LiveWorld, World
from podslice.store.store import Store
from podslice.systemd import bus
from podslice.systemd.slice_files import SliceFiles

T = TypeVar("T")


@asynccontextmanager
async def open_world(planning: Planning) -> AsyncIterator[LiveWorld]:
    """Connect to the service manager.

    Raises:
        BusUnavailable: there is no service manager to connect to.
    """
    offline = offline_world(planning)
    # the files of a user manager depend on the session, so systemd is asked
    files = None if planning.manager.is_user else SliceFiles(Path("/"), CgroupFs())
    async with bus.Bus(planning.manager, files=files) as client:
        yield offline.with_client(Guarded(client, offline.claim))


def offline_world(planning: Planning) -> World:
    """Return the world without a connection.

    Raises:
        HostError: there is no session, or it is another user's.
    """
    return World(
        node=load_node(planning.config, manager=planning.manager),
        config=planning.config,
        origin=planning.origin,
        store=open_store(planning),
        manager=planning.manager,
        cpu_stage=cpu_stage(planning.config),
        on_note=cache(note),  # once for each text, as a verb may observe twice
    )


@contextmanager
def locked(store: Store) -> Iterator[None]:
    """Hold the lock of all writers; report a wait for it, which a signal ends.

    Raises:
        HostError: another process has held it for too long.
    """
    with ExitStack() as stack:
        with interrupts.at_once():
            stack.enter_context(
                store.lock(lambda: note("waiting for another podslice process to release the lock"))
            )
        yield


def in_world(planning: Planning, work: Callable[[LiveWorld], Awaitable[T]]) -> T:
    """Run a coroutine function with a connection to the service manager."""

    async def session() -> T:
        async with open_world(planning) as world:
            return await work(world)

    return coroutines.run(session())


def in_world_or_offline(planning: Planning, work: Callable[[World], Awaitable[T]]) -> T:
    """Run a coroutine function with a connection to the service manager, if there is one."""

    async def session() -> T:
        async with AsyncExitStack() as stack:
            try:
                world: World = await stack.enter_async_context(open_world(planning))
            except BusUnavailable as error:
                note(f"{error}; planning for a host without units")
                world = offline_world(planning)
            return await work(world)

    return coroutines.run(session())


@asynccontextmanager
async def open_recorded_world(store: Store) -> AsyncIterator[LiveWorld]:
    """Connect with the recorded root slice, independent of the configuration."""
    async with bus.Bus(find_manager()) as client:
        root = recorded(store).cgroup_root
        offline = World(
            node=Node(capacity={}),
            config=Config(cgroup_root=root),
            store=Store(store.root, cgroup_root=root),
        )
        yield offline.with_client(Guarded(client, offline.claim))
