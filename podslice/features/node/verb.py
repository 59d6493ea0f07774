"""`podslice node init` and `node reset`: files with reservations for this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any, NamedTuple

import typer

from podslice.cli.arguments import BAD_INPUT, DONE, FAILED, TextOrJson, number
from podslice.cli.output import ReportFormat, note, write, write_json
from podslice.cli.report import AmountsEntry, Problems, document
from podslice.cli.views.tables import DivisionEntry, ReservedEntry, columns, division_entry
from podslice.errors import InputError, Problem, printable
from podslice.features.node import providers
from podslice.features.node.files import FileChange, FileTree, body, leaving, mark
from podslice.inputs.options.config_files import (
    CONFIG_DIRECTORIES,
    CONFIG_NAME,
    make_config,
    read_files,
)
from podslice.inputs.options.values import read_reservation
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.host import read_node
from podslice.model.naming import KUBE_RESERVED_SLICE
from podslice.model.node import Node
from podslice.model.quantity import format_bytes, format_milli
from podslice.policy.allocatable import allocate, validate_node

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

KUBE, SYSTEM = "kube-reserved", "system-reserved"
"""Keys of the configuration."""

_SLICE_UNIT = """\
[Unit]
Description=Container runtimes and podslice (kube-reserved)
Documentation=man:podslice-host(1)
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

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the changes only.")]
Root = Annotated[Path, typer.Option("--root", metavar="DIR", help="Root of the files.")]
Like = Annotated[
    str | None,
    typer.Option("--like", metavar="gke|eks|aks", help="Reservations of this provider."),
]
Pods = Annotated[
    int, typer.Option("--pods", metavar="COUNT", help="Pods to reserve for.", parser=number(1))
]
_AMOUNTS = "AMOUNTS"
KubeReserved = Annotated[
    str | None,
    typer.Option(f"--{KUBE}", metavar=_AMOUNTS, help="Such as cpu=500m,memory=1Gi."),
]
SystemReserved = Annotated[
    str | None,
    typer.Option(f"--{SYSTEM}", metavar=_AMOUNTS, help="Such as cpu=500m,memory=1Gi."),
]
Keep = Annotated[
    bool,
    typer.Option("--keep", help="Keep reservations as written."),
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

    Examples:
        podslice node init --dry-run
        podslice node init --like gke --pods 60
    """
    if like is not None and like not in providers.PROVIDERS:
        hint = f"use one of {', '.join(providers.PROVIDERS)}"
        raise InputError(Problem(where="--like", message=f"unknown provider {like!r}", hint=hint))
    stated = read_stated({KUBE: kube_reserved, SYSTEM: system_reserved})
    node = read_node()
    used_bytes = used_by_system()
    proposal = Proposal(
        by_provider=providers.by_provider(node.capacity, pods),
        like=like,
        pods=pods,
        system=providers.system_reservation(node, used_bytes),
        why_system=providers.explain_system(used_bytes),
        stated=stated,
    )
    tree = FileTree(root)
    _check_configuration(tree)
    changes = [
        FileChange(tree=tree, name=name, before=tree.read(name), wanted=mark(text))
        for name, text in _files(proposal, tree, keep=keep).items()
    ]
    message = "the file exists and was not written by podslice, or was modified"
    foreign = _not_ours(changes, message, "move it away, or add the reservations to it manually")
    if output is ReportFormat.JSON:
        if foreign:
            changes = [each._replace(wanted=each.before) for each in changes]
        files = _execute(changes, foreign, node, root, dry_run=dry_run)
        write_json(document(InitReport(**vars(files), proposals=proposal_entries(proposal))))
        return (FAILED if dry_run else BAD_INPUT) if foreign else DONE
    write(table(proposal))
    write(("", *explain(proposal), "", *_explain_services(tree), ""))
    if foreign and not dry_run:
        raise InputError(foreign)
    for problem in foreign:
        note(f"error: {printable(str(problem))}")
    for each in changes:
        if not each.differs:
            write([f"unchanged {each.shown}"])
        elif dry_run:
            lines = body(each.wanted or "").removesuffix("\n").split("\n")
            write([f"would write {each.shown}", *(f"  {line}" for line in lines)])
        else:
            each.execute()
            write([f"wrote {each.shown}"])
    if not dry_run and any(each.differs for each in changes):
        write(
            [
                "now run: systemctl daemon-reload; then restart the container runtimes",
                "to set the limits of the reservations now: podslice apply",
            ]
        )
    return FAILED if foreign else DONE


def reset(
    dry_run: DryRun = False,  # noqa: FBT002
    root: Root = Path("/"),
    output: TextOrJson = ReportFormat.TEXT,
) -> int:
    """Remove the unmodified files that `node init` has written.

    Examples:
        podslice node reset --dry-run
        podslice node reset
    """
    tree = FileTree(root)
    _check_configuration(tree)
    names = (CONFIG, _SLICE_FILE, *map(_drop_in, SERVICES))
    found = (
        FileChange(tree=tree, name=each, before=tree.read(each), wanted=None) for each in names
    )
    changes = [each for each in found if each.is_marked]
    modified = _not_ours(changes, "was modified and is kept", "remove it manually")
    if output is ReportFormat.JSON:
        write_json(document(_execute(changes, modified, read_node(), root, dry_run=dry_run)))
        return FAILED if modified else DONE
    for problem in modified:
        note(printable(f"{problem.where} {problem.message}; {problem.hint}"))
    removed = [each for each in changes if each.is_change]
    for each in removed:
        if not dry_run:
            each.execute()
        write([f"{'would remove' if dry_run else 'removed'} {each.shown}"])
    if removed and not dry_run:
        write(
            [
                "now run: systemctl daemon-reload",
                "to remove the limits of the reservations now: podslice apply",
            ]
        )
    elif not changes:
        write(["nothing to remove"])
    return FAILED if modified else DONE


def _not_ours(changes: Sequence[FileChange], message: str, hint: str) -> list[Problem]:
    """Return a problem for each file that others have written or modified."""
    paths = (str(each.path) for each in changes if not each.is_ours)
    return [Problem(where=path, message=message, hint=hint) for path in paths]


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """A file of the configuration, or a unit file."""

    path: str
    changed: bool
    before: str | None
    """Its text; None where there is no file."""
    after: str | None


@dataclass(frozen=True, kw_only=True)
class FilesReport:
    """The files that are written or removed, and the node with them."""

    changed: bool
    """Whether a file is written or removed, or would be."""
    dry_run: bool
    capacity: AmountsEntry | None
    """None, as what follows, if the configuration is invalid."""
    reserved: ReservedEntry | None
    allocatable: AmountsEntry | None
    effective: dict[str, Any] | None
    """The options that are set, by their keys."""
    configuration_problems: Problems
    files: tuple[FileEntry, ...]
    services: tuple[str, ...]
    """The services with a drop-in."""
    needs_daemon_reload: bool
    needs_restart: tuple[str, ...]
    needs_reload: tuple[str, ...]
    problems: Problems
    """Files that were written by others, or modified."""


@dataclass(frozen=True, kw_only=True)
class ProposalEntry:
    """A proposed reservation."""

    cpu_milli: int
    memory_bytes: int
    formula: str


@dataclass(frozen=True, kw_only=True)
class InitReport(FilesReport):
    """The same with the proposed reservations."""

    proposals: dict[str, ProposalEntry]
    """By provider, and for the system."""


def _execute(
    changes: Sequence[FileChange],
    problems: Sequence[Problem],
    node: Node,
    root: Path,
    *,
    dry_run: bool,
) -> FilesReport:
    """Change the files, and return the report of `init` and `reset`."""
    if not dry_run:
        for each in changes:
            if each.is_change:
                each.execute()
    placed = {root / _drop_in(name): f"{name}.service" for name in SERVICES}
    config = root / CONFIG
    changed = {each.path for each in changes if each.is_change}
    present = {each.path for each in changes if each.after is not None}
    division, effective, found = _read_allocation(node, changes, root)
    return FilesReport(
        changed=bool(changed),
        dry_run=dry_run,
        capacity=division.capacity if division else None,
        reserved=division.reserved if division else None,
        allocatable=division.allocatable if division else None,
        effective=effective,
        configuration_problems=tuple(found),
        files=tuple(
            FileEntry(
                path=str(each.path), changed=each.is_change, before=each.before, after=each.after
            )
            for each in changes
        ),
        services=tuple(service for path, service in placed.items() if path in present),
        needs_daemon_reload=bool(changed - {config}),
        needs_restart=tuple(service for path, service in placed.items() if path in changed),
        needs_reload=(_AGENT,) if config in changed else (),
        problems=tuple(problems),
    )


def _drop_in(service: str) -> str:
    return f"etc/systemd/system/{service}.service.d/50-podslice.conf"


def _check_configuration(tree: FileTree) -> None:
    """Check that the configuration below a root, which JSON shows as a whole, is not outside of it.

    A link to /dev/null masks a file, and is not followed. The files are read afterwards, by their
    paths: a program that changes the root meanwhile is not considered.

    Raises:
        InputError: a file of it, or a directory, is a link out of the root.
    """
    problems: list[Problem] = []
    directories = () if tree.is_host else CONFIG_DIRECTORIES
    for directory in (f"{each}/podslice" for each in directories):
        main = f"{directory}/{CONFIG_NAME}"
        try:
            files = [main, *(f"{main}.d/{name}" for name in tree.names(f"{main}.d"))]
            for name in files:
                target = tree.link_target(name)
                if target and target != os.devnull:
                    problems += leaving(tree.path(name), target, tree.root).problems
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)


def _files(proposal: Proposal, tree: FileTree, *, keep: bool) -> dict[str, str]:
    """Return the texts, without their first two lines, by path below the root."""
    present = FileChange(tree=tree, name=CONFIG, before=tree.read(CONFIG), wanted=None)
    # a file that an administrator has modified is never kept as ours, nor overwritten
    is_kept = keep and present.is_marked and present.is_ours
    if is_kept:
        text = (present.before or "").encode()
        values = read_files(file=present.path, texts={present.path: text}).options
        is_kept = all(values.get(key) == text for key, text in proposal.stated.items())
    config = body(present.before or "") if is_kept else config_text(proposal)
    is_shipped = tree.link_target(f"usr/lib/systemd/system/{KUBE_RESERVED_SLICE}") is not None
    slice_file = {} if is_shipped else {_SLICE_FILE: _SLICE_UNIT}
    drop_ins = {_drop_in(name): _DROP_IN for name in _installed(tree)}
    return {CONFIG: config, **slice_file, **drop_ins}


def _installed(tree: FileTree) -> dict[str, Path]:
    """Return the services of `SERVICES` that are installed, with their unit files."""
    found = {}
    for name in SERVICES:
        for file in (f"{directory}/{name}.service" for directory in _UNIT_DIRECTORIES):
            target = tree.link_target(file)
            if target is None:
                continue
            if target != os.devnull:  # otherwise it is masked
                found[name] = tree.path(file)
            break
    return found


def _explain_services(tree: FileTree) -> Iterator[str]:
    """Yield the services that get a drop-in, and those that are not installed."""
    installed = _installed(tree)
    for name, path in installed.items():
        yield (
            f"{name}.service: placed in {KUBE_RESERVED_SLICE}, so that kube-reserved covers it,"
            f" because {printable(str(path))} is installed"
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


_AGENT = "podslice-agent.service"


def _read_allocation(
    node: Node, changes: Sequence[FileChange], root: Path
) -> tuple[DivisionEntry | None, dict[str, Any] | None, Sequence[Problem]]:
    """Return the division of the node after the changes, the options, and their problems.

    With a configuration that is invalid the division and the options are not known.
    """
    texts = {each.path: None if each.after is None else each.after.encode() for each in changes}
    try:
        files = read_files(root=root, texts=texts)
        config = make_config(files, {})
        problems = validate_node(node, config)
    except InputError as error:
        return None, None, error.problems
    return division_entry(allocate(node, config)), dict(sorted(files.options.items())), problems


class Proposal(NamedTuple):
    """The reservations that are proposed, with their reasons, and what is stated instead."""

    by_provider: Mapping[str, providers.Reservation]
    like: str | None
    """The provider whose reservation is requested."""
    pods: int
    system: providers.Reservation
    why_system: str
    stated: Mapping[str, str]
    """The values of options that are written instead, by key."""

    @property
    def provider(self) -> str:
        """Return the provider whose reservation is proposed."""
        return self.like or min(
            self.by_provider, key=lambda name: self.by_provider[name].memory_bytes
        )

    @property
    def formulas(self) -> dict[str, str]:
        """Return the formula of each reservation, by provider, and for `system`."""
        found = {name: providers.explain_provider(name, self.pods) for name in self.by_provider}
        return {**found, "system": self.why_system}

    @property
    def why_kube(self) -> str:
        """Return the reason of the value of kube-reserved."""
        lowest = "" if self.like else ", the lowest memory of the three"
        return self.why_stated(KUBE) or f"as {self.provider}{lowest}"

    def why_stated(self, key: str) -> str:
        """Return the reason of a value that an option states; empty if none does."""
        return f"as stated with --{key}" if key in self.stated else ""

    def value(self, key: str) -> str:
        """Return the value of an option of the configuration."""
        reserved = self.by_provider[self.provider] if key == KUBE else self.system
        cpu, memory = format_milli(reserved.cpu_milli), format_bytes(reserved.memory_bytes)
        return self.stated.get(key) or f"cpu={cpu},memory={memory}"


def read_stated(options: Mapping[str, str | None]) -> dict[str, str]:
    """Return the reservations that are stated, by key.

    Raises:
        InputError: one is invalid; it has every problem.
    """
    stated = {key: value for key, value in options.items() if value is not None}
    problems: list[Problem] = []
    for key, value in stated.items():
        try:
            read_reservation(value)
        except InputError as error:
            problems += (each.within(f"--{key}") for each in error.problems)
    if problems:
        raise InputError(problems)
    return stated


def config_text(proposal: Proposal) -> str:
    """Return the text of `podslice.toml`."""
    formula = "" if KUBE in proposal.stated else f": {proposal.formulas[proposal.provider]}"
    stated = proposal.why_stated(SYSTEM)
    why_system = f", {stated}" if stated else f": {proposal.why_system}"
    return "\n".join(
        (
            *_comment(
                f"Reserved for container runtimes and podslice, {proposal.why_kube}{formula}."
            ),
            f"{KUBE} = {json.dumps(proposal.value(KUBE))}",
            f'kube-reserved-cgroup = "/{KUBE_RESERVED_SLICE}"',
            *_comment(f"Reserved for system daemons{why_system}."),
            f"{SYSTEM} = {json.dumps(proposal.value(SYSTEM))}",
            "# Limits pods only. Measure the usage before adding kube-reserved here.",
            'enforce-node-allocatable = "pods"',
            "",
        )
    )


def _comment(text: str) -> list[str]:
    return wrap(text, 98, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def table(proposal: Proposal) -> Iterator[str]:
    """Return a table of the providers' reservations, and of the system's."""
    kept = {f"kube, as {name}": each for name, each in proposal.by_provider.items()}
    rows = [
        (name, format_milli(each.cpu_milli), format_bytes(each.memory_bytes))
        for name, each in {**kept, "system": proposal.system}.items()
    ]
    return columns([("RESERVATION", "CPU", "MEMORY"), *rows])


def explain(proposal: Proposal) -> Iterator[str]:
    """Yield each formula, and the proposed values, with their sources."""
    yield from (f"{name}: {formula}" for name, formula in proposal.formulas.items())
    yield ""
    kube, system = proposal.value(KUBE), proposal.value(SYSTEM)
    yield f"{KUBE} {kube}: for container runtimes and podslice, {proposal.why_kube}"
    why_system = f", {proposal.why_stated(SYSTEM)}".removesuffix(", ")
    yield f"{SYSTEM} {system}: for system daemons{why_system}"


def proposal_entries(proposal: Proposal) -> dict[str, ProposalEntry]:
    """Return the reservation that each provider proposes, and the one for the system."""
    reservations = {**proposal.by_provider, "system": proposal.system}
    return {
        name: ProposalEntry(
            cpu_milli=each.cpu_milli,
            memory_bytes=each.memory_bytes,
            formula=proposal.formulas[name],
        )
        for name, each in reservations.items()
    }
