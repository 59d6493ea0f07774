"""The present machine: for tests that run inside a namespace or a virtual machine."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from tests.lab.machine import (
    DEFAULT_TIMEOUT_SEC,
    CommandTimeout,
    Kind,
    Machine,
    Options,
    Result,
    to_bytes,
)
from tests.lab.paths import source_dir


class LocalProcess:
    """A running command of this host; satisfies Process."""

    def __init__(self, argv: tuple[str, ...], env: Mapping[str, str]) -> None:
        self._argv = argv
        # files, not pipes: a command may write much before it is read
        with contextlib.ExitStack() as on_error:
            stdout = on_error.enter_context(tempfile.TemporaryFile())
            stderr = on_error.enter_context(tempfile.TemporaryFile())
            self._child = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                env=env,
                start_new_session=True,
                bufsize=0,
            )
            on_error.pop_all()
        self._outputs: tuple[IO[bytes], IO[bytes]] = (stdout, stderr)
        self._result: Result | None = None
        self.pid = self._child.pid

    def kill(self, signal_number: int = 9) -> None:
        if self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal_number)

    def write(self, data: str | bytes) -> None:
        assert self._child.stdin
        self._child.stdin.write(to_bytes(data))

    def close_stdin(self) -> None:
        assert self._child.stdin
        self._child.stdin.close()

    def wait(self, timeout_sec: float = DEFAULT_TIMEOUT_SEC) -> Result:
        if self._result is None:
            is_late = False
            try:
                self._child.wait(timeout_sec)
            except subprocess.TimeoutExpired:
                is_late = True
                self.kill()
                self._child.wait()
            self.close_stdin()
            self._result = self._collect()
            if is_late:
                raise CommandTimeout(self._result)
        return self._result

    def _collect(self) -> Result:
        texts = []
        for file in self._outputs:
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
            file.close()
        code = self._child.returncode
        return Result(
            argv=self._argv,
            exit_code=code if code >= 0 else 128 - code,
            stdout=texts[0],
            stderr=texts[1],
        )


class Local(Machine):
    """The present machine: commands are child processes, and closing it stops nothing."""

    kind: Kind = "local"
    bus_address: str | None = "unix:path=/run/dbus/system_bus_socket"
    root: Path | None = Path("/")

    @property
    def last_request(self) -> object:
        return object()  # its commands are not counted

    def _run(self, argv: tuple[str, ...], options: Options) -> Result:
        process = self.spawn(*argv, env=options.get("env"))
        with contextlib.suppress(BrokenPipeError):
            process.write(to_bytes(options.get("input")))
        process.close_stdin()
        return process.wait(options.get("timeout_sec", DEFAULT_TIMEOUT_SEC))

    def _run_module(self, name: str, args: tuple[str, ...], options: Options) -> Result:
        env = {"PYTHONPATH": str(source_dir()), **(options.get("env") or {})}
        return self._run((sys.executable, "-m", name, *args), {**options, "env": env})

    def spawn(self, *argv: str, env: Mapping[str, str] | None = None) -> LocalProcess:
        return LocalProcess(argv, {**os.environ, **(env or {})})

    def put(self, path: str, data: str | bytes, mode: int = 0o644) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(to_bytes(data))
        target.chmod(mode)

    def get(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def close(self) -> None:
        pass
