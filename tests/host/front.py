"""Serve metrics of several hosts in one network namespace, as a web server in front of each agent does.

    nsenter --net=FILE python3 -I front.py ADDRESS:PORT=SOURCE...

SOURCE is a file with a page, or the socket of an agent. It writes a line when it is ready, and ends
with its standard input.
"""

import http.client
import os
import socket
import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Handler(BaseHTTPRequestHandler):
    """Answers every GET from one source."""

    def __init__(self, source: Path, *args: object) -> None:
        self.source = source
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:  # (as the library calls it)
        try:
            is_file = self.source.is_file()
            status, kind, page = (
                (200, TEXT, self.source.read_bytes()) if is_file else ask(self.source, self.path)
            )
        except OSError as error:
            self.send_error(502, str(error))
            return
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def ask(path: Path, page: str) -> tuple[int, str, bytes]:
    """Return status, content type and content of an agent's answer."""
    connection = http.client.HTTPConnection("agent")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(30)
    connection.sock.connect(os.fspath(path))
    connection.request("GET", page)
    answer = connection.getresponse()
    return answer.status, answer.getheader("Content-Type", ""), answer.read()


def main() -> None:
    """Serve until the end of the input."""
    for argument in sys.argv[1:]:
        address, source = argument.split("=", 1)
        host, port = address.split(":")
        server = ThreadingHTTPServer((host, int(port)), partial(Handler, Path(source)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
