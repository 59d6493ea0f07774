"""Running units and processes with their settings and present use."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from podslice.cli.output import note
from podslice.errors import InputError, Problem, quote
from podslice.features.importing.policy import (
    PresentSettings,
    PresentUse,
    SettingKind,
    score_of,
    settings_of,
)
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.files import read_present
from podslice.kernel.proc import (
    descendants,
    process_name,
    read_oom_score_adj,
    read_process,
    read_process_use,
)
from podslice.kernel.text import read_value, split_words
from podslice.model.naming import SCOPE_PREFIX, Tree, unescape
from podslice.model.quantity import format_age, human_bytes
from podslice.model.unit import InspectedUnit, ObservedUnit, UnitDefinition, UnitName, is_unit_name
from podslice.reconcile.world import LiveWorld

_YOUNG_SEC = 600
"""Before that the use of a program is not yet typical."""
_TICKS_PER_SEC = os.sysconf("SC_CLK_TCK")


def unit_use(
    unit: ObservedUnit, *, cgroups: CgroupFs | None = None, root: Path = Path("/")
) -> PresentUse | None:
    """Return what a unit uses, by its control group; None if it has no processes."""
    name = unit.name.rpartition(".")[0]
    return group_use(unit.control_group, name, unit.name, cgroups=cgroups, root=root)


def group_use(
    control_group: str,
    name: str,
    what: str,
    *,
    cgroups: CgroupFs | None = None,
    root: Path = Path("/"),
) -> PresentUse | None:
    """Return what a control group and those below use; None if it has no processes."""
    cgroups = cgroups or CgroupFs()
    groups = cgroups.processes(control_group) if control_group else {}
    pids = (pid for group in groups.values() for pid in group)
    started = [found.started_ticks for pid in pids if (found := read_process(pid, root))]
    if not started:
        return None
    sample = cgroups.sample(control_group)
    return PresentUse(
        name=name,
        what=what,
        age_sec=_age_sec(started, root),
        cpu_usec=sample.cpu_usec,
        memory_bytes=sample.working_set_bytes,
        peak_bytes=cgroups.counter(control_group, "peak_bytes"),
        tasks=sample.tasks,
    )


def process_use(pid: int, root: Path = Path("/")) -> PresentUse | None:
    """Return what a process and those below it use together; None if there is no such program.

    Pages that several of them share are counted for each.
    """
    found = {each: read_process_use(each, root) for each in descendants(pid, root)}
    uses = [use for use in found.values() if use is not None]
    if found[pid] is None:
        return None
    name = process_name(pid, root)
    children = len(uses) - 1
    below = f" and {children} descendant{'s' if children > 1 else ''}" if children else ""
    return PresentUse(
        name=name,
        what=f"process {pid} ({name}){below}",
        age_sec=_age_sec((use.started_ticks for use in uses), root),
        cpu_usec=sum(use.cpu_ticks for use in uses) * 1_000_000 // _TICKS_PER_SEC,
        memory_bytes=sum(use.memory_bytes for use in uses),
        peak_bytes=sum(use.peak_bytes for use in uses),
        tasks=sum(use.threads for use in uses),
    )


def _age_sec(started_ticks: Iterable[int], root: Path) -> int:
    """Return the seconds since the oldest process started, at least 1."""
    uptime = int(split_words(read_value(root / "proc/uptime"))[0].partition(".")[0])
    return max(uptime - min(started_ticks) // _TICKS_PER_SEC, 1)


def describe_use(use: PresentUse) -> str:
    """Return a program with its age and size: `nginx.service, which has run for 3 h, …`."""
    tasks = f", with {use.tasks} {'task' if use.tasks == 1 else 'tasks'}" if use.tasks else ""
    return f"{use.what}, which has run for {format_age(use.age_sec)}{tasks}"


def note_if_young(use: PresentUse) -> None:
    """Report a program whose use is not yet typical."""
    if use.age_sec < _YOUNG_SEC:
        note(f"{use.what} has run for {use.age_sec} s only: the proposed values may be too low")


class Mover(StrEnum):
    """How a unit or a container gets into the pod."""

    DROP_IN = "drop-in"
    """A service with a unit file."""
    SYSTEMD_RUN = "systemd-run"
    """A transient service."""
    ADOPT = "adopt"
    """A scope, whose processes another program has started."""
    PODMAN = "podman"
    QUADLET = "quadlet"
    """A container that a service of podman's generator has started."""


class ImportSource(NamedTuple):
    """A unit or a container to import."""

    name: str
    """The base of the container's name: `nginx`."""
    what: str
    """`nginx.service`, or `podman container web`."""
    settings: PresentSettings
    use: PresentUse | None = None
    """None if it has no processes."""
    oom_score_adj: int | None = None
    """The OOM score of its processes; None if they have none in common."""
    mover: Mover = Mover.DROP_IN
    unit: str = ""
    """The service that starts it; empty where `what` is the unit."""

    caveat: str = ""
    """A sentence about what is not included; empty if that is nothing."""

    @property
    def is_unit(self) -> bool:
        """Return whether it is a unit, not a container of a runtime."""
        return self.mover not in (Mover.PODMAN, Mover.QUADLET)

    @property
    def origin(self) -> str:
        """Return where the container's values are from."""
        if self.use is None:
            return f"{self.what}, which has no processes"
        peak = self.use.peak_bytes
        most = "" if peak is None else f"; its peak of memory is {human_bytes(peak)}"
        return f"{describe_use(self.use)}{most}"


class ImportGroup(NamedTuple):
    """What becomes one pod."""

    slice: ImportSource | None
    """The slice whose settings are the pod's; None if there is none."""
    sources: tuple[ImportSource, ...]
    left: tuple[str, ...] = ()
    """Sentences about what is not included."""


_IMPORTED = (".service", ".scope")
_TEMPLATE = re.compile(r"[^@]+@\.service")
_NOT_MOVED = {
    "-.slice": ("it contains all units", "name services"),
    "init.scope": ("it contains the service manager itself", ""),
    "system.slice": ("it contains the system's daemons", "name the services to import"),
    "user.slice": ("it contains the sessions of users", "import their units with --user"),
    "machine.slice": ("it contains containers and virtual machines", "name containers: --podman"),
}
"""Units that stay where they are, with the reason and a hint."""
_PATTERNS_NOT_MOVED = (
    (r"user@.+\.service", "it is the service manager of a user", "import its units with --user"),
    (r"session-.+\.scope", "it is a session of a user", "import units of the user with --user"),
    (r"user-\d+\.slice", "it contains the sessions of a user", "import their units with --user"),
    (r"libpod-.+\.scope", "it is a container of podman", "name the container: --podman NAME"),
    (
        r"(docker|cri-containerd|crio)-.+\.scope",
        "it is a container of another runtime",
        "see: podslice cgroup-parent",
    ),
)

_PERCENTAGES = (SettingKind.MEMORY_MAX, SettingKind.MEMORY_LOW, SettingKind.MEMORY_MIN)
"""The settings that may be percentages, for which systemd reports bytes."""
_AMOUNT = re.compile(rf"^({'|'.join(_PERCENTAGES)})=[ \t]*([0-9.]*%?)[ \t]*$", re.MULTILINE)
_BYTES_MAX = 2**20

_OF_DELEGATED = (
    "It manages control groups of its own (Delegate); what it starts elsewhere is not included"
)


async def import_units(world: LiveWorld, names: Sequence[str]) -> tuple[ImportSource, ...]:
    """Return services and scopes.

    Raises:
        InputError: a unit does not exist, or cannot be in a pod; it has every problem.
    """
    found = [await _inspect(world, name, _IMPORTED) for name in names]
    return tuple([await _unit_source(world, unit) for unit in _valid(found)])


async def import_slice(world: LiveWorld, name: str) -> ImportGroup:
    """Return a slice with the services and scopes directly in it, as far as they are loaded.

    Raises:
        InputError: there is no such slice, or it is one that podslice does not import.
    """
    name = name if name.endswith(".slice") else f"{name}.slice"
    (slice_,) = _valid([await _inspect(world, name, (".slice",))])
    loaded = await world.client.observe(["*.service", "*.scope"])
    inside = [unit.name for unit in loaded if unit.properties.get("Slice") == name]
    found = [await _inspect(world, unit, _IMPORTED) for unit in inside]
    units = [each for each in found if not isinstance(each, Problem)]
    below = await world.client.list_units([f"{name.removesuffix('.slice')}-*.slice"])
    left = [each for each in found if isinstance(each, Problem)]
    return ImportGroup(
        slice=await _unit_source(world, slice_),
        sources=tuple([await _unit_source(world, unit) for unit in units]),
        left=(
            *(f"{each.where} is not imported: {each.message}" for each in left),
            *(f"{unit.name} is below {name}: import it separately" for unit in below),
        ),
    )


def _valid(found: Iterable[InspectedUnit | Problem]) -> list[InspectedUnit]:
    """Return the units.

    Raises:
        InputError: there is a problem; it has every one.
    """
    found = list(found)
    if problems := [each for each in found if isinstance(each, Problem)]:
        raise InputError(problems)
    return [each for each in found if not isinstance(each, Problem)]


async def _inspect(
    world: LiveWorld, name: str, suffixes: tuple[str, ...]
) -> InspectedUnit | Problem:
    """Return a unit, or why it cannot be imported."""
    if problem := _check_name(name, suffixes):
        return problem
    unit = await world.client.inspect(UnitName(name))
    if unit is None:
        flag = world.manager.flag
        return Problem(where=name, message="there is no such unit", hint=f"see: systemctl{flag}")
    return _check_unit(unit, world) or await _check_group(unit, world) or unit


def _check_name(name: str, suffixes: tuple[str, ...]) -> Problem | None:
    """Return the problem of a unit's name; None if the unit may be in a pod."""
    if _TEMPLATE.fullmatch(name):
        hint = f"name an instance: {name.replace('@', '@NAME')}"
        return Problem(where=name, message="it is a template, not a unit", hint=hint)
    patterns = (each[1:] for each in _PATTERNS_NOT_MOVED if re.fullmatch(each[0], name))
    if reason := next(patterns, _NOT_MOVED.get(name)):
        return Problem(where=name, message=reason[0], hint=reason[1])
    if not is_unit_name(name) or not name.endswith(suffixes):
        kinds = " or ".join(suffix.removeprefix(".") for suffix in suffixes)
        hint = "use --slice" if name.endswith(".slice") else ""
        return Problem(where="UNIT", message=f"{quote(name)} is not a {kinds}", hint=hint)
    return None


def _check_unit(unit: InspectedUnit, world: LiveWorld) -> Problem | None:
    """Return why a unit cannot be imported; None if it can."""
    name, state, flag = unit.observed.name, unit.observed.load_state, world.manager.flag
    if state != "loaded":
        message = f"its load state is {quote(state)}"
        return Problem(where=name, message=message, hint=f"see: systemctl{flag} status {name}")
    if _is_in_pod(unit, world.tree):
        return Problem(where=name, message="it is in a pod", hint=f"see: podslice status{flag}")
    return None


async def _check_group(unit: InspectedUnit, world: LiveWorld) -> Problem | None:
    """Return the problem of a service without processes that starts instances of its template.

    On Debian `postgresql.service` is one, with `postgresql@17-main.service`.
    """
    stem, dot, suffix = unit.observed.name.rpartition(".")
    # such a service is of type oneshot, and remains active after its command has ended
    is_over = unit.observed.active_state == "active" and not unit.observed.control_group
    if not is_over or f"{dot}{suffix}" != ".service" or "@" in stem:
        return None
    listed = await world.client.list_units([f"{stem}@*.service"])
    instances = " ".join(each.name for each in listed if each.active_state != "inactive")
    if not instances:
        return None
    message = "it has no processes, and only groups other units"
    return Problem(where=unit.observed.name, message=message, hint=f"import {instances}")


async def _settings(world: LiveWorld, unit: InspectedUnit) -> PresentSettings:
    """Return the settings of a unit; amounts that its files state as a percentage name that, too."""
    found = settings_of(unit)
    if found.taken.keys().isdisjoint(_PERCENTAGES):
        return found
    files = await world.client.read_definition(unit.observed.name)
    stated = dict(_read_percentages(files))
    taken = {
        kind: each._replace(text=f"{kind}={stated[kind]}, of the memory of this host")
        if kind in stated
        else each
        for kind, each in found.taken.items()
    }
    return found._replace(taken=taken)


def _read_percentages(unit: UnitDefinition) -> Iterator[tuple[SettingKind, str]]:
    """Yield the amounts that the files of a unit state as a percentage."""
    last: dict[str, str] = {}
    for path in (unit.fragment_path, *unit.drop_ins):
        with suppress(OSError):
            content = read_present(Path(path), limit_bytes=_BYTES_MAX) if path else None
            last |= _AMOUNT.findall((content or b"").decode(errors="replace"))
    for kind in _PERCENTAGES:
        if last.get(kind, "").endswith("%"):
            yield kind, last[kind]


def _is_in_pod(unit: InspectedUnit, tree: Tree) -> bool:
    """Return whether a unit is below the root, or is the root itself."""
    name = unit.observed.name
    slices = (name, str(unit.observed.properties.get("Slice", "")))
    stem = tree.root.removesuffix(".slice")
    below = any(each == tree.root or each.startswith(f"{stem}-") for each in slices)
    return below or name.startswith(f"{SCOPE_PREFIX}-pod")


async def _unit_source(world: LiveWorld, unit: InspectedUnit) -> ImportSource:
    observed = unit.observed
    is_scope = observed.name.endswith(".scope")
    use = unit_use(observed, cgroups=world.cgroups)
    mover = Mover.SYSTEMD_RUN if observed.transient else Mover.DROP_IN
    return ImportSource(
        name=unescape(observed.name.rpartition(".")[0]),
        what=observed.name,
        settings=await _settings(world, unit),
        use=use,
        oom_score_adj=_score_in(world, observed.control_group) if is_scope else score_of(unit),
        caveat=_OF_DELEGATED if observed.properties.get("Delegate") else "",
        mover=Mover.ADOPT if is_scope else mover,
    )


def _score_in(world: LiveWorld, control_group: str) -> int | None:
    """Return the OOM score that all processes in a control group have; None if there is none."""
    if not control_group:
        return None
    scores = set()
    for pid in chain.from_iterable(world.cgroups.processes(control_group).values()):
        with suppress(OSError):
            scores.add(read_oom_score_adj(pid))
    return scores.pop() if len(scores) == 1 else None
