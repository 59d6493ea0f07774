"""The tools that resolve compose files: interpolation, extends, include, profiles, merges.

None of this is done here: only the tool that starts the project knows what it will start.
"""

from __future__ import annotations

import itertools
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from podslice.compose.tools import HEAD, OVERRIDE, ComposeTool, ProjectFiles
from podslice.errors import HostError, InputError, Problem, excerpt, invalid
from podslice.files import follow_links, read_present, read_regular
from podslice.inputs.budget import Budget, Exhausted
from podslice.inputs.limits import BYTES_MAX
from podslice.inputs.manifest.parse import read_documents
from podslice.programs import NoAnswerError, run_program

# Source: compose-go, cli/options.go, DefaultFileNames and DefaultOverrideFileNames
_NAMES = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")
_OVERRIDES = (
    "compose.override.yml",
    "compose.override.yaml",
    "docker-compose.override.yml",
    "docker-compose.override.yaml",
)
_ENV_BYTES_MAX = 2**20
WAIT_SEC = 60
"""Time for a tool to resolve a project."""
_HINTS = {
    "invalid choice: 'config'": "podman-compose can resolve projects since 1.0.6",
}
"""Part of a line that a failing tool prints → a hint."""
_BEFORE_THE_ERROR = ("Traceback ", "usage: ")
_ADVICE = ("Run '", "See '", "Usage: ")
"""How the lines begin that follow the errors."""
_LINES_MAX = 20


def find_files(directory: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files of the project in a directory, as compose chooses them without `-f`.

    Source: compose-spec, 03-compose-file.md; docs.docker.com, "COMPOSE_FILE".

    Raises:
        InputError: there are none, or `.env` chooses them.
    """
    stated = environment.get("COMPOSE_FILE")
    if stated:
        parts = stated.split(environment.get("COMPOSE_PATH_SEPARATOR") or ":")
        return tuple(part for part in parts if part and Path(part).name != OVERRIDE)
    if _is_chosen_by(directory / ".env"):
        raise invalid("it chooses the files (COMPOSE_FILE)", "state them: -f FILE", where=".env")
    main, *_ = (name for name in (*_NAMES, "") if not name or (directory / name).is_file())
    if not main:
        raise invalid(f"there is no {_NAMES[0]} here", "state the file: -f FILE")
    overrides = foreign_overrides(directory)
    return (main, *overrides[:1])


def foreign_overrides(directory: Path) -> list[str]:
    """Return the override files of a directory that this program has not written."""
    return [name for name in _OVERRIDES if _is_foreign(directory / name)]


def _is_foreign(path: Path) -> bool:
    """Return whether a file exists and does not begin with the head of generated files."""
    if not path.is_file():
        return False
    try:
        content = read_present(path, limit_bytes=BYTES_MAX)
    except OSError:
        return True  # the tool reports that
    return content is not None and not content.startswith(HEAD.encode())


def profile_names(project: ProjectFiles) -> set[str]:
    """Return the profiles that the services of the files name; none of a file with an error.

    Files that these include or extend are not read: only docker-compose and podman-compose, which
    cannot enable all profiles, need the names.
    """
    names: set[str] = set()
    for path in project.files:
        with suppress(OSError, InputError, Exhausted):
            data = read_regular(Path(path), limit_bytes=BYTES_MAX, locate=follow_links)
            for document in read_documents(data, path, Budget()):
                names |= _profiles_of(document.value)
    return names


def _profiles_of(value: object) -> set[str]:
    services = value.get("services") if isinstance(value, dict) else None
    each = services.values() if isinstance(services, dict) else ()
    lists = (service.get("profiles") for service in each if isinstance(service, dict))
    return {str(name) for found in lists if isinstance(found, list) for name in found}


def find_tool() -> ComposeTool:
    """Return the first tool that is installed.

    Raises:
        HostError: there is none.
    """
    for tool in ComposeTool:
        is_plugin = tool is ComposeTool.DOCKER
        if shutil.which(tool.words[0]) and (not is_plugin or _has_plugin()):
            return tool
    raise HostError(
        "neither docker compose, docker-compose nor podman-compose is installed; resolve the"
        " project elsewhere, for example with docker compose config, and pass the output:"
        " --resolved FILE"
    )


def resolve(tool: ComposeTool, project: ProjectFiles) -> tuple[bytes, str]:
    """Return the resolved project as YAML, and the warnings of the tool.

    YAML is the one format that every version of every tool prints.

    Raises:
        InputError: the tool refuses the project.
        HostError: the tool cannot be run, or does not finish.
    """
    command = [*tool.words, *project.arguments(), "config"]
    try:
        ended = run_program(command, limit_sec=WAIT_SEC, limit_bytes=BYTES_MAX)
    except FileNotFoundError as error:
        raise HostError(f"{tool.words[0]} is not installed, or not in PATH") from error
    except OSError as error:
        raise HostError(f"{tool}: {error.strerror}") from error
    except NoAnswerError as error:
        raise HostError(f"{shlex.join(command)}: {error}") from error
    said = ended.err.decode(errors="replace").rstrip("\n")
    if ended.code:
        lines = _essence(said) or [f"exit code {ended.code}"]
        raise InputError(_explain(" ".join((*tool.words, "config")), line) for line in lines)
    return ended.out, said


def parse_resolved(data: bytes, name: str) -> object:
    """Return a resolved project as plain values.

    Raises:
        InputError: it is not one document of YAML or JSON, or exceeds the limits of input.
    """
    if len(data) > BYTES_MAX:
        raise invalid(f"is larger than the limit of {BYTES_MAX // 1024:,} KiB", where=name)
    try:
        found = list(read_documents(data, name, Budget()))
    except InputError as error:
        raise InputError(each.within(name) for each in error.problems) from error
    except Exhausted as error:
        raise InputError(error.at(name)) from error
    problems = [
        problem.within(name) for each in found for problem in (*each.problems, *each.invalid_texts)
    ]
    if len(found) != 1:
        problems.append(Problem(where=name, message="there is not exactly one project in it"))
    if problems:
        raise InputError(problems)
    return found[0].value


def _essence(said: str) -> list[str]:
    """Return the lines that state why a tool has failed: after a traceback or usage, the last."""
    lines = [line for line in said.split("\n") if line.strip()]
    if any(line.startswith(_BEFORE_THE_ERROR) for line in lines):
        return lines[-1:]
    errors = itertools.takewhile(lambda line: not line.startswith(_ADVICE), lines)
    return list(errors)[:_LINES_MAX]


def _explain(where: str, line: str) -> Problem:
    """Return the problem that a line of a tool states."""
    hint = next((hint for part, hint in _HINTS.items() if part in line), "")
    return Problem(where=where, message=excerpt(line.strip()), hint=hint)


def _is_chosen_by(path: Path) -> bool:
    """Return whether a file of variables sets the one that chooses the files of a project."""
    try:
        text = read_regular(path, limit_bytes=_ENV_BYTES_MAX, locate=follow_links)
    except (OSError, ValueError):
        return False  # the tool reports that
    return any(line.lstrip().startswith(b"COMPOSE_FILE=") for line in text.split(b"\n"))


def _has_plugin() -> bool:
    """Return whether docker has its plugin for compose.

    Podman's `docker` may run podman-compose instead, which takes the slice in another way.

    Source: podman-compose(1), "podman compose", the message about the external provider.
    """
    try:
        ended = run_program([*ComposeTool.DOCKER.words, "version"], limit_sec=WAIT_SEC)
    except (OSError, NoAnswerError):
        return False
    return ended.code == 0 and b"podman-compose" not in ended.out + ended.err
