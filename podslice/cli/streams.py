"""The standard streams: never missing, with a defined error for output that cannot be written.

If a descriptor is closed when the interpreter starts, its stream is missing and the next opened
file gets its number. Failing output raises one `OSError` with the name of the stream; a closed
pipe (`podslice tree | head`) remains a `BrokenPipeError`.

Every call imports this module, so it imports only modules that the interpreter has loaded anyway.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from _typeshed import ReadableBuffer

_STDIN, _STDOUT, _STDERR = 0, 1, 2


def guard() -> None:
    """Replace missing standard streams, and guard standard output and standard error."""
    for number in (_STDIN, _STDOUT, _STDERR):
        _occupy(number)
    sys.stdin = sys.stdin or open(_STDIN, closefd=False)  # noqa: SIM115 - a descriptor
    sys.stdout = _guarded(sys.stdout, _STDOUT, _Output)
    sys.stderr = _guarded(sys.stderr, _STDERR, _Notes)


def _occupy(number: int) -> None:
    """Occupy a closed descriptor with the wrong end of a pipe, so that using it still fails.

    It is closed on exec, so that the command of `run` inherits the descriptors of podslice.

    Source: gnulib, lib/stdopen.c, stdopen.
    """
    try:
        os.fstat(number)
    except OSError:
        reading, writing = os.pipe()
        kept = writing if number == _STDIN else reading
        if kept != number:
            os.dup2(kept, number, inheritable=False)
        for opened in {reading, writing} - {number}:
            os.close(opened)


def _guarded(stream: TextIO | None, number: int, kind: type[io.FileIO]) -> TextIO:
    """Return the stream on a guarded file; a stream that is not a file is returned as it is.

    Characters that the locale cannot encode are escaped.
    """
    if stream is None:
        return _text(kind(number, "w", closefd=False), encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    if not isinstance(stream.buffer, io.BufferedWriter | io.FileIO):
        stream.reconfigure(errors="backslashreplace")
        return stream
    stream.flush()
    return _text(kind(stream.fileno(), "w", closefd=False), encoding=stream.encoding)


def _text(file: io.FileIO, *, encoding: str) -> TextIO:
    is_line_buffered = isinstance(file, _Notes) or file.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=is_line_buffered,
    )


class _Patient(io.FileIO):
    """A file that waits until a non-blocking descriptor is writable."""

    def write(self, data: ReadableBuffer, /) -> int:
        while (written := super().write(data)) is None:
            poll = select.poll()
            poll.register(self.fileno(), select.POLLOUT)
            poll.poll()
        return written


class _Output(_Patient):
    """Standard output: raises the first error, then drops the remaining data."""

    _has_failed = False

    def write(self, data: ReadableBuffer, /) -> int:
        if self._has_failed:
            return len(memoryview(data))
        try:
            return super().write(data)
        except OSError as error:
            self._has_failed = True
            is_closed = error.errno == errno.EBADF
            reason = "it is closed" if is_closed else error.strerror
            raise OSError(error.errno, reason, "standard output") from error


class _Notes(_Patient):
    """Standard error: errors are ignored, since they cannot be reported."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(memoryview(data))
