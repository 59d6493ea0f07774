"""`podslice agent`."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from podslice.agent.daemon import Daemon, Setup
from podslice.cli import host
from podslice.cli.arguments import DONE
from podslice.cli.options import Planning, agent_options
from podslice.cli.wanted import manifest_directories
from podslice.errors import InputError
from podslice.features.kubelet.api import KubeletApi
from podslice.features.kubelet.config import read_version
from podslice.features.kubelet.daemon import KubeletDaemon, KubeletSetup
from podslice.features.kubelet.node import KubeletNode, KubeletSettings
from podslice.features.kubelet.pod_list import parse_pod_list
from podslice.features.kubelet.source import (
    POD_LIST,
    KubeletSource,
    check_options,
    connect,
    kubelet_options,
    read_kubelet_settings,
)
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Config
from podslice.model.node import Node
from podslice.policy.allocatable import check_host
from podslice.reconcile.world import World
from podslice.store import Store
from podslice.systemd import bus
from podslice.systemd.journal import Journal
from podslice.systemd.notify import Notifier, listen_fds

_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 256 * 1024


@agent_options
@kubelet_options
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
    *,
    source: KubeletSource,
    restore: Annotated[
        bool, typer.Option("--restore", help="Set the values of the kubelet again before the exit.")
    ] = False,
) -> int:
    """Run `podslice agent`.

    It applies changed manifests, restores values that were changed externally, and evicts pods
    when the node is short of a resource. With --kubelet it only applies the pod levels of a
    kubelet's pods.
    """
    # an invalid configuration is an error before anything is opened
    follows = check_options(source, planning.config, planning.manager, restores=restore)
    if follows:
        _prepare_memory()
        run_kubelet_agent(source, planning, socket, restores=restore)
        return DONE

    _check_node(host.load_node(planning.config, manager=planning.manager), planning.config)
    _prepare_memory()

    async def serve() -> None:
        await Daemon(_setup(planning, socket)).run()

    asyncio.run(serve())
    return DONE


def _prepare_memory() -> None:
    """Keep what is imported out of collections, and return large blocks at once.

    It is never collected, without the garbage of the imports, half a MiB.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    # glibc keeps large blocks after the first few instead of returning them to the kernel: Python's
    # table of interned strings, 2 MiB that are reallocated every few thousand rounds, would leave
    # holes twice its size. Source: mallopt(3), M_MMAP_THRESHOLD
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


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
    )


def _check_node(node: Node, config: Config) -> None:
    """Check that the configuration is not that of another machine.

    Raises:
        InputError: it is.
    """
    if problems := tuple(check_host(node, config)):
        raise InputError(problems)


SETTINGS_SEC = 60.0
"""How long the configuration and the version of the kubelet, and the credentials, are used."""


class FollowedKubelet:
    """A kubelet whose configuration may change with each of its restarts."""

    def __init__(
        self, source: KubeletSource, url: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`now` is a monotonic clock."""
        self._source = source
        self._url = url
        self._now = now
        self._known: tuple[float, KubeletApi, KubeletSettings, Node] | None = None

    def check(self) -> None:
        """Check the options, without a connection.

        Raises:
            InputError: the address, the version or a file is invalid.
            HostError: the credentials are not valid.
        """
        connect(self._source, self._url)
        if self._source.version is not None:
            read_version(self._source.version)

    def refresh(self) -> None:
        """Read everything again next time."""
        self._known = None

    def read(self) -> KubeletNode:
        """Return the pods and the configuration; after a failure everything is read again.

        Raises:
            HostError: the kubelet does not reply as expected.
            InputError: a file or a document is invalid.
        """
        known, self._known = self._known, None
        if known is None or self._now() - known[0] >= SETTINGS_SEC:
            known = self._read_settings()
        _, api, settings, node = known
        name = f"{self._url}{POD_LIST}"
        pods = parse_pod_list(api.get(POD_LIST), name, keeps_invalid=True)
        self._known = known
        return KubeletNode(pods=pods, settings=settings, node=node)

    def _read_settings(self) -> tuple[float, KubeletApi, KubeletSettings, Node]:
        at = self._now()
        api = connect(self._source, self._url)
        settings = read_kubelet_settings(self._source, self._url, api, assumes_version=False)
        return at, api, settings, host.load_node(settings.config)


def run_kubelet_agent(
    source: KubeletSource, planning: Planning, socket: Path | None, *, restores: bool
) -> None:
    """Run the agent that applies pod levels on the slices of a kubelet.

    Raises:
        InputError: the address or a file of the options is invalid.
        HostError: another agent runs, or a socket cannot be opened.
    """
    kubelet = FollowedKubelet(source, source.url or "")
    kubelet.check()
    environment = dict(os.environ)
    directory = host.level_directory(planning.manager)
    setup = KubeletSetup(
        read=kubelet.read,
        refresh=kubelet.refresh,
        connect=lambda on_change: bus.Bus(planning.manager, on_change=on_change),
        config=planning.config,
        directory=directory,
        journal=Journal(manager=planning.manager),
        notifier=Notifier(environment),
        cgroups=CgroupFs(),
        sockets=listen_fds(environment),
        socket_path=socket or directory / "agent.sock",
        restores=restores,
    )

    async def serve() -> None:
        await KubeletDaemon(setup).run()

    asyncio.run(serve())
