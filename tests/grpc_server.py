"""A server of gRPC's health protocol, built on h2.

`python3 -m tests.grpc_server PORT FILE` states SERVING as long as the file exists.
"""

import socket
import sys
from pathlib import Path

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

SERVING, NOT_SERVING = b"\0\0\0\0\2\x08\1", b"\0\0\0\0\2\x08\2"
HEADERS = (":status", "200"), ("content-type", "application/grpc")


def reply(message, *, status="0", headers=HEADERS):
    """Return a function that answers a stream with a message and trailers."""

    def send(connection, stream):
        connection.send_headers(stream, headers)
        connection.send_data(stream, message)
        connection.send_headers(stream, [("grpc-status", status)], end_stream=True)

    return send


def serve(listening, send, got):
    """Answer the first request of one connection; `got` gets its headers and its message."""
    connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
    peer, _ = listening.accept()
    with peer:
        connection.initiate_connection()
        peer.sendall(connection.data_to_send())
        while data := peer.recv(4096):
            # the client may send more until it has the answer
            for event in connection.receive_data(data) if not got.get("answered") else ():
                if isinstance(event, RequestReceived):
                    got.update(event.headers)
                elif isinstance(event, DataReceived):
                    got["message"] = event.data
                elif isinstance(event, StreamEnded):
                    send(connection, event.stream_id)
                    got["answered"] = True
            peer.sendall(connection.data_to_send())


def main(port, file):
    def answer(connection, stream):
        reply(SERVING if Path(file).exists() else NOT_SERVING)(connection, stream)

    with socket.create_server(("", int(port))) as listening:
        while True:
            serve(listening, answer, {})


if __name__ == "__main__":
    main(*sys.argv[1:])
