"""From options to a world: configuration, node, records and a connection to systemd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

from podslice.cli.options import Planning
from podslice.cli.output import note
from podslice.errors import BusUnavailable, HostError
from podslice.kernel.host import read_node
from podslice.model.config import Config
from podslice.model.manager import Manager
from podslice.model.node import Node
from podslice.model.pod import Pod
from podslice.model.resources import CPU, MEMORY
from podslice.reconcile.world import LiveWorld, World
from podslice.store import Store
from podslice.systemd.find_manager import find_manager

T = TypeVar("T")


def load_node(config: Config, *, lenient: bool = False) -> Node:
    """This host; no host at all where the capacity is stated anyway, or does not matter.

    Raises:
        HostError: the host's capacity can't be read, and is needed.
    """
    try:
        return read_node()
    except HostError:
        if lenient or {CPU, MEMORY} <= config.capacity.keys():
            return Node(capacity={})
        raise


def runtime_directory(manager: Manager) -> Path:
    """Where records are kept until the end of the boot, or of the user's session.

    Raises:
        HostError: there is no session, or it is somebody else's.
    """
    base = manager.runtime_directory
    directory = Path(base, "podslice")
    if not manager.is_user:
        return directory
    if not manager.has_session:
        raise HostError(
            "there is no user session: XDG_RUNTIME_DIR is not set; log in, or enable lingering"
            f" (loginctl enable-linger) and set XDG_RUNTIME_DIR={base}"
        )
    owner, uid = _owner(base), manager.uid
    if owner not in (uid, None):
        raise HostError(
            f"XDG_RUNTIME_DIR is {base}, which is user {owner}'s, and this is user {uid}; set"
            f" XDG_RUNTIME_DIR=/run/user/{uid}"
        )
    return directory


def _owner(path: str) -> int | None:
    """Whose a directory is; None where that can't be seen."""
    try:
        return Path(path).stat().st_uid
    except OSError:
        return None


def open_store(planning: Planning) -> Store:
    """What is kept until the end of the boot, or of the user's session.

    Raises:
        HostError: there is no session, or it is somebody else's.
    """
    directory = runtime_directory(planning.manager)
    return Store(directory, cgroup_root=planning.config.cgroup_root)


@asynccontextmanager
async def open_world(planning: Planning) -> AsyncIterator[LiveWorld]:
    """Connect to the service manager.

    Raises:
        BusUnavailable: there is no service manager to connect to.
    """
    from podslice.kernel.cgroup import CgroupFs
    from podslice.reconcile.guard import Guarded
    from podslice.systemd.bus import Bus
    from podslice.systemd.slice_files import SliceFiles

    offline = offline_world(planning)
    # a user's manager is asked: its files depend on the session
    files = None if planning.manager.is_user else SliceFiles(Path("/"), CgroupFs())
    async with Bus(planning.manager, files=files) as bus:
        world = offline.with_client(Guarded(bus, lambda: world.guard.claim(world)))
        yield world


def offline_world(planning: Planning) -> World:
    """Return the world without a connection.

    Raises:
        HostError: there is no session, or it is another user's.
    """
    return World(
        node=load_node(planning.config),
        config=planning.config,
        origin=planning.origin,
        store=open_store(planning),
        manager=planning.manager,
        on_note=_once(note),
    )


def on_wait() -> None:
    """Say that the lock is somebody else's."""
    note("another podslice is at work; waiting for it")


def _once(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Tell each thing once; a verb may look twice."""
    told: set[str] = set()

    def tell_once(text: str) -> None:
        if text not in told:
            told.add(text)
            tell(text)

    return tell_once


def in_world(planning: Planning, work: Callable[[LiveWorld], Awaitable[T]]) -> T:
    """Run a coroutine function with a connection to the service manager."""

    async def session() -> T:
        async with open_world(planning) as world:
            return await work(world)

    return asyncio.run(session())


def in_world_or_offline(planning: Planning, work: Callable[[World], Awaitable[T]]) -> T:
    """Run a coroutine function with a connection to the service manager, if there is one."""

    async def session() -> T:
        async with AsyncExitStack() as stack:
            try:
                world: World = await stack.enter_async_context(open_world(planning))
            except BusUnavailable as error:
                note(f"{error}; the plan is for a host with nothing on it")
                world = offline_world(planning)
            return await work(world)

    return asyncio.run(session())


def applied_pods(planning: Planning) -> tuple[Pod, ...]:
    """The pods that were applied, as their records say.

    Raises:
        HostError: the records can't be read, or there is no session that could have any.
    """
    return open_store(planning).load().pods


def recorded_pods(planning: Planning) -> tuple[Pod, ...]:
    """The pods that were applied, where their records can be read."""
    try:
        return applied_pods(planning)
    except HostError as error:
        note(f"{error}; the pods that were applied are not counted")
        return ()


@asynccontextmanager
async def open_recorded_world(store: Store) -> AsyncIterator[LiveWorld]:
    """Connect, with the root that the record names: no configuration is needed, nor may be wrong."""
    from podslice.reconcile.guard import Guarded
    from podslice.reconcile.rollback import recorded
    from podslice.systemd.bus import Bus

    async with Bus(find_manager()) as bus:
        root = recorded(store).cgroup_root
        world = LiveWorld(
            node=Node(capacity={}),
            config=Config(cgroup_root=root),
            store=Store(store.root, cgroup_root=root),
            client=Guarded(bus, lambda: world.guard.claim(world)),
        )
        yield world
