"""An HTTP server for monitoring: GET and HEAD, over sockets of this host.

Clients must not slow the agent down: requests have timeouts and no bodies, and responses are
rendered one at a time, in parts between which the event loop continues.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from enum import IntEnum
from functools import partial
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit
from wsgiref.handlers import format_date_time

import h11

from podslice.errors import PodsliceError

CONNECTIONS_MAX = 32
"""Per address, so that clients of one do not lock out those of another."""
PEER_CONNECTIONS_MAX = 8
"""Per peer, so that one user does not lock out other users of the same address."""
RENDERINGS_MAX = 4
"""Different responses of one path sent at a time; clients of older ones are disconnected."""
REQUEST_TIMEOUT_SEC = 10.0
"""The longest time to receive a request, and to send a response."""
IDLE_TIMEOUT_SEC = 150.0
"""The longest time between two requests: Prometheus scrapes every minute."""
_READ_BYTES, _WRITE_BYTES = 16 * 1024, 64 * 1024
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_CREDENTIALS = struct.Struct("iII")
"""Source: unix(7), SO_PEERCRED: struct ucred."""


class Response(NamedTuple):
    """The present response of a path."""

    body: Iterable[bytes]
    """In parts, each of which is rendered quickly."""
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    fresh_sec: float = 0.0
    """How long it may be used for other requests, as rendering it is expensive."""
    headers: tuple[tuple[str, str], ...] = ()


Route = Callable[[], Awaitable[Response]]


def _error(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Response:
    return Response(body=(f"{text}\n".encode(),), status=status, headers=headers)


WaitingFor = IntEnum("WaitingFor", "NEXT_REQUEST REST_OF_REQUEST CLIENT_READ RESPONSE", start=0)
"""The state of a connection; in all but the last it may be closed for others, in this order."""
_turns = itertools.count()


class Connection:
    """The connection of a client."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        respond: Callable[[str], Awaitable[Response]],
        listener: int,
        peer: str,
    ) -> None:
        """`respond` returns the response of a path."""
        self.listener, self.peer = listener, peer
        self.path = ""
        """The path of the last request."""
        self.sent: Response | None = None
        """The response that is being sent."""
        self._reader, self._writer, self._respond = reader, writer, respond
        self._protocol = h11.Connection(h11.SERVER)
        self._wait_for(WaitingFor.NEXT_REQUEST)
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
        protocol, is_head = self._protocol, False
        try:
            if (request := await self._receive()) is None:
                return False
            is_head = request.method == b"HEAD"
            self._wait_for(WaitingFor.RESPONSE)
            self.sent = await self._answer(request)
        except h11.RemoteProtocolError as error:
            self.sent = _error(HTTPStatus(error.error_status_hint), str(error))
        # a slow reader is disconnected for others, and after a time in any case
        self._wait_for(WaitingFor.CLIENT_READ)
        async with asyncio.timeout(REQUEST_TIMEOUT_SEC):
            await self._send(self.sent, is_head=is_head)
        self.sent = None
        if protocol.our_state is not h11.DONE or protocol.their_state is not h11.DONE:
            return False
        protocol.start_next_cycle()
        # pipelined requests must not block the loop
        await asyncio.sleep(0)
        return True

    async def _receive(self) -> h11.Request | None:
        """Return the next request, or None if the client has disconnected."""
        protocol, read = self._protocol, self._reader.read
        if not protocol.trailing_data[0]:
            self._wait_for(WaitingFor.NEXT_REQUEST)
            async with asyncio.timeout(IDLE_TIMEOUT_SEC):
                protocol.receive_data(await read(_READ_BYTES))
        self._wait_for(WaitingFor.REST_OF_REQUEST)
        async with asyncio.timeout(REQUEST_TIMEOUT_SEC):
            while (event := protocol.next_event()) is h11.NEED_DATA:
                protocol.receive_data(await read(_READ_BYTES))
        return event if isinstance(event, h11.Request) else None

    async def _answer(self, request: h11.Request) -> Response:
        # A request without a body ends with its headers.
        is_whole = isinstance(self._protocol.next_event(), h11.EndOfMessage)
        if request.method not in (b"GET", b"HEAD"):
            text = "only GET and HEAD are supported"
            return _error(HTTPStatus.METHOD_NOT_ALLOWED, text, ("Allow", "GET, HEAD"))
        if not is_whole:
            return _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "request bodies are not accepted")
        self.path = ""
        with suppress(ValueError):
            # without the query; proxies send a whole URL
            self.path = urlsplit(request.target.decode()).path
        return await self._respond(self.path)

    async def _send(self, response: Response, *, is_head: bool) -> None:
        body, status = b"".join(response.body), response.status
        headers = [
            ("Date", format_date_time(time.time())),
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            *response.headers,
        ]
        if self._protocol.their_state is not h11.DONE:
            headers.append(("Connection", "close"))
        head = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
        places = range(0, 0 if is_head else len(body), _WRITE_BYTES)
        data = (h11.Data(data=body[start : start + _WRITE_BYTES]) for start in places)
        for event in itertools.chain([head], data, [h11.EndOfMessage()]):
            self._writer.write(self._protocol.send(event) or b"")
            await self._writer.drain()


class Server:
    """Serves routes at any number of addresses."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        """Open nothing yet; `routes` are by path: `/healthz`."""
        self._routes = routes
        self._fresh: dict[str, Response] = {}
        self._rendering = asyncio.Lock()
        self._listeners: list[asyncio.Server] = []
        self.connections: dict[Connection, asyncio.Task[None] | None] = {}
        """The open connections with their tasks, the oldest first."""

    async def listen(self, sockets: Iterable[socket.socket]) -> None:
        """Listen at bound sockets; each has its own limit of connections."""
        for listening in sockets:
            serve = partial(self._serve, len(self._listeners))
            self._listeners.append(
                await asyncio.start_server(serve, sock=listening, limit=_READ_BYTES)
            )

    async def close(self) -> None:
        """Stop listening, and close connections."""
        for listener in self._listeners:
            listener.close()
        tasks = [task for task in self.connections.values() if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)

    async def _respond(self, path: str) -> Response:
        """Return the last response while it is fresh, otherwise a new one; its body has one part."""
        route = self._routes.get(path)
        if route is None:
            text = f"unknown path {path!a}; paths: {' '.join(sorted(self._routes))}"
            return _error(HTTPStatus.NOT_FOUND, text)
        async with self._rendering:
            if path in self._fresh:
                return self._fresh[path]
            try:
                response, parts = await route(), list[bytes]()
                for part in response.body:
                    parts.append(part)
                    await asyncio.sleep(0)
            except (PodsliceError, OSError) as error:
                return _error(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
            response = self._share(path, response._replace(body=(b"".join(parts),)))
            if response.fresh_sec:
                self._fresh[path] = response
                asyncio.get_running_loop().call_later(response.fresh_sec, self._fresh.pop, path)
            return response

    def _share(self, path: str, made: Response) -> Response:
        """Return an equal response that is being sent, or this one.

        Clients of the oldest ones are disconnected: slow clients would otherwise hold any number of
        responses in memory.
        """
        clients = [each for each in self.connections if each.sent and each.path == path]
        clients.sort(key=lambda each: each.since)
        sent = list(dict.fromkeys(each.sent for each in clients if each.sent))
        if made in sent:
            return sent[sent.index(made)]
        for each in clients:
            if each.sent in sent[: 1 - RENDERINGS_MAX]:
                each.abort()
        return made

    async def _serve(
        self, listener: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            peer = peer_of(writer.get_extra_info("socket"))
        except OSError:  # the client has disconnected
            writer.transport.abort()
            return
        if not self._make_room(listener, peer):
            writer.write(_BUSY)
            writer.close()
            return
        connection = Connection(reader, writer, self._respond, listener, peer)
        self.connections[connection] = asyncio.current_task()
        try:
            await connection.run()
        except asyncio.CancelledError:
            return  # by `close`; asyncio would report it
        finally:
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        connection.abort()

    def _make_room(self, listener: int, peer: str) -> bool:
        """Return whether one more of this peer can be served; close another one if needed.

        The peer with the most connections loses one, the oldest idle one if there is any.
        """
        here = [each for each in self.connections if each.listener == listener]
        counts = Counter(each.peer for each in here)
        is_peer_full = counts[peer] >= PEER_CONNECTIONS_MAX
        if not is_peer_full and len(here) < CONNECTIONS_MAX:
            return True
        candidates = [
            each
            for each in here
            if each.waiting_for is not WaitingFor.RESPONSE
            and (each.peer == peer or not is_peer_full)
        ]
        if candidates:
            self._drop(
                # The states are in this order: a connection that waits for its next request loses
                # least.
                min(candidates, key=lambda each: (-counts[each.peer], each.waiting_for, each.since))
            )
        return bool(candidates)


def peer_of(connection: socket.socket) -> str:
    """Return the peer: the user of a Unix socket, otherwise the address."""
    if connection.family == socket.AF_UNIX:
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        # The user that the kernel recorded when the client connected, which the client cannot
        # choose.
        return f"uid {_CREDENTIALS.unpack(found)[1]}"
    # The kernel does not report the user of a TCP connection: all users of a host count as one.
    return str(connection.getpeername()[0])
