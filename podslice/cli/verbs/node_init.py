"""`podslice node init` and `node reset`: reservations for this machine, and what goes with them.

Every file that is written says so in its first line and has the checksum of the rest in its second,
so that `reset` removes what is as it was written, and nothing that somebody has changed since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from podslice.cli.arguments import DONE, FAILED
from podslice.cli.output import note, write
from podslice.cli.views.tables import columns
from podslice.errors import HostError, InputError, Problem
from podslice.files import NotRegularError, follow_links, read_regular
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.host import read_node
from podslice.model.naming import KUBE_RESERVED_SLICE
from podslice.model.quantity import format_bytes, format_milli
from podslice.policy.providers import PROVIDERS, Reservation, by_provider, system_reservation

MARK = "# Written by podslice node init; podslice node reset removes it again."
CONFIG = "etc/podslice/podslice.toml"
_BYTES_MAX = 2**20
"""Bytes of a file of ours; a larger one is not."""
SERVICES = ("containerd", "crio", "docker", "kubelet", "podman")
"""What belongs under kube-reserved: container runtimes and the kubelet."""
SYSTEM_SLICES = ("/system.slice", "/user.slice")

_SLICE_UNIT = """\
[Unit]
Description=Container runtimes and podslice (kube-reserved)
Documentation=man:podslice(1)
# It has to be there before what runs in it, early in the boot.
DefaultDependencies=no
Before=slices.target

[Slice]
IOAccounting=yes
MemoryAccounting=yes
TasksAccounting=yes
"""

_DROP_IN = f"""\
[Service]
# Counted with kube-reserved, and held to it where that is enforced.
Slice={KUBE_RESERVED_SLICE}
"""

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done, without doing it.")
]
Root = Annotated[
    Path, typer.Option("--root", metavar="DIR", help="Read and write files below this directory.")
]


def init(
    like: Annotated[
        str | None,
        typer.Option(
            "--like", metavar="gke|eks|aks", help="Use the reservations of this provider."
        ),
    ] = None,
    pods: Annotated[
        int, typer.Option("--pods", metavar="COUNT", help="Number of pods to reserve for.", min=1)
    ] = 30,
    dry_run: DryRun = False,  # noqa: FBT002
    root: Root = Path("/"),
) -> int:
    """Propose reservations for this machine, and write them to /etc.

    Container runtimes are placed in podruntime.slice when their services are restarted.
    """
    if like is not None and like not in PROVIDERS:
        hint = f"write {', '.join(PROVIDERS)}"
        raise InputError(Problem(where="--like", message=f"no provider {like!r}", hint=hint))
    node = read_node()
    proposals = by_provider(node, pods)
    least = min(proposals, key=lambda name: proposals[name].memory_bytes)
    used_bytes = _used_by_system()
    system = system_reservation(node, used_bytes)
    write(_table(proposals, system, pods, measured=used_bytes is not None))
    write(
        ["", f"kube-reserved is taken from {like or least}" + ("" if like else ", the least"), ""]
    )
    files = _files(proposals[like or least], system, root)
    return _write_all(files, root, dry_run=dry_run)


def reset(
    dry_run: DryRun = False,  # noqa: FBT002
    root: Root = Path("/"),
) -> int:
    """Remove the unmodified files that `node init` has written."""
    code, is_changed, is_found = DONE, False, False
    for path in (root / name for name in _names()):
        text = _read(path)
        if text is None or not text.startswith(MARK):
            continue
        is_found = True
        if text != _marked(_body(text)):
            note(f"{path} was changed since it was written, and stays; remove it by hand")
            code = FAILED
        elif dry_run:
            write([f"would remove {path}"])
        else:
            _remove(path, root)
            write([f"removed {path}"])
            is_changed = True
    if is_changed:
        write(["now: systemctl daemon-reload"])
    elif not is_found:
        write(["nothing to remove"])
    return code


def _names() -> Iterator[str]:
    yield CONFIG
    yield f"etc/systemd/system/{KUBE_RESERVED_SLICE}"
    yield from (f"etc/systemd/system/{name}.service.d/50-podslice.conf" for name in SERVICES)


def _files(kube: Reservation, system: Reservation, root: Path) -> dict[str, str]:
    """Name below the root → text without the marks."""
    config = "\n".join(
        (
            "# What container runtimes and podslice get; pods get the rest.",
            f'kube-reserved = "{_flag(kube)}"',
            f'kube-reserved-cgroup = "/{KUBE_RESERVED_SLICE}"',
            "# What the daemons of the system get.",
            f'system-reserved = "{_flag(system)}"',
            "# Only pods are held to what is left. Measure before you add kube-reserved here.",
            'enforce-node-allocatable = "pods"',
            "",
        )
    )
    shipped = root / "usr/lib/systemd/system" / KUBE_RESERVED_SLICE
    texts = [config, "" if shipped.exists() else _SLICE_UNIT, *(_DROP_IN for _ in SERVICES)]
    return {name: text for name, text in zip(_names(), texts, strict=True) if text}


def _flag(reservation: Reservation) -> str:
    cpu, memory = format_milli(reservation.cpu_milli), format_bytes(reservation.memory_bytes)
    return f"cpu={cpu},memory={memory}"


def _table(
    proposals: dict[str, Reservation], system: Reservation, pods: int, *, measured: bool
) -> Iterator[str]:
    """The providers' numbers side by side."""
    rows = [("RESERVATION", "CPU", "MEMORY", "BY")]
    formulas = {
        "gke": "6% of the first CPU, 1%, 0.5%, 0.5%, 0.25% …; 25% of the first 4Gi, 20%, 10%, 6% …",
        "eks": f"CPU as gke; 255Mi + {pods} pods × 11Mi",
        "aks": f"CPU by a table; 50Mi + {pods} pods × 20Mi, at most 25%",
    }
    for name, kept in proposals.items():
        cpu, memory = format_milli(kept.cpu_milli), format_bytes(kept.memory_bytes)
        rows.append((f"kube, as {name}", cpu, memory, formulas[name]))
    cpu, memory = format_milli(system.cpu_milli), format_bytes(system.memory_bytes)
    known, unknown = "one and a half times what its slices use now", "5%, 128Mi to 1Gi"
    rows.append(("system", cpu, memory, known if measured else unknown))
    return columns(rows)


def _used_by_system() -> int | None:
    """Memory of the system's slices; None where nobody counts it."""
    cgroups = CgroupFs()
    used = [cgroups.usage(slice_).memory_bytes for slice_ in SYSTEM_SLICES]
    counted = [number for number in used if number is not None]
    return sum(counted) if counted else None


def _write_all(files: dict[str, str], root: Path, *, dry_run: bool) -> int:
    """Write the files, none of them over one that is somebody else's.

    Raises:
        InputError: a file is there that podslice did not write; nothing was written.
        HostError: a file can't be written.
    """
    foreign = [
        Problem(
            where=str(root / name),
            message="the file is there already, and not as podslice has written it",
            hint="move it away, or write the reservations into it by hand",
        )
        for name in files
        if not _is_ours(root / name)
    ]
    if foreign and not dry_run:
        raise InputError(foreign)
    for problem in foreign:
        note(f"error: {problem}")
    for name, text in files.items():
        path = root / name
        if dry_run:
            write(
                [
                    f"would write {path}",
                    *(f"  {line}" for line in text.removesuffix("\n").split("\n")),
                ]
            )
        else:
            _write(path, _marked(text))
            write([f"wrote {path}"])
    if not dry_run:
        write(["now: systemctl daemon-reload, and restart the container runtimes when it suits"])
    return FAILED if foreign else DONE


def _marked(text: str) -> str:
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return f"{MARK}\n# {checksum}\n{text}"


def _body(text: str) -> str:
    return text.partition("\n")[2].partition("\n")[2]


def _is_ours(path: Path) -> bool:
    """Whether the file may be written: it is not there, or as podslice has left it."""
    text = _read(path)
    return text is None or text == _marked(_body(text))


def _read(path: Path) -> str | None:
    try:
        data = read_regular(path, limit_bytes=_BYTES_MAX, locate=follow_links)
        return data.decode(errors="replace")
    except FileNotFoundError:
        return None
    except NotRegularError as error:
        raise HostError(f"{path} {error}") from error
    except OSError as error:
        raise HostError(f"{path}: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_text(text)
        new.replace(path)
    except OSError as error:
        raise HostError(f"{path}: {error.strerror}; run as root") from error


def _remove(path: Path, root: Path) -> None:
    """Remove a file, and the drop-in directory around it when it is empty."""
    try:
        path.unlink()
        if path.parent.name.endswith(".d") and path.parent != root:
            path.parent.rmdir()
    except OSError as error:
        if path.exists():
            raise HostError(f"{path}: {error.strerror}; run as root") from error
