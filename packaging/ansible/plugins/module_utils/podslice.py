# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The command line of podslice on a host: its calls, its documents and its errors."""

from __future__ import annotations

import json
import os
import re
import shutil
import traceback
from collections.abc import Iterable
from typing import Any, Callable, NamedTuple, Optional

Document = dict[str, Any]

REQUIRED_VERSION = "0.1.0"
"""The oldest podslice whose options and documents this collection uses."""
DOCUMENT_VERSION = 1
"""The version of JSON documents that this collection reads."""

ERROR_KEYS = {"version", "problems"}
"""The keys of the document of a verb that fails without a result."""

DEPTH_MAX = 64
"""Nesting of a document; podslice's own have about 10 levels."""
SHOWN_MAX = 300
"""Characters of an unexpected value in a message."""

DONE, FAILED, BAD_INPUT, DIFFERENCES = 0, 1, 2, 3
"""Exit codes of podslice."""

OTHER_DIRECTORIES = ("/usr/local/bin", "/opt/podslice/bin")
"""Where podslice may be besides PATH, which is short in a session without a login."""

INSTALL = (
    "install the package of podslice on the host, for example with the role podslice.host.host, or"
    " set the option 'executable' to its path"
)

COMMON_ARGUMENTS: Document = {
    "executable": {"type": "path", "default": "podslice"},
    "scope": {"type": "str", "choices": ["system", "user"], "default": "system"},
    "cgroup_root": {"type": "str"},
}
"""Options that all modules have."""


class Failure(Exception):
    """What a module fails with: a message, and facts for its result."""

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts


class Ended(NamedTuple):
    """The result of a call."""

    code: int
    out: str
    err: str


FORM_ERRORS = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What code raises that reads a document with other keys or types than it knows."""

Run = Callable[[list[str], Optional[str]], Ended]
"""Runs a command with a text as its standard input, or none."""


class Podslice:
    """The podslice of a host, called with the options that are common to all modules."""

    def __init__(self, run: Run, parameters: Document) -> None:
        self._run = run
        self._executable = parameters["executable"]
        self.is_user = parameters["scope"] == "user"
        self.options = ["--user"] if self.is_user else []
        self.source = "an option of the task"
        """What the module reads: the task, or the last document."""
        if parameters["cgroup_root"] is not None:
            self.options.append(f"--set=cgroup-root={parameters['cgroup_root']}")

    def call(self, *words: str, text: str | None = None) -> Ended:
        """Run podslice with exactly these words."""
        ended = self._run([self._executable, *words], text)
        if ended.out:
            self.source = f"an option of the task, or what podslice {words[0]} printed,"
        return ended

    def run_other(self, words: list[str]) -> Ended:
        """Run another command."""
        return self._run(words, None)

    def read(
        self, *words: str, text: str | None = None, accept: tuple[int, ...] = (DONE,)
    ) -> Document:
        """Return the document of a verb that plans, with the common options.

        Raises:
            Failure: the exit code is not one of those to accept.
        """
        return self.read_plain(*words, *self.options, text=text, accept=accept)

    def read_plain(
        self, *words: str, text: str | None = None, accept: tuple[int, ...] = (DONE,)
    ) -> Document:
        """Return the document of a verb, without the common options.

        Raises:
            Failure: as `read`.
        """
        ended = self.call(*words, "--output=json", text=text)
        found = parse_document(ended.out)
        if ended.code not in accept or found is None:
            raise failure_of(words, ended)
        version = found.get("version")
        if version != DOCUMENT_VERSION:
            raise Failure(
                f"podslice {words[0]} prints documents of version {version}, and this collection"
                f" reads version {DOCUMENT_VERSION}: use the collection of the version of podslice"
            )
        return {**found, "notes": note_lines(ended.err)}

    def unconfirmed(self) -> Document | None:
        """Return the values on trial, with the commands for a second connection; None without any."""
        found = self.read("status", accept=(DONE, DIFFERENCES)).get("unconfirmed")
        if found is None or found["state"] == "returned":
            return None
        return {
            **found,
            "confirm_command": [self._executable, "confirm"],
            "status_command": [self._executable, "status", "--output=json"],
        }

    def require_version(self) -> str:
        """Return the version of podslice.

        Raises:
            Failure: it is older than the one that this collection requires.
        """
        # the fastest of all calls, which every podslice has
        ended = self.call("--version")
        present = ended.out.strip().rpartition(" ")[2]
        if not re.match(r"[0-9]", present):
            raise Failure(
                f"{self._executable} does not print the version of podslice",
                rc=ended.code,
                stdout=ended.out,
                stderr=ended.err,
            )
        if is_new_enough(present):
            return present
        raise Failure(
            f"podslice {present} ({self._executable}) is too old: this collection requires"
            f" {REQUIRED_VERSION} or later. To upgrade it, install a newer package on the host, for"
            " example with the role podslice.host.host; or use the collection of this version",
            podslice_version=present,
            required_version=REQUIRED_VERSION,
        )


def run_logic(
    logic: Callable[..., Document], wanted: Document, podslice: Podslice, *, check_mode: bool
) -> Document:
    """Return the result of a module's logic.

    Raises:
        Failure: the logic fails, or a value of the task or in an answer has an unexpected type.
    """
    try:
        return logic(wanted, podslice, check_mode=check_mode)
    except FORM_ERRORS as error:
        raise Failure(
            f"{podslice.source} has a value of an unexpected type: {_shorten(repr(error))}; use the"
            " collection of the version of podslice",
            exception=traceback.format_exc(),
        ) from error


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def is_new_enough(version: str, required: str = REQUIRED_VERSION) -> bool:
    """Return whether a version is at least the required one; `1.2.0~rc1` counts as 1.2.0."""
    return _numbers(version) >= _numbers(required)


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"[0-9]{1,9}(?:\.[0-9]{1,9})*", version)
    numbers = [int(each) for each in found[0].split(".")] if found else []
    return tuple([*numbers, 0, 0, 0][:3])


def find_executable(name: str) -> str:
    """Return the path of an executable.

    Raises:
        Failure: there is none.
    """
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *OTHER_DIRECTORIES))
    found = shutil.which(name, path=path)
    if found is None:
        where = name if os.sep in name else f"{name} in PATH"
        raise Failure(f"podslice is not installed: there is no {where}; {INSTALL}")
    return found


def environment_of(scope: str, environment: dict[str, str], uid: int) -> dict[str, str]:
    """Return the variables that podslice needs, and that a connection without a login lacks."""
    added = {"LC_ALL": "C.UTF-8"}
    runtime = f"/run/user/{uid}"
    if scope == "user" and not environment.get("XDG_RUNTIME_DIR") and os.path.isdir(runtime):
        added["XDG_RUNTIME_DIR"] = runtime
    return added


def parse_document(text: str) -> Document | None:
    """Return the result of a verb; None if it has none, but only problems."""
    found = _parse(text)
    return None if found is None or found.keys() == ERROR_KEYS else found


def _parse(text: str) -> Document | None:
    """Return the JSON object in a text; None if it is none, or nested deeper than podslice's."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and not _is_deep(found) else None


def _is_deep(document: Document) -> bool:
    """Return whether a document is deeper than `DEPTH_MAX`, at which Ansible could not pass it on."""
    level: list[Any] = [document]
    for _level in range(DEPTH_MAX):
        level = [
            child
            for each in level
            if isinstance(each, (dict, list))
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


_SEVERITIES = ("error", "warning")


def problems_of(ended: Ended) -> list[Document]:
    """Return all problems that a call reported, in its document or on standard error."""
    found = _parse(ended.out) or {}
    pods = found.get("pods") or []
    listed = [*(found.get("problems") or [])]
    for pod in pods:
        listed += pod.get("problems") or []
    for line in ended.err.splitlines():
        severity = line.split(": ", 1)[0]
        message = line[len(severity) + 2 :]
        if severity in _SEVERITIES and message and message not in map(describe_problem, listed):
            listed.append({"severity": severity, "where": "", "message": message, "hint": ""})
    problems = []
    for each in listed:
        if each not in problems:
            problems.append(each)
    return problems


def describe_problem(problem: Document) -> str:
    """Return a problem as `where: message; hint`."""
    text = ": ".join(part for part in (problem.get("where"), problem["message"]) if part)
    return f"{text}; {problem['hint']}" if problem.get("hint") else text


def list_under(head: str, lines: Iterable[str]) -> str:
    """Return a message with one line for each item; with one item it is on the same line."""
    first, *others = lines
    return "\n- ".join((f"{head}:", first, *others)) if others else f"{head}: {first}"


def failure_of(words: tuple[str, ...], ended: Ended, what: str = "") -> Failure:
    """Return the failure for a call that ended with an error: all problems, or its messages."""
    problems = problems_of(ended)
    lines = [describe_problem(each) for each in problems if each.get("severity") != "warning"]
    if not lines:
        lines = [line for line in ended.err.splitlines() if line] or [
            f"it ended with exit code {ended.code} and without a message"
        ]
    head = what or f"podslice {words[0]} failed"
    return Failure(
        list_under(head, lines),
        problems=problems,
        rc=ended.code,
        stderr=ended.err,
    )


def note_lines(text: str) -> list[str]:
    """Return what podslice reported on standard error besides errors and its progress."""
    lines = (line.strip() for line in text.splitlines())
    return [line.replace("warning: ", "", 1) for line in lines if line]
