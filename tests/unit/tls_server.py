"""A kubelet's API on the loopback interface, with certificates of its own."""

import http.server
import ssl
import threading
from pathlib import Path


class Certificates:
    """An authority, servers' certificates for `node1` and `localhost`, and a client's.

    `certificates/make.sh` made them.
    """

    def path(self, name):
        return Path(__file__).parent / "certificates" / name

    def text(self, name):
        return self.path(name).read_text()


class KubeletServer:
    """Documents by path; it records the requests, and may demand credentials.

    With certificates it uses TLS, with the one of this name.
    """

    def __init__(self, certificates=None, name="server"):
        self.documents = {}
        self.statuses = {}
        self.requests = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                certificate = self.connection.getpeercert() if certificates else None
                outer.requests.append((self.path, self.headers["Authorization"], certificate))
                status, body, *headers = outer.reply(self.path)
                self.send_response(status)
                for header in (*headers, ("Content-Length", str(len(body)))):
                    self.send_header(*header)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        scheme = "http"
        if certificates is not None:
            scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(
                certificates.path(f"{name}.crt"), certificates.path(f"{name}.key")
            )
            context.load_verify_locations(certificates.path("ca.crt"))
            context.verify_mode = ssl.CERT_OPTIONAL
            self._server.handle_error = lambda *_: None
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"

    def reply(self, path):
        """Return the status, the content, and further headers."""
        body = self.documents.get(path, b"")
        return self.statuses.get(path, 200 if body else 404), body

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
