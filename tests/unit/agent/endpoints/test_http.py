import asyncio
import gc
import grp
import os
import socket
import stat
import tempfile
from collections import Counter
from pathlib import Path

import h11
import pytest

from podslice.agent.endpoints import http
from podslice.agent.endpoints.http import Response, Server, WaitingFor
from podslice.agent.service_process import open_file, open_port
from podslice.errors import HostError
from tests.unit.agent.fakes import skip_time

pytestmark = pytest.mark.usefixtures("allow_effects")  # sockets in the test's own directory


class Pages:
    """Routes that count their requests."""

    def __init__(self):
        self.asked = {}
        self.broken = None
        self.known = {
            "/hello": self.hello,
            "/big": self.big,
            "/costly": self.costly,
            "/bad": self.bad,
        }

    def routes(self):
        return self.known

    def _count(self, path):
        self.asked[path] = self.asked.get(path, 0) + 1
        return self.asked[path]

    async def hello(self):
        self._count("/hello")
        return Response(body=[b"hello ", b"world"])

    async def big(self):
        return Response(body=[b"x" * 100_000] * 50, content_type="application/json")

    async def costly(self):
        return Response(body=[b"%d" % self._count("/costly")], fresh_sec=5.0)

    async def bad(self):
        raise self.broken


@pytest.fixture
def pages():
    return Pages()


@pytest.fixture
async def server(pages, tmp_path):
    made = Server(pages.routes())
    await made.listen([open_file(tmp_path / "socket", "no-such-group")])
    yield made
    await made.close()


class Client:
    """One connection."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self._protocol = h11.Connection(h11.CLIENT)

    async def ask(self, path, method="GET", headers=(), body=b""):
        """Return the status, headers and body of the response."""
        request = h11.Request(method=method, target=path, headers=[("Host", "x"), *headers])
        self.writer.write(self._protocol.send(request))
        if body:
            self.writer.write(self._protocol.send(h11.Data(data=body)))
        self.writer.write(self._protocol.send(h11.EndOfMessage()))
        answer = await self.take()
        if self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE:
            self._protocol.start_next_cycle()
        return answer

    async def take(self):
        head, parts = None, []
        while not isinstance(event := self._protocol.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                self._protocol.receive_data(await self.reader.read(65536))
            elif isinstance(event, h11.Response):
                head = event
            else:
                parts.append(bytes(event.data))
        headers = {name.decode(): value.decode() for name, value in head.headers}
        return head.status_code, headers, b"".join(parts)

    async def raw(self, data):
        """Send bytes; return everything received until the connection is closed."""
        self.writer.write(data)
        return await self.reader.read()


@pytest.fixture
async def connect(tmp_path):
    writers = []

    async def open_one(opening=None):
        opening = opening or asyncio.open_unix_connection(tmp_path / "socket")
        reader, writer = await opening
        writers.append(writer)
        return Client(reader, writer)

    yield open_one
    for writer in writers:
        writer.close()


@pytest.fixture
async def client(server, connect):
    return await connect()


def get(path, *more):
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: x", *more, "", "")).encode()


async def test_a_path_is_served_repeatedly_on_one_connection(client):
    for _ in range(3):
        status, headers, body = await client.ask("/hello")
        assert (status, body) == (200, b"hello world")
        assert headers["content-type"] == "text/plain; charset=utf-8"
        assert headers["date"].endswith("GMT")
        assert "connection" not in headers


async def test_head_has_the_headers_alone(client):
    status, headers, body = await client.ask("/hello", method="HEAD")
    assert (status, headers["content-length"], body) == (200, "11", b"")
    assert (await client.ask("/hello"))[2] == b"hello world"


@pytest.mark.parametrize("target", ["/hello?x=1", "http://localhost/hello", "/hello?"])
async def test_a_query_and_a_host_change_nothing(client, target):
    assert (await client.ask(target))[0] == 200


@pytest.mark.parametrize("target", ["/", "/hello/", "/%68ello", "//hello", "*", "http://["])
async def test_an_unknown_path_is_not_found_and_paths_are_listed(client, target):
    status, _, body = await client.ask(target)
    assert status == 404
    assert b"/bad /big /costly /hello" in body
    assert (await client.ask("/hello"))[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"])
async def test_other_methods_are_rejected(client, pages, method):
    status, headers, _ = await client.ask("/hello", method=method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")
    assert not pages.asked


async def test_a_body_is_not_read(client, pages):
    status, headers, _ = await client.ask("/hello", headers=[("Content-Length", "3")], body=b"abc")
    assert (status, headers["connection"]) == (413, "close")
    assert await client.reader.read() == b""
    assert not pages.asked


async def test_an_empty_body_is_accepted(client):
    assert (await client.ask("/hello", headers=[("Content-Length", "0")]))[0] == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"hello\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"GET /hello HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nBad Header: y\r\n\r\n", b"400"),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", b"501"),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 40_000, b"431"),
    ],
)
async def test_an_invalid_request_is_refused_and_the_connection_closed(client, sent, status):
    answer = await client.raw(sent)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.count(b"HTTP/1.1") == 1


async def test_an_http_1_0_client_is_served_once(client):
    answer = await client.raw(b"GET /hello HTTP/1.0\r\n\r\n")
    assert answer.endswith(b"hello world")


async def test_requests_may_be_pipelined(client):
    answer = await client.raw(get("/hello") * 50 + get("/hello", "Connection: close"))
    assert answer.count(b"hello world") == 51


async def test_a_large_response_arrives_completely(client):
    _, headers, body = await client.ask("/big")
    assert len(body) == int(headers["content-length"]) == 5_000_000


async def test_a_client_that_does_not_read_is_disconnected(server, connect, monkeypatch):
    monkeypatch.setattr(http, "REQUEST_TIMEOUT_SEC", 0.1)
    lazy, other = await connect(), await connect()
    lazy.writer.transport.pause_reading()
    lazy.writer.write(get("/big"))
    assert (await other.ask("/hello"))[0] == 200
    await asyncio.sleep(0.3)
    lazy.writer.transport.resume_reading()
    assert len(await lazy.reader.read()) < 5_000_000


async def test_an_incomplete_request_times_out(server, connect, monkeypatch):
    monkeypatch.setattr(http, "REQUEST_TIMEOUT_SEC", 0.1)
    slow = await connect()
    assert await slow.raw(b"GET /hello HTTP/1.1\r\nHo") == b""


async def test_an_idle_connection_times_out(server, connect, monkeypatch):
    monkeypatch.setattr(http, "IDLE_TIMEOUT_SEC", 0.1)
    idle = await connect()
    assert await idle.reader.read() == b""


async def test_a_client_may_disconnect_at_any_time(server, connect):
    for sent in (b"", b"GET /hel", get("/big"), get("/hello") * 20):
        gone = await connect()
        gone.writer.write(sent)
        await asyncio.sleep(0.01)
        gone.writer.transport.abort()
    assert (await (await connect()).ask("/hello"))[0] == 200


async def test_a_new_client_replaces_an_idle_one(server, connect, monkeypatch):
    monkeypatch.setattr(http, "PEER_CONNECTIONS_MAX", 3)
    idle = [await connect() for _ in range(3)]
    await idle[0].ask("/hello")
    for _ in range(3):
        assert (await (await connect()).ask("/hello"))[0] == 200
    assert await idle[0].reader.read() == b""


async def test_many_clients_at_once_are_served_or_disconnected(server, connect, monkeypatch):
    monkeypatch.setattr(http, "PEER_CONNECTIONS_MAX", 3)
    crowd = await asyncio.gather(*(connect() for _ in range(30)))
    await until(lambda: sum(each.reader.at_eof() for each in crowd) == 27)
    ended = [each for each in crowd if each.reader.at_eof()]
    for each in crowd:
        if each not in ended:
            assert (await each.ask("/hello"))[0] == 200


# Limits on connections.


@pytest.fixture
def gate(pages):
    """Return an event that lets /gate respond."""
    opened = asyncio.Event()

    async def wait():
        await opened.wait()
        return Response(body=[b"open"])

    pages.known["/gate"] = wait
    return opened


@pytest.fixture
def peer(monkeypatch):
    """Return a function that sets the peer of the next connections."""

    def be(name):
        monkeypatch.setattr(http, "peer_of", lambda _: name)

    return be


async def until(condition):
    """Run the event loop until a condition is true."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the server sets no event for a test
            await asyncio.sleep(0)


async def hold(server, connect, waits):
    """Connect, and have the connection wait for something."""
    sent = {
        WaitingFor.NEXT_REQUEST: b"",
        WaitingFor.REST_OF_REQUEST: b"GET /hello",
        WaitingFor.RESPONSE: get("/gate"),
    }
    sent[WaitingFor.CLIENT_READ] = get("/big")
    before = set(server.connections)
    client = await connect()
    if waits is WaitingFor.CLIENT_READ:
        client.writer.transport.pause_reading()
    client.writer.write(sent[waits])
    await until(lambda: waits in {each.waiting_for for each in set(server.connections) - before})
    return client


async def test_connections_are_replaced_in_the_order_of_their_states(
    gate, server, connect, monkeypatch
):
    monkeypatch.setattr(http, "PEER_CONNECTIONS_MAX", 4)
    order = (WaitingFor.CLIENT_READ, WaitingFor.REST_OF_REQUEST, WaitingFor.NEXT_REQUEST)
    *_, answered = [await hold(server, connect, each) for each in (*order, WaitingFor.RESPONSE)]
    for number in range(3):
        held = [each.waiting_for for each in server.connections]
        assert held == [*order[: 3 - number], *[WaitingFor.RESPONSE] * (number + 1)]
        await hold(server, connect, WaitingFor.RESPONSE)
    answer = await (await connect()).reader.read()
    assert answer.startswith(b"HTTP/1.1 503")
    gate.set()
    assert (await answered.take())[2] == b"open"


async def test_the_oldest_connection_is_replaced_first(server, connect, monkeypatch):
    monkeypatch.setattr(http, "PEER_CONNECTIONS_MAX", 3)
    first, second, third = [await hold(server, connect, WaitingFor.NEXT_REQUEST) for _ in range(3)]
    # the first one has waited for its next request for less time than the others
    assert (await first.ask("/hello"))[0] == 200
    await connect()
    assert await second.reader.read() == b""
    await connect()
    assert await third.reader.read() == b""
    assert (await first.ask("/hello"))[0] == 200


async def test_incomplete_requests_of_one_user_lock_out_no_other(server, connect, peer):
    peer("uid 1000")
    for _ in range(100):
        await hold(server, connect, WaitingFor.REST_OF_REQUEST)
    assert len(server.connections) == http.PEER_CONNECTIONS_MAX
    peer("uid 0")
    root = await connect()
    assert (await root.ask("/hello"))[0] == 200
    peer("uid 1000")
    for _ in range(100):
        await hold(server, connect, WaitingFor.REST_OF_REQUEST)
    assert (await root.ask("/hello"))[0] == 200


async def test_slow_readers_of_one_user_lock_out_no_other(server, connect, peer):
    peer("uid 1000")
    for _ in range(20):
        await hold(server, connect, WaitingFor.CLIENT_READ)
    assert len(server.connections) == http.PEER_CONNECTIONS_MAX
    # all of them are sent one response, which is in memory once
    assert len({id(each.sent) for each in server.connections}) == 1
    peer("uid 0")
    assert len((await (await connect()).ask("/big"))[2]) == 5_000_000


async def test_slow_readers_of_old_responses_are_disconnected(pages, server, connect):
    made = []

    async def changing():
        made.append(1)
        return Response(body=[b"%d" % len(made) * 1_000_000])

    pages.known["/changing"] = changing
    slow = []
    for count in (1, 2, 3, 4, 4, 4):
        slow.append(await connect())
        slow[-1].writer.transport.pause_reading()
        slow[-1].writer.write(get("/changing", "Connection: close"))
        await until(lambda: len(made) == len(slow))
        await until(lambda: len(server.connections) == count)  # noqa: B023 - awaited here
    for each in slow:
        each.writer.transport.resume_reading()
    sizes = [len(await each.reader.read()) for each in slow]
    assert [size > 1_000_000 for size in sizes] == [False, False, True, True, True, True]


async def test_at_a_full_address_the_peer_with_most_connections_loses_one(server, connect, peer):
    for user, count in ((0, 1), (1, 7), (2, 8), (3, 8), (4, 8)):
        peer(f"uid {user}")
        for _ in range(count):
            kind = WaitingFor.REST_OF_REQUEST if user else WaitingFor.NEXT_REQUEST
            await hold(server, connect, kind)
    assert len(server.connections) == http.CONNECTIONS_MAX
    for number in range(20):
        peer(f"uid {1000 + number}")
        await hold(server, connect, WaitingFor.REST_OF_REQUEST)
    held = Counter(each.peer for each in server.connections)
    assert held.total() == http.CONNECTIONS_MAX
    assert held["uid 0"] == 1
    assert max(held.values()) <= 3


@pytest.fixture
def public():
    """A directory that other users can access."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    directory.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another user")
async def test_the_user_is_reported_by_the_kernel(public, pages, connect):
    server = Server(pages.routes())
    await server.listen([open_file(public / "socket", "no-such-group")])
    (public / "socket").chmod(0o666)
    os.seteuid(65534)
    try:
        for _ in range(12):
            slow = await connect(asyncio.open_unix_connection(public / "socket"))
            slow.writer.write(b"GET /hello")
    finally:
        os.seteuid(0)
    client = await connect(asyncio.open_unix_connection(public / "socket"))
    assert (await client.ask("/hello"))[0] == 200
    assert Counter(each.peer for each in server.connections) == {
        "uid 65534": http.PEER_CONNECTIONS_MAX,
        "uid 0": 1,
    }
    await server.close()
    (public / "socket").unlink()


async def test_a_peer_of_tcp_is_its_address(pages, connect):
    server = Server(pages.routes())
    listening = open_port("127.0.0.1:0")
    await server.listen([listening])
    port = listening.getsockname()[1]
    for address in ("127.0.0.1", "127.0.0.2"):
        opening = asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        assert (await (await connect(opening)).ask("/hello"))[0] == 200
    assert [each.peer for each in server.connections] == ["127.0.0.1", "127.0.0.2"]
    await server.close()


async def test_an_expensive_response_is_shared(server, connect, pages, monkeypatch):
    asking = [await connect() for _ in range(5)]
    answers = await asyncio.gather(*(each.ask("/costly") for each in asking))
    assert {body for _, _, body in answers} == {b"1"}
    skip_time(monkeypatch, 6)
    assert (await asking[0].ask("/costly"))[2] == b"2"


async def test_the_event_loop_continues_while_a_long_response_is_rendered(tmp_path, connect):
    parts = []

    async def slow():
        def body():
            for number in range(100):
                parts.append(number)
                yield b"."

        return Response(body=body())

    server = Server({"/slow": slow})
    await server.listen([open_file(tmp_path / "socket", "no-such-group")])
    asking = asyncio.create_task((await connect()).ask("/slow"))
    seen = set()
    while not asking.done():
        await asyncio.sleep(0)
        seen.add(len(parts))
    assert len((await asking)[2]) == 100
    assert len(seen) > 50
    await server.close()


@pytest.mark.parametrize("error", [HostError("/proc is gone"), PermissionError("not yours")])
async def test_an_error_is_reported_and_does_not_last(client, pages, error):
    pages.broken = error
    status, _, body = await client.ask("/bad")
    assert (status, body) == (500, f"{error}\n".encode())
    assert (await client.ask("/hello"))[0] == 200


async def test_the_socket_file_is_accessible_to_its_group_only(server, tmp_path):
    found = (tmp_path / "socket").stat()
    assert stat.S_IMODE(found.st_mode) == 0o660
    assert found.st_gid == os.getegid()
    assert [path.name for path in tmp_path.iterdir()] == ["socket"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to groups")
async def test_the_socket_file_belongs_to_the_named_group_if_it_exists(tmp_path):
    group = next(each for each in grp.getgrall() if each.gr_gid != os.getegid())
    open_file(tmp_path / "one", group.gr_name).close()
    open_file(tmp_path / "two", "no-such-group").close()
    assert (tmp_path / "one").stat().st_gid == group.gr_gid
    assert (tmp_path / "two").stat().st_gid == os.getegid()


async def test_an_existing_socket_file_is_replaced(tmp_path, pages, connect):
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "socket"))
    left.close()
    server = Server(pages.routes())
    await server.listen([open_file(tmp_path / "socket", "no-such-group")])
    assert (await (await connect()).ask("/hello"))[0] == 200
    await server.close()


async def test_the_directory_of_a_socket_file_is_created(tmp_path):
    server = Server({})
    await server.listen([open_file(tmp_path / "missing/socket", "no-such-group")])
    assert (tmp_path / "missing/socket").is_socket()
    await server.close()


async def test_a_socket_file_that_cannot_be_created_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="cannot listen: Not a directory"):
        open_file(tmp_path / "file/below/socket", "no-such-group")


async def test_sockets_of_systemd_of_any_kind_are_served(tmp_path, pages):
    of_file, of_port = socket.socket(socket.AF_UNIX), socket.socket()
    of_file.bind(str(tmp_path / "socket"))
    of_port.bind(("127.0.0.1", 0))
    for each in (of_file, of_port):
        each.listen()
    server = Server(pages.routes())
    await server.listen([of_file, of_port])
    port = of_port.getsockname()[1]
    for opening in (
        asyncio.open_unix_connection(tmp_path / "socket"),
        asyncio.open_connection("127.0.0.1", port),
    ):
        client = Client(*await opening)
        assert (await client.ask("/hello"))[0] == 200
        client.writer.close()
    await server.close()
    assert (tmp_path / "socket").exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
async def test_addresses_of_tcp(pages, host):
    server = Server(pages.routes())
    listening = open_port(f"[{host}]:0" if ":" in host else f"{host}:0")
    await server.listen([listening])
    address, port = listening.getsockname()[:2]
    assert address == ("127.0.0.1" if host == "localhost" else host)
    client = Client(*await asyncio.open_connection(host, port))
    assert (await client.ask("/hello"))[0] == 200
    client.writer.close()
    with pytest.raises(HostError, match="cannot listen: Address already in use"):
        open_port(f"{host}:{port}")
    await server.close()


async def test_closing_closes_connections(pages, tmp_path, connect):
    server = Server(pages.routes())
    await server.listen([open_file(tmp_path / "socket", "no-such-group")])
    idle, busy = await connect(), await connect()
    busy.writer.write(b"GET /hello")
    await asyncio.sleep(0.01)
    await server.close()
    assert await idle.reader.read() == await busy.reader.read() == b""
    with pytest.raises(ConnectionRefusedError):
        await connect()


async def test_a_response_that_is_no_longer_fresh_uses_no_memory(pages, server, connect):
    body = b"a response of this test"

    async def short():
        return Response(body=[body], fresh_sec=0.001)

    def is_kept():
        return any(type(each) is Response and body in each.body for each in gc.get_objects())

    pages.known["/short"] = short
    client = await connect()
    assert (await client.ask("/short"))[2] == body
    # timers run in the order of their times
    await asyncio.sleep(0.01)
    assert not is_kept()
