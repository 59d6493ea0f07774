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
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import h11

from podslice.errors import HostError, PodsliceError

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

CONNECTIONS_MAX = 32
"""At each address, so that a crowd at one keeps nobody from another."""
PATIENCE_SEC = 10.0
"""How long a request may take to come, and an answer to be taken."""
IDLE_SEC = 150.0
"""How long a connection may wait for its next request: Prometheus asks each minute."""

_NAMES = {"localhost": "127.0.0.1"}
"""To look a name up would hold up the loop; this is the only one that may be listened at."""
_BACKLOG = 32
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_READ_BYTES = 16 * 1024
_WRITE_BYTES = 64 * 1024
_NO_NETWORK = "; its unit allows no network: see listen in podslice-agent(8)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a path says at the moment."""

    body: Iterable[bytes]
    """In parts, each of which is made quickly."""
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    fresh_sec: float = 0.0
    """How long it is good enough for others, too; for one that costs something."""


Route = Callable[[], Awaitable[Answer]]


class Server:
    """Answers at any number of addresses."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        """Nothing is opened yet; `routes` are by path: `/healthz`."""
        self._pages = {path: _Page(route) for path, route in routes.items()}
        self._listeners: list[_Listener] = []
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
            listening.listen(_BACKLOG)
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
        listener = _Listener(self._answer, listening, address)
        await listener.open()
        self._listeners.append(listener)

    async def _answer(self, path: str) -> _Made:
        """What there is to say at a path, made by one client at a time."""
        page = self._pages.get(path)
        if page is None:
            return _plain(HTTPStatus.NOT_FOUND, f"no {path!a} here; there are: {self._index}")
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
        listening.listen(_BACKLOG)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """An answer that can be sent."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()


_Answer = Callable[[str], Awaitable[_Made]]


def _plain(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> _Made:
    return _Made(body=f"{text}\n".encode(), status=status, headers=headers)


class _Page:
    """One path, and its last answer for as long as that is fresh."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._made: _Made | None = None
        self._fresh_until = 0.0

    async def get(self) -> _Made:
        now = asyncio.get_running_loop().time
        if self._made is not None and now() < self._fresh_until:
            return self._made
        self._made = None
        try:
            answer = await self._route()
            parts = []
            for part in answer.body:
                parts.append(part)
                await asyncio.sleep(0)
        except (PodsliceError, OSError) as error:
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        made = _Made(body=b"".join(parts), content_type=answer.content_type, status=answer.status)
        if answer.fresh_sec:
            self._made, self._fresh_until = made, now() + answer.fresh_sec
        return made


class _Listener:
    """One address, and who is connected there."""

    def __init__(self, answer: _Answer, listening: socket.socket, address: str) -> None:
        self.address = address
        self._answer = answer
        self._socket = listening
        self._clients: dict[asyncio.Task[None], _Conversation] = {}
        self._server: asyncio.Server

    async def open(self) -> None:
        self._server = await asyncio.start_server(
            self._connected, sock=self._socket, backlog=_BACKLOG
        )

    async def close(self) -> None:
        self._server.close()
        clients = list(self._clients)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= CONNECTIONS_MAX and not self._make_room():
            writer.write(_BUSY)
            writer.close()
            return
        conversation = _Conversation(self._answer, reader, writer)
        client = asyncio.create_task(conversation.run())
        self._clients[client] = conversation
        client.add_done_callback(self._part_with)

    def _part_with(self, client: asyncio.Task[None]) -> None:
        # not by the task itself, which may have been cancelled before it has begun
        self._clients.pop(client).hang_up()

    def _make_room(self) -> bool:
        """Part with the oldest connection that nobody uses at the moment."""
        for client, conversation in self._clients.items():
            if conversation.is_idle:
                conversation.is_idle = False
                client.cancel()
                return True
        return False


class _Conversation:
    """One client."""

    def __init__(
        self, answer: _Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.is_idle = True
        self._answer = answer
        self._reader = reader
        self._writer = writer
        self._talk = h11.Connection(h11.SERVER)
        # what is written counts as taken only when the kernel has it all
        writer.transport.set_write_buffer_limits(high=0)

    async def run(self) -> None:
        """Answer until either side has had enough."""
        # whoever is too slow, or goes away, did not want to know
        with suppress(TimeoutError, ConnectionError):
            while await self._exchange():
                pass

    def hang_up(self) -> None:
        """Close the connection, whatever is under way."""
        self._writer.transport.abort()

    async def _exchange(self) -> bool:
        """One request and its answer; returns whether there may be another."""
        is_head = False
        try:
            request = await self._request()
            if request is None:
                return False
            is_head = request.method == b"HEAD"
            made = self._refusal(request) or await self._answer(_path(request))
        except h11.RemoteProtocolError as error:
            made = _plain(HTTPStatus(error.error_status_hint), str(error))
        await self._send(made, is_head=is_head)
        if self._talk.our_state is not h11.DONE or self._talk.their_state is not h11.DONE:
            return False
        self._talk.start_next_cycle()
        # requests that came all at once must not hold up the loop
        await asyncio.sleep(0)
        return True

    async def _request(self) -> h11.Request | None:
        """The next request; None once the client has left."""
        if not self._talk.trailing_data[0]:
            self.is_idle = True
            async with asyncio.timeout(IDLE_SEC):
                await self._receive()
            self.is_idle = False
        async with asyncio.timeout(PATIENCE_SEC):
            while (event := self._talk.next_event()) is h11.NEED_DATA:
                await self._receive()
        return event if isinstance(event, h11.Request) else None

    async def _receive(self) -> None:
        self._talk.receive_data(await self._reader.read(_READ_BYTES))

    def _refusal(self, request: h11.Request) -> _Made | None:
        is_whole = isinstance(self._talk.next_event(), h11.EndOfMessage)
        if request.method not in (b"GET", b"HEAD"):
            text = "there is nothing to do here but GET"
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED, text, ("Allow", "GET, HEAD"))
        if not is_whole:
            return _plain(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "nobody reads what you send")
        return None

    async def _send(self, made: _Made, *, is_head: bool) -> None:
        headers = [
            ("Date", formatdate(usegmt=True)),
            ("Content-Type", made.content_type),
            ("Content-Length", str(len(made.body))),
            ("Cache-Control", "no-store"),
            *made.headers,
        ]
        if self._talk.their_state is not h11.DONE:
            headers.append(("Connection", "close"))
        head = h11.Response(
            status_code=made.status, headers=headers, reason=made.status.phrase.encode()
        )
        async with asyncio.timeout(PATIENCE_SEC):
            await self._write(head)
            for start in range(0, 0 if is_head else len(made.body), _WRITE_BYTES):
                await self._write(h11.Data(data=made.body[start : start + _WRITE_BYTES]))
            await self._write(h11.EndOfMessage())

    async def _write(self, event: h11.Event) -> None:
        self._writer.write(self._talk.send(event) or b"")
        await self._writer.drain()


def _path(request: h11.Request) -> str:
    """The path that is asked for, without a query; also of a whole address, as proxies send it."""
    try:
        return urlsplit(request.target.decode()).path
    except ValueError:
        return ""
