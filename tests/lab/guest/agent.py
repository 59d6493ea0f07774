"""Run commands for tests inside a machine. Starts at boot; stdlib only, any Python >= 3.11.

It listens on a virtio port if there is one, otherwise on a socket in /run. In both directions it
uses one JSON line and then "size" raw bytes. Requests, each with its own "id":

    {"do": "run", "argv": [...], "env": {...}, "cwd": "/", "eof": true}   data: standard input
    {"do": "module", "name": "pytest", "argv": [...], ...}  as run, in a fork of this process
    {"do": "stdin", "eof": false}   data: more for the command of that id
    {"do": "kill", "signal": 9}     the process group of the command of that id
    {"do": "put", "path": ..., "mode": 420}   {"do": "get", "path": ...}
    {"do": "preload", "names": [...], "directory": ...}   imports modules for later forks
    {"do": "clock", "time_sec": ...}   sets it
    {"do": "ping"}

Replies: {"id", "is": "stdout" | "stderr"} with data, {"id", "is": "started", "pid"}, and at last
{"id", "is": "end", "code"} or {"id", "is": "failed", "errno", "message"}.
"""
# pathlib costs a tenth of a second at the start in an emulated machine:
# ruff: noqa: PTH101, PTH103, PTH108, PTH110, PTH112, PTH116, PTH120, PTH123, PTH208

import contextlib
import importlib
import json
import os
import selectors
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.lab.guest import podlab_commands as commands
else:
    import podlab_commands as commands  # installed beside this file

Request = commands.Request
watch = commands.watch

PORT_NAME = "podlab.0"
SOCKET_PATH = "/run/podlab.sock"
LIBRARY = "/usr/lib/python3/dist-packages"
BACKLOG_BYTES = 1 << 20  # with this much unsent data, output of commands is not read


class Peer:
    """The host's end: a virtio port or one connection."""

    def __init__(self, fd: int, *, is_port: bool) -> None:
        self.fd = fd
        self.is_port = is_port
        self.received = bytearray()
        self.head: Request | None = None
        self.unsent = bytearray()
        self.is_paused = False
        self.commands: dict[int, commands.Command] = {}
        os.set_blocking(fd, False)
        watch(fd, selectors.EVENT_READ, self.ready)

    def ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self.flush()
        if events & selectors.EVENT_READ:
            self.receive()

    def receive(self) -> None:
        got_bytes, is_end = 0, False
        while got_bytes < BACKLOG_BYTES:  # a port returns a page at a time
            try:
                data = os.read(self.fd, commands.CHUNK_BYTES)
            except BlockingIOError:
                break
            except ConnectionResetError:
                data = b""
            if is_end := not data:
                break
            self.received += data
            got_bytes += len(data)
        if got_bytes:
            self.take_requests()
        elif is_end and self.is_port:
            time.sleep(0.02)  # the host's end is not open: a port then reads as empty
        elif is_end:
            self.close()

    def take_requests(self) -> None:
        while True:
            if self.head is None:
                end = self.received.find(b"\n")
                if end < 0:
                    return
                self.head = json.loads(self.received[:end])
                del self.received[: end + 1]
            size = self.head.get("size", 0)
            if len(self.received) < size:
                return
            head, data = self.head, bytes(self.received[:size])
            del self.received[:size]
            self.head = None
            self.answer(head, data)

    def answer(self, head: Request, data: bytes) -> None:
        number = head["id"]
        try:
            HANDLERS[head["do"]](self, head, data)
        except Exception as error:  # noqa: BLE001 (whatever it is, the host is to know)
            code = error.errno if isinstance(error, OSError) else None
            self.send({"id": number, "is": "failed", "errno": code, "message": repr(error)})

    def own(self, command: commands.Command, data: bytes, *, is_last: bool) -> None:
        """Register a started command, and send its input."""
        self.commands[command.number] = command
        command.feed(data, is_last=is_last)

    def send(self, head: Request, data: bytes = b"") -> None:
        if head["is"] == "end":
            self.commands.pop(head["id"], None)
        was_idle = not self.unsent
        self.unsent += json.dumps({**head, "size": len(data)}).encode() + b"\n" + data
        if was_idle:
            self.flush()
        if len(self.unsent) > BACKLOG_BYTES and not self.is_paused:
            self.is_paused = True
            for command in self.commands.values():
                command.pause()

    def flush(self) -> None:
        while self.unsent:
            try:
                sent = os.write(self.fd, memoryview(self.unsent)[: commands.CHUNK_BYTES])
            except BlockingIOError:
                break
            except (BrokenPipeError, ConnectionResetError):
                self.unsent.clear()
                break
            del self.unsent[:sent]
        wanted = selectors.EVENT_WRITE if self.unsent else 0
        watch(self.fd, selectors.EVENT_READ | wanted, self.ready)
        if self.is_paused and not self.unsent:
            self.is_paused = False
            for command in self.commands.values():
                command.resume()

    def close(self) -> None:
        """End the commands of a host that has disconnected."""
        watch(self.fd, 0, None)
        os.close(self.fd)
        for command in list(self.commands.values()):
            command.kill(signal.SIGKILL)
            command.forget()
        self.commands.clear()


def do_run(peer: Peer, head: Request, data: bytes) -> None:
    peer.own(commands.start_command(head, peer.send), data, is_last=head.get("eof", True))


def do_module(peer: Peer, head: Request, data: bytes) -> None:
    peer.own(commands.start_module(head, peer.send), data, is_last=head.get("eof", True))


def do_stdin(peer: Peer, head: Request, data: bytes) -> None:
    if command := peer.commands.get(head["id"]):
        command.feed(data, is_last=head["eof"])


def do_kill(peer: Peer, head: Request, data: bytes) -> None:
    if command := peer.commands.get(head["id"]):
        command.kill(head["signal"])


def do_put(peer: Peer, head: Request, data: bytes) -> None:
    path = head["path"]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, head["mode"])
    peer.send({"id": head["id"], "is": "end", "code": 0})


def do_get(peer: Peer, head: Request, data: bytes) -> None:
    with open(head["path"], "rb") as file:
        peer.send({"id": head["id"], "is": "stdout"}, file.read())
    peer.send({"id": head["id"], "is": "end", "code": 0})


def do_preload(peer: Peer, head: Request, data: bytes) -> None:
    """Import modules; modules from the same directory are imported again."""
    directory = head["directory"]
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(f"{directory}/"):
            del sys.modules[name]
    before = sys.path[:]
    sys.path.insert(0, directory)
    for name in head["names"]:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 (then the command will fail, and say so better)
            message = f"{name}: {error!r}\n".encode()
            peer.send({"id": head["id"], "is": "stderr"}, message)
    sys.path[:] = before
    peer.send({"id": head["id"], "is": "end", "code": 0})


def do_ping(peer: Peer, head: Request, data: bytes) -> None:
    peer.send({"id": head["id"], "is": "end", "code": 0})


def do_clock(peer: Peer, head: Request, data: bytes) -> None:
    time.clock_settime(time.CLOCK_REALTIME, head["time_sec"])
    peer.send({"id": head["id"], "is": "end", "code": 0})


HANDLERS: dict[str, Callable[[Peer, Request, bytes], None]] = {
    "run": do_run,
    "module": do_module,
    "stdin": do_stdin,
    "kill": do_kill,
    "put": do_put,
    "get": do_get,
    "preload": do_preload,
    "clock": do_clock,
    "ping": do_ping,
}


def find_port() -> str | None:
    """Return the device of our virtio port from sysfs, because the link in /dev requires udev."""
    ports = "/sys/class/virtio-ports"
    for name in os.listdir(ports) if os.path.isdir(ports) else ():
        with contextlib.suppress(OSError), open(f"{ports}/{name}/name") as file:
            if file.read().strip() == PORT_NAME and os.path.exists(f"/dev/{name}"):
                return f"/dev/{name}"
    return None


def listen() -> None:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(SOCKET_PATH).st_mode):
            os.unlink(SOCKET_PATH)
    server = socket.socket(socket.AF_UNIX)
    server.bind(SOCKET_PATH)
    os.chmod(SOCKET_PATH, 0o600)
    server.listen()

    def accept(_: int) -> None:
        connection, _address = server.accept()
        Peer(connection.detach(), is_port=False)

    watch(server.fileno(), selectors.EVENT_READ, accept)


def main() -> None:
    sys.path.append(LIBRARY)  # -S left it out
    if commands.is_container():
        listen()
    else:
        commands.set_oom_score(-1000)
        while not (port := find_port()):
            time.sleep(0.05)  # the driver is being loaded; without udev there is no event
        Peer(os.open(port, os.O_RDWR), is_port=True)
    while True:
        commands.dispatch()


if __name__ == "__main__":
    main()
