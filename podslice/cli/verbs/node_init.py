"""`podslice node init` and `node reset`: files with reservations for this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podslice.cli.arguments import BAD_INPUT, DONE, FAILED, TextOrJson
from podslice.cli.node_files import FileChange, body, mark, read
from podslice.cli.node_proposal import (
    KUBE,
    SYSTEM,
    Proposal,
    config_text,
    explain,
    proposals_document,
    propose,
    read_stated,
    table,
)
from podslice.cli.output import ReportFormat, note, write, write_json
from podslice.errors import InputError, Problem
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.host import read_node
from podslice.model.naming import KUBE_RESERVED_SLICE
from podslice.policy.providers import PROVIDERS, by_provider

if TYPE_CHECKING:
    from podslice.cli.views.documents import Document
    from podslice.model.node import Node

CONFIG = "etc/podslice/podslice.toml"
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
Like = Annotated[
    str | None,
    typer.Option("--like", metavar="gke|eks|aks", help="Use the reservations of this provider."),
]
Pods = Annotated[
    int, typer.Option("--pods", metavar="COUNT", help="Number of pods to reserve for.", min=1)
]
_AMOUNTS = "RESOURCE=QUANTITY,…"
KubeReserved = Annotated[
    str | None,
    typer.Option(f"--{KUBE}", metavar=_AMOUNTS, help="Write this instead of the proposal."),
]
SystemReserved = Annotated[
    str | None,
    typer.Option(f"--{SYSTEM}", metavar=_AMOUNTS, help="Write this instead of the proposal."),
]
Keep = Annotated[
    bool,
    typer.Option(
        "--keep", help="Keep reservations that node init has written, and add what is missing."
    ),
]


def init(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    like: Like = None,
    pods: Pods = 30,
    kube_reserved: KubeReserved = None,
    system_reserved: SystemReserved = None,
    dry_run: DryRun = False,  # noqa: FBT002
    root: Root = Path("/"),
    keep: Keep = False,  # noqa: FBT002
    output: TextOrJson = ReportFormat.TEXT,
) -> int:
    """Propose reservations for this machine, and write them to /etc.

    Each proposal is explained. Installed container runtimes are placed in podruntime.slice when
    their services are restarted.
    """
    if like is not None and like not in PROVIDERS:
        hint = f"use one of {', '.join(PROVIDERS)}"
        raise InputError(Problem(where="--like", message=f"unknown provider {like!r}", hint=hint))
    stated = read_stated({KUBE: kube_reserved, SYSTEM: system_reserved})
    node = read_node()
    proposals = by_provider(node, pods)
    proposal = propose(node, proposals, like, pods, stated, used_by_system())
    changes = [
        FileChange(path=root / name, before=read(root / name), wanted=mark(text))
        for name, text in _files(proposal, root, keep=keep).items()
    ]
    if output is ReportFormat.JSON:
        found = proposals_document(proposals, proposal, pods)
        return _write_as_json(changes, node, root, found, dry_run=dry_run)
    write(table(proposals, proposal.system))
    write(("", *explain(proposal, pods), "", *_explain_services(root), ""))
    return _write_all(changes, dry_run=dry_run)


def reset(
    dry_run: DryRun = False,  # noqa: FBT002
    root: Root = Path("/"),
    output: TextOrJson = ReportFormat.TEXT,
) -> int:
    """Remove the unmodified files that `node init` has written."""
    paths = (root / name for name in _names())
    found = (FileChange(path=path, before=read(path), wanted=None) for path in paths)
    changes = [each for each in found if each.is_marked]
    modified = _not_ours(changes, "was modified and is kept", "remove it manually")
    if output is ReportFormat.JSON:
        if not dry_run:
            _execute(changes)
        write_json(_document(changes, modified, read_node(), root, dry_run=dry_run))
    else:
        for problem in modified:
            note(f"{problem.where} {problem.message}; {problem.hint}")
        _remove_all(changes, dry_run=dry_run)
    return FAILED if modified else DONE


def _remove_all(changes: Sequence[FileChange], *, dry_run: bool) -> None:
    """Remove the unmodified files, and print each."""
    removed = [each for each in changes if each.is_change]
    for each in removed:
        if not dry_run:
            each.execute()
        write([f"{'would remove' if dry_run else 'removed'} {each.path}"])
    if removed and not dry_run:
        write(["now run: systemctl daemon-reload"])
    elif not changes:
        write(["nothing to remove"])


def _execute(changes: Sequence[FileChange]) -> None:
    for each in changes:
        if each.is_change:
            each.execute()


def _foreign(changes: Sequence[FileChange]) -> list[Problem]:
    """Return the files that `init` does not overwrite."""
    message = "the file exists and was not written by podslice, or was modified"
    return _not_ours(changes, message, "move it away, or add the reservations to it manually")


def _not_ours(changes: Sequence[FileChange], message: str, hint: str) -> list[Problem]:
    """Return a problem for each file that others have written or modified."""
    paths = (str(each.path) for each in changes if not each.is_ours)
    return [Problem(where=path, message=message, hint=hint) for path in paths]


def _write_all(changes: Sequence[FileChange], *, dry_run: bool) -> int:
    """Write the files, unless one exists that podslice has not written.

    Raises:
        InputError: a file exists that podslice did not write; nothing was written.
        HostError: a file cannot be written.
    """
    foreign = _foreign(changes)
    if foreign and not dry_run:
        raise InputError(foreign)
    for problem in foreign:
        note(f"error: {problem}")
    for each in changes:
        if not each.differs:
            write([f"unchanged {each.path}"])
        elif dry_run:
            lines = body(each.wanted or "").removesuffix("\n").split("\n")
            write([f"would write {each.path}", *(f"  {line}" for line in lines)])
        else:
            each.execute()
            write([f"wrote {each.path}"])
    if not dry_run and any(each.differs for each in changes):
        write(["now run: systemctl daemon-reload; then restart the container runtimes"])
    return FAILED if foreign else DONE


def _write_as_json(
    changes: Sequence[FileChange], node: Node, root: Path, proposals: Document, *, dry_run: bool
) -> int:
    """Write the files, and print the document; with a file of others nothing is written."""
    foreign = _foreign(changes)
    if foreign:
        changes = [each.stay() for each in changes]
    if not dry_run:
        _execute(changes)
    shown = _document(changes, foreign, node, root, dry_run=dry_run)
    write_json({**shown, "proposals": proposals})
    if foreign:
        return FAILED if dry_run else BAD_INPUT
    return DONE


def _document(
    changes: Sequence[FileChange],
    problems: Sequence[Problem],
    node: Node,
    root: Path,
    *,
    dry_run: bool,
) -> Document:
    """Return the document of `init` and `reset`."""
    from podslice.cli.views import node_file_documents

    placed = {root / _drop_in(name): f"{name}.service" for name in SERVICES}
    return node_file_documents.document(
        changes,
        node_file_documents.read_allocation(node, changes, root),
        problems,
        placed=placed,
        config=root / CONFIG,
        dry_run=dry_run,
    )


def _names() -> Iterator[str]:
    yield from (CONFIG, _SLICE_FILE, *map(_drop_in, SERVICES))


def _drop_in(service: str) -> str:
    return f"etc/systemd/system/{service}.service.d/50-podslice.conf"


def _files(proposal: Proposal, root: Path, *, keep: bool) -> dict[str, str]:
    """Return the texts, without their first two lines, by path below the root."""
    present = FileChange(path=root / CONFIG, before=read(root / CONFIG), wanted=None)
    is_kept = keep and present.is_marked and present.is_ours
    if is_kept:
        from podslice.inputs.options.config_files import read_files

        values = read_files(file=root / CONFIG).options
        is_kept = all(values.get(key) == text for key, text in proposal.stated.items())
    config = body(present.before or "") if is_kept else config_text(proposal)
    shipped = root / "usr/lib/systemd/system" / KUBE_RESERVED_SLICE
    slice_file = {} if shipped.exists() else {_SLICE_FILE: _SLICE_UNIT}
    drop_ins = {_drop_in(name): _DROP_IN for name in _installed(root)}
    return {CONFIG: config, **slice_file, **drop_ins}


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


def used_by_system() -> int | None:
    """Return the memory usage of the system's slices; None if it is not accounted."""
    cgroups = CgroupFs()
    used = [cgroups.usage(slice_).memory_bytes for slice_ in SYSTEM_SLICES]
    counted = [number for number in used if number is not None]
    return sum(counted) if counted else None
