"""Limits of huge pages: the only control group files that podslice writes itself.

systemd has no property for them; it neither writes these files nor disables the controller.
Nothing above podslice's root is changed: enabling the controller there is the operator's choice.
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
            f"{control_group} is not below {root}; its huge pages are not limited by podslice"
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
        hint = "; the current usage is higher" if error.errno == errno.EBUSY else ""
        raise HostError(f"{path}: {text} can't be written: {error.strerror}{hint}") from error
