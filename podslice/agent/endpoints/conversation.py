"""Speak HTTP with one client: requests without a body, answered one after the other."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from email.utils import formatdate
from enum import IntEnum
from http import HTTPStatus
from urllib.parse import urlsplit

import h11

from podslice.agent.endpoints.pages import Rendering, plain

PATIENCE_SEC = 10.0
"""How long a request may take to come, and an answer to be taken."""
IDLE_SEC = 150.0
"""How long a connection may wait for its next request: Prometheus asks each minute."""

READ_BYTES = 16 * 1024
_WRITE_BYTES = 64 * 1024

Find = Callable[[str], Awaitable[Rendering]]
"""Returns what to send for a path."""

_turns = itertools.count()


class Waits(IntEnum):
    """What a connection waits for; those that wait for the client can be given up, in this order."""

    FOR_NEXT = 0
    """No request has begun."""
    FOR_REST = 1
    """A request has begun."""
    FOR_READER = 2
    """An answer is being sent."""
    FOR_ANSWER = 3
    """An answer is being made."""


class Conversation:
    """One client."""

    def __init__(
        self, find: Find, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str
    ) -> None:
        self.peer = peer
        self._now(Waits.FOR_NEXT)
        self._find = find
        self._reader = reader
        self._writer = writer
        self._talk = h11.Connection(h11.SERVER)
        # what is written counts as taken only when the kernel has it all
        writer.transport.set_write_buffer_limits(high=0)

    async def run(self) -> None:
        """Answer until either side has had enough."""
        # a client that is too slow or has left gets no answer
        with suppress(TimeoutError, ConnectionError):
            while await self._exchange():
                pass

    def hang_up(self) -> None:
        """Close the connection, whatever is under way."""
        self._writer.transport.abort()

    def _now(self, waits: Waits) -> None:
        self.waits = waits
        self.since = next(_turns)
        """The smaller, the longer it waits for the same."""

    async def _exchange(self) -> bool:
        """One request and its answer; returns whether there may be another."""
        is_head = False
        try:
            request = await self._request()
            if request is None:
                return False
            is_head = request.method == b"HEAD"
            self._now(Waits.FOR_ANSWER)
            made = self._refusal(request) or await self._find(_path(request))
        except h11.RemoteProtocolError as error:
            made = plain(HTTPStatus(error.error_status_hint), str(error))
        self._now(Waits.FOR_READER)
        made.readers.add(self)
        try:
            await self._send(made, is_head=is_head)
        finally:
            made.readers.discard(self)
        if self._talk.our_state is not h11.DONE or self._talk.their_state is not h11.DONE:
            return False
        self._talk.start_next_cycle()
        # requests that came all at once must not hold up the loop
        await asyncio.sleep(0)
        return True

    async def _request(self) -> h11.Request | None:
        """The next request; None once the client has left."""
        if not self._talk.trailing_data[0]:
            self._now(Waits.FOR_NEXT)
            async with asyncio.timeout(IDLE_SEC):
                await self._receive()
        self._now(Waits.FOR_REST)
        async with asyncio.timeout(PATIENCE_SEC):
            while (event := self._talk.next_event()) is h11.NEED_DATA:
                await self._receive()
        return event if isinstance(event, h11.Request) else None

    async def _receive(self) -> None:
        self._talk.receive_data(await self._reader.read(READ_BYTES))

    def _refusal(self, request: h11.Request) -> Rendering | None:
        is_whole = isinstance(self._talk.next_event(), h11.EndOfMessage)
        if request.method not in (b"GET", b"HEAD"):
            text = "only GET and HEAD are supported"
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, text, ("Allow", "GET, HEAD"))
        if not is_whole:
            return plain(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "request bodies are not accepted")
        return None

    async def _send(self, made: Rendering, *, is_head: bool) -> None:
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
