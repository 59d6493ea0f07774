"""An HTTP server for monitoring: GET and HEAD, over sockets of this host.

Clients must not slow the agent down: requests have timeouts and no bodies, and responses are
rendered one at a time, in parts between which the event loop continues.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

from podslice.agent.endpoints.http_connection import HttpConnection
from podslice.agent.endpoints.listener import BACKLOG, AddressListener
from podslice.agent.endpoints.pages import Page, Rendering, Route, render_text
from podslice.errors import HostError

_NAMES = {"localhost": "127.0.0.1"}
"""The only supported name: resolving others would block the event loop."""
_NO_NETWORK = "; its unit allows no network: see listen in podslice-agent(8)"


class Server:
    """Serves pages at any number of addresses."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        """Open nothing yet; `routes` are by path: `/healthz`."""
        self.pages = {path: Page(route) for path, route in routes.items()}
        self._listeners: list[AddressListener] = []
        self._paths: list[Path] = []
        self._rendering = asyncio.Lock()

    async def serve_unix(self, path: Path, *, mode: int = 0o660, group: str | None = None) -> None:
        """Listen at a socket file; replace an existing one.

        Args:
            path: the file; its directory is created if needed.
            mode: the mode of the file.
            group: the group of the file, if it exists and permissions suffice; otherwise that of
                the process.

        Raises:
            HostError: the socket cannot be created.
        """
        new = path.with_name(f".{path.name}.new")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.unlink(missing_ok=True)
            # bound under another name until the file has its group and its mode
            listening.bind(str(new))
            # not permitted in a sandbox; then only the agent's own user may connect
            with suppress(LookupError, PermissionError):
                shutil.chown(new, group=group or os.getegid())
            new.chmod(mode)
            listening.listen(BACKLOG)
            new.replace(path)
        except OSError as error:
            listening.close()
            hint = "; run as root, or use --user" if isinstance(error, PermissionError) else ""
            message = f"{path}: cannot listen: {error.strerror or error}{hint}"
            raise HostError(message) from error
        self._paths.append(path)
        await self._listen(listening, str(path))

    async def serve_sockets(self, sockets: Iterable[socket.socket]) -> None:
        """Listen at open sockets, which systemd passes."""
        for listening in sockets:
            await self._listen(listening, _address(listening))

    async def serve_tcp(self, host: str, port: int) -> None:
        """Listen at a TCP address; with port 0 at any free port.

        Raises:
            HostError: the address is in use or not of this host, or there is no network.
        """
        try:
            listening = _open_tcp(_NAMES.get(host, host), port)
        except OSError as error:
            hint = _NO_NETWORK if error.errno == errno.EAFNOSUPPORT else ""
            message = f"{host}:{port}: cannot listen: {error.strerror or error}{hint}"
            raise HostError(message) from error
        await self._listen(listening, _address(listening))

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the addresses: `/run/podslice/agent.sock`, `127.0.0.1:9469`."""
        return tuple(listener.address for listener in self._listeners)

    @property
    def connections(self) -> tuple[HttpConnection, ...]:
        """Return the open connections of all addresses."""
        return tuple(each for listener in self._listeners for each in listener.connections)

    async def close(self) -> None:
        """Stop listening, close connections, and remove the socket files created here."""
        for listener in self._listeners:
            await listener.close()
        self._listeners.clear()
        for path in self._paths:
            path.unlink(missing_ok=True)
        self._paths.clear()

    async def _listen(self, listening: socket.socket, address: str) -> None:
        listener = AddressListener(self._respond, listening, address)
        await listener.open()
        self._listeners.append(listener)

    async def _respond(self, path: str) -> Rendering:
        page = self.pages.get(path)
        if page is None:
            return render_text(HTTPStatus.NOT_FOUND, f"unknown path {path!a}; paths: {self._index}")
        async with self._rendering:
            return await page.get()

    @property
    def _index(self) -> str:
        return " ".join(sorted(self.pages))


def _open_tcp(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _address(listening: socket.socket) -> str:
    name = listening.getsockname()
    if isinstance(name, str):
        return name
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
