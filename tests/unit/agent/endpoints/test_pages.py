"""Renderings: shared by clients, and limited in number."""

import asyncio
import gc
from http import HTTPStatus

import pytest

from podslice.agent.endpoints.http import RENDERINGS_MAX, Page, Rendering, Response
from podslice.errors import HostError


class Client:
    """A client that reads no response, and stays until its connection is closed."""

    def __init__(self, rendering):
        self.rendering = rendering
        rendering.clients.add(self)

    def abort(self):
        self.rendering.clients.discard(self)

    @property
    def is_connected(self):
        return self in self.rendering.clients


class Source:
    """A route with a list of responses."""

    def __init__(self, *texts, fresh_sec=0.0):
        self.texts = list(texts)
        self.fresh_sec = fresh_sec

    async def __call__(self):
        text = self.texts.pop(0)
        if isinstance(text, Exception):
            raise text
        return Response(body=[text], fresh_sec=self.fresh_sec)


async def test_slow_clients_hold_a_limited_number_of_renderings():
    page = Page(Source(*(b"%d" % number for number in range(100))))
    clients = []
    for _ in range(100):
        clients.append(Client(await page.get()))
        held = {id(each.rendering) for each in clients if each.is_connected}
        assert len(held) <= RENDERINGS_MAX
    assert [each.is_connected for each in clients] == [False] * 96 + [True] * 4


async def test_all_clients_of_the_oldest_rendering_are_disconnected():
    page = Page(Source(b"a", b"a", b"b", b"c", b"d", b"e"))
    oldest = [Client(await page.get()) for _ in range(2)]
    others = [Client(await page.get()) for _ in range(3)]
    assert all(each.is_connected for each in (*oldest, *others))
    others.append(Client(await page.get()))
    assert not any(each.is_connected for each in oldest)
    assert all(each.is_connected for each in others)


async def test_equal_renderings_are_one():
    page = Page(Source(*[b"ok"] * 100))
    first = Client(await page.get())
    for _ in range(99):
        assert Client(await page.get()).rendering is first.rendering
    assert first.is_connected


async def test_a_client_that_has_read_a_response_holds_none():
    page = Page(Source(*(b"%d" % number for number in range(100))))
    slow = Client(await page.get())
    for _ in range(99):
        Client(await page.get()).abort()
    assert slow.is_connected


async def test_a_fresh_rendering_is_shared_and_an_error_is_not():
    page = Page(Source(b"a", b"b", fresh_sec=1000.0))
    assert await page.get() is await page.get()
    broken = Page(Source(HostError("gone"), b"a", fresh_sec=1000.0))
    assert (await broken.get()).status is HTTPStatus.INTERNAL_SERVER_ERROR
    assert (await broken.get()).body == b"a"


async def test_a_rendering_that_is_no_longer_fresh_uses_no_memory():
    body = b"a rendering of this test"
    page = Page(Source(body, b"next", fresh_sec=0.001))

    def is_kept():
        return any(isinstance(each, Rendering) and each.body == body for each in gc.get_objects())

    await page.get()
    assert is_kept()
    # timers run in the order of their times
    await asyncio.sleep(0.01)
    assert not is_kept()
    assert (await page.get()).body == b"next"


@pytest.mark.parametrize("error", [HostError("gone"), PermissionError("no")])
async def test_an_error_affects_no_other_response(error):
    page = Page(Source(b"a", error, b"b"))
    reading = Client(await page.get())
    await page.get()
    await page.get()
    assert reading.is_connected
