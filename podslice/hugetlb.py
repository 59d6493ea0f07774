"""Limits of huge pages: the one thing that podslice writes to control groups itself.

Systemd has no property for them, and neither writes these files nor takes the controller away.
Nothing above our own root is changed: whether that has the controller is the operator's choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from podslice.cgroupfs import CgroupFs
from podslice.errors import HostError

_CONTROLLER = "hugetlb"


def limit(cgroups: CgroupFs, root: str, control_group: str, files: Mapping[str, int]) -> None:
    """Limit the huge pages of a control group at or below the root: file → bytes.

    Raises:
        HostError: the control group is elsewhere, or one of its files can't be written.
    """
    group, top = PurePosixPath(control_group), PurePosixPath(root)
    if not group.is_relative_to(top) or ".." in group.parts:
        raise HostError(
            f"{control_group} is not below {root}; its huge pages are not ours to limit"
        )
    above = [parent for parent in reversed(group.parents) if parent.is_relative_to(top)]
    for parent in above:
        if _CONTROLLER not in cgroups.controllers_below(str(parent)):
            _write(cgroups, parent, "cgroup.subtree_control", f"+{_CONTROLLER}")
    for name, limit_bytes in files.items():
        _write(cgroups, group, name, str(limit_bytes))


def _write(cgroups: CgroupFs, group: PurePosixPath, name: str, text: str) -> None:
    path = Path(cgroups.mount, *group.parts[1:], name)
    try:
        path.write_text(text)
    except OSError as error:
        raise HostError(f"{path}: {text} can't be written: {error.strerror}") from error
