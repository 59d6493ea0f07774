"""Commands of the agent: child processes and forks, their streams, and their exit codes.

Installed beside agent.py; stdlib only, any Python >= 3.11.
"""
# pathlib costs a tenth of a second at the start in an emulated machine:
# ruff: noqa: PTH109, PTH110, PTH123

import contextlib
import functools
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TextIO

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
    """Start a child process."""
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
