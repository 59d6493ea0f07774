"""A probe over gRPC, against a server that is built on h2."""

import socket
import threading

import pytest

from podslice.features.quadlet import prober
from podslice.features.quadlet.prober import attempt
from podslice.features.quadlet.workload import Grpc, Probe, ProbeKind
from tests.grpc_server import HEADERS, NOT_SERVING, SERVING, reply, serve

pytestmark = pytest.mark.usefixtures("allow_effects")
LOOPBACK = "127.0.0.1"


def fail_without_message(connection, stream):
    """Answer with headers only, as for a service that the server does not know."""
    connection.send_headers(stream, (*HEADERS, ("grpc-status", "5")), end_stream=True)


@pytest.fixture
def probe_with(monkeypatch):
    """Return a function that probes a server, and what the server got."""
    monkeypatch.setattr("podslice.features.quadlet.probe_grpc.own_address", lambda: LOOPBACK)

    def run(answer, service=""):
        got = {}
        with socket.create_server((LOOPBACK, 0)) as listening:
            work = (listening, answer, got)
            thread = threading.Thread(target=serve, args=work, daemon=True)
            thread.start()
            action = Grpc(port=listening.getsockname()[1], service=service)
            probe = Probe(action=action, timeout_sec=30)
            success = attempt(ProbeKind.LIVENESS, probe, lambda *_: False)
            thread.join(30)
        return success, got

    return run


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply(SERVING), True),
        (reply(SERVING + b"\x12\0"), False),
        (reply(NOT_SERVING), False),
        (reply(SERVING, status="14"), False),
        (reply(SERVING[:4]), False),
        (reply(b"\1" + SERVING[1:]), False),
        (reply(b""), False),
        (reply(SERVING * 1000), False),
        (reply(SERVING, headers=((":status", "404"), HEADERS[1])), False),
        (reply(SERVING, headers=(HEADERS[0], ("content-type", "text/html"))), False),
        (fail_without_message, False),
        (lambda connection, stream: connection.reset_stream(stream), False),
        (lambda connection, _: connection.close_connection(), False),
    ],
)
def test_a_probe_succeeds_if_the_service_is_serving(probe_with, answer, expected):
    assert probe_with(answer)[0] is expected


@pytest.mark.parametrize(
    ("service", "message"),
    [
        ("", b"\0\0\0\0\0"),
        ("shop.Cart", b"\0\0\0\0\x0b\x0a\x09shop.Cart"),
        ("x" * 300, b"\0\0\0\1\x2f\x0a\xac\2" + b"x" * 300),
    ],
)
def test_a_request_names_the_service(probe_with, service, message):
    """Source: gRPC, doc/health-checking.md; protobuf, encoding of a text of 300 bytes."""
    success, got = probe_with(reply(SERVING), service)
    assert success
    assert got["message"] == message
    assert (got[":path"], got["te"]) == ("/grpc.health.v1.Health/Check", "trailers")


def test_a_server_that_does_not_speak_http_2_fails(monkeypatch):
    monkeypatch.setattr("podslice.features.quadlet.probe_grpc.own_address", lambda: LOOPBACK)
    with socket.create_server((LOOPBACK, 0)) as listening:

        def answer():
            peer, _ = listening.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        probe = Probe(action=Grpc(port=listening.getsockname()[1]), timeout_sec=30)
        assert not attempt(ProbeKind.LIVENESS, probe, lambda *_: False)


def test_a_service_of_a_unit_is_read_again():
    text = (
        '{"liveness": {"grpc": {"port": 90, "service": "a b"}, "initial_delay_sec": 0,'
        ' "period_sec": 1, "timeout_sec": 1, "success_threshold": 1, "failure_threshold": 3}}'
    )
    probes = prober.parse_probes(text)
    assert probes[ProbeKind.LIVENESS].action == Grpc(port=90, service="a b")
