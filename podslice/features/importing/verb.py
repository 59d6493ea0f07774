"""`podslice import`: units and containers with their settings and use, and the manifest of them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from podslice.cli import coroutines
from podslice.cli.arguments import DONE, NamespaceOfNew, TextOrJson, code_of
from podslice.cli.host import tolerate
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import ReportFormat, note_problems, write, write_json
from podslice.cli.session import in_world
from podslice.cli.views import documents
from podslice.cli.views.documents import Document
from podslice.cli.views.runtime_options import (
    FORMATTERS,
    Form,
    Parent,
    drop_in,
    podman_options,
    systemd_run,
)
from podslice.cli.views.tables import separated
from podslice.errors import HostError, InputError, Problem, invalid, quote
from podslice.features.importing import new_manifest, podman_inspect, present_use
from podslice.features.importing.draft import decide_draft, note_if_young
from podslice.features.importing.podman_inspect import PodmanContainer
from podslice.features.importing.present_settings import (
    PresentSettings,
    PresentUse,
    SettingKind,
    StatedAmount,
    import_pod,
    score_of,
    settings_of,
)
from podslice.inputs.manifest.names import to_label
from podslice.kernel.files import read_present
from podslice.kernel.proc import read_oom_score_adj
from podslice.model.config import Config
from podslice.model.desired import PodDecision
from podslice.model.grammar import LABEL_MAX
from podslice.model.naming import SCOPE_PREFIX, Tree, unescape
from podslice.model.properties import CPU_WEIGHT, OOM_SCORE_ADJ
from podslice.model.quantity import about_bytes
from podslice.model.unit import (
    InspectedUnit,
    Manager,
    UnitDefinition,
    UnitName,
    complete_name,
    is_unit_name,
)
from podslice.policy.convert import MAX_WEIGHT
from podslice.reconcile.world import LiveWorld

Units = Annotated[
    list[str] | None,
    typer.Argument(metavar="[UNIT]...", help="Services and scopes; nginx is nginx.service."),
]
Slice = Annotated[
    str | None,
    typer.Option(
        "--slice", metavar="SLICE", help="A slice: its limits are the pod's, its units containers."
    ),
]
Each = Annotated[bool, typer.Option("--each", help="Write a pod for each, not one for all.")]


@planning_options
def import_(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    unit: Units = None,
    slice_: Slice = None,
    podman: Annotated[
        list[str] | None,
        typer.Option("--podman", metavar="NAME", help="A container of podman; may be repeated."),
    ] = None,
    each: Each = False,  # noqa: FBT002
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="The name of the pod; by default that of the slice, or of the only unit.",
        ),
    ] = None,
    namespace: NamespaceOfNew = None,
    output: TextOrJson = ReportFormat.TEXT,
) -> int:
    """Run `podslice import`.

    Limits are those that are set; requests are those that are set, or else the present use. Below
    the manifest is, in comments, how each unit or container is started in the pod. Nothing is
    changed.
    """
    units, containers = unit_names(unit or ()), list(dict.fromkeys(podman or ()))
    _check_arguments(len(units) + len(containers), slice_, is_each=each, name=name)
    planning = tolerate(planning)
    found = _observe(planning, units, slice_, containers)
    groups = [found] if not each else [found._replace(sources=(one,)) for one in found.sources]
    drafts = [draft_pod(group, name, namespace, planning.config) for group in groups]
    imported = _decide(drafts, planning)
    if output is ReportFormat.JSON:
        write_json(documents.document(pods=documents.listed(imported, imported_document)))
    else:
        write(separated(map(format_imported, imported), "---"))
    return DONE


def _check_arguments(number: int, slice_: str | None, *, is_each: bool, name: str | None) -> None:
    """Check that the options fit together.

    Raises:
        InputError: they do not.
    """
    if not number and slice_ is None:
        raise invalid("nothing to import", "name units, --slice SLICE or --podman NAME")
    if is_each and (slice_ is not None or name is not None):
        other = "--slice" if name is None else "--name"
        raise invalid(
            f"not together with {other}: each pod has the name of its unit", where="--each"
        )
    if not is_each and slice_ is None and name is None and number > 1:
        raise invalid(
            "a pod of several units needs a name",
            "add it, or --each for a pod each",
            where="--name",
        )


def _observe(
    planning: Planning, units: Sequence[str], slice_: str | None, podman: Sequence[str]
) -> ImportGroup:
    """Return everything to import with its settings and use.

    Raises:
        InputError: something does not exist or cannot be imported.
    """
    no_slice = ImportGroup(slice=None, sources=())

    async def work(world: LiveWorld) -> tuple[ImportGroup, tuple[ImportSource, ...]]:
        found = await import_slice(world, slice_) if slice_ is not None else no_slice
        return found, await import_units(world, units)

    group, named = in_world(planning, work) if units or slice_ is not None else (no_slice, ())
    known = {source.what for source in group.sources}
    named = tuple(source for source in named if source.what not in known)
    root = Tree(cgroup_root=planning.config.cgroup_root).root
    containers = import_containers(podman, root, planning.manager) if podman else ()
    sources = (*group.sources, *named, *containers)
    if not sources:
        hint = "; ".join(group.left) or "name units"
        raise invalid("no loaded service or scope is in it", hint, where=slice_ or "UNIT")
    for source in sources:
        if source.use:
            note_if_young(source.use)
    return group._replace(sources=sources)


def _decide(drafts: Sequence[ImportDraft], planning: Planning) -> list[ImportedPod]:
    """Return the pods with their decisions, and report warnings.

    Raises:
        InputError: a pod would be invalid; it has every problem.
    """
    decided = [decide_draft(draft.pod, planning.config) for draft in drafts]
    problems = [
        replace(found, where=f"pod {draft.pod.key}: {found.where.removeprefix(': ')}")
        for draft, (_, each) in zip(drafts, decided, strict=True)
        for found in each
    ]
    for key, count in Counter(draft.pod.key for draft in drafts).items():
        if count > 1:
            hint = "import one of them with --name"
            message = f"{count} pods have the name {key}"
            problems.append(Problem(where="--each", message=message, hint=hint))
    if code_of(problems):
        raise InputError(problems)
    note_problems(problems)
    return [
        ImportedPod(draft=draft, decision=decision, manager=planning.manager)
        for draft, ((decision, *_), _) in zip(drafts, decided, strict=True)
    ]


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
        most = "" if peak is None else f"; its peak of memory is {about_bytes(peak)}"
        return f"{new_manifest.describe_use(self.use)}{most}"


class ImportDraft(NamedTuple):
    """The manifest of a pod with what it is imported from."""

    pod: new_manifest.NewPod
    sources: Mapping[str, ImportSource]
    """By the name of the container."""
    further: Mapping[str, tuple[str, ...]]
    """Settings that the manifest does not have, by container."""
    further_of_slice: tuple[str, ...] = ()


class ImportedPod(NamedTuple):
    """An imported pod with the units that it will have."""

    draft: ImportDraft
    decision: PodDecision
    manager: Manager


ORIGIN = "Limits are from settings; requests are from settings, or else from the present use."


def format_imported(imported: ImportedPod) -> Iterator[str]:
    """Yield the manifest, then in comments how each container's processes get into the pod."""
    yield from new_manifest.format_lines(imported.draft.pod, ORIGIN)
    for container, source in imported.draft.sources.items():
        yield "#"
        lead, lines = _placement(source, container, imported)
        yield f"# {lead}"
        yield from (f"#   {line}".rstrip() for line in lines)


def imported_document(imported: ImportedPod) -> Document:
    """Return an imported pod for programs."""
    return {
        "pod": imported.decision.pod.key,
        "slice": imported.decision.slice,
        "manifest": new_manifest.make_document(imported.draft.pod),
        "not_imported": list(imported.draft.further_of_slice),
        "containers": [
            {
                "name": container,
                "from": source.what,
                "mover": source.mover.value,
                "lines": list(_placement(source, container, imported)[1]),
                "not_imported": list(imported.draft.further[container]),
            }
            for container, source in imported.draft.sources.items()
        ],
    }


def _placement(
    source: ImportSource, container: str, imported: ImportedPod
) -> tuple[str, tuple[str, ...]]:
    """Return a sentence on how a container's processes get into the pod, and the lines for it."""
    pod, manager, flag = imported.decision, imported.manager, imported.manager.flag
    limits = next(each for each in pod.containers if each.name == container)
    parent = Parent(pod=pod, container=limits, manager=manager)
    unit = shlex.quote(source.unit or source.what)
    match source.mover:
        case Mover.DROP_IN:
            key = imported.draft.pod.key
            lead = (
                f"To start {unit} in the applied pod, by a drop-in with the lines below: podslice"
                f" adopt{flag} {key} {unit} -c {container} --restart"
            )
            return lead, tuple(drop_in(parent))
        case Mover.SYSTEMD_RUN:
            lead = f"{unit} is transient: stop it, and start its command in the applied pod with:"
            return lead, (f"{systemd_run(parent)} COMMAND",)
        case Mover.ADOPT:
            lead = (
                f"{unit} is a scope, which stays where it is: move its processes into the applied"
                " pod, and let the program that creates it use the slice"
            )
            slice_ = f"Slice={parent.pod.slice}"
            return lead, (
                f"podslice adopt{flag} {imported.draft.pod.key} -c {container} PID...",
                slice_,
            )
        case Mover.PODMAN:
            lead = f"{source.what} stays where it is: create it again in the applied pod with:"
            return lead, (f"podman run {shlex.join(podman_options(parent))} …",)
        case Mover.QUADLET:
            lead = (
                f"To start {source.what} in the applied pod, add the lines below to the .container"
                f" file of {unit}; then: systemctl{flag} daemon-reload; systemctl{flag} restart {unit}"
            )
            return lead, tuple(FORMATTERS[Form.QUADLET](parent))


_DEFAULT_NAME = "main"
DEFAULT_WEIGHT = 100
"""The weight of a unit that states none. Source: systemd.resource-control(5), CPUWeight=."""

_OF_SERVICE, _OF_PROCESSES = "the OOMScoreAdjust of", "oom_score_adj of the processes of"
_OF_CONTAINER = "--oom-score-adj of"
_SCORES = {
    Mover.DROP_IN: _OF_SERVICE,
    Mover.SYSTEMD_RUN: _OF_SERVICE,
    Mover.ADOPT: _OF_PROCESSES,
    Mover.PODMAN: _OF_CONTAINER,
    Mover.QUADLET: _OF_CONTAINER,
}
"""What states the OOM score."""


class ImportGroup(NamedTuple):
    """What becomes one pod."""

    slice: ImportSource | None
    """The slice whose settings are the pod's; None if there is none."""
    sources: tuple[ImportSource, ...]
    left: tuple[str, ...] = ()
    """Sentences about what is not included."""


def draft_pod(
    group: ImportGroup, name: str | None, namespace: str | None, config: Config
) -> ImportDraft:
    """Return the manifest; without a name it is that of the slice, or of the first unit."""
    level = group.slice.settings if group.slice else PresentSettings()
    of_pod, amounts = import_pod(
        level, [(source.settings, source.use) for source in group.sources], config
    )
    names = list(_container_names(group.sources))
    sources = dict(zip(names, group.sources, strict=True))
    further = dict(zip(names, (each.further for each in amounts), strict=True))
    containers = tuple(
        new_manifest.NewContainer(
            name=label,
            requests=found.requests,
            limits=found.limits,
            annotations=dict(_kept_annotations(sources[label])),
            origin=sources[label].origin,
            remarks=tuple(_remarks(sources[label], found.further)),
        )
        for label, found in zip(names, amounts, strict=True)
    )
    not_kept = []
    if group.slice and of_pod.further:
        listed = ", ".join(of_pod.further)
        not_kept.append(f"Not in the manifest, and without effect in the pod: {listed}")
    pod = new_manifest.NewPod(
        name=name or _to_name((group.slice or group.sources[0]).name),
        namespace=namespace,
        containers=containers,
        requests=of_pod.requests,
        limits=of_pod.limits,
        annotations=dict(_annotations_of_pod(group)),
        remarks=(*not_kept, *group.left),
    )
    return ImportDraft(pod=pod, sources=sources, further=further, further_of_slice=of_pod.further)


def _kept_annotations(source: ImportSource) -> Iterator[tuple[str, StatedAmount]]:
    """Yield what keeps the weight of a unit and the OOM score, where resources would change them."""
    if source.is_unit:
        yield from _default_weight(source)
    if source.oom_score_adj is not None:
        yield (
            OOM_SCORE_ADJ,
            StatedAmount(
                text=str(source.oom_score_adj), source=f"{_SCORES[source.mover]} {source.what}"
            ),
        )


def _annotations_of_pod(group: ImportGroup) -> Iterator[tuple[str, StatedAmount]]:
    """Yield what keeps the weight of a slice, or of several units together."""
    if group.slice is not None:
        yield from _default_weight(group.slice)
        return
    units = [each for each in group.sources if each.is_unit]
    if len(units) < len(group.sources) or all(map(_has_weight, units)):
        return
    weights = [
        each.settings.taken[SettingKind.CPU_WEIGHT].value if _has_weight(each) else DEFAULT_WEIGHT
        for each in units
    ]
    why = "of its containers together" if len(units) > 1 else "of its container"
    yield CPU_WEIGHT, StatedAmount(text=str(min(sum(weights), MAX_WEIGHT)), source=why)


def _default_weight(source: ImportSource) -> Iterator[tuple[str, StatedAmount]]:
    """Yield the weight of a unit that states none."""
    if not _has_weight(source):
        yield (
            CPU_WEIGHT,
            StatedAmount(text=str(DEFAULT_WEIGHT), source=f"{source.what} states no CPUWeight"),
        )


def _has_weight(source: ImportSource) -> bool:
    return SettingKind.CPU_WEIGHT in source.settings.taken


def _container_names(sources: Sequence[ImportSource]) -> Iterator[str]:
    """Yield a valid and unique name for each container: `web`, `web-2`."""
    used: set[str] = set()
    for source in sources:
        base, number = _to_name(source.name), 1
        label = base
        while label in used:
            number += 1
            suffix = f"-{number}"
            label = base[: LABEL_MAX - len(suffix)] + suffix
        used.add(label)
        yield label


def _to_name(text: str) -> str:
    return to_label(text) or _DEFAULT_NAME


def _remarks(source: ImportSource, further: Sequence[str]) -> Iterator[str]:
    """Yield comments on the settings of a container that are not in the manifest."""
    if source.caveat:
        yield source.caveat
    is_kept = source.mover in (Mover.DROP_IN, Mover.QUADLET)
    if source.oom_score_adj is None:
        yield "Its processes get the OOM score of the pod's QoS class"
    if listed := ", ".join(further):
        unit = source.unit or source.what
        where = f"kept by {unit}" if is_kept else "to be set again where it is started"
        yield f"Not in the manifest, {where}: {listed}"
