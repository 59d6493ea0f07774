"""Kills by systemd-oomd, which it counts in an extended attribute of the control group.

The kernel does not count them in memory.events, and the attribute is lost with the control group,
which systemd removes once it is empty. Of an open directory it can still be read.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple, Self

from podslice.kernel.cgroup import CgroupFs

_KILLS = "user.oomd_ooms"
_COUNT = re.compile(rb"[0-9]{1,18}")


class OpenGroup(NamedTuple):
    """The open directory of a control group."""

    descriptor: int
    inode: int

    @classmethod
    def open(cls, cgroups: CgroupFs, group: str) -> Self | None:
        """Open a control group; None if it does not exist, or there are no descriptors left."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            descriptor = os.open(cgroups.directory(group), flags)
        except OSError:
            return None
        return cls(descriptor=descriptor, inode=os.fstat(descriptor).st_ino)

    def close(self) -> None:
        """Close the directory."""
        os.close(self.descriptor)

    def is_at(self, cgroups: CgroupFs, group: str) -> bool:
        """Return whether this is still the control group of that name."""
        try:
            return cgroups.directory(group).stat().st_ino == self.inode
        except OSError:
            return False

    def oomd_kills(self) -> int:
        """Return how often systemd-oomd has killed its processes; it counts before it kills.

        Source: systemd, src/oom/oomd-util.c, oomd_cgroup_kill; src/core/cgroup.c,
        unit_check_oomd_kill.
        """
        try:
            value = os.getxattr(self.descriptor, _KILLS)
        except OSError:
            return 0  # it has never killed there
        return int(value) if _COUNT.fullmatch(value) else 0
