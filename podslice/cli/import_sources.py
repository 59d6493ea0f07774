"""Units and containers to import, with their settings and use; what a pod cannot contain is refused."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

from podslice.cli import coroutines
from podslice.cli.import_draft import ImportGroup, ImportSource, Mover
from podslice.errors import HostError, InputError, Problem, quote
from podslice.files import read_present
from podslice.kernel.proc import read_oom_score_adj
from podslice.model.unit import InspectedUnit
from podslice.model.manager import Manager
from podslice.model.naming import SCOPE_PREFIX, Tree, unescape
from podslice.model.unit import UnitName, complete_name, is_unit_name
from podslice.model.unit import UnitDefinition
from podslice.policy.present_settings import PresentSettings, SettingKind, score_of, settings_of
from podslice.processes import podman_inspect
from podslice.processes.podman_inspect import PodmanContainer
from podslice.reconcile.world import LiveWorld
from podslice.usage import present_use

_OF_MEMBER = "It is in a podman pod, whose own options are not included: see podman pod inspect"


def import_containers(
    names: Sequence[str], root: UnitName, manager: Manager
) -> tuple[ImportSource, ...]:
    """Return the containers of root's podman, or with a user manager those of the user.

    `root` is the slice of pods.

    Raises:
        HostError: podman is of another user, not installed, or fails.
        InputError: a container cannot be imported.
    """
    if manager.is_user != bool(os.geteuid()):
        who = "as that user, not as root" if manager.is_user else "as root, or add --user"
        raise HostError(f"podman has containers for each user: run podslice {who}")
    if shutil.which("podman") is None:
        raise HostError("podman is not installed, or not in PATH")
    found = coroutines.run(podman_inspect.inspect_podman(names, root))
    return tuple(map(_container_source, found))


def _container_source(container: PodmanContainer) -> ImportSource:
    what, group = f"podman container {container.name}", container.control_group
    # quadlets have --cgroups=split; if it does not run, it is most probably one of them
    is_split = bool(container.unit) and (not group or f"/{container.unit}/" in group)
    return ImportSource(
        name=container.name,
        what=what,
        settings=container.settings,
        oom_score_adj=container.oom_score_adj,
        use=present_use.group_use(group, container.name, what),
        mover=Mover.QUADLET if is_split else Mover.PODMAN,
        unit=container.unit,
        caveat=_OF_MEMBER if container.is_member else "",
    )


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


def unit_names(names: Sequence[str]) -> list[str]:
    """Return each unit once; a name without a suffix is that of a service."""
    return list(dict.fromkeys(map(complete_name, names)))


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
        InputError: there is no such slice, or it stays as it is.
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
        kind: replace(each, text=f"{kind}={stated[kind]}, of the memory of this host")
        if kind in stated
        else each
        for kind, each in found.taken.items()
    }
    return replace(found, taken=taken)


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
    use = present_use.unit_use(observed, cgroups=world.cgroups)
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
