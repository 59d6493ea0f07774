"""Limits of huge pages: the one thing that podslice writes to control groups itself.

Systemd has no property for them, and neither writes these files nor takes the controller away.
Nothing above our own root is changed: whether that has the controller is the operator's choice.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from podslice.errors import HostError
from podslice.kernel.cgroup import CgroupFs
from podslice.model.resources import RESERVED_SUFFIX

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
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_TRUNC), "w") as file:
            file.write(text)
    except OSError as error:
        if error.errno == errno.ENOENT and name.endswith(RESERVED_SUFFIX):
            return  # Linux 5.6 has no such file
        hint = "; more is in use" if error.errno == errno.EBUSY else ""
        raise HostError(f"{path}: {text} can't be written: {error.strerror}{hint}") from error
