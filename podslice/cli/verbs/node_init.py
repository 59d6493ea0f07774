"""`podslice node init` and `node reset`: files with reservations for this machine.

The first line of each file marks it, and the second has the checksum of the rest, so that `reset`
removes only unmodified files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Annotated

import typer

from podslice.cli import interrupts
from podslice.cli.arguments import DONE, FAILED
from podslice.cli.output import note, write
from podslice.cli.views.tables import columns
from podslice.dataclass import dataclass
from podslice.errors import HostError, InputError, Problem
from podslice.files import NotRegularError, follow_links, read_regular
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.host import read_node
from podslice.model.naming import KUBE_RESERVED_SLICE
from podslice.model.quantity import format_bytes, format_milli
from podslice.policy.providers import (
    PROVIDERS,
    Reservation,
    by_provider,
    explain_provider,
    explain_system,
    system_reservation,
)

MARK = "# Written by podslice node init; podslice node reset removes it."
CONFIG = "etc/podslice/podslice.toml"
_BYTES_MAX = 2**20
"""A larger file was not written by `node init`."""
SERVICES = ("containerd", "crio", "docker", "kubelet", "podman")
"""Services of kube-reserved: container runtimes and the kubelet."""
_UNIT_DIRECTORIES = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
"""Source: systemd.unit(5), "Unit File Load Path"."""
_SLICE_FILE = f"etc/systemd/system/{KUBE_RESERVED_SLICE}"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proposal:
    """The reservations to write, with their reasons."""

    kube: Reservation
    why_kube: str
    formula: str
    system: Reservation
    why_system: str


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

    Each proposal is explained. Installed container runtimes are placed in podruntime.slice when
    their services are restarted.
    """
    if like is not None and like not in PROVIDERS:
        hint = f"use one of {', '.join(PROVIDERS)}"
        raise InputError(Problem(where="--like", message=f"unknown provider {like!r}", hint=hint))
    node = read_node()
    proposals = by_provider(node, pods)
    least = min(proposals, key=lambda name: proposals[name].memory_bytes)
    used_bytes = used_by_system()
    proposal = _Proposal(
        kube=proposals[like or least],
        why_kube=f"as {like}" if like else f"as {least}, the lowest memory of the three",
        formula=explain_provider(like or least, pods),
        system=system_reservation(node, used_bytes),
        why_system=explain_system(used_bytes),
    )
    write(_table(proposals, proposal.system))
    write(("", *_explain(proposal, pods), "", *_explain_services(root), ""))
    return _write_all(_files(proposal, root), root, dry_run=dry_run)


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
    yield from (CONFIG, _SLICE_FILE, *map(_drop_in, SERVICES))


def _drop_in(service: str) -> str:
    return f"etc/systemd/system/{service}.service.d/50-podslice.conf"


def _files(proposal: _Proposal, root: Path) -> dict[str, str]:
    """Return the texts, without their first two lines, by path below the root."""
    why_kube = f"Reserved for container runtimes and podslice, {proposal.why_kube}: "
    config = "\n".join(
        (
            *_comment(f"{why_kube}{proposal.formula}."),
            f'kube-reserved = "{_flag(proposal.kube)}"',
            f'kube-reserved-cgroup = "/{KUBE_RESERVED_SLICE}"',
            *_comment(f"Reserved for system daemons: {proposal.why_system}."),
            f'system-reserved = "{_flag(proposal.system)}"',
            "# Limits pods only. Measure the usage before adding kube-reserved here.",
            'enforce-node-allocatable = "pods"',
            "",
        )
    )
    shipped = root / "usr/lib/systemd/system" / KUBE_RESERVED_SLICE
    slice_file = {} if shipped.exists() else {_SLICE_FILE: _SLICE_UNIT}
    drop_ins = {_drop_in(name): _DROP_IN for name in _installed(root)}
    return {CONFIG: config, **slice_file, **drop_ins}


def _comment(text: str) -> list[str]:
    return wrap(text, 98, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _installed(root: Path) -> dict[str, Path]:
    """Return the services of `SERVICES` that are installed, with their unit files."""
    found = {}
    for name in SERVICES:
        paths = (root / directory / f"{name}.service" for directory in _UNIT_DIRECTORIES)
        path = next((path for path in paths if os.path.lexists(path)), None)
        # a masked unit is a link to /dev/null
        if path is not None and not (path.is_symlink() and str(path.readlink()) == os.devnull):
            found[name] = path
    return found


def _explain(proposal: _Proposal, pods: int) -> Iterator[str]:
    """Yield each provider's formula, and the proposed values, with their sources."""
    yield from (f"{name}: {explain_provider(name, pods)}" for name in PROVIDERS)
    yield f"system: {proposal.why_system}"
    yield ""
    yield f"kube-reserved {_flag(proposal.kube)}: for container runtimes and podslice, {proposal.why_kube}"
    yield f"system-reserved {_flag(proposal.system)}: for system daemons"


def _explain_services(root: Path) -> Iterator[str]:
    """Yield the services that get a drop-in, and those that are not installed."""
    installed = _installed(root)
    for name, path in installed.items():
        yield (
            f"{name}.service: placed in {KUBE_RESERVED_SLICE}, so that kube-reserved covers it,"
            f" because {path} is installed"
        )
    if missing := [name for name in SERVICES if name not in installed]:
        yield (
            f"not installed: {', '.join(missing)}; after installing one of them, run podslice node"
            " init again"
        )


def _flag(reservation: Reservation) -> str:
    cpu, memory = format_milli(reservation.cpu_milli), format_bytes(reservation.memory_bytes)
    return f"cpu={cpu},memory={memory}"


def _table(proposals: dict[str, Reservation], system: Reservation) -> Iterator[str]:
    """Return a table of the providers' reservations, and of the system's."""
    kept = {f"kube, as {name}": each for name, each in proposals.items()} | {"system": system}
    rows = [
        (name, format_milli(each.cpu_milli), format_bytes(each.memory_bytes))
        for name, each in kept.items()
    ]
    return columns([("RESERVATION", "CPU", "MEMORY"), *rows])


def used_by_system() -> int | None:
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
    interrupts.begin("not all files may be written; to continue, run the same command again")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_text(text)
        new.replace(path)
    except OSError as error:
        raise HostError(f"{path}: {error.strerror}; run as root") from error


def _remove(path: Path, root: Path) -> None:
    """Remove a file, and its drop-in directory if that is empty."""
    interrupts.begin("not all files may be removed; to continue, run the same command again")
    try:
        path.unlink()
        if path.parent.name.endswith(".d") and path.parent != root:
            path.parent.rmdir()
    except OSError as error:
        if path.exists():
            raise HostError(f"{path}: {error.strerror}; run as root") from error
