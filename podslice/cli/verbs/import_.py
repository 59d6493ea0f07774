"""`podslice import`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from podslice.cli.arguments import DONE, NamespaceOfNew, TextOrJson, code_of
from podslice.cli.host import tolerate
from podslice.cli.import_draft import (
    ImportDraft,
    ImportedPod,
    ImportGroup,
    ImportSource,
    draft_pod,
    format_imported,
    imported_document,
)
from podslice.cli.import_sources import (
    import_containers,
    import_slice,
    import_units,
    unit_names,
)
from podslice.cli.manifests import decide_draft, note_if_young
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import ReportFormat, note_problems, write, write_json
from podslice.cli.session import in_world
from podslice.cli.views import documents
from podslice.cli.views.tables import separated
from podslice.errors import InputError, Problem, invalid
from podslice.model.naming import Tree
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
PodmanContainers = Annotated[
    list[str] | None,
    typer.Option("--podman", metavar="NAME", help="A container of podman; may be repeated."),
]
Each = Annotated[bool, typer.Option("--each", help="Write a pod for each, not one for all.")]
NameOfPod = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="The name of the pod; by default that of the slice, or of the only unit.",
    ),
]


@planning_options
def import_(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    unit: Units = None,
    slice_: Slice = None,
    podman: PodmanContainers = None,
    each: Each = False,  # noqa: FBT002
    name: NameOfPod = None,
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


_NO_SLICE = ImportGroup(slice=None, sources=())


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

    async def work(world: LiveWorld) -> tuple[ImportGroup, tuple[ImportSource, ...]]:
        found = await import_slice(world, slice_) if slice_ is not None else _NO_SLICE
        return found, await import_units(world, units)

    group, named = in_world(planning, work) if units or slice_ is not None else (_NO_SLICE, ())
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
