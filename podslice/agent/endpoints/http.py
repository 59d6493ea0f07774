"""A small HTTP server for whoever measures the agent: GET and HEAD, over sockets of this host.

What clients do must not hurt the agent: each has little time, none has a body to send, answers are
made one at a time, and between the parts of one the loop goes on with what matters more.
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

from podslice.agent.endpoints.clients import BACKLOG, Listener
from podslice.agent.endpoints.pages import Page, Rendering, Route, plain
from podslice.errors import HostError

_NAMES = {"localhost": "127.0.0.1"}
"""To look a name up would hold up the loop; this is the only one that may be listened at."""
_NO_NETWORK = "; its unit allows no network: see listen in podslice-agent(8)"


class Server:
    """Answers at any number of addresses."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        """Nothing is opened yet; `routes` are by path: `/healthz`."""
        self._pages = {path: Page(route) for path, route in routes.items()}
        self._listeners: list[Listener] = []
        self._paths: list[Path] = []
        self._making = asyncio.Lock()

    async def serve_unix(self, path: Path, *, mode: int = 0o660, group: str | None = None) -> None:
        """Listen at a socket file, in place of one that may be left from before.

        Args:
            path: the file; its directory is made if it is not there.
            mode: who may connect.
            group: that of the file, if there is such a group and we may give it a file; otherwise
                that of the process.

        Raises:
            HostError: it can't be made.
        """
        new = path.with_name(f".{path.name}.new")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.unlink(missing_ok=True)
            # nobody connects before the file has its owner and its mode: it has another name
            listening.bind(str(new))
            # in a sandbox it can't be given away; then it is for us alone
            with suppress(LookupError, PermissionError):
                shutil.chown(new, group=group or os.getegid())
            new.chmod(mode)
            listening.listen(BACKLOG)
            new.replace(path)
        except OSError as error:
            listening.close()
            hint = "; run as root, or use --user" if isinstance(error, PermissionError) else ""
            said = f"{path}: can't listen there: {error.strerror or error}{hint}"
            raise HostError(said) from error
        self._paths.append(path)
        await self._listen(listening, str(path))

    async def serve_sockets(self, sockets: Iterable[socket.socket]) -> None:
        """Listen at sockets that were opened by somebody else, as systemd does."""
        for listening in sockets:
            await self._listen(listening, _address(listening))

    async def serve_tcp(self, host: str, port: int) -> None:
        """Listen at an address of TCP; port 0 is any that is free.

        Raises:
            HostError: it is taken, or not an address of this host, or there is no network.
        """
        try:
            listening = _open_tcp(_NAMES.get(host, host), port)
        except OSError as error:
            hint = _NO_NETWORK if error.errno == errno.EAFNOSUPPORT else ""
            said = f"{host}:{port}: can't listen there: {error.strerror or error}{hint}"
            raise HostError(said) from error
        await self._listen(listening, _address(listening))

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it listens: `/run/podslice/agent.sock`, `127.0.0.1:9469`."""
        return tuple(listener.address for listener in self._listeners)

    async def close(self) -> None:
        """Stop listening, end what is under way, and take away the socket files made here."""
        for listener in self._listeners:
            await listener.close()
        self._listeners.clear()
        for path in self._paths:
            path.unlink(missing_ok=True)
        self._paths.clear()

    async def _listen(self, listening: socket.socket, address: str) -> None:
        listener = Listener(self._answer, listening, address)
        await listener.open()
        self._listeners.append(listener)

    async def _answer(self, path: str) -> Rendering:
        """What there is to say at a path, made by one client at a time."""
        page = self._pages.get(path)
        if page is None:
            return plain(HTTPStatus.NOT_FOUND, f"no {path!a} here; there are: {self._index}")
        async with self._making:
            return await page.get()

    @property
    def _index(self) -> str:
        return " ".join(sorted(self._pages))


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
