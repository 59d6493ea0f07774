"""The present machine: for tests that run inside a namespace or a virtual machine."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from functools import cached_property
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self

from tests.lab.machine import (
    DEFAULT_TIMEOUT_SEC,
    CommandTimeout,
    Kind,
    Result,
    pack_tree,
    to_bytes,
)
from tests.lab.paths import source_dir
from tests.lab.remote import FACTS, UNPACK


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


class Local:
    """The present machine: commands are child processes, and closing it stops nothing."""

    kind: Kind = "local"
    bus_address: str | None = "unix:path=/run/dbus/system_bus_socket"
    root: Path | None = Path("/")

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return json.loads(self.run(sys.executable, "-c", FACTS).stdout)  # type: ignore[no-any-return]

    @property
    def systemd_version(self) -> int:
        return int(self._facts["systemd"])

    @property
    def cgroup_version(self) -> Literal[1, 2]:
        return 2 if self._facts["is_unified"] else 1

    @property
    def has_controllers(self) -> bool:
        return {"cpu", "memory", "pids"} <= set(self._facts["controllers"])

    @property
    def last_request(self) -> object:
        return object()  # its commands are not counted

    def run(
        self,
        *argv: str,
        input: str | bytes | None = None,  # noqa: A002 (as subprocess.run calls it)
        check: bool = True,
        timeout_sec: float = DEFAULT_TIMEOUT_SEC,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        process = self.spawn(*argv, env=env)
        with contextlib.suppress(BrokenPipeError):
            process.write(to_bytes(input))
        process.close_stdin()
        result = process.wait(timeout_sec)
        return result.checked() if check else result

    def module(
        self,
        name: str,
        *args: str,
        input: str | bytes | None = None,  # noqa: A002
        check: bool = True,
        timeout_sec: float = DEFAULT_TIMEOUT_SEC,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        return self.run(
            *(sys.executable, "-m", name, *args),
            input=input,
            check=check,
            timeout_sec=timeout_sec,
            env={"PYTHONPATH": str(source_dir()), **(env or {})},
        )

    def podslice(
        self,
        *args: str,
        input: str | bytes | None = None,  # noqa: A002
        check: bool = True,
        timeout_sec: float = DEFAULT_TIMEOUT_SEC,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        return self.module(
            "podslice", *args, input=input, check=check, timeout_sec=timeout_sec, env=env
        )

    def spawn(self, *argv: str, env: Mapping[str, str] | None = None) -> LocalProcess:
        return LocalProcess(argv, {**os.environ, **(env or {})})

    def put(self, path: str, data: str | bytes, mode: int = 0o644) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(to_bytes(data))
        target.chmod(mode)

    def get(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def push(self, local_dir: Path, guest_dir: str) -> None:
        archive = pack_tree(local_dir)
        shutil.rmtree(guest_dir, ignore_errors=True)
        with tarfile.open(fileobj=BytesIO(archive)) as tar:
            tar.extractall(guest_dir, filter="data")

    def unpack(self, archive: Path) -> None:
        self.run(*UNPACK, str(archive))

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
