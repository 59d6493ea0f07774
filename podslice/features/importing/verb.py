"""`podslice import`: units and containers with their settings and use, and the manifest of them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Annotated, NamedTuple

import typer

from podslice.cli.arguments import DONE, Namespace, TextOrJson, code_of
from podslice.cli.host import tolerate
from podslice.cli.options import Planning, configured
from podslice.cli.output import ReportFormat, note_problems, write, write_json
from podslice.cli.report import From, document
from podslice.cli.session import in_world
from podslice.cli.views.runtime_options import (
    FORMATTERS,
    Form,
    Parent,
    drop_in,
    podman_options,
    systemd_run,
)
from podslice.cli.views.tables import separated
from podslice.errors import InputError, Problem, invalid
from podslice.features.importing.manifest import (
    NewContainer,
    NewPod,
    decide_draft,
    format_lines,
    make_document,
)
from podslice.features.importing.podman import import_containers
from podslice.features.importing.policy import (
    PresentSettings,
    SettingKind,
    StatedAmount,
    import_pod,
)
from podslice.features.importing.reading import (
    ImportGroup,
    ImportSource,
    Mover,
    import_slice,
    import_units,
    note_if_young,
)
from podslice.model.config import Config
from podslice.model.desired import PodDecision
from podslice.model.grammar import LABEL_MAX, to_label
from podslice.model.naming import Tree
from podslice.model.properties import CPU_WEIGHT, OOM_SCORE_ADJ
from podslice.model.unit import Manager, complete_name
from podslice.policy.convert import MAX_WEIGHT
from podslice.reconcile.world import LiveWorld

Units = Annotated[
    list[str] | None,
    typer.Argument(metavar="UNIT", help="Services and scopes; nginx is nginx.service."),
]
Slice = Annotated[
    str | None,
    typer.Option("--slice", metavar="SLICE", help="Limits and units of this slice."),
]
Each = Annotated[bool, typer.Option("--each", help="Write a pod for each.")]


@configured
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
            help="The name of the pod.",
        ),
    ] = None,
    namespace: Namespace = None,
    output: TextOrJson = ReportFormat.TEXT,
) -> int:
    """Run `podslice import`.

    Limits are those that are set; requests are those that are set, or else the present use. Below
    the manifest is, in comments, how each unit or container is started in the pod. Nothing is
    changed.

    Examples:
        podslice import nginx.service > web.yaml
        podslice import --slice shop.slice --podman cache
    """
    units = list(dict.fromkeys(map(complete_name, unit or ())))
    containers = list(dict.fromkeys(podman or ()))
    _check_arguments(len(units) + len(containers), slice_, is_each=each, name=name)
    planning = tolerate(planning)
    found = _observe(planning, units, slice_, containers)
    groups = [found] if not each else [found._replace(sources=(one,)) for one in found.sources]
    drafts = [draft_pod(group, name, namespace, planning.config) for group in groups]
    decisions = _decide(drafts, planning)
    parts = [
        (draft, decision, _placements(draft, decision, planning.manager))
        for draft, decision in zip(drafts, decisions, strict=True)
    ]
    if output is ReportFormat.JSON:
        write_json(document(ImportReport(pods=tuple(starmap(_entry, parts)))))
    else:
        write(separated((_lines(draft, placements) for draft, _, placements in parts), "---"))
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
            f"cannot be combined with {other}: each pod has the name of its unit", where="--each"
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


def _decide(drafts: Sequence[ImportDraft], planning: Planning) -> list[PodDecision]:
    """Return the decision on each pod, and report warnings.

    Raises:
        InputError: a pod would be invalid; it has every problem.
    """
    decisions: list[PodDecision] = []
    problems: list[Problem] = []
    for draft in drafts:
        (decision, *_), found = decide_draft(draft.pod, planning.config)
        decisions.append(decision)
        place = f"pod {draft.pod.key}"
        problems += (replace(e, where=f"{place}: {e.where.removeprefix(': ')}") for e in found)
    for key, count in Counter(draft.pod.key for draft in drafts).items():
        if count > 1:
            hint = "import one of them with --name"
            message = f"{count} pods have the name {key}"
            problems.append(Problem(where="--each", message=message, hint=hint))
    if code_of(problems):
        raise InputError(problems)
    note_problems(problems)
    return decisions


class ImportDraft(NamedTuple):
    """The manifest of a pod with what it is imported from."""

    pod: NewPod
    sources: Mapping[str, ImportSource]
    """By the name of the container."""
    further: Mapping[str, tuple[str, ...]]
    """Settings that the manifest does not have, by container."""
    further_of_slice: tuple[str, ...]


_Placements = Mapping[str, tuple[str, Sequence[str]]]
"""Container → a sentence on how its processes get into the pod, and the lines for it."""


def _lines(draft: ImportDraft, placements: _Placements) -> Iterator[str]:
    """Yield the manifest, then in comments how each container's processes get into the pod."""
    origin = "Limits are from settings; requests are from settings, or else from the present use."
    yield from format_lines(draft.pod, origin)
    for lead, lines in placements.values():
        yield "#"
        yield f"# {lead}"
        yield from (f"#   {line}".rstrip() for line in lines)


@dataclass(frozen=True, kw_only=True)
class ContainerEntry:
    """An imported container, and how its processes get into the pod."""

    name: str
    source: From
    """The unit, or the container of podman."""
    mover: Mover
    lines: tuple[str, ...]
    not_imported: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PodEntry:
    """An imported pod."""

    pod: str
    slice: str
    manifest: dict[str, object]
    not_imported: tuple[str, ...]
    containers: tuple[ContainerEntry, ...]


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """Imported pods."""

    pods: tuple[PodEntry, ...]


def _entry(draft: ImportDraft, decision: PodDecision, placements: _Placements) -> PodEntry:
    return PodEntry(
        pod=decision.pod.key,
        slice=decision.slice,
        manifest=make_document(draft.pod),
        not_imported=draft.further_of_slice,
        containers=tuple(
            ContainerEntry(
                name=container,
                source=source.what,
                mover=source.mover,
                lines=tuple(placements[container][1]),
                not_imported=draft.further[container],
            )
            for container, source in draft.sources.items()
        ),
    )


def _placements(draft: ImportDraft, pod: PodDecision, manager: Manager) -> _Placements:
    parents = {e.name: Parent(pod=pod, container=e, manager=manager) for e in pod.containers}
    return {name: _placement(draft, parent, name) for name, parent in parents.items()}


def _placement(draft: ImportDraft, parent: Parent, container: str) -> tuple[str, Sequence[str]]:
    """Return a sentence on how a container's processes get into the pod, and the lines for it."""
    source, slice_, flag = draft.sources[container], parent.pod.slice, parent.manager.flag
    unit, pod = shlex.quote(source.unit or source.what), draft.pod.key
    match source.mover:
        case Mover.DROP_IN:
            adopt = f"podslice adopt{flag} {pod} {unit} -c {container} --restart"
            lead = f"To start {unit} in the applied pod, by a drop-in with the lines below: {adopt}"
            return lead, list(drop_in(parent))
        case Mover.SYSTEMD_RUN:
            lead = f"{unit} is transient: stop it, and start its command in the applied pod with:"
            return lead, [f"{systemd_run(parent)} COMMAND"]
        case Mover.ADOPT:
            lead = (
                f"{unit} is a scope, which stays where it is: move its processes into the applied"
                " pod, and let the program that creates it use the slice"
            )
            return lead, [f"podslice adopt{flag} {pod} -c {container} PID...", f"Slice={slice_}"]
        case Mover.PODMAN:
            lead = f"{source.what} stays where it is: create it again in the applied pod with:"
            return lead, [f"podman run {shlex.join(podman_options(parent))} …"]
        case Mover.QUADLET:
            lead = (
                f"To start {source.what} in the applied pod, add the lines below to the .container"
                f" file of {unit}; then: systemctl{flag} daemon-reload; systemctl{flag} restart {unit}"
            )
            return lead, list(FORMATTERS[Form.QUADLET](parent))


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


def draft_pod(
    group: ImportGroup, name: str | None, namespace: str | None, config: Config
) -> ImportDraft:
    """Return the manifest; without a name the pod has the name of the slice, or of the first unit."""
    level = group.slice.settings if group.slice else PresentSettings()
    of_pod, amounts = import_pod(
        level, [(source.settings, source.use) for source in group.sources], config
    )
    names = list(_container_names(group.sources))
    containers = []
    for label, source, found in zip(names, group.sources, amounts, strict=True):
        # these keep the weight of a unit and the OOM score, which resources would change
        annotations = _default_weight(source) if source.is_unit else {}
        if source.oom_score_adj is not None:
            why = f"{_SCORES[source.mover]} {source.what}"
            annotations[OOM_SCORE_ADJ] = StatedAmount(text=str(source.oom_score_adj), source=why)
        container = NewContainer(
            name=label,
            requests=found.requests,
            limits=found.limits,
            annotations=annotations,
            origin=source.origin,
            remarks=tuple(_remarks(source, found.further)),
        )
        containers.append(container)
    not_kept = []
    if group.slice and of_pod.further:
        listed = ", ".join(of_pod.further)
        not_kept.append(f"Not in the manifest, and without effect in the pod: {listed}")
    pod = NewPod(
        name=name or _to_name((group.slice or group.sources[0]).name),
        namespace=namespace,
        containers=tuple(containers),
        requests=of_pod.requests,
        limits=of_pod.limits,
        annotations=_pod_annotations(group),
        remarks=(*not_kept, *group.left),
    )
    return ImportDraft(
        pod=pod,
        sources=dict(zip(names, group.sources, strict=True)),
        further=dict(zip(names, (each.further for each in amounts), strict=True)),
        further_of_slice=of_pod.further,
    )


def _default_weight(source: ImportSource) -> dict[str, StatedAmount]:
    """Return the annotation with the weight of a unit that states none."""
    if SettingKind.CPU_WEIGHT in source.settings.taken:
        return {}
    why = f"{source.what} states no CPUWeight"
    return {CPU_WEIGHT: StatedAmount(text=str(DEFAULT_WEIGHT), source=why)}


def _pod_annotations(group: ImportGroup) -> dict[str, StatedAmount]:
    """Return the annotation that keeps the weight of a slice, or of several units together."""
    if group.slice is not None:
        return _default_weight(group.slice)
    stated = [each.settings.taken.get(SettingKind.CPU_WEIGHT) for each in group.sources]
    if None not in stated or not all(each.is_unit for each in group.sources):
        return {}
    weight = sum(DEFAULT_WEIGHT if each is None else each.value for each in stated)
    why = "of its containers together" if len(stated) > 1 else "of its container"
    return {CPU_WEIGHT: StatedAmount(text=str(min(weight, MAX_WEIGHT)), source=why)}


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
