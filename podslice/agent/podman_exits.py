"""Reports containers of podman in pods that fail, from the files in which conmon keeps their exits.

The agent has no access to podman itself. Containers in systemd services are followed as these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from podslice.agent.container_ends import ContainerEnds
from podslice.agent.context import AgentContext
from podslice.errors import FORMAT_ERRORS, printable
from podslice.kernel.files import read_present
from podslice.model.container_exit import ContainerExit, exit_of_runtime
from podslice.model.desired import PodDecision
from podslice.model.unit import TOP_SLICE, UnitName, parent_slice
from podslice.usage.runtimes import podman_storage

_ID = frozenset("0123456789abcdef")
_ID_CHARS = 64
_BYTES_MAX = 4 * 2**20


class PodmanExits:
    """Handles the exits of podman's containers that are not in services.

    conmon writes the exit code of a container to a file with its id as soon as the container has
    ended, and podman removes the file afterwards.

    Source: conmon(8), --exit-dir and --persist-dir; podman 5.4, libpod/oci_conmon_common.go.
    """

    def __init__(
        self, context: AgentContext, ends: ContainerEnds, on_exit: Callable[[], None], root: Path
    ) -> None:
        """`on_exit` is called when a container has crashed, which `follow` is to report."""
        self._context = context
        self._ends = ends
        self._on_exit = on_exit
        self._root = root
        self._crashes: list[tuple[str, ContainerExit]] = []
        """The crashes of containers that may be in pods, by their ids."""

    def notice(self, name: str) -> None:
        """Read a file that conmon has written, before podman removes it."""
        if len(name) != _ID_CHARS or not _ID.issuperset(name):
            return
        manager = self._context.world.manager
        directory = self._root / manager.podman_exits_directory.lstrip("/")
        with suppress(OSError, ValueError):
            content = read_present(directory / name, limit_bytes=_BYTES_MAX)
            places = (directory.parent / "persist" / name, *self._places(f"{name}/userdata"))
            is_oom = any((place / "oom").exists() for place in places)
            crash = exit_of_runtime(int(content or b""), is_oom=is_oom)
            if crash is not None and crash.is_failure:
                self._crashes.append((name, crash))
                self._on_exit()

    def follow(self) -> None:
        """Report the crashes of containers in pods."""
        crashes, self._crashes = self._crashes, []
        assessment = self._context.assessment
        if assessment is None or not crashes:
            return
        pods = {pod.slice: pod for pod in assessment.desired.pods}
        for id_, crash in crashes:
            pod = self._find_pod(id_, pods)
            if pod is not None:
                unit = UnitName(f"libpod-{id_}.scope")
                self._ends.report_crash(pod, self._find_name(id_), crash, unit=unit)

    def _find_pod(self, id_: str, pods: Mapping[UnitName, PodDecision]) -> PodDecision | None:
        """Return the pod in whose slice a container was started, also below a podman pod's."""
        for place in self._places(f"{id_}/userdata/config.json"):
            slice_, _, rest = _read_group(place).partition(":")
            while rest and slice_.endswith(".slice") and slice_ != TOP_SLICE:
                if slice_ in pods:
                    return pods[UnitName(slice_)]
                slice_ = parent_slice(UnitName(slice_))
        return None

    def _find_name(self, id_: str) -> str:
        """Return the name of a container; its short id if it was removed.

        Source: containers/storage, containers.go, containers.json and volatile-containers.json.
        """
        for place in self._places("*containers.json"):
            with suppress(OSError, *FORMAT_ERRORS):
                for each in json.loads(read_present(place, limit_bytes=_BYTES_MAX) or b"[]"):
                    if each["id"] == id_ and each["names"]:
                        return printable(str(each["names"][0]))
        return id_[:12]

    def _places(self, path: str) -> list[Path]:
        """Return the existing paths below the containers of any storage driver."""
        return sorted(podman_storage(self._root).glob(f"*-containers/{path}"))


def _read_group(path: Path) -> str:
    """Return the `cgroupsPath` of a container's configuration; empty if it cannot be read.

    Source: OCI runtime specification, config-linux.md, Control groups.
    """
    with suppress(OSError, *FORMAT_ERRORS):
        found = json.loads(read_present(path, limit_bytes=_BYTES_MAX) or b"{}")
        return str(found["linux"]["cgroupsPath"])
    return ""
