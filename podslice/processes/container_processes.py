"""The processes of a container, from its control group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from podslice.kernel.text import read_text, split_lines

_PAYLOAD = "libpod-payload-*"
"""The control group of a container in that of its service, beside that of conmon.

Source: podman 5.4, libpod/oci_conmon_common.go and utils/utils_supported.go, --cgroups=split.
"""


def list_processes(control_group: str, root: Path = Path("/")) -> Iterator[int]:
    """Yield the processes of a container, which are below the control group of its service."""
    service = root / "sys/fs/cgroup" / control_group.lstrip("/")
    for file in service.glob(f"{_PAYLOAD}/**/cgroup.procs"):
        with suppress(OSError):  # the group has been removed
            yield from map(int, split_lines(read_text(file)))
