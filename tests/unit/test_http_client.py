"""Requests to servers on the loopback interface that reply slowly, without an end, or wrongly."""

import socket
import ssl
import threading
from types import SimpleNamespace

import pytest

from podslice.errors import InputError
from podslice.http_client import describe_error, get, make_tls, parse_url
from tests.unit.raw_server import RawServer

# servers and their clients, on the loopback interface
pytestmark = pytest.mark.usefixtures("allow_effects")
PORTS = {"http": 80, "https": 443}
LONG_SEC, SHORT_SEC = 60.0, 0.1
LATE = f"there is no complete reply within {SHORT_SEC} s"
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def url(text):
    return parse_url(
        text, PORTS, where="--server", what="a URL", hint="write more", credentials_hint="ask"
    )


def ask(server, path="/", *, tls=None, limit_bytes=1000, within_sec=LONG_SEC, host="127.0.0.1"):
    address = url(f"{'http' if tls is None else 'https'}://{host}:{server.port}/base/")
    return get(
        address, path, tls=tls, headers={"A": "b"}, limit_bytes=limit_bytes, within_sec=within_sec
    )


def refuse(server, **more):
    with pytest.raises(OSError) as found:  # noqa: PT011 - the caller compares the reason
        ask(server, **more)
    return describe_error(found.value)


@pytest.mark.parametrize(
    ("reply", "status", "content"),
    [
        (OK + b"Content-Length: 2\r\n\r\n{}", 200, b"{}"),
        (OK + b"\r\nuntil the end", 200, b"until the end"),
        (CHUNKED + b"2;a=b\r\nab\r\n1\r\nc\r\n0\r\nA: b\r\n\r\n", 200, b"abc"),
        (CONTINUE + b"HTTP/1.0 404 Not Found\r\n\r\n", 404, b""),
        (b"HTTP/1.1 302 \r\nLocation: /\r\nContent-Length: 0\r\n\r\n", 302, b""),
    ],
)
def test_a_reply_has_a_status_and_a_content(reply, status, content):
    with RawServer(reply) as server:
        found = ask(server, "/a?b=c")
        assert (found.status, found.content) == (status, content)
    (request,) = server.requests
    begin, *lines = request.decode().split("\r\n")
    assert begin == "GET /base/a?b=c HTTP/1.1"
    assert lines == [f"Host: 127.0.0.1:{server.port}", "Connection: close", "A: b", "", ""]


@pytest.mark.parametrize(
    ("begin", "part"),
    [
        (b"", b"H"),
        (OK, b"A"),
        (OK + b"A:", b" b"),
        (OK, b"A: b\r\n"),
        (CHUNKED, b"0"),
        (CHUNKED + b"5;", b"x"),
        (CHUNKED, b"1\r\nx\r\n"),
        (CHUNKED + b"0\r\n", b"A: b\r\n"),
        (OK + b"\r\n", b"x"),
        (CONTINUE + b"HTTP/1.1 1", b"0"),
    ],
)
def test_one_deadline_ends_every_part_of_a_reply(begin, part):
    with RawServer(begin, part, pause_sec=0.03) as server:
        found = refuse(server, within_sec=SHORT_SEC)
    assert found == LATE


@pytest.mark.parametrize("begin", [b"", OK, CHUNKED, CHUNKED + b"0\r\n"])
def test_a_server_that_is_silent_is_left(begin):
    with RawServer(begin, keeps_open=True) as server:
        found = refuse(server, within_sec=SHORT_SEC)
    assert found == LATE


# a record of a handshake, whose length the server never reaches
@pytest.mark.parametrize(("begin", "part"), [(b"", b""), (b"\x16\x03\x03\x40\x00\x02\0\0", b"x")])
def test_the_deadline_ends_a_handshake(begin, part):
    with RawServer(begin, part, pause_sec=0.03, keeps_open=True) as server:
        found = refuse(server, tls=make_tls(), within_sec=SHORT_SEC)
    assert found == LATE


def test_the_deadline_ends_a_connection():
    """The queue of a socket that accepts nothing is full after one."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        with socket.create_connection(listening.getsockname()):
            server = SimpleNamespace(port=listening.getsockname()[1])
            found = refuse(server, within_sec=SHORT_SEC)
    assert found == LATE


def test_the_deadline_ends_the_resolution_of_a_name(monkeypatch):
    ends = threading.Event()

    def wait(*_, **__):
        ends.wait()
        raise OSError("too late")

    monkeypatch.setattr(socket, "getaddrinfo", wait)
    with RawServer() as server:
        found = refuse(server, host="node1", within_sec=SHORT_SEC)
    ends.set()
    assert found == LATE
    assert server.requests == []


def test_a_name_that_is_not_known(monkeypatch):
    def fail(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with RawServer() as server:
        assert refuse(server, host="node1") == "name or service not known"


def test_every_address_of_a_name_is_tried(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        closed = gone.getsockname()
    with RawServer(OK + b"\r\n") as server:
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))
            for port in (closed[1], server.port)
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        assert ask(server, host="node1").status == 200
        del addresses[1:]
        assert refuse(server, host="node1") == "connection refused"
        del addresses[:]
        assert refuse(server, host="node1") == "the name has no address"


@pytest.mark.parametrize(
    ("begin", "part", "error"),
    [
        (b"", CONTINUE, "the server sends informational replies without an end"),
        (OK + b"\r\n", b"x" * 1000, "the reply is larger than the limit of 64 KiB"),
        (CHUNKED, b"1;" + b"x" * 9000 + b"\r\nx\r\n", "the reply is larger than the limit of 64"),
        (OK, b"A: b\r\n" * 1000, "the reply is not valid HTTP: Receive buffer too long"),
        (CHUNKED + b"0\r\n", b"A: b\r\n" * 1000, "the reply is not valid HTTP: Receive buffer"),
    ],
)
def test_a_reply_without_an_end_is_refused_before_the_deadline(begin, part, error):
    with RawServer(begin, part, pause_sec=0) as server:
        assert refuse(server, limit_bytes=2**16).startswith(error)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"", "the server closes the connection without a reply"),
        (b"HTTP/1.1 200", "the server closes the connection without a reply"),
        (OK + b"Content-Length: 3\r\n\r\nab", "peer closed connection without sending complete"),
        (CHUNKED + b"3\r\nab", "peer closed connection without sending complete"),
        (b"SSH-2.0-x\x1b[31m\r\n\r\n", "illegal status line: bytearray(b'SSH-2.0-x\\x1b[31m')"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "the reply is not valid HTTP: "),
        (b"HTTP/1.1 000 None\r\n\r\n", "the reply is not valid HTTP: "),
        (OK + b"Content-Length: -1\r\n\r\n", "the reply is not valid HTTP: bad Content-Length"),
        # more digits than Python converts
        (OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", "the reply is not valid HTTP: "),
        (OK + b"Transfer-Encoding: gzip\r\n\r\n", "the reply is not valid HTTP: "),
        (CHUNKED + b"zz\r\n", "the reply is not valid HTTP: illegal chunk header"),
    ],
)
def test_a_reply_that_is_not_valid_is_an_error(reply, error):
    with RawServer(reply) as server:
        found = refuse(server)
    assert error in found
    assert len(found) <= 200


def test_a_port_without_tls():
    with RawServer(b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        assert refuse(server, tls=make_tls()) == "the port does not use TLS"


def test_an_authority_that_is_none():
    with pytest.raises(ssl.SSLError):
        make_tls("no PEM")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://a", "http://a:80"),
        ("https://Node1.:1/x//", "https://node1.:1/x"),
        ("https://[::1]", "https://[::1]:443"),
        ("https://[fe80::1%eth0]", "https://[fe80::1%eth0]:443"),
        ("http://bücher.example", "http://xn--bcher-kva.example:80"),
    ],
)
def test_urls(text, shown):
    assert str(url(text)) == shown


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"http://{'a' * 64}.example", "has an invalid host name: a label has 1 to 63 characters;"),
        ("http://a..b", "has an invalid host name"),
        ("http://\ud800", "has an invalid host name"),
        ("http://a\x1b", "'http://a\\x1b' is not a URL; write more"),
        ("http://a b", "is not a URL"),
        ("http://[::1", "is not a URL"),
        ("http://a:x", "is not a URL"),
        ("http://a:65536", "is not a URL"),
        ("ftp://a", "is not a URL"),
        ("http://", "is not a URL"),
        ("http://a?b", "is not a URL"),
        ("http://a/b c", "is not a URL"),
        ("http://a/\u00e4", "is not a URL"),
        ("http://me:x@a", "--server: credentials in a URL are not supported; ask"),
    ],
)
def test_texts_that_are_not_urls(text, error):
    with pytest.raises(InputError) as found:
        url(text)
    assert str(found.value).startswith("--server: ")
    assert error in str(found.value)
