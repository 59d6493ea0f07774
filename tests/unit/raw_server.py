"""A server on the loopback interface that sends prepared bytes, whatever it is asked."""

import itertools
import select
import socket
import threading
from contextlib import suppress

PAUSE_SEC = 0.01


class RawServer:
    """It sends a beginning, and then a part again and again until the client disconnects.

    Without a part it closes the connection after the beginning, unless it is to keep it open.
    """

    def __init__(self, begin=b"", part=b"", *, pause_sec=PAUSE_SEC, keeps_open=False):
        self._begin, self._part = begin, part
        self._pause_sec = pause_sec
        self._keeps_open = keeps_open
        self.requests = []
        self.port = 0

    def __enter__(self):
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._end, wakes = socket.socketpair()
        self._thread = threading.Thread(target=self._run, args=(wakes,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.close()
        self._thread.join()
        self._listening.close()

    def _run(self, wakes):
        """Serve one client after the other; a client disconnects when it has enough."""
        with wakes:
            while wakes not in select.select([self._listening, wakes], [], [])[0]:
                client, _ = self._listening.accept()
                with client, suppress(OSError):
                    self._serve(client, wakes)

    def _serve(self, client, wakes):
        self.requests.append(client.recv(4096))
        client.sendall(self._begin)
        for _ in itertools.count() if self._part else ():
            client.sendall(self._part)
            if wakes in select.select([wakes], [], [], self._pause_sec)[0]:
                return
        if self._keeps_open:
            select.select([client, wakes], [], [])
