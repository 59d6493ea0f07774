"""The options of `podslice agent` that follow a kubelet, and the agent that does."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Callable
from pathlib import Path

import typer

from podslice.agent.service_process import prepare_memory
from podslice.cli.arguments import DONE
from podslice.cli.host import level_directory, load_node
from podslice.cli.options import Planning, declared, parameter
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
from podslice.model.node import Node
from podslice.systemd import bus
from podslice.systemd.journal import Journal
from podslice.systemd.notify import Notifier, listen_fds

_Agent = Callable[[Planning, Path | None], int]
_RESTORE = parameter(
    "restore",
    typer.Option("--restore", help="Set the values of the kubelet again before the exit."),
    bool,
)


def with_kubelet(verb: _Agent) -> Callable[..., int]:
    """Return the verb `agent` with the options of a kubelet; with them it applies pod levels only."""

    def agent(
        planning: Planning,
        socket: Path | None,
        *,
        source: KubeletSource,
        restore: bool,
    ) -> int:
        # an invalid configuration is an error before anything is opened
        if not check_options(source, planning.config, planning.manager, restores=restore):
            return verb(planning, socket)
        prepare_memory()
        run_kubelet_agent(source, planning, socket, restores=restore)
        return DONE

    own = inspect.signature(verb, eval_str=True).parameters.values()
    source = inspect.Parameter("source", inspect.Parameter.KEYWORD_ONLY)
    return kubelet_options(declared(agent, verb, [*own, source, _RESTORE]))


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
        return at, api, settings, load_node(settings.config)


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
    directory = level_directory(planning.manager)
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
