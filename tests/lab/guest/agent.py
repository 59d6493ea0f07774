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
# ruff: noqa: PTH101, PTH103, PTH108, PTH109, PTH110, PTH112, PTH116, PTH120, PTH123, PTH208

import contextlib
import functools
import importlib
import json
import os
import selectors
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TextIO

PORT_NAME = "podlab.0"
SOCKET_PATH = "/run/podlab.sock"
LIBRARY = "/usr/lib/python3/dist-packages"
BACKLOG_BYTES = 1 << 20  # with this much unsent data, output of commands is not read
CHUNK_BYTES = 1 << 16
LAST_CHUNKS = 64  # the capacity of a pipe whose writer has ended; later data is a daemon's
ENVIRONMENT = {
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "LOGNAME": "root",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "SHELL": "/bin/bash",
    "TERM": "dumb",
    "USER": "root",
}
Request = dict[str, Any]
Pipes = tuple[int, int, int]
Send = Callable[[Request, bytes], None]

watched = selectors.DefaultSelector()


def watch(fd: int, events: int, call: Callable[[int], object] | None) -> None:
    """Call a function on events of a descriptor; None for either removes it."""
    is_known = fd in watched.get_map()
    if not events:
        if is_known:
            watched.unregister(fd)
    elif is_known:
        watched.modify(fd, events, call)
    else:
        watched.register(fd, events, call)


def dispatch() -> None:
    """Wait for events, and make their calls."""
    for key, events in watched.select():
        # a call may close the descriptor of another event, and its number may be reused
        if watched.get_map().get(key.fd) is key:
            key.data(events)


class Command:
    """One running command: its pipes, and its end."""

    def __init__(self, number: int, pid: int, pipes: Pipes, send: Send) -> None:
        self.number, self.pid, self.send = number, pid, send
        self.stdin: int | None
        self.stdin, *outputs = pipes
        self.names = dict(zip(outputs, ("stdout", "stderr"), strict=True))
        self.input = bytearray()
        self.is_input_complete = False
        self.pidfd = os.pidfd_open(pid)
        for fd in pipes:
            os.set_blocking(fd, False)
        send({"id": number, "is": "started", "pid": pid}, b"")
        watch(self.pidfd, selectors.EVENT_READ, self.ended)
        self.resume()

    def pause(self) -> None:
        for fd in self.names:
            watch(fd, 0, None)

    def resume(self) -> None:
        for fd, name in self.names.items():
            watch(fd, selectors.EVENT_READ, functools.partial(self.relay, fd, name))

    def feed(self, data: bytes, *, is_last: bool) -> None:
        self.input += data
        self.is_input_complete |= is_last
        self.write_input()

    def write_input(self, _: int = 0) -> None:
        if self.stdin is None:
            return
        while self.input:
            try:
                sent = os.write(self.stdin, memoryview(self.input)[:CHUNK_BYTES])
            except BlockingIOError:
                watch(self.stdin, selectors.EVENT_WRITE, self.write_input)
                return
            except BrokenPipeError:
                self.is_input_complete = True
                break
            del self.input[:sent]
        watch(self.stdin, 0, None)
        if self.is_input_complete:
            os.close(self.stdin)
            self.stdin = None

    def relay(self, fd: int, name: str, _: int = 0) -> bool:
        """Forward available data; return false at the end of that stream."""
        try:
            data = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if data:
            self.send({"id": self.number, "is": name}, data)
            return True
        watch(fd, 0, None)
        os.close(fd)
        del self.names[fd]
        return False

    def ended(self, _: int) -> None:
        """Reap the command and report it; data that daemons write later is not sent."""
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        for fd, name in list(self.names.items()):
            for _chunk in range(LAST_CHUNKS):
                if not self.relay(fd, name):
                    break
        self.forget()
        end = code if code >= 0 else 128 - code
        self.send({"id": self.number, "is": "end", "code": end}, b"")

    def kill(self, signal_number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal_number)

    def forget(self) -> None:
        for fd in (self.pidfd, self.stdin, *self.names):
            if fd is not None:
                watch(fd, 0, None)
                os.close(fd)
        self.names.clear()
        self.stdin = None


def start_command(head: Request, send: Send) -> Command:
    with command_pipes() as (ours, theirs), killable():
        child = subprocess.Popen(
            head["argv"],
            cwd=head.get("cwd", "/"),
            env={**ENVIRONMENT, **head.get("env", {})},
            stdin=theirs[0],
            stdout=theirs[1],
            stderr=theirs[2],
            start_new_session=True,
        )
    child.returncode = 0  # reaped by pidfd, not by Popen
    return Command(head["id"], child.pid, ours, send)


def start_module(head: Request, send: Send) -> Command:
    """Fork, and run a module in the fork."""
    with command_pipes() as (ours, theirs), killable():
        pid = os.fork()
        if pid == 0:
            be_module(head, theirs)
    return Command(head["id"], pid, ours, send)


@contextlib.contextmanager
def command_pipes() -> Iterator[tuple[Pipes, Pipes]]:
    """Our ends of a command's standard streams, and its ends, which are closed at last."""
    (stdin, stdin_end), (stdout_end, stdout), (stderr_end, stderr) = (os.pipe() for _ in range(3))
    ours, theirs = (stdin_end, stdout_end, stderr_end), (stdin, stdout, stderr)
    try:
        yield ours, theirs
    except BaseException:
        for fd in ours:
            os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)


def be_module(head: Request, pipes: Pipes) -> NoReturn:
    """Run `python3 -m NAME ARGV` in this fork."""
    code = 1
    try:
        os.setsid()
        for fd, pipe in enumerate(pipes):
            os.dup2(pipe, fd)
        os.closerange(3, 1 << 16)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        os.chdir(head.get("cwd", "/"))
        os.environ.clear()
        os.environ.update({**ENVIRONMENT, **head.get("env", {})})
        sys.stdin, sys.stdout, sys.stderr = standard_streams()
        sys.executable = "/usr/bin/python3"
        sys.argv = [head["name"], *head["argv"]]
        sys.path[0:1] = [os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
        code = run_module(head["name"])
        if not sys.stdout.closed:
            sys.stdout.flush()
    except BaseException:  # noqa: BLE001 (as the interpreter does it)
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def standard_streams() -> tuple[TextIO, TextIO, TextIO]:
    return (
        open(0, encoding="utf-8", closefd=False),
        open(1, "w", encoding="utf-8", closefd=False),
        open(2, "w", encoding="utf-8", buffering=1, closefd=False),
    )


def run_module(name: str) -> int:
    import runpy  # noqa: PLC0415 (time of the boot)

    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as exit_:
        if exit_.code is None or isinstance(exit_.code, int):
            return (exit_.code or 0) & 0xFF
        sys.stderr.write(f"{exit_.code}\n")
        return 1
    return 0


@contextlib.contextmanager
def killable() -> Iterator[None]:
    """Start commands without the agent's protection: otherwise the kernel finds no victim."""
    if is_container():
        yield
        return
    set_oom_score(0)
    try:
        yield
    finally:
        set_oom_score(-1000)


def set_oom_score(value: int) -> None:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(f"{value}")


def is_container() -> bool:
    return os.path.exists("/run/systemd/container")


class Peer:
    """The host's end: a virtio port or one connection."""

    def __init__(self, fd: int, *, is_port: bool) -> None:
        self.fd = fd
        self.is_port = is_port
        self.received = bytearray()
        self.head: Request | None = None
        self.unsent = bytearray()
        self.is_paused = False
        self.commands: dict[int, Command] = {}
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
                data = os.read(self.fd, CHUNK_BYTES)
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

    def own(self, command: Command, data: bytes, *, is_last: bool) -> None:
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
                sent = os.write(self.fd, memoryview(self.unsent)[:CHUNK_BYTES])
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
    peer.own(start_command(head, peer.send), data, is_last=head.get("eof", True))


def do_module(peer: Peer, head: Request, data: bytes) -> None:
    peer.own(start_module(head, peer.send), data, is_last=head.get("eof", True))


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
    if is_container():
        listen()
    else:
        set_oom_score(-1000)
        while not (port := find_port()):
            time.sleep(0.05)  # the driver is being loaded; without udev there is no event
        Peer(os.open(port, os.O_RDWR), is_port=True)
    while True:
        dispatch()


if __name__ == "__main__":
    main()
