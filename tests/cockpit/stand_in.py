"""A server of the page in place of Cockpit, with invented documents in place of podslice."""

from __future__ import annotations

import json
from difflib import unified_diff
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Self

from tests.cockpit.documents import Document, Documents

SCRIPT = Path(__file__).with_name("stand_in.js")
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".json": "text/json"}
POLICY = (
    "default-src 'self'; form-action 'self'; base-uri 'self'; object-src 'none';"
    " font-src 'self' data:; img-src 'self' data:"
)
"""Source: Cockpit, src/common/cockpitwebresponse.c, cockpit_web_response_security_policy."""
MANIFEST = """\
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  resources:
    requests:
      cpu: 250m         # its share of the CPUs when they are scarce
    limits:
      cpu: 500m
      memory: 128Mi     # above this its processes are OOM-killed
  containers:
  - name: app
  - name: worker
"""


class StandIn:
    """Serves the page of a directory; what `podslice` prints can be replaced at any time."""

    def __init__(self, page: Path) -> None:
        self.page = page
        self.documents = Documents()
        self.failures: dict[str, tuple[int, Document | None, str]] = {}
        """By verb: the exit code, the document and the text on standard error."""
        self.manifest = MANIFEST
        """The text of the file that is changed."""
        self.asked: list[list[str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.partition("?")[0]
                path = SCRIPT if name == "/base1/cockpit.js" else outer.page / Path(name).name
                if not path.is_file():
                    self.send_error(404)
                    return
                self._reply(path.read_bytes(), TYPES[path.suffix])

            def do_POST(self) -> None:
                given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                made = outer.file(given) if self.path == "/file" else outer.run(**given)
                self._reply(json.dumps(made).encode(), "text/json")

            def _reply(self, body: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", POLICY)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/podslice/index.html"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def file(self, given: Document) -> Document:
        """Replace the manifest, if there is a new text, and return it."""
        self.manifest = given.get("text", self.manifest)
        return {"text": self.manifest}

    def run(self, words: list[str], input: str) -> Document:  # noqa: A002 - a key of the request
        """Return the exit code and the outputs of a command."""
        self.asked.append(words)
        if words[0] == "diff":
            lines = (each.splitlines(keepends=True) for each in (self.manifest, input))
            return {"status": 1, "out": "".join(unified_diff(*lines)), "err": ""}
        code, document, err = self.failures.get(words[1], (0, None, ""))
        if not code and words[-2:] == ["-o", "json"]:
            document = self.documents.answer(words[:-2])
        text = "" if code else "1 done\n"
        out = text if document is None else json.dumps(document) + "\n"
        return {"status": code, "out": out, "err": err}
