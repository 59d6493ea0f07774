"""Render answers: one at a time, shared by all who read them, and only a few at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol

from podslice.errors import PodsliceError

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

RENDERINGS_MAX = 4
"""Different renderings of one page that are being sent; the clients of the oldest lose theirs."""


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


class Reader(Protocol):
    """A client that a rendering is being sent to."""

    def hang_up(self) -> None:
        """End the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """An answer that can be sent, to any number of clients."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()
    readers: set[Reader] = field(default_factory=set, compare=False)
    """The clients that it is being sent to."""


def plain(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Rendering:
    """Return a line of text as an answer."""
    return Rendering(body=f"{text}\n".encode(), status=status, headers=headers)


class Page:
    """One path, with its renderings that are fresh or being sent."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._fresh: Rendering | None = None
        self._fresh_until = 0.0
        self._sent: list[Rendering] = []

    async def get(self) -> Rendering:
        """Return the rendering to send: the last one while it is fresh, otherwise a new one."""
        now = asyncio.get_running_loop().time
        if self._fresh is not None and now() < self._fresh_until:
            return self._fresh
        self._fresh = None
        try:
            answer = await self._route()
            rendering = await self._render(answer)
        except (PodsliceError, OSError) as error:
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        if answer.fresh_sec:
            self._fresh, self._fresh_until = rendering, now() + answer.fresh_sec
        return rendering

    async def _render(self, answer: Answer) -> Rendering:
        parts = []
        for part in answer.body:
            parts.append(part)
            await asyncio.sleep(0)
        made = Rendering(
            body=b"".join(parts), content_type=answer.content_type, status=answer.status
        )
        return self._share(made)

    def _share(self, made: Rendering) -> Rendering:
        """Return a rendering that is being sent in place of an equal one; drop the oldest ones."""
        self._sent = [each for each in self._sent if each.readers]
        for each in self._sent:
            if each == made:
                return each
        while len(self._sent) >= RENDERINGS_MAX:
            for reader in tuple(self._sent.pop(0).readers):
                reader.hang_up()
        self._sent.append(made)
        return made
