"""The parent of a command, which stands in for it towards the terminal and the shell.

It shares its child's process group, so the signals of the terminal reach both. It does not act on
them; it stops when the child stops, and exits as the child exits.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Mapping
from typing import NamedTuple, NoReturn

from podslice.kernel.cgroup import CgroupFs, OpenGroup
from podslice.kernel.proc import read_process
from podslice.model.container_exit import (
    ATTENDED,
    OOM_KILL,
    OOMD_KILL,
    SIGNAL,
    SUCCESS,
    signal_name,
)
from podslice.model.unit import UnitName

_TO_END = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}
_TO_STOP = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
_FORWARDED = frozenset({*_TO_END, *_TO_STOP, signal.SIGUSR1, signal.SIGUSR2})
_BLOCKED = _FORWARDED | {signal.SIGCHLD}

_SENT_BY_KERNEL = 0x80
"""Source: sigaction(2), si_code, SI_KERNEL."""
_SET_DUMPABLE = 4
"""Source: Linux, include/uapi/linux/prctl.h, PR_SET_DUMPABLE."""
_SET_DEATH_SIGNAL = 1
"""Source: Linux, include/uapi/linux/prctl.h, PR_SET_PDEATHSIG."""

_NEVER_STARTED = 1
"""The exit code of a child that was abandoned; it is not used."""


class Child:
    """A child process that waits to be started."""

    def __init__(self, pid: int, starter: int, mask: set[int]) -> None:
        """`starter` lets it begin; `mask` are the signals that were blocked before the fork."""
        self.pid = pid
        self._handle = os.pidfd_open(pid)
        self._starter = starter
        self._mask = mask

    def start(self) -> None:
        """Let the child begin its work."""
        os.write(self._starter, b"!")
        os.close(self._starter)

    def abandon(self) -> None:
        """Let the child exit without doing its work."""
        os.close(self._starter)
        os.waitpid(self.pid, 0)
        self._release()

    def watch(self) -> int:
        """Wait for the child to exit; return its status as from `os.waitpid`."""
        while True:
            # The signals are blocked, so that no handler runs and none is missed between two calls.
            received = signal.sigwaitinfo(_BLOCKED)
            if received.si_signo != signal.SIGCHLD:
                if is_for_us_alone(received, self.pid):
                    _send(self._handle, received.si_signo)
                continue
            status = self._poll()
            if status is not None:
                self._release()
                return status

    def _poll(self) -> int | None:
        """Return the status once the child has exited; stop when it stops."""
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return None
        if not os.WIFSTOPPED(status):
            return status
        _stop_by(os.WSTOPSIG(status))
        # SIGCONT to the process group has reached the child, SIGCONT to this process has not
        process = read_process(self.pid)
        if process is not None and process.state == "T":
            _send(self._handle, signal.SIGCONT)
        return None

    def _release(self) -> None:
        os.close(self._handle)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


def fork(work: Callable[[], NoReturn]) -> Child:
    """Fork a child that does the work once it is started; `work` must end the process.

    Forwarded signals stay blocked: in the parent until `watch`, in the child until its start. The
    kernel kills the child if this process is killed, unless the child changes its user.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    on_end = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, there would be no status
    started, starter = os.pipe()
    prctl = ctypes.CDLL(None).prctl  # before the fork: the child may be limited to little memory
    pid = os.fork()
    if pid == 0:
        try:
            # if the parent is killed, so is the command, as if they were one process
            prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            os.close(starter)
            # Nothing is read if the parent has died or abandons the child: it held the only other
            # end.
            if os.read(started, 1):
                for number in (signal.SIGINT, signal.SIGTERM):
                    # Python's own handler; an ignored signal stays ignored, as with nohup.
                    if callable(signal.getsignal(number)):
                        signal.signal(number, signal.SIG_DFL)
                signal.signal(signal.SIGCHLD, on_end)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                work()
        finally:
            os._exit(_NEVER_STARTED)
    os.close(started)
    return Child(pid, starter, before)


def is_for_us_alone(received: signal.struct_siginfo, child: int) -> bool:
    """Return whether a signal has probably not reached the child.

    The terminal signals the whole process group. So may the child: an editor stops its group with
    `kill(0, SIGTSTP)`.
    """
    return received.si_code != _SENT_BY_KERNEL and received.si_pid != child


def exit_like(status: int) -> int:
    """Exit as the child did: return its exit code, or die by its signal, without a core dump."""
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    number = os.WTERMSIG(status)
    # a limit of 0 does not disable a handler (core_pattern with `|`), this does
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number


def _stop_by(number: int) -> None:
    """Stop this process by a signal; return once it is continued."""
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
        return  # it has exited, which is observed next


_OOM_KILL = "oom_kill"
_KILLED_CODE = 128 + signal.SIGKILL
"""The exit code of a shell whose command was killed."""


class OomKills(NamedTuple):
    """The kills of a container for lack of memory, counted from its start."""

    cgroups: CgroupFs
    group: str
    slice_group: str
    slice_before: int
    opened: OpenGroup | None
    """That of the container; None where it no longer exists."""

    @classmethod
    def of(cls, cgroups: CgroupFs, slice_group: str, scope: UnitName) -> OomKills:
        """Begin to count for a container that was just started: a scope in the slice of its pod."""
        group = f"{slice_group}/{scope}"
        return cls(
            cgroups=cgroups,
            group=group,
            slice_group=slice_group,
            slice_before=cgroups.events(slice_group).get(_OOM_KILL, 0),
            opened=OpenGroup.open(cgroups, group),
        )

    def result(self, status: int) -> str | None:
        """Return the kill that ended a command with this status of `os.waitpid`; None: none did.

        systemd removes the control group of the container once it is empty; then the kills in the
        pod count, which may be of another container that was killed at the same time.
        """
        if os.waitstatus_to_exitcode(status) not in (-signal.SIGKILL, _KILLED_CODE):
            return None
        if self.opened is not None and self.opened.oomd_kills():
            return OOMD_KILL
        kills = self.cgroups.events(self.group).get(_OOM_KILL)
        if kills is None:
            kills = self.cgroups.events(self.slice_group).get(_OOM_KILL, 0) - self.slice_before
        return OOM_KILL if kills else None


def variables_of(status: int, kill: str | None) -> dict[str, str]:
    """Return how systemd would report a status of `os.waitpid` to `ExecStopPost=`, for a record.

    Args:
        status: the status.
        kill: what `OomKills.result` returned for it.

    Source: systemd.exec(5), Environment Variables, $SERVICE_RESULT, $EXIT_CODE and $EXIT_STATUS.
    """
    if os.WIFSIGNALED(status):
        shown = signal_name(os.WTERMSIG(status)).removeprefix("SIG")
        dumped = os.WCOREDUMP(status)
        result, code = ("core-dump", "dumped") if dumped else (SIGNAL, "killed")
    else:
        number = os.WEXITSTATUS(status)
        result, code, shown = ("exit-code" if number else SUCCESS), "exited", str(number)
    return {
        "SERVICE_RESULT": kill or result,
        "EXIT_CODE": code,
        "EXIT_STATUS": shown,
        ATTENDED: "yes",
    }


def is_followed(environment: Mapping[str, str]) -> bool:
    """Return whether a service manager expects the command to be this very process.

    Source: sd_notify(3), $NOTIFY_SOCKET; sd_listen_fds(3), $LISTEN_PID.
    """
    return "NOTIFY_SOCKET" in environment or environment.get("LISTEN_PID") == str(os.getpid())
