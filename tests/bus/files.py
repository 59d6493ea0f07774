"""The files of a machine's systemd, as this host sees them."""

from podslice.kernel.cgroup import CgroupFs
from podslice.systemd.slice_files import SliceFiles

ACCOUNTING = {f"{what}Accounting": True for what in ("CPU", "IO", "Memory", "Tasks")}
"""What every slice of ours states; one that does not is read over the bus."""


def files_of(machine):
    """Where to read slices."""
    assert machine.root is not None
    return SliceFiles(machine.root, CgroupFs(mount=machine.root / "sys/fs/cgroup"))
