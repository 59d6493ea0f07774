"""sshd of a virtual machine, which has no network: over the channel of its agent."""

from __future__ import annotations

import socket
from contextlib import contextmanager, suppress
from threading import Thread

from tests.lab.machine import MachineGone

SSHD = ("/usr/sbin/sshd", "-i")
CHUNK_BYTES = 1 << 16
SESSION_SEC = 600.0


@contextmanager
def listen(machine, path):
    """Listen on a socket, and start an sshd in the machine for each connection."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        Thread(target=_accept, args=(machine, listener), daemon=True).start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _accept(machine, listener):
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # it was shut down
            return
        Thread(target=_serve, args=(machine, connection), daemon=True).start()


def _serve(machine, connection):
    """Relay a connection until its client closes it, or sshd ends."""

    def send(name, data):
        if name == "stdout":
            with suppress(OSError):  # the client has closed it; another thread may run this
                connection.sendall(data)

    process = machine.spawn(*SSHD, sink=send)
    Thread(target=_await, args=(process, connection), daemon=True).start()
    with suppress(MachineGone, OSError):
        while data := connection.recv(CHUNK_BYTES):
            process.write(data)
        process.close_stdin()


def _await(process, connection):
    with suppress(MachineGone, OSError, ValueError):  # the channel may be closed at any time
        process.wait(timeout_sec=SESSION_SEC)
    connection.close()
