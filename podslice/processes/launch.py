"""How a command becomes the process of a container: what it is, and what it starts with."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from podslice.errors import HostError, InputError, Problem
from podslice.kernel.text import read_value

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of what can't be started, as the shells have them."""

CHANGED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Ignored by the interpreter from its start on, and with it by what it becomes."""


class NotRunnable(HostError):
    """A command can't be started; `exit_code` is the one that a shell would give."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """What is to run: the file, the arguments from the zeroth on, and the environment."""

    file: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def find_command(name: str, search: str | None) -> str:
    """The file of a command, as a shell finds it.

    Args:
        name: as it was typed; with a `/` in it, it is the file.
        search: the value of PATH.

    Raises:
        NotRunnable: there is none, or it may not be executed.
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
        raise NotRunnable(f"{there[0]}: a directory is no command", exit_code=NOT_EXECUTABLE)
    raise NotRunnable(
        f"{there[0]}: it may not be executed; see: ls -l {there[0]}", exit_code=NOT_EXECUTABLE
    )


def given_environment() -> dict[str, str]:
    """The environment that podslice was started with, without what Python has put there.

    Source: PEP 538: in the C locale the interpreter sets LC_CTYPE, for what it starts as well.
    """
    environment = dict(os.environ)
    if "LC_CTYPE" in environment:
        at_start = Path("/proc/self/environ").read_bytes().split(b"\0")
        if not any(each.startswith(b"LC_CTYPE=") for each in at_start):
            del environment["LC_CTYPE"]
    return environment


def stated_variables(stated: Iterable[str], here: Mapping[str, str]) -> dict[str, str]:
    """The variables of `--env NAME=VALUE`, and of `--env NAME` with the value that they have here.

    Raises:
        InputError: one has no name, or no value here.
    """
    variables = {}
    problems = []
    for text in stated:
        name, is_valued, value = text.partition("=")
        if not name:
            problems.append(
                Problem(where="--env", message=f"{text!r} has no name", hint="write NAME=VALUE")
            )
        elif not is_valued and name not in here:
            problems.append(
                Problem(
                    where="--env", message=f"{name} is not set here", hint=f"write {name}=VALUE"
                )
            )
        else:
            variables[name] = value if is_valued else here[name]
    if problems:
        raise InputError(problems)
    return variables


def set_oom_score_adj(value: int, file: Path = Path("/proc/self/oom_score_adj")) -> str:
    """Set this process's own; empty, or what is wrong where the kernel refuses.

    Always, also where nothing seems to be asked for: what podslice itself has inherited (−1000 of
    a protected service) would go on to every process of the container.
    """
    try:
        file.write_text(f"{value}")
    except OSError as error:
        return f"oom_score_adj stays {_read(file)} instead of {value}: {error.strerror}"
    return ""


def become(command: Invocation) -> NoReturn:
    """Be the command from here on: the same process, with all that it has from its parent.

    Raises:
        NotRunnable: the kernel refuses.
    """
    for number in CHANGED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    # every descriptor that Python has opened is closed by this; those that it was given stay
    try:
        os.execve(command.file, command.arguments, command.environment)  # noqa: S606 - the purpose
    except FileNotFoundError as error:
        # the file was there: what is not is the interpreter that its first line names
        why = "its interpreter is not there; see its first line"
        raise NotRunnable(f"{command.file}: {why}", exit_code=NOT_FOUND) from error
    except OSError as error:
        raise NotRunnable(f"{command.file}: {error.strerror}", exit_code=NOT_EXECUTABLE) from error


def _read(file: Path) -> str:
    try:
        return read_value(file)
    except OSError:
        return "as it is"
