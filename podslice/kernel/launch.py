"""Find a command, prepare its environment, and execute it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn

from podslice.errors import HostError, InputError, Problem
from podslice.kernel.text import read_value_or_empty

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
