"""`podslice delete`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import aclosing
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from podslice.cli.arguments import (
    FAILED,
    Names,
    Namespace,
    Output,
    code_of,
    files_option,
    number,
)
from podslice.cli.extensions import extensions, pods_run_by_features
from podslice.cli.host import recorded_keys, tolerate
from podslice.cli.manifests import load_manifests
from podslice.cli.manual_log import manual_log
from podslice.cli.options import Planning, configured
from podslice.cli.output import OutputFormat, note
from podslice.cli.pods import keys_named, nearest_pod, without_kind
from podslice.cli.progress import emit_report, follow
from podslice.cli.session import in_world, locked
from podslice.cli.views.problem_lines import problem_line
from podslice.cli.wanted import pods_of_manifests
from podslice.errors import HostError, InputError, Problem, invalid, printable
from podslice.model.config import Source, Validate
from podslice.model.event import Kind
from podslice.reconcile.assess import Assessment
from podslice.reconcile.converge import Progress
from podslice.reconcile.converge import delete as delete_pods
from podslice.reconcile.extension import PodRequest
from podslice.reconcile.report import Report
from podslice.reconcile.world import LiveWorld

GRACE_MAX_SEC = 10**6
"""More than eleven days; a longer time is most likely an error."""

ManifestFiles = Annotated[list[str] | None, files_option("Delete the pods of these manifests.")]
Every = Annotated[bool, typer.Option("--all", help="Delete every applied pod.")]
GracePeriod = Annotated[
    int | None,
    typer.Option(
        "--grace-period",
        metavar="SECONDS",
        parser=number(0, GRACE_MAX_SEC),
        help="Kill what still runs after this time.",
    ),
]

Forget = Annotated[bool, typer.Option("--forget", help="Also remove the manifests of the pods.")]

Restart = Annotated[
    bool,
    typer.Option("--restart", help="Restart adopted services outside of pods."),
]


@configured
def delete(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    pod: Names = None,
    filename: ManifestFiles = None,
    namespace: Namespace = None,
    every: Every = False,  # noqa: FBT002
    grace_period: GracePeriod = None,
    forget: Forget = False,  # noqa: FBT002
    restart: Restart = False,  # noqa: FBT002
    output: Output = OutputFormat.TABLE,
) -> int:
    """Run `podslice delete`.

    Adopted services are released. One that runs in a pod is restarted with --restart; without it
    nothing is deleted.

    Examples:
        podslice delete web
        podslice delete -f web.yaml --grace-period 10
    """
    planning = tolerate(planning)
    if planning.origin.source is Source.DEFAULT:
        note("pods are only stopped; the values of other units change with the next podslice apply")
    # after a reboot quadlets have no records
    known = recorded_keys(planning) | pods_run_by_features(None, planning.manager)
    keys = {*keys_named(without_kind(pod or (), namespace, known), namespace, known)}
    of_files = _keys_of_files(filename or [], namespace)
    keys |= of_files
    if not keys and not every:
        raise invalid("no pod specified", "specify pods, -f FILE or --all")
    wanted = known if every else keys
    # the files of these pods in the manifest directories, each with all its pods
    files = {
        path: pods
        for path, pods in pods_of_manifests(planning).items()
        if not pods.isdisjoint(wanted)
    }
    manifests = _check_removal(files, wanted) if forget else []

    async def work(world: LiveWorld) -> Report:
        named = None if every else keys
        request = PodRequest(named=named, grace_sec=grace_period, may_restart=restart)
        with locked(world.store), manual_log("delete", world.store, world.manager) as log:
            evicted = {mark.pod for mark in world.store.load().evicted}
            marked = evicted if every else evicted & keys
            deleting = delete_pods(
                world, named, grace_sec=grace_period, extensions=extensions(world, request)
            )
            report = await follow(_forgetting(deleting, manifests), log, pods=marked)
            for key in sorted(marked):
                log.report(
                    Kind.POD_READMITTED, f"the eviction mark of pod {key} is removed", pod=key
                )
        return report

    report = in_world(planning, work)
    code = emit_report(report, output, planning.origin)
    if not forget:
        _note_manifests(planning, files, wanted)
    missing = keys - report.matched - report.released
    # what was asked of these is done also where they are not applied
    of_files |= keys.intersection(chain.from_iterable(files.values())) if forget else set()
    for key in sorted(missing - of_files):
        hint = nearest_pod(key, known) or "see: podslice status"
        note(problem_line(Problem(where="", message=f"pod {key} is not applied", hint=hint)))
    for key in sorted(missing & of_files):
        note(f"pod {key} is not applied")
    return FAILED if missing - of_files else code


def _keys_of_files(files: list[str], namespace: str | None) -> set[str]:
    """Return the keys of the pods in the files.

    Raises:
        InputError: a file is invalid.
    """
    if not files:
        return set()
    # only names are read, and an unknown field does not prevent a deletion
    loaded = load_manifests(files, namespace, Validate.IGNORE)
    if code_of(loaded.problems):
        raise InputError(loaded.problems)
    return {each.key for each in loaded.pods}


def _note_manifests(
    planning: Planning, files: Mapping[str, Collection[str]], keys: Collection[str]
) -> None:
    """Print which deleted pods are applied again."""
    manager = planning.manager
    by = "the agent" if manager.is_user else "the agent, or podslice-apply.service at boot,"
    for path, pods in files.items():
        listed = sorted(set(pods).intersection(keys))
        note(
            f"{printable(path)} contains {', '.join(listed)}: {by} applies it again; to remove the"
            f" file, too: podslice delete{manager.flag} {' '.join(listed)} --forget"
        )


def _check_removal(files: Mapping[str, set[str]], keys: Collection[str]) -> list[Path]:
    """Return the files, which are to be removed with these pods.

    Raises:
        InputError: a file has further pods.
    """
    problems = [
        Problem(
            where=printable(path),
            message=f"the file contains further pods: {', '.join(sorted(others))}",
            hint="delete them, too, or remove this pod from the file",
        )
        for path, pods in files.items()
        if (others := pods.difference(keys))
    ]
    if problems:
        raise InputError(problems)
    return [Path(path) for path in files]


async def _forgetting(
    deleting: AsyncGenerator[Progress, None], manifests: Iterable[Path]
) -> AsyncGenerator[Progress, None]:
    """Remove manifests before their pods, so that nothing applies the pods again meanwhile.

    Raises:
        HostError: one cannot be removed; no pod was changed.
    """
    async with aclosing(deleting):
        async for each in deleting:
            if isinstance(each, Assessment):  # everything is checked
                for path in manifests:
                    try:
                        path.unlink(missing_ok=True)
                    except OSError as error:
                        raise HostError(f"{printable(str(path))}: {error.strerror}") from error
                    note(f"removed {printable(str(path))}")
            yield each
