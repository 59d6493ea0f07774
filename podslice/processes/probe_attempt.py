"""One request of a probe, in a child process of its own.

The child has no more rights than the service that starts it. It ends with the time of the request,
whatever the container sends.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress

_OK, _FAILED = 0, 1


def in_child(work: Callable[[], bool], timeout_sec: float) -> bool:
    """Run in a child process, which is killed after a time; return whether it succeeds."""
    pid = os.fork()
    if pid == 0:
        code = _FAILED
        with suppress(BaseException):
            code = _OK if work() else _FAILED
        os._exit(code)
    descriptor = os.pidfd_open(pid)
    try:
        if not _wait(descriptor, timeout_sec):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == _OK


def _wait(descriptor: int, timeout_sec: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_sec * 1000))
