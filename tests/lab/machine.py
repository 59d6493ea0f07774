"""The interface of machines for tests, and its values."""

import io
import json
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypedDict, Unpack

DEFAULT_TIMEOUT_SEC = 600.0
"""For a command that hangs. On a busy host a start of Python takes a minute in an emulated machine."""
NOT_PUSHED = frozenset(
    {
        *(".git", ".venv", "dist", "build", "node_modules"),
        *("__pycache__", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
    }
)

Kind = Literal["namespace", "vm", "local"]

FACTS = """
import json, os, subprocess
shown = subprocess.run(["systemctl", "--version"], capture_output=True, text=True).stdout
is_unified = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
if is_unified:
    controllers = open("/sys/fs/cgroup/cgroup.controllers").read().split()
else:
    controllers = [n for n in os.listdir("/sys/fs/cgroup") if os.path.ismount("/sys/fs/cgroup/" + n)]
    controllers = [n for name in controllers for n in name.split(",")]
print(json.dumps({"systemd": shown.split()[1], "is_unified": is_unified, "controllers": controllers}))
"""
START_SERVICE = ("systemd-run", "--quiet", "--service-type=exec")
"""Starts a service and returns once its command is executed, in its control group.

With the default type the process may still be in the control group of its manager.
"""


class LabError(Exception):
    """The lab itself failed: no image, no boot, a machine that crashed."""


class MachineGone(LabError):
    """The machine does not answer, because it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Outcome of one command; `exit_code` is 128 + N after death by signal N, as in a shell."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str

    def checked(self) -> Self:
        """Return itself.

        Raises:
            CommandError: the exit code is not 0.
        """
        if self.exit_code != 0:
            raise CommandError(self)
        return self


class CommandError(Exception):
    """A command ended with another exit code than 0; carries its Result."""

    what = "exit code {}"

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        command, what = " ".join(self.result.argv), self.what.format(self.result.exit_code)
        outputs = f"--- stdout\n{self.result.stdout}\n--- stderr\n{self.result.stderr}"
        return f"{command}: {what}\n{outputs}"


class CommandTimeout(CommandError):
    """A command was killed because it took too long; carries what it had written."""

    what = "killed after its time limit"


class Process(Protocol):
    pid: int  # in the machine's PID namespace

    def kill(self, signal_number: int = 9) -> None:
        """Send a signal to the command and its process group; do nothing if it has ended."""

    def write(self, data: str | bytes) -> None:
        """Write to its standard input, which stays open until `close_stdin`."""

    def close_stdin(self) -> None: ...

    def wait(self, timeout_sec: float = DEFAULT_TIMEOUT_SEC) -> Result:
        """Wait for its end.

        Raises:
            CommandTimeout: it still ran after `timeout_sec`, and has been killed.
        """


class Options(TypedDict, total=False):
    """How a command runs."""

    input: str | bytes
    """Its standard input, which is empty by default."""
    check: bool
    """Raise if the exit code is not 0, which is the default."""
    timeout_sec: float
    env: Mapping[str, str]
    """Added to a small fixed environment."""


class Machine(ABC):
    """A machine with systemd as PID 1, where root can run commands."""

    kind: Kind
    bus_address: str | None = None
    """Address of its system bus for a process of this host; None if that is not reachable."""
    root: Path | None = None
    """Its root directory in this host's file system; None if it is not accessible."""

    @cached_property
    def _facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("/usr/bin/python3", "-SE", "-c", FACTS).stdout)
        return found

    @property
    def systemd_version(self) -> int:
        """The major version: 257."""
        return int(self._facts["systemd"])

    @property
    def cgroup_version(self) -> Literal[1, 2]:
        """The cgroup layout of its systemd: 1 also for the hybrid one."""
        return 2 if self._facts["is_unified"] else 1

    @property
    def has_controllers(self) -> bool:
        """Whether limits of memory, cpu and pids are enforced."""
        return {"cpu", "memory", "pids"} <= set(self._facts["controllers"])

    @property
    @abstractmethod
    def last_request(self) -> object:
        """Identify the last request: two are equal if the machine was not used in between."""

    def run(self, *argv: str, **options: Unpack[Options]) -> Result:
        """Run a command as root in the machine's own cgroup tree, and wait for it.

        Raises:
            CommandError: the exit code is not 0 and `check` is set.
            CommandTimeout: it did not end in time, and has been killed with its process group.
        """
        result = self._run(argv, options)
        return result.checked() if options.get("check", True) else result

    def module(self, name: str, *args: str, **options: Unpack[Options]) -> Result:
        """Run `python3 -m NAME ARGS` in the source tree at /src; as `run`.

        Remote machines use a fork of an interpreter that has imported the libraries.
        """
        result = self._run_module(name, args, options)
        return result.checked() if options.get("check", True) else result

    def podslice(self, *args: str, **options: Unpack[Options]) -> Result:
        """Run the command line of podslice from the source tree at /src, as `module`."""
        return self.module("podslice", *args, **options)

    @abstractmethod
    def _run(self, argv: tuple[str, ...], options: Options) -> Result: ...

    @abstractmethod
    def _run_module(self, name: str, args: tuple[str, ...], options: Options) -> Result: ...

    @abstractmethod
    def spawn(self, *argv: str, env: Mapping[str, str] | None = None) -> Process:
        """Start a command and return at once; its standard input stays open."""

    @abstractmethod
    def put(self, path: str, data: str | bytes, mode: int = 0o644) -> None:
        """Write a file, and create its parent directories."""

    @abstractmethod
    def get(self, path: str) -> bytes:
        """Read a file.

        Raises:
            FileNotFoundError: it does not exist.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop the machine and remove its files on this host; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def pack_tree(local_dir: Path) -> bytes:
    """Create a tar archive of a source tree, without what `push` excludes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(local_dir, arcname=".", filter=_skip_caches)
    return buffer.getvalue()


def to_bytes(data: str | bytes | None) -> bytes:
    return data.encode() if isinstance(data, str) else data or b""


def _skip_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if Path(member.name).name in NOT_PUSHED or member.name.endswith(".pyc"):
        return None
    if member.isdir():
        member.mtime = 0  # changes with each cache: the archive is the key of a template
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member
