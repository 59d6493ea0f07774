"""`podslice node init` and `node reset`: files with reservations for this machine.

The first line of each file marks it, and the second has the checksum of the rest, so that `reset`
removes only unmodified files.
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

MARK = "# Written by podslice node init; podslice node reset removes it."
CONFIG = "etc/podslice/podslice.toml"
_BYTES_MAX = 2**20
"""A larger file was not written by `node init`."""
SERVICES = ("containerd", "crio", "docker", "kubelet", "podman")
"""Services of kube-reserved: container runtimes and the kubelet."""
SYSTEM_SLICES = ("/system.slice", "/user.slice")

_SLICE_UNIT = """\
[Unit]
Description=Container runtimes and podslice (kube-reserved)
Documentation=man:podslice(1)
# Starts before the services in it, early in the boot.
DefaultDependencies=no
Before=slices.target

[Slice]
IOAccounting=yes
MemoryAccounting=yes
TasksAccounting=yes
"""

_DROP_IN = f"""\
[Service]
# Part of kube-reserved, and limited to it where that is enforced.
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
        hint = f"use one of {', '.join(PROVIDERS)}"
        raise InputError(Problem(where="--like", message=f"unknown provider {like!r}", hint=hint))
    node = read_node()
    proposals = by_provider(node, pods)
    least = min(proposals, key=lambda name: proposals[name].memory_bytes)
    used_bytes = _used_by_system()
    system = system_reservation(node, used_bytes)
    write(_table(proposals, system, pods, measured=used_bytes is not None))
    write(
        ["", f"kube-reserved: the values of {like or least}" + ("" if like else ", the lowest"), ""]
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
            note(f"{path} was modified and is kept; remove it manually")
            code = FAILED
        elif dry_run:
            write([f"would remove {path}"])
        else:
            _remove(path, root)
            write([f"removed {path}"])
            is_changed = True
    if is_changed:
        write(["now run: systemctl daemon-reload"])
    elif not is_found:
        write(["nothing to remove"])
    return code


def _names() -> Iterator[str]:
    yield CONFIG
    yield f"etc/systemd/system/{KUBE_RESERVED_SLICE}"
    yield from (f"etc/systemd/system/{name}.service.d/50-podslice.conf" for name in SERVICES)


def _files(kube: Reservation, system: Reservation, root: Path) -> dict[str, str]:
    """Return the texts, without their first two lines, by path below the root."""
    config = "\n".join(
        (
            "# Reserved for container runtimes and podslice.",
            f'kube-reserved = "{_flag(kube)}"',
            f'kube-reserved-cgroup = "/{KUBE_RESERVED_SLICE}"',
            "# Reserved for system daemons.",
            f'system-reserved = "{_flag(system)}"',
            "# Limits pods only. Measure the usage before adding kube-reserved here.",
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
    """Return a table of the providers' reservations."""
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
    known, unknown = "1.5 × the current usage of its slices", "5%, 128Mi to 1Gi"
    rows.append(("system", cpu, memory, known if measured else unknown))
    return columns(rows)


def _used_by_system() -> int | None:
    """Return the memory usage of the system's slices; None if it is not accounted."""
    cgroups = CgroupFs()
    used = [cgroups.usage(slice_).memory_bytes for slice_ in SYSTEM_SLICES]
    counted = [number for number in used if number is not None]
    return sum(counted) if counted else None


def _write_all(files: dict[str, str], root: Path, *, dry_run: bool) -> int:
    """Write the files, unless one exists that podslice has not written.

    Raises:
        InputError: a file exists that podslice did not write; nothing was written.
        HostError: a file cannot be written.
    """
    foreign = [
        Problem(
            where=str(root / name),
            message="the file exists and was not written by podslice, or was modified",
            hint="move it away, or add the reservations to it manually",
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
        write(["now run: systemctl daemon-reload; then restart the container runtimes"])
    return FAILED if foreign else DONE


def _marked(text: str) -> str:
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return f"{MARK}\n# {checksum}\n{text}"


def _body(text: str) -> str:
    return text.partition("\n")[2].partition("\n")[2]


def _is_ours(path: Path) -> bool:
    """Return whether the file does not exist, or is unmodified since podslice wrote it."""
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
    """Remove a file, and its drop-in directory if that is empty."""
    try:
        path.unlink()
        if path.parent.name.endswith(".d") and path.parent != root:
            path.parent.rmdir()
    except OSError as error:
        if path.exists():
            raise HostError(f"{path}: {error.strerror}; run as root") from error
