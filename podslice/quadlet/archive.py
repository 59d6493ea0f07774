"""The data of a pod as one archive, for a host to which the units are copied.

Beside units the data itself would have names that a generator reads as those of units or drop-ins.
"""

from __future__ import annotations

import io
import tarfile

from podslice.model.naming import DATA
from podslice.quadlet.result import (
    ARCHIVE_SUFFIX,
    PRIVATE_MODE,
    SECRET_MODE,
    Directory,
    File,
    Quadlets,
    is_data,
)


def with_archive(pod: Quadlets, top: str) -> Quadlets:
    """Return the pod with an archive instead of its data, to be extracted in the root directory.

    Args:
        pod: the pod.
        top: the directory of podslice's own files on the host.
    """
    if not pod.directories:
        return pod
    data = [each for each in pod.files if is_data(each.path)]
    units = [each for each in pod.files if not is_data(each.path)]
    (unit,) = (each.path for each in units if each.path.endswith(".pod"))
    archive = File(
        path=f"{unit.removesuffix('.pod')}{ARCHIVE_SUFFIX}",
        content=_pack((Directory(path=DATA, mode=PRIVATE_MODE), *pod.directories, *data), top),
        mode=SECRET_MODE,
        is_secret=any(each.is_secret for each in data),
    )
    return pod._replace(files=(*units, archive), directories=())


def _pack(entries: tuple[Directory | File, ...], top: str) -> bytes:
    """Return a tar archive that depends on nothing else; root, or who extracts it, owns the files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            member = tarfile.TarInfo(f"{top.lstrip('/')}/{entry.path}")
            member.mode = entry.mode
            if isinstance(entry, File):
                member.size = len(entry.content)
                archive.addfile(member, io.BytesIO(entry.content))
            else:
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
    return buffer.getvalue()
