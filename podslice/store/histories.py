"""The starts and ends of containers: files in one directory for each pod.

`podslice run` writes `CONTAINER.json` at each start. The end is a file of its own, so that it can be
written without the lock, by a service of systemd at its end: `CONTAINER,START`. It has variables as
systemd sets them for `ExecStopPost=`, separated by NUL, and the memory.events of the container. Its
time is that of the end. What writes raises HostError if the file system refuses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from podslice.kernel.files import NotRegularError, read_with_status
from podslice.model.container_exit import (
    ATTENDED,
    OOMD_KILL,
    UNKNOWN,
    ContainerExit,
    ContainerHistory,
    exit_of_variables,
)
from podslice.store.files import entries, read_value, remove, unlink_link, write_json, writing

VARIABLES = ("SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS")
"""The variables in the record of an end, as a service records it."""

_READ = (*VARIABLES, ATTENDED)
_END_BYTES_MAX = 64 * 1024
_RESULT = re.compile(rb"SERVICE_RESULT=(signal|oom-kill)(?=\0)")
_OOM_KILLS = re.compile(rb"(?m)^oom_kill ([0-9]{1,18})$")


class Histories:
    """The histories of all pods."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, uid: str) -> dict[str, ContainerHistory]:
        """Return the histories of a pod's containers by name; files that are not valid are ignored."""
        found = {}
        for path in entries(self.root / uid):
            if path.suffix == ".json":
                with suppress(OSError):
                    history = read_value(ContainerHistory, path)
                    if history is not None:
                        found[path.stem] = self._with_end(uid, path.stem, history)
        return found

    def _with_end(self, uid: str, container: str, history: ContainerHistory) -> ContainerHistory:
        started_usec = history.started_usec
        path = self._end(uid, container, started_usec)
        try:
            content, status = read_with_status(path, limit_bytes=_END_BYTES_MAX)
        except (OSError, NotRegularError):
            return history
        ended_usec = status.st_mtime_ns // 1000
        last_exit = parse_end(content, started_usec=started_usec, ended_usec=ended_usec)
        return replace(history, last_exit=last_exit)

    def end_path(self, uid: str, container: str, started_usec: int) -> Path:
        """Return the file for the end of a container that is about to be started."""
        path = self._end(uid, container, started_usec)
        with writing(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _end(self, uid: str, container: str, started_usec: int) -> Path:
        return self.root / uid / f"{container},{started_usec}"

    def save_start(self, uid: str, container: str, started_usec: int) -> None:
        """Record a start, and keep the end of the previous one. The caller holds the lock."""
        before = self.read(uid).get(container)
        history = ContainerHistory(started_usec=started_usec)
        if before is not None:
            history = ContainerHistory(
                started_usec=started_usec,
                restarts=before.restarts + 1,
                last_exit=before.exit_of(is_running=False),
            )
        kept = self.end_path(uid, container, started_usec)
        with writing(kept):
            # First the record, which contains the end of the previous start; then its file can go.
            write_json(kept.with_name(f"{container}.json"), history)
            for path in kept.parent.glob(f"{container},*"):
                if path != kept:
                    remove(path)

    def discard(self, uid: str) -> None:
        """Remove the histories of a pod; of a link, only the link."""
        directory = self.root / uid
        with writing(directory):
            if unlink_link(directory):
                return
            for path in entries(directory):
                remove(path)
        # the parent of a command may record its end meanwhile: then the next call removes it
        with suppress(OSError):
            directory.rmdir()


def save_end(path: Path, variables: Mapping[str, str]) -> None:
    """Record the end of a container, without the lock, unless its pod is removed."""
    text = "".join(f"{name}={value}\0" for name, value in variables.items())
    with writing(path), suppress(FileNotFoundError, NotADirectoryError):
        path.write_text(text)


def save_observed_end(path: Path, result: str) -> None:
    """Record the end of a container whose exit status is unknown, unless its end is recorded.

    Args:
        path: the file; see `end_path`.
        result: what ended it, as in `ContainerExit`.
    """
    ignored = (FileExistsError, FileNotFoundError, NotADirectoryError)
    with writing(path), suppress(*ignored), path.open("x") as file:
        file.write(f"SERVICE_RESULT={result}\0")


def save_oomd_kill(path: Path) -> None:
    """Record that systemd-oomd ended a container; keep its status and its time if recorded."""
    save_observed_end(path, OOMD_KILL)
    with writing(path), suppress(FileNotFoundError, NotRegularError):
        content, status = read_with_status(path, limit_bytes=_END_BYTES_MAX)
        path.write_bytes(_RESULT.sub(b"SERVICE_RESULT=" + OOMD_KILL.encode(), content))
        # The time of the file is the time of the end.
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def parse_end(content: bytes, *, started_usec: int, ended_usec: int) -> ContainerExit:
    """Parse the record of an end; where it is not valid, only the time is known."""
    kills = _OOM_KILLS.search(content.replace(b"\0", b"\n"))
    pairs = (part.decode(errors="replace").partition("=") for part in content.split(b"\0"))
    variables: dict[str, Any] = {name: value for name, _, value in pairs if name in _READ}
    try:
        return exit_of_variables(
            variables,
            oom_kills=int(kills[1]) if kills else 0,
            started_usec=started_usec,
            ended_usec=ended_usec,
        )
    except (ValueError, KeyError):
        return ContainerExit(result=UNKNOWN, started_usec=started_usec, ended_usec=ended_usec)
