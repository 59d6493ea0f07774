"""The daemon: agent."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from podslice.cli.arguments import DONE
from podslice.cli.options import Planning, agent_options
from podslice.cli.session import load_node, runtime_directory
from podslice.model.config import Config
from podslice.reconcile.world import World
from podslice.store import Store

_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 256 * 1024


@agent_options
def agent(
    planning: Planning,
    socket: Annotated[
        Path | None,
        typer.Option(
            "--socket",
            metavar="PATH",
            help="Serve metrics on this socket; agent.sock in the runtime directory by default.",
        ),
    ] = None,
) -> int:
    """Run the agent, which keeps pods as their manifests request.

    It applies changed manifests, restores values that were changed externally, and evicts pods
    when the node is short of a resource.
    """
    from podslice.agent.daemon import Daemon, Setup
    from podslice.systemd.bus import Bus
    from podslice.systemd.journal import Journal
    from podslice.systemd.notify import Notifier, listen_fds

    _ = planning.config  # an invalid one is refused before anything is opened
    # other verbs are over before it pays; what is imported by now stays for good
    gc.freeze()
    gc.enable()
    _give_back_large_blocks()
    directory = runtime_directory(planning.manager)

    def load() -> World:
        files = replace(planning)  # a reload reads the files again
        config = files.config
        if planning.manager.is_user and config.manifests == Config().manifests:
            # those of the host are the host's business
            config = replace(config, manifests=(own_manifests(os.environ),))
        return World(
            node=load_node(config),
            config=config,
            origin=files.origin,
            store=Store(directory, cgroup_root=config.cgroup_root),
            manager=planning.manager,
        )

    async def live() -> None:
        environment = dict(os.environ)
        setup = Setup(
            load=load,
            connect=lambda on_change: Bus(planning.manager, on_change=on_change),
            journal=Journal(manager=planning.manager),
            manager=planning.manager,
            notifier=Notifier(environment),
            sockets=listen_fds(environment),
            socket=socket or directory / "agent.sock",
        )
        await Daemon(setup).run()

    asyncio.run(live())
    return DONE


def own_manifests(environment: Mapping[str, str]) -> str:
    """The directory of a user's own manifests: `~/.config/podslice/manifests`.

    Source: XDG Base Directory Specification, XDG_CONFIG_HOME.
    """
    base = environment.get("XDG_CONFIG_HOME", "")
    above = Path(base) if base.startswith("/") else Path.home() / ".config"
    return str(above / "podslice/manifests")


def _give_back_large_blocks() -> None:
    """Have glibc return large blocks to the kernel as soon as they are free.

    Without this it comes to keep them once it has seen a few. Python's table of interned strings,
    2 MiB that are made anew every some thousand rounds, would leave holes twice its size.

    Source: mallopt(3), M_MMAP_THRESHOLD.
    """
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
