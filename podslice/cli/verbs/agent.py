"""`podslice agent`."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podslice.cli.arguments import DONE
from podslice.cli.options import Planning, agent_options
from podslice.cli.own_program import own_program
from podslice.cli.session import load_node, runtime_directory, usage_directory
from podslice.cli.wanted import manifest_directories
from podslice.reconcile.world import World
from podslice.store import Store

if TYPE_CHECKING:
    from podslice.agent.daemon import Setup

_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 256 * 1024


SocketPath = Annotated[
    Path | None,
    typer.Option(
        "--socket",
        metavar="PATH",
        help="Serve metrics on this socket; agent.sock in the runtime directory by default.",
    ),
]


@agent_options
def agent(planning: Planning, socket: SocketPath = None) -> int:
    """Run the agent, which keeps pods as their manifests request.

    It applies changed manifests, restores values that were changed externally, and evicts pods
    when the node is short of a resource.
    """
    from podslice.agent.daemon import Daemon

    _ = planning.config  # an invalid one is an error before anything is opened
    # what is imported is never collected, without the garbage of the imports, half a MiB
    gc.collect()
    gc.freeze()
    gc.enable()
    _release_large_blocks()

    async def serve() -> None:
        await Daemon(_setup(planning, socket)).run()

    asyncio.run(serve())
    return DONE


def _setup(planning: Planning, socket: Path | None) -> Setup:
    """Return what the daemon needs: how to load its world, and its connections."""
    from podslice.agent.daemon import Setup
    from podslice.systemd.bus import Bus
    from podslice.systemd.journal import Journal
    from podslice.systemd.notify import Notifier, listen_fds

    directory = runtime_directory(planning.manager)
    environment = dict(os.environ)
    return Setup(
        load=lambda: _load_world(planning, directory),
        connect=lambda on_change: Bus(planning.manager, on_change=on_change),
        journal=Journal(manager=planning.manager),
        manager=planning.manager,
        notifier=Notifier(environment),
        program=own_program(),
        sockets=listen_fds(environment),
        socket_path=socket or directory / "agent.sock",
    )


def _load_world(planning: Planning, directory: Path) -> World:
    files = replace(planning)  # a reload reads the files again
    config = files.config
    config = replace(
        config,
        manifests=manifest_directories(config, planning.manager),
        usage_history=usage_directory(config, planning.manager),
    )
    return World(
        node=load_node(config),
        config=config,
        origin=files.origin,
        store=Store(directory, cgroup_root=config.cgroup_root),
        manager=planning.manager,
    )


def _release_large_blocks() -> None:
    """Have glibc return large blocks to the kernel as soon as they are free.

    Otherwise it keeps such blocks after the first few. Python's table of interned strings, 2 MiB
    that are reallocated every few thousand rounds, would leave holes twice its size.

    Source: mallopt(3), M_MMAP_THRESHOLD.
    """
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
