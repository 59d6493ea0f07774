"""Renders responses, shared by their clients; few different ones are kept at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple, Protocol

from podslice.errors import PodsliceError

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


class RenderingClient(Protocol):
    """A client that a rendering is being sent to."""

    def abort(self) -> None:
        """Close the connection at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """A rendered response, for any number of clients."""

    body: bytes
    content_type: str = TEXT_TYPE
    status: HTTPStatus = HTTPStatus.OK
    headers: tuple[tuple[str, str], ...] = ()
    clients: set[RenderingClient] = field(default_factory=set, compare=False)
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
        parts = []
        for part in response.body:
            parts.append(part)
            await asyncio.sleep(0)
        made = Rendering(
            body=b"".join(parts), content_type=response.content_type, status=response.status
        )
        return self._share(made)

    def _share(self, made: Rendering) -> Rendering:
        """Return an equal rendering that is being sent, or this one; drop the oldest ones."""
        self._sent = list(self.sent)
        for each in self._sent:
            if each == made:
                return each
        while len(self._sent) >= RENDERINGS_MAX:
            for client in tuple(self._sent.pop(0).clients):
                client.abort()
        self._sent.append(made)
        return made
