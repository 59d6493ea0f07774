"""Common parts of namespaces and virtual machines, which are reached through the agent inside."""

import contextlib
import os
import secrets
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from tests.lab import keeper, recipe
from tests.lab.channel import Channel, OutputSink, RemoteProcess
from tests.lab.machine import (
    DEFAULT_TIMEOUT_SEC,
    LabError,
    Machine,
    Options,
    Result,
    pack_tree,
    to_bytes,
)
from tests.lab.paths import run_dir, source_dir

SOURCE_ENVIRONMENT = {"PYTHONPATH": recipe.SOURCE_DIR}
POLL_SEC = 0.003
LOG_TAIL_BYTES = 4000
UNPACK = ("tar", "-C", "/", "--keep-directory-symlink", "-xf")


class Held:
    """The host side of a machine: its run directory, and the keeper that holds its process."""

    def __init__(self, label: str) -> None:
        self.name = f"podlab-{label}-{os.getpid()}-{secrets.token_hex(3)}"
        self.dir = run_dir() / self.name
        self.dir.mkdir(parents=True, mode=0o755)
        self._lock: int | None = keeper.lock_run_dir(self.dir)
        keeper.sweep(run_dir().iterdir())
        self.pid = 0
        self._pidfd: int | None = None
        self._keeper: subprocess.Popen[str] | None = None

    def start(self, orders: keeper.Orders, *, prefix: tuple[str, ...] = ()) -> None:
        """Start the machine; `prefix` is a command that executes the rest of its arguments."""
        self._end_keeper()
        with (self.dir / "log").open("ab") as log:
            self._keeper = subprocess.Popen(
                [*prefix, sys.executable, "-I", "-S", keeper.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self._keeper.stdin
        assert self._keeper.stdout
        with contextlib.suppress(BrokenPipeError):  # the log has the cause
            self._keeper.stdin.write(keeper.dump(orders))
            self._keeper.stdin.flush()
        answer = self._keeper.stdout.readline()
        if not answer:
            raise LabError(f"{self.name} did not start\n{self.last_words()}")
        self.pid = int(answer)
        self._pidfd = os.pidfd_open(self.pid)

    @property
    def is_alive(self) -> bool:
        return self._pidfd is not None and not select.select([self._pidfd], [], [], 0)[0]

    def connect(self, path: Path, timeout_sec: float = 120.0) -> socket.socket:
        """Connect to a socket on which the machine will listen."""
        deadline = time.monotonic() + timeout_sec
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                _connect(connection, path)
            except OSError:
                connection.close()
            else:
                return connection
            if not self.is_alive or time.monotonic() > deadline:
                raise LabError(f"{self.name}: no process listens on {path}\n{self.last_words()}")
            time.sleep(POLL_SEC)

    def wait_ended(self, timeout_sec: float) -> None:
        """Wait until the machine has ended by itself."""
        assert self._pidfd is not None
        if not select.select([self._pidfd], [], [], timeout_sec)[0]:
            raise LabError(f"{self.name} does not end\n{self.last_words()}")

    def last_words(self) -> str:
        parts = []
        for name in ("log", "console"):
            with contextlib.suppress(OSError):
                data = (self.dir / name).read_bytes()[-LOG_TAIL_BYTES:]
                parts.append(f"--- {name}\n{data.decode(errors='replace')}")
        return "\n".join(parts)

    def close(self) -> None:
        self._end_keeper()
        shutil.rmtree(self.dir, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _end_keeper(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        if self._keeper is not None:
            self._keeper.communicate("end\n")
            self._keeper = None


def source_modules() -> tuple[str, ...]:
    """Return the modules of podslice: verbs import theirs late, which each fork would repeat."""
    top = source_dir()
    paths = (path.relative_to(top).with_suffix("") for path in top.glob("podslice/**/*.py"))
    names = (".".join(path.parts).removesuffix(".__init__") for path in paths)
    return tuple(sorted(name for name in names if not name.endswith("__main__")))


class RemoteMachine(Machine):
    """A machine, as far as the agent provides it."""

    def __init__(self, label: str) -> None:
        self._held = Held(label)
        self._channel: Channel | None = None
        self._is_preloaded = self._is_source_preloaded = False

    @property
    def pid(self) -> int:
        """The id of its process on this host: systemd, or QEMU."""
        return self._held.pid

    @property
    def name(self) -> str:
        """The name of its run directory, and of its cgroups on this host."""
        return self._held.name

    @property
    def last_request(self) -> object:
        return self._agent(), self._agent().last_number

    def podslice(self, *args: str, **options: Unpack[Options]) -> Result:
        self.preload_source()
        return super().podslice(*args, **options)

    def _run(self, argv: tuple[str, ...], options: Options) -> Result:
        return self._wait(argv, {"do": "run", "argv": argv, "env": {}}, options)

    def _run_module(self, name: str, args: tuple[str, ...], options: Options) -> Result:
        self.preload()
        request = {
            "do": "module",
            "name": name,
            "argv": args,
            "cwd": recipe.SOURCE_DIR,
            "env": SOURCE_ENVIRONMENT,
        }
        return self._wait(("python3", "-m", name, *args), request, options)

    def _wait(self, argv: tuple[str, ...], request: dict[str, Any], options: Options) -> Result:
        """Send a request to run a command, and wait for its end."""
        request["env"] = {**request["env"], **(options.get("env") or {})}
        call = self._agent().start(argv, request, to_bytes(options.get("input")))
        return self._agent().wait(call, options.get("timeout_sec", DEFAULT_TIMEOUT_SEC))

    def preload(self) -> None:
        if not self._is_preloaded:
            self._import(recipe.PRELOADED_MODULES, "/usr/lib/python3/dist-packages")
            self._is_preloaded = True

    def preload_source(self) -> None:
        if not self._is_source_preloaded:
            self.preload()
            self._import(source_modules(), recipe.SOURCE_DIR)
            self._is_source_preloaded = True

    def spawn(
        self, *argv: str, env: Mapping[str, str] | None = None, sink: OutputSink | None = None
    ) -> RemoteProcess:
        request = {"do": "run", "argv": argv, "env": dict(env or {}), "eof": False}
        return RemoteProcess(self._agent(), self._agent().start(argv, request, sink=sink))

    def put(self, path: str, data: str | bytes, mode: int = 0o644) -> None:
        self._agent().ask({"do": "put", "path": path, "mode": mode}, to_bytes(data))

    def get(self, path: str) -> bytes:
        return bytes(self._agent().ask({"do": "get", "path": path}).stdout)

    def push(self, local_dir: Path, guest_dir: str) -> None:
        """Replace `guest_dir` by a copy of `local_dir`, without caches and the git directory."""
        script = 'rm -rf "$1" && mkdir -p "$1" && tar -C "$1" -xf - --no-same-owner'
        self.run("sh", "-c", script, "push", guest_dir, input=pack_tree(local_dir))
        self._is_source_preloaded = False

    def unpack(self, archive: Path) -> None:
        """Extract a tar archive of this host in the root directory; what exists there remains."""
        self.run(*UNPACK, "-", input=archive.read_bytes())

    def close(self) -> None:
        self._disconnect()
        self._held.close()

    def _connect(self, path: Path, timeout_sec: float = 120.0) -> None:
        """Connect to the agent."""
        connection = self._held.connect(path, timeout_sec)
        self._channel = Channel(connection, self._held.last_words)

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _import(self, names: tuple[str, ...], directory: str) -> None:
        request = {"do": "preload", "names": names, "directory": directory}
        self._agent().ask(request)

    def _agent(self) -> Channel:
        if self._channel is None:
            raise LabError("the machine is closed")
        return self._channel

    def _wait_booted(self, timeout_sec: float) -> None:
        """Wait until systemd has finished starting units."""
        state = self.run(
            "systemctl", "is-system-running", "--wait", check=False, timeout_sec=timeout_sec
        )
        if state.stdout.strip() != "running":
            failed = self.run("systemctl", "list-units", "--failed", "--plain", check=False)
            raise LabError(f"booted to {state.stdout.strip()!r}\n{failed.stdout}")


def _connect(connection: socket.socket, path: Path) -> None:
    """Connect by way of the directory, because an address has at most 107 bytes."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        connection.connect(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)
