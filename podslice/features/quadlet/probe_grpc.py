"""Requests of gRPC's health protocol, from the network namespace of this process.

Source: gRPC, doc/PROTOCOL-HTTP2.md and doc/health-checking.md; Kubernetes, pkg/probe/grpc/grpc.go.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)

from podslice.features.quadlet.prober import own_address
from podslice.features.quadlet.workload import Grpc

_HEADERS = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/grpc.health.v1.Health/Check"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    ("user-agent", "kube-probe/podslice"),
)
_UNCOMPRESSED = 0
_PREFIX = struct.Struct(">BI")
"""Of each message: whether it is compressed, and its length."""
_SERVICE_FIELD, _SERVING = b"\x0a", b"\x08\x01"
"""The first field of HealthCheckRequest, a text, and of HealthCheckResponse with the value SERVING."""
_REPLY_MAX, _CHUNK = 4096, 65_536


def is_serving(action: Grpc, timeout_sec: int) -> bool:
    """Request the health of a service, without TLS, and return whether it is SERVING.

    Raises:
        OSError: there is no connection, or no complete reply.
        h2.exceptions.ProtocolError: the reply is not one of HTTP/2.
    """
    host = own_address()
    connection = H2Connection(H2Configuration())
    connection.initiate_connection()
    stream = connection.get_next_available_stream_id()
    connection.send_headers(stream, ((":authority", f"{host}:{action.port}"), *_HEADERS))
    connection.send_data(stream, _request(action.service), end_stream=True)
    headers: dict[bytes, bytes] = {}
    reply = b""
    with socket.create_connection((host, action.port), timeout_sec) as peer:
        peer.sendall(connection.data_to_send())
        while len(reply) <= _REPLY_MAX and (data := peer.recv(_CHUNK)):
            for event in connection.receive_data(data):
                if isinstance(event, ResponseReceived | TrailersReceived):
                    headers.update(event.headers)
                elif isinstance(event, DataReceived):
                    reply += event.data
                elif isinstance(event, StreamEnded):
                    return _is_ok(headers) and _is_serving(reply)
                elif isinstance(event, StreamReset | ConnectionTerminated):
                    return False
            peer.sendall(connection.data_to_send())
    raise OSError("the reply is not complete")


def _is_ok(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a response with these headers and trailers is one of gRPC, without an error.

    Source: grpc-go, internal/transport/http2_client.go, operateHeaders.
    """
    return (
        headers.get(b":status") == b"200"
        and headers.get(b"content-type", b"").startswith(b"application/grpc")
        and headers.get(b"grpc-status") == b"0"
    )


def _request(service: str) -> bytes:
    """Return a HealthCheckRequest."""
    name = service.encode()
    message = _SERVICE_FIELD + _varint(len(name)) + name if name else b""
    return _PREFIX.pack(_UNCOMPRESSED, len(message)) + message


def _varint(number: int) -> bytes:
    """Return a number as protobuf writes it: seven bits in each byte, the lowest first."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _is_serving(reply: bytes) -> bool:
    """Return whether a HealthCheckResponse states SERVING."""
    if len(reply) < _PREFIX.size:
        return False
    compressed, length = _PREFIX.unpack_from(reply)
    message = reply[_PREFIX.size :]
    return compressed == _UNCOMPRESSED and len(message) == length and message.startswith(_SERVING)
