"""The interface of machines for tests, and its values. No effects in here."""

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

DEFAULT_TIMEOUT_SEC = 120.0
NOT_PUSHED = frozenset(
    {
        *(".git", ".venv", "dist", "build", "node_modules"),
        *("__pycache__", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
    }
)

Kind = Literal["namespace", "vm", "local"]

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

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        return _describe(f"exit code {self.result.exit_code}", self.result)


class CommandTimeout(CommandError):
    """A command was killed because it took too long; carries what it had written."""

    def __str__(self) -> str:
        return _describe("killed after its time limit", self.result)


class Process(Protocol):
    """A command that runs in the background."""

    pid: int  # in the machine's PID namespace

    def kill(self, signal_number: int = 9) -> None:
        """Send a signal to the command and its process group; do nothing if it has ended."""
        ...

    def write(self, data: str | bytes) -> None:
        """Write to its standard input, which stays open until `close_stdin`."""
        ...

    def close_stdin(self) -> None:
        """Close its standard input."""
        ...

    def wait(self, timeout_sec: float = DEFAULT_TIMEOUT_SEC) -> Result:
        """Wait for its end.

        Raises:
            CommandTimeout: it still ran after `timeout_sec`, and has been killed.
        """
        ...


class Machine(Protocol):
    """A machine with systemd as PID 1, where root can run commands."""

    @property
    def kind(self) -> Kind:
        """The kind of this machine."""
        ...

    @property
    def systemd_version(self) -> int:
        """The major version: 257."""
        ...

    @property
    def cgroup_version(self) -> Literal[1, 2]:
        """The cgroup layout of its systemd: 1 also for the hybrid one."""
        ...

    @property
    def has_controllers(self) -> bool:
        """Whether limits of memory, cpu and pids are enforced."""
        ...

    @property
    def bus_address(self) -> str | None:
        """Address of its system bus for a process of this host.

        None for the local machine, whose bus is the default one, and for a virtual machine,
        whose bus is not reachable.
        """
        ...

    @property
    def root(self) -> Path | None:
        """Its root directory in this host's file system; None if it is not accessible."""
        ...

    @property
    def last_request(self) -> object:
        """Identify the last request: two are equal if the machine was not used in between."""
        ...

    def run(
        self,
        *argv: str,
        input: str | bytes | None = None,  # noqa: A002 (as subprocess.run calls it)
        check: bool = True,
        timeout_sec: float = DEFAULT_TIMEOUT_SEC,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """Run a command as root in the machine's own cgroup tree, and wait for it.

        Args:
            input: its standard input, which is empty by default.
            check: raise if the exit code is not 0.
            env: added to a small fixed environment.

        Raises:
            CommandError: the exit code is not 0 and `check` is set.
            CommandTimeout: it did not end in time, and has been killed with its process group.
        """
        ...

    def module(
        self,
        name: str,
        *args: str,
        input: str | bytes | None = None,  # noqa: A002
        check: bool = True,
        timeout_sec: float = DEFAULT_TIMEOUT_SEC,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """Run `python3 -m NAME ARGS` in the source tree at /src; as `run`.

        Remote machines use a fork of an interpreter that has imported the libraries.
        """
        ...

    def podslice(
        self,
        *args: str,
        input: str | bytes | None = None,  # noqa: A002
        check: bool = True,
        timeout_sec: float = DEFAULT_TIMEOUT_SEC,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """Run the command line of podslice from the source tree at /src, as `module`."""
        ...

    def spawn(self, *argv: str, env: Mapping[str, str] | None = None) -> Process:
        """Start a command and return at once; its standard input stays open."""
        ...

    def put(self, path: str, data: str | bytes, mode: int = 0o644) -> None:
        """Write a file, and create its parent directories."""
        ...

    def get(self, path: str) -> bytes:
        """Read a file.

        Raises:
            FileNotFoundError: it does not exist.
        """
        ...

    def push(self, local_dir: Path, guest_dir: str) -> None:
        """Replace `guest_dir` by a copy of `local_dir`, without caches and the git directory."""
        ...

    def unpack(self, archive: Path) -> None:
        """Extract a tar archive of this host in the root directory; what exists there remains."""
        ...

    def close(self) -> None:
        """Stop the machine and remove its files on this host; a second call does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def pack_tree(local_dir: Path) -> bytes:
    """Create a tar archive of a source tree, without what `push` excludes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(local_dir, arcname=".", filter=_skip_caches)
    return buffer.getvalue()


def to_bytes(data: str | bytes | None) -> bytes:
    """Return the input of a command as bytes."""
    return data.encode() if isinstance(data, str) else data or b""


def _skip_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if Path(member.name).name in NOT_PUSHED or member.name.endswith(".pyc"):
        return None
    if member.isdir():
        member.mtime = 0  # changes with each cache: the archive is the key of a template
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _describe(what: str, result: Result) -> str:
    return (
        f"{' '.join(result.argv)}: {what}\n--- stdout\n{result.stdout}\n--- stderr\n{result.stderr}"
    )
