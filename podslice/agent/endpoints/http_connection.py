"""The HTTP connection of one client: requests without a body, one after the other."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import IntEnum
from http import HTTPStatus
from urllib.parse import urlsplit
from wsgiref.handlers import format_date_time

import h11

from podslice.agent.endpoints.pages import Rendering, render_text

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
