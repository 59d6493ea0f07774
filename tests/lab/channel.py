"""The host's end of the agent in a machine: many commands at once over one connection.

Knows the agent's frames (see guest/agent.py), and is independent of the kind of machine.
"""

import json
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.lab.machine import (
    DEFAULT_TIMEOUT_SEC,
    CommandTimeout,
    LabError,
    MachineGone,
    Result,
    to_bytes,
)

CHUNK_BYTES = 1 << 18
GRACE_SEC = 30.0  # for the agent's final reply about a command that was killed


OutputSink = Callable[[str, bytes], None]  # gets "stdout" or "stderr", and the data


class Call:
    """One request and its replies; output goes to the sink if there is one."""

    def __init__(self, number: int, argv: tuple[str, ...], sink: OutputSink | None = None) -> None:
        self.number = number
        self.argv = argv
        self._sink = sink
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.pid: int | None = None
        self.exit_code: int | None = None
        self.error: OSError | LabError | None = None

    @property
    def is_done(self) -> bool:
        return self.exit_code is not None or self.error is not None

    def take(self, head: dict[str, Any], data: bytes) -> None:
        match head["is"]:
            case "stdout" | "stderr" as name if self._sink:
                self._sink(name, data)
            case "stdout":
                self.stdout += data
            case "stderr":
                self.stderr += data
            case "started":
                self.pid = head["pid"]
            case "end":
                self.exit_code = head["code"]
            case "failed" if head["errno"]:
                self.error = OSError(head["errno"], os.strerror(head["errno"]), self.argv[0])
            case _:
                self.error = LabError(f"{' '.join(self.argv)}: {head.get('message', head)}")

    def result(self) -> Result:
        return Result(
            argv=self.argv,
            exit_code=-1 if self.exit_code is None else self.exit_code,
            stdout=self.stdout.decode(errors="replace"),
            stderr=self.stderr.decode(errors="replace"),
        )


class Channel:
    """Requests to one agent; thread-safe."""

    def __init__(self, connection: socket.socket, last_words: Callable[[], str]) -> None:
        """Take over a connection; `last_words` returns the cause if it breaks."""
        connection.settimeout(0)
        self._socket = connection
        self._last_words = last_words
        self._received = bytearray()
        self._calls: dict[int, Call] = {}
        self._last_number = 0
        self._is_reading = False
        self._changed = threading.Condition()
        self._sending = threading.Lock()

    @property
    def last_number(self) -> int:
        """Return the number of the last request; 0 before the first."""
        return self._last_number

    def close(self) -> None:
        self._socket.close()

    def start(
        self,
        argv: tuple[str, ...],
        request: Mapping[str, Any],
        data: bytes = b"",
        sink: OutputSink | None = None,
    ) -> Call:
        """Send a request; pass the returned call to `wait`."""
        with self._changed:
            self._last_number += 1
            call = Call(self._last_number, argv, sink)
            self._calls[call.number] = call
        self.send(call, request, data)
        return call

    def send(self, call: Call, request: Mapping[str, Any], data: bytes = b"") -> None:
        head = {**request, "id": call.number, "size": len(data)}
        unsent = memoryview(json.dumps(head).encode() + b"\n" + data)
        with self._sending:
            while unsent:
                try:
                    unsent = unsent[self._socket.send(unsent[:CHUNK_BYTES]) :]
                except BlockingIOError:
                    select.select([], [self._socket], [])
                except OSError as error:
                    raise self._gone() from error

    def wait(self, call: Call, timeout_sec: float) -> Result:
        """Wait for the final reply to a call.

        Raises:
            CommandTimeout: it did not arrive in time; the command has been killed.
            OSError: the agent failed, with its error.
            MachineGone: the machine has ended.
        """
        if not self._wait_done(call, timeout_sec):
            self.send(call, {"do": "kill", "signal": 9})
            self._wait_done(call, GRACE_SEC)
            del self._calls[call.number]
            raise CommandTimeout(call.result())
        del self._calls[call.number]
        if call.error is not None:
            raise call.error
        return call.result()

    def wait_started(self, call: Call) -> int:
        """Wait until a command runs; return its process id."""
        self._wait_done(call, DEFAULT_TIMEOUT_SEC, until_started=True)
        if call.pid is None:
            raise call.error or LabError(f"{' '.join(call.argv)}: did not start")
        return call.pid

    def ask(
        self,
        request: Mapping[str, Any],
        data: bytes = b"",
        timeout_sec: float = DEFAULT_TIMEOUT_SEC,
    ) -> Call:
        """Send a request that is not a command, and wait for its end; as `wait`."""
        call = self.start((request.get("path", request["do"]),), request, data)
        self.wait(call, timeout_sec)
        return call

    def _wait_done(self, call: Call, timeout_sec: float, *, until_started: bool = False) -> bool:
        """Read, or let another thread read, until the call is done; return false on timeout."""
        deadline = time.monotonic() + timeout_sec
        with self._changed:
            while not (call.is_done or (until_started and call.pid is not None)):
                left_sec = deadline - time.monotonic()
                if left_sec <= 0:
                    return False
                if self._is_reading:
                    self._changed.wait(left_sec)
                    continue
                self._is_reading = True
                self._changed.release()
                try:
                    data = self._receive(left_sec)
                finally:
                    self._changed.acquire()
                    self._is_reading = False
                    self._changed.notify_all()
                self._dispatch(data)
        return True

    def _receive(self, timeout_sec: float) -> bytes:
        if not select.select([self._socket], [], [], timeout_sec)[0]:
            return b""
        try:
            data = self._socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            raise self._gone()
        return data

    def _gone(self) -> MachineGone:
        return MachineGone(f"the machine has ended\n{self._last_words()}")

    def _dispatch(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\n")) >= 0:
            head = json.loads(self._received[:end])
            body_end = end + 1 + head["size"]
            if len(self._received) < body_end:
                return
            if call := self._calls.get(head["id"]):
                call.take(head, bytes(self._received[end + 1 : body_end]))
            del self._received[:body_end]


class RemoteProcess:
    """A running command in the machine; satisfies Process."""

    def __init__(self, channel: Channel, call: Call) -> None:
        self._channel = channel
        self._call = call
        self._result: Result | None = None
        self.pid = channel.wait_started(call)

    def kill(self, signal_number: int = 9) -> None:
        self._channel.send(self._call, {"do": "kill", "signal": signal_number})

    def write(self, data: str | bytes) -> None:
        self._channel.send(self._call, {"do": "stdin", "eof": False}, to_bytes(data))

    def close_stdin(self) -> None:
        self._channel.send(self._call, {"do": "stdin", "eof": True})

    def wait(self, timeout_sec: float = DEFAULT_TIMEOUT_SEC) -> Result:
        if self._result is None:
            self._result = self._channel.wait(self._call, timeout_sec)
        return self._result
