"""A kubelet's API on the loopback interface, with certificates of its own."""

import http.server
import ssl
import subprocess
import threading


def run_openssl(*arguments, cwd):
    subprocess.run(("/usr/bin/openssl", *arguments), cwd=cwd, check=True, capture_output=True)


class Certificates:
    """An authority, a server's certificate for `node1`, and a client's."""

    def __init__(self, directory):
        self._directory = directory
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        run_openssl(
            *("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2"),
            *("-subj", "/CN=lab-ca"),
            cwd=directory,
        )
        for name, subject in (("server", "/CN=node1"), ("client", "/O=system:masters/CN=admin")):
            run_openssl(
                *("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject),
                cwd=directory,
            )
            (directory / "ext").write_text("subjectAltName=DNS:node1\n")
            run_openssl(
                *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key"),
                *("-CAcreateserial", "-out", f"{name}.crt", "-days", "2", "-extfile", "ext"),
                cwd=directory,
            )

    def path(self, name):
        return self._directory / name

    def text(self, name):
        return self.path(name).read_text()


class KubeletServer:
    """Documents by path; it records the requests, and may demand credentials."""

    def __init__(self, certificates=None):
        self.documents = {}
        self.statuses = {}
        self.requests = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                certificate = self.connection.getpeercert() if certificates else None
                outer.requests.append((self.path, self.headers["Authorization"], certificate))
                body = outer.documents.get(self.path, b"")
                self.send_response(outer.statuses.get(self.path, 200 if body else 404))
                self.send_header("Content-Length", str(len(body)))
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
                certificates.path("server.crt"), certificates.path("server.key")
            )
            context.load_verify_locations(certificates.path("ca.crt"))
            context.verify_mode = ssl.CERT_OPTIONAL
            self._server.handle_error = lambda *_: None
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
