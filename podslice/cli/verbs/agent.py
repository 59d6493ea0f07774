"""`podslice agent`."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from podslice.agent.daemon import Daemon, Setup
from podslice.agent.service_process import prepare_memory
from podslice.cli import host
from podslice.cli.arguments import DONE
from podslice.cli.extensions import cpu_stage, extended
from podslice.cli.options import Planning, agent_options
from podslice.cli.wanted import manifest_directories
from podslice.errors import InputError
from podslice.features import FEATURES
from podslice.model.config import Config
from podslice.model.feature import load
from podslice.model.node import Node
from podslice.policy.allocatable import check_host
from podslice.reconcile.world import World
from podslice.store.store import Store
from podslice.systemd import bus
from podslice.systemd.journal import Journal
from podslice.systemd.notify import Notifier, listen_fds


@agent_options
@extended("agent")
def agent(
    planning: Planning,
    socket: Annotated[
        Path | None,
        typer.Option(
            "--socket",
            metavar="PATH",
            help="Socket of metrics and the status.",
        ),
    ] = None,
) -> int:
    """Run `podslice agent`.

    It applies changed manifests, restores values that were changed externally, and evicts pods
    when the node is short of a resource. With --kubelet it only applies the pod levels of a
    kubelet's pods.

    Examples:
        podslice agent --manifests /etc/podslice/manifests
        podslice agent --listen 127.0.0.1:9469 --sync-period 30s
    """
    # an invalid configuration is an error before anything is opened
    _check_node(host.load_node(planning.config, manager=planning.manager), planning.config)
    prepare_memory()

    async def serve() -> None:
        await Daemon(_setup(planning, socket)).run()

    asyncio.run(serve())
    return DONE


def _setup(planning: Planning, socket: Path | None) -> Setup:
    """Return what the daemon needs: how to load its world, and its connections."""
    directory = host.runtime_directory(planning.manager)
    environment = dict(os.environ)
    return Setup(
        load=lambda: _load_world(planning, directory),
        connect=lambda on_change, on_exit: bus.Bus(
            planning.manager, on_change=on_change, on_exit=on_exit
        ),
        journal=Journal(manager=planning.manager),
        manager=planning.manager,
        notifier=Notifier(environment),
        program=host.own_program(),
        parts=[load(part) for feature in FEATURES for part in feature.agent_parts],
        sockets=listen_fds(environment),
        socket_path=socket or directory / "agent.sock",
    )


def _load_world(planning: Planning, directory: Path) -> World:
    files = replace(planning)  # a reload reads the files again
    config = files.config
    config = replace(
        config,
        manifests=manifest_directories(config, planning.manager),
        usage_history=host.usage_directory(config, planning.manager),
    )
    node = host.load_node(config, manager=planning.manager)
    _check_node(node, config)
    return World(
        node=node,
        config=config,
        origin=files.origin,
        store=Store(directory, cgroup_root=config.cgroup_root),
        manager=planning.manager,
        cpu_stage=cpu_stage(config),
    )


def _check_node(node: Node, config: Config) -> None:
    """Check that the configuration is not that of another machine.

    Raises:
        InputError: it is.
    """
    if problems := tuple(check_host(node, config)):
        raise InputError(problems)
