"""Runs of other programs whose output is read, with limits on their time and their output.

The output is counted while it is read: a program that exceeds a limit is killed at once, together with
its process group, and what it has printed is neither kept nor shown as a whole.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, NoReturn, Self

from podslice.errors import HostError, InputError, Problem
from podslice.kernel.text import read_value_or_empty

OUTPUT_BYTES_MAX = 16 * 2**20
"""Bytes of standard output: `docker inspect` prints 10 KB for each container."""
ERROR_BYTES_MAX = 2**20
"""Bytes of standard error."""
_READ_BYTES = 2**16


class NoAnswerError(Exception):
    """A program failed or exceeded a limit; the text is the reason, a few words."""


class Ended(NamedTuple):
    """The exit code of a program, and what it printed."""

    code: int
    out: bytes
    err: bytes


def run_program(
    argv: Sequence[str],
    *,
    limit_sec: float,
    limit_bytes: int = OUTPUT_BYTES_MAX,
    until: int | None = None,
) -> Ended:
    """Run a program to its end, and return its exit code and its output.

    Args:
        argv: the program and its arguments.
        limit_sec: the time that it has.
        limit_bytes: the bytes that it may print to standard output.
        until: a pipe or socket; the program is killed when its other end is closed.

    Raises:
        OSError: it cannot be started.
        NoAnswerError: it exceeded a limit, or the other end of `until` was closed.
    """
    with Program(argv, limit_sec=limit_sec, limit_bytes=limit_bytes, until=until) as program:
        out = b"".join(program.read())
        if program.is_stopped:
            raise NoAnswerError("it was interrupted")
        return Ended(program.wait(), out, program.err)


class Program:
    """A running program. It is killed with its process group if it still runs at the end of `with`."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        limit_sec: float | None = None,
        limit_bytes: int | None = None,
        until: int | None = None,
    ) -> None:
        """Start a program, with the arguments of `run_program`; None is without limit.

        Raises:
            OSError: it cannot be started.
        """
        self.is_stopped = False
        """Whether the other end of `until` was closed."""
        self._err: list[bytes] = []
        self._limit_sec = limit_sec
        self._limit_bytes = limit_bytes
        self._until = until
        self._deadline = None if limit_sec is None else time.monotonic() + limit_sec
        # a session without a terminal: the program cannot ask there, and has its own process group
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        """Return the program."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill the process group of the program unless `wait` has returned, and close its pipes."""
        process = self._process
        if process.returncode is None:  # its id is not reused before its exit code is read
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.__exit__(kind, error, trace)

    @property
    def err(self) -> bytes:
        """Return what it has printed to standard error so far."""
        return b"".join(self._err)

    def read(self) -> Iterator[bytes]:
        """Yield standard output in pieces until its end, or until `until` is closed.

        Raises:
            NoAnswerError: the program exceeded a limit.
        """
        assert self._process.stdout  # noqa: S101 - for mypy: it is a pipe
        assert self._process.stderr  # noqa: S101 - as above
        out, err = self._process.stdout.fileno(), self._process.stderr.fileno()
        limits = {out: self._limit_bytes, err: ERROR_BYTES_MAX}
        counts = {out: 0, err: 0}
        poll = select.poll()
        poll.register(out, select.POLLIN)
        poll.register(err, select.POLLIN)
        if self._until is not None:
            poll.register(self._until, 0)  # errors and hang-ups are always reported
        while counts:
            ready = [descriptor for descriptor, _ in poll.poll(self._left_msec())]
            if self._until in ready:
                self.is_stopped = True
                return
            for descriptor in ready:
                # Both pipes are read as they fill: a program that is blocked on one would never
                # close the other.
                data = os.read(descriptor, _READ_BYTES)
                if not data:
                    poll.unregister(descriptor)
                    del counts[descriptor]
                    continue
                counts[descriptor] += len(data)
                limit = limits[descriptor]
                if limit is not None and counts[descriptor] > limit:
                    raise _too_long("its output", limit)
                if descriptor == out:
                    yield data
                else:
                    self._err.append(data)

    def lines(self, limit_bytes: int = OUTPUT_BYTES_MAX) -> Iterator[bytes]:
        """Yield each line of standard output without its end, as `read` does.

        Raises:
            NoAnswerError: the program exceeded a limit, or a line is longer than `limit_bytes`.
        """
        parts: list[bytes] = []
        length = 0
        for data in self.read():
            *lines, rest = data.split(b"\n")
            for line in lines:
                yield b"".join((*parts, line))
                parts.clear()
                length = 0
            parts.append(rest)
            length += len(rest)
            if length > limit_bytes:
                raise _too_long("a line of its output", limit_bytes)
        if not self.is_stopped and any(parts):
            yield b"".join(parts)

    def wait(self) -> int:
        """Wait for the end of the program, and return its exit code.

        Raises:
            NoAnswerError: it did not exit in time.
        """
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        try:
            return self._process.wait(left)
        except subprocess.TimeoutExpired as error:
            raise self._too_slow() from error

    def _left_msec(self) -> float | None:
        """Return the time that is left.

        Raises:
            NoAnswerError: none is left.
        """
        if self._deadline is None:
            return None
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._too_slow()
        return left * 1000

    def _too_slow(self) -> NoAnswerError:
        return NoAnswerError(f"no answer in {self._limit_sec:.0f} s")


def _too_long(what: str, limit_bytes: int) -> NoAnswerError:
    return NoAnswerError(f"{what} is longer than the limit of {limit_bytes // 1024:,} KiB")


NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""The exit codes of shells for commands that can't be started."""

CHANGED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that the interpreter ignores, which an executed command would inherit."""


class NotRunnable(HostError):
    """A command that can't be started; `exit_code` is that of a shell."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(message)


class Invocation(NamedTuple):
    """The file, the arguments from the zeroth on, and the environment of a command."""

    file: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def find_command(name: str, search: str | None) -> str:
    """Find the file of a command as a shell does.

    Args:
        name: as typed; with a `/` it is the file.
        search: the value of PATH.

    Raises:
        NotRunnable: it does not exist or is not executable.
    """
    directories = (os.defpath if search is None else search).split(":")
    files = [name] if "/" in name else [str(Path(each, name)) for each in directories if name]
    there = [file for file in files if os.access(file, os.F_OK)]
    for file in there:
        if os.access(file, os.X_OK) and not Path(file).is_dir():
            return file
    if not there:
        where = "no such file" if "/" in name else "no such command in PATH"
        raise NotRunnable(f"{name}: {where}", exit_code=NOT_FOUND)
    if Path(there[0]).is_dir():
        raise NotRunnable(f"{there[0]}: is a directory, not a command", exit_code=NOT_EXECUTABLE)
    raise NotRunnable(
        f"{there[0]}: not executable; see: ls -l {there[0]}", exit_code=NOT_EXECUTABLE
    )


def given_environment() -> dict[str, str]:
    """Return the environment that podslice was started with, without additions of Python.

    Source: PEP 538: in the C locale the interpreter sets LC_CTYPE, for what it starts as well.
    """
    environment = dict(os.environ)
    if "LC_CTYPE" in environment:
        at_start = Path("/proc/self/environ").read_bytes().split(b"\0")
        if not any(each.startswith(b"LC_CTYPE=") for each in at_start):
            del environment["LC_CTYPE"]
    return environment


def stated_variables(stated: Iterable[str], here: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `--env NAME=VALUE`, and of `--env NAME` with its present value.

    Raises:
        InputError: a variable has no name, or no present value.
    """
    variables = {}
    problems = []
    for text in stated:
        name, is_valued, value = text.partition("=")
        if not name:
            message, hint = f"{text!r} has no name", "write NAME=VALUE"
            problems.append(Problem(where="--env", message=message, hint=hint))
        elif not is_valued and name not in here:
            message, hint = f"{name} is not set here", f"write {name}=VALUE"
            problems.append(Problem(where="--env", message=message, hint=hint))
        else:
            variables[name] = value if is_valued else here[name]
    if problems:
        raise InputError(problems)
    return variables


def set_oom_score_adj(value: int, file: Path = Path("/proc/self/oom_score_adj")) -> str:
    """Set the oom_score_adj of this process; return the error where the kernel refuses.

    It is always set: otherwise the container would inherit podslice's own (−1000 in a protected
    service).
    """
    try:
        file.write_text(f"{value}")
    except OSError as error:
        now = read_value_or_empty(file) or "unchanged"
        return f"oom_score_adj remains {now} instead of {value}: {error.strerror}"
    return ""


def become(command: Invocation) -> NoReturn:
    """Execute the command in this process.

    Raises:
        NotRunnable: the kernel refuses.
    """
    for number in CHANGED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    # this closes the descriptors that Python opened; inherited ones stay open
    try:
        os.execve(command.file, command.arguments, command.environment)  # noqa: S606 - the purpose
    except FileNotFoundError as error:
        # the file exists: its interpreter does not
        why = "its interpreter does not exist; see its first line"
        raise NotRunnable(f"{command.file}: {why}", exit_code=NOT_FOUND) from error
    except OSError as error:
        raise NotRunnable(f"{command.file}: {error.strerror}", exit_code=NOT_EXECUTABLE) from error
