"""An HTTP server for monitoring: GET and HEAD, over sockets of this host.

Clients must not slow the agent down: requests have timeouts and no bodies, and responses are
rendered one at a time, in parts between which the event loop continues.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import shutil
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from wsgiref.handlers import format_date_time

import h11

from podslice.errors import HostError, PodsliceError

TEXT_TYPE = "text/plain; charset=utf-8"
JSON_TYPE = "application/json"

RENDERINGS_MAX = 4
"""Different renderings of one page sent at a time; clients of older ones are disconnected."""


class Response(NamedTuple):
    """The present response of a path."""

    body: Iterable[bytes]
    """In parts, each of which is rendered quickly."""
    content_type: str = TEXT_TYPE
    status: HTTPStatus = HTTPStatus.OK
    fresh_sec: float = 0.0
    """How long it may be used for other requests, as rendering it is expensive."""


Route = Callable[[], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """A rendered response, for any number of clients."""

    body: bytes
    content_type: str = TEXT_TYPE
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()
    clients: set[HttpConnection] = field(default_factory=set, compare=False)
    """The clients that it is being sent to."""


def render_text(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Rendering:
    """Render a line of text."""
    return Rendering(body=f"{text}\n".encode(), status=status, headers=headers)


class Page:
    """One path, with the renderings that are fresh or being sent."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._fresh: Rendering | None = None
        self._sent: list[Rendering] = []

    @property
    def sent(self) -> tuple[Rendering, ...]:
        """Return the renderings that are being sent."""
        return tuple(each for each in self._sent if each.clients)

    async def get(self) -> Rendering:
        """Return the rendering to send: the last one while it is fresh, otherwise a new one."""
        if self._fresh is not None:
            return self._fresh
        try:
            response = await self._route()
            rendering = await self._render(response)
        except (PodsliceError, OSError) as error:
            return render_text(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        if response.fresh_sec:
            self._fresh = rendering
            asyncio.get_running_loop().call_later(response.fresh_sec, self._forget)
        return rendering

    def _forget(self) -> None:
        """Release the memory of the last rendering, unless it is being sent."""
        self._fresh = None
        self._sent = list(self.sent)

    async def _render(self, response: Response) -> Rendering:
        """Return an equal rendering that is being sent, or a new one; drop the oldest ones."""
        parts = []
        for part in response.body:
            parts.append(part)
            await asyncio.sleep(0)
        made = Rendering(
            body=b"".join(parts), content_type=response.content_type, status=response.status
        )
        self._sent = list(self.sent)
        for each in self._sent:
            if each == made:
                return each
        while len(self._sent) >= RENDERINGS_MAX:
            for client in tuple(self._sent.pop(0).clients):
                client.abort()
        self._sent.append(made)
        return made


REQUEST_TIMEOUT_SEC = 10.0
"""The longest time to receive a request, and to send a response."""
IDLE_TIMEOUT_SEC = 150.0
"""The longest time between two requests: Prometheus scrapes every minute."""

READ_BYTES = 16 * 1024
_WRITE_BYTES = 64 * 1024

Respond = Callable[[str], Awaitable[Rendering]]
"""Returns the response for a path."""

_turns = itertools.count()


class WaitingFor(IntEnum):
    """The state of a connection; in all but the last it may be closed for others, in this order."""

    NEXT_REQUEST = 0
    """No request has begun."""
    REST_OF_REQUEST = 1
    """A request has begun."""
    CLIENT_READ = 2
    """A response is being sent."""
    RESPONSE = 3
    """A response is being rendered."""


class HttpConnection:
    """The connection of one client."""

    def __init__(
        self,
        respond: Respond,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        peer: str,
    ) -> None:
        self.peer = peer
        self._wait_for(WaitingFor.NEXT_REQUEST)
        self._respond = respond
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.SERVER)
        # `drain` waits until the kernel has taken everything
        writer.transport.set_write_buffer_limits(high=0)

    async def run(self) -> None:
        """Respond to requests until either side closes the connection."""
        # a client that is too slow or has disconnected gets no response
        with suppress(TimeoutError, ConnectionError):
            while await self._exchange():
                pass

    def abort(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()

    def _wait_for(self, what: WaitingFor) -> None:
        self.waiting_for = what
        self.since = next(_turns)
        """Smaller for a connection that has been in its state for longer."""

    async def _exchange(self) -> bool:
        """Handle one request; return whether there may be another one."""
        is_head = False
        try:
            request = await self._request()
            if request is None:
                return False
            is_head = request.method == b"HEAD"
            self._wait_for(WaitingFor.RESPONSE)
            made = self._reject(request) or await self._respond(_path(request))
        except h11.RemoteProtocolError as error:
            made = render_text(HTTPStatus(error.error_status_hint), str(error))
        self._wait_for(WaitingFor.CLIENT_READ)
        made.clients.add(self)
        try:
            await self._send(made, is_head=is_head)
        finally:
            made.clients.discard(self)
        if self._protocol.our_state is not h11.DONE or self._protocol.their_state is not h11.DONE:
            return False
        self._protocol.start_next_cycle()
        # pipelined requests must not block the loop
        await asyncio.sleep(0)
        return True

    async def _request(self) -> h11.Request | None:
        """Return the next request, or None if the client has disconnected."""
        if not self._protocol.trailing_data[0]:
            self._wait_for(WaitingFor.NEXT_REQUEST)
            async with asyncio.timeout(IDLE_TIMEOUT_SEC):
                await self._receive()
        self._wait_for(WaitingFor.REST_OF_REQUEST)
        async with asyncio.timeout(REQUEST_TIMEOUT_SEC):
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                await self._receive()
        return event if isinstance(event, h11.Request) else None

    async def _receive(self) -> None:
        self._protocol.receive_data(await self._reader.read(READ_BYTES))

    def _reject(self, request: h11.Request) -> Rendering | None:
        """Return the error of a request that is not supported."""
        is_whole = isinstance(self._protocol.next_event(), h11.EndOfMessage)
        if request.method not in (b"GET", b"HEAD"):
            text = "only GET and HEAD are supported"
            return render_text(HTTPStatus.METHOD_NOT_ALLOWED, text, ("Allow", "GET, HEAD"))
        if not is_whole:
            return render_text(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "request bodies are not accepted"
            )
        return None

    async def _send(self, made: Rendering, *, is_head: bool) -> None:
        headers = [
            ("Date", format_date_time(time.time())),
            ("Content-Type", made.content_type),
            ("Content-Length", str(len(made.body))),
            ("Cache-Control", "no-store"),
            *made.headers,
        ]
        if self._protocol.their_state is not h11.DONE:
            headers.append(("Connection", "close"))
        head = h11.Response(
            status_code=made.status, headers=headers, reason=made.status.phrase.encode()
        )
        async with asyncio.timeout(REQUEST_TIMEOUT_SEC):
            await self._write(head)
            for start in range(0, 0 if is_head else len(made.body), _WRITE_BYTES):
                await self._write(h11.Data(data=made.body[start : start + _WRITE_BYTES]))
            await self._write(h11.EndOfMessage())

    async def _write(self, event: h11.Event) -> None:
        self._writer.write(self._protocol.send(event) or b"")
        await self._writer.drain()


def _path(request: h11.Request) -> str:
    """Return the path of a request without its query; proxies send a whole URL."""
    try:
        return urlsplit(request.target.decode()).path
    except ValueError:
        return ""


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
            text = f"unknown path {path!a}; paths: {' '.join(sorted(self.pages))}"
            return render_text(HTTPStatus.NOT_FOUND, text)
        async with self._rendering:
            return await page.get()


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


CONNECTIONS_MAX = 32
"""Per address, so that clients of one do not lock out those of another."""
PEER_CONNECTIONS_MAX = 8
"""Per peer, so that one user does not lock out other users of the same address."""
BACKLOG = 32

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_CREDENTIALS = struct.Struct("iII")
"""Source: unix(7), SO_PEERCRED: struct ucred."""


def peer_of(connection: socket.socket) -> str:
    """Return the peer: the user of a Unix socket, otherwise the address."""
    if connection.family == socket.AF_UNIX:
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return f"uid {_CREDENTIALS.unpack(found)[1]}"
    return str(connection.getpeername()[0])


class AddressListener:
    """One address with its connections."""

    def __init__(self, respond: Respond, listening: socket.socket, address: str) -> None:
        self.address = address
        self._respond = respond
        self._socket = listening
        self._connections: dict[asyncio.Task[None], HttpConnection] = {}
        self._server: asyncio.Server

    @property
    def connections(self) -> tuple[HttpConnection, ...]:
        """Return the open connections, the oldest first."""
        return tuple(self._connections.values())

    async def open(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(
            self._on_connected, sock=self._socket, backlog=BACKLOG, limit=READ_BYTES
        )

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        self._server.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            peer = peer_of(writer.get_extra_info("socket"))
        except OSError:  # the client has disconnected
            writer.transport.abort()
            return
        if not self._make_room(peer):
            writer.write(_BUSY)
            writer.close()
            return
        connection = HttpConnection(self._respond, reader, writer, peer)
        task = asyncio.create_task(connection.run())
        self._connections[task] = connection
        task.add_done_callback(self._close)

    def _close(self, task: asyncio.Task[None]) -> None:
        # not by the task itself, which may be cancelled before it begins
        connection = self._connections.pop(task, None)
        if connection is not None:
            connection.abort()

    def _make_room(self, peer: str) -> bool:
        """Return whether one more of this peer can be served; close another one if needed.

        The peer with the most connections loses one, the oldest idle one if there is any.
        """
        counts = Counter(each.peer for each in self.connections)
        if counts[peer] < PEER_CONNECTIONS_MAX and counts.total() < CONNECTIONS_MAX:
            return True
        is_peer_full = counts[peer] >= PEER_CONNECTIONS_MAX
        candidates = [
            (-counts[each.peer], each.waiting_for, each.since, task)
            for task, each in self._connections.items()
            if each.waiting_for is not WaitingFor.RESPONSE
            and (each.peer == peer or not is_peer_full)
        ]
        if not candidates:
            return False
        *_, task = min(candidates, key=lambda each: each[:3])
        self._close(task)
        task.cancel()
        return True
