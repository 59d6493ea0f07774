"""The parent of a command: for the terminal, the shell and whoever sends signals it is the command.

It has the same process group as its child, so what the terminal sends reaches both. It takes none
of that for itself; it stops when the child stops, and ends as the child ends.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from podslice.kernel.proc import read_process

_PASSED_ON = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGTSTP,
        signal.SIGTTIN,
        signal.SIGTTOU,
    }
)
_BLOCKED = _PASSED_ON | {signal.SIGCHLD}

_SENT_BY_KERNEL = 0x80
"""Source: sigaction(2), si_code, SI_KERNEL."""
_SET_DUMPABLE = 4
"""Source: Linux, include/uapi/linux/prctl.h, PR_SET_DUMPABLE."""

_NEVER_STARTED = 1
"""How the child ends when it is not to start; nobody sees it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A child that waits for the word to start."""

    pid: int
    _handle: int
    _starter: int
    _mask: set[int]
    """The signals that were blocked before."""

    def start(self) -> None:
        """Let it do its work."""
        os.write(self._starter, b"!")
        os.close(self._starter)

    def abandon(self) -> None:
        """Let it end without having done anything."""
        os.close(self._starter)
        os.waitpid(self.pid, 0)
        self._release()

    def watch(self) -> int:
        """Wait for its end; its status, as `os.waitpid` gives it."""
        while True:
            received = signal.sigwaitinfo(_BLOCKED)
            if received.si_signo != signal.SIGCHLD:
                if is_for_us_alone(received, self.pid):
                    _send(self._handle, received.si_signo)
                continue
            status = self._look()
            if status is not None:
                self._release()
                return status

    def _look(self) -> int | None:
        """What has become of it: its status when it has ended, stopping with it when it stops."""
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return None
        if not os.WIFSTOPPED(status):
            return status
        _stop_by(os.WSTOPSIG(status))
        # who continues the process group has continued it, too; who continues us only, has not
        process = read_process(self.pid)
        if process is not None and process.state == "T":
            _send(self._handle, signal.SIGCONT)
        return None

    def _release(self) -> None:
        os.close(self._handle)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


def fork(work: Callable[[], NoReturn]) -> Child:
    """Make a child that will do the work, when it is told to start; `work` has to end the process.

    From here on the signals that matter wait, in the parent for `watch`, in the child for its
    start.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    on_end = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, there would be no status
    told, starter = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(starter)
            if os.read(told, 1):
                if callable(signal.getsignal(signal.SIGINT)):
                    signal.signal(signal.SIGINT, signal.SIG_DFL)
                signal.signal(signal.SIGCHLD, on_end)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                work()
        finally:
            os._exit(_NEVER_STARTED)
    os.close(told)
    return Child(pid=pid, _handle=os.pidfd_open(pid), _starter=starter, _mask=before)


def is_for_us_alone(received: signal.struct_siginfo, child: int) -> bool:
    """Whether a signal has not reached the child as well, as far as can be told.

    The terminal sends its signals to the whole process group. So may the child: an editor stops
    its group with `kill(0, SIGTSTP)`.
    """
    return received.si_code != _SENT_BY_KERNEL and received.si_pid != child


def end_like(status: int) -> int:
    """End as the child did: the exit code, or death by the same signal, which leaves no core."""
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    import ctypes  # noqa: PLC0415 - rarely needed

    number = os.WTERMSIG(status)
    # a limit of 0 does not keep a core from a handler (core_pattern with `|`), this does
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number


def _stop_by(number: int) -> None:
    """Stop this process by a signal, and return when it is continued."""
    if number == signal.SIGSTOP:
        os.kill(os.getpid(), number)
        return
    before = signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})  # here
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    signal.signal(number, before)


def _send(handle: int, number: int) -> None:
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return  # it has ended, and that is the next thing to be seen
