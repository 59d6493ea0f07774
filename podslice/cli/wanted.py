"""The pods that the manifest directories want, as the agent reports them, or as it would, also at boot."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from podslice.agent.manifests import ManifestDirectories, WantedPodsReader
from podslice.cli.extensions import pods_run_by_features
from podslice.cli.manifests import choose_candidates, load_all, require_pods
from podslice.cli.options import Planning
from podslice.errors import HostError, InputError, Problem, Severity, printable
from podslice.inputs.source import list_manifests
from podslice.model.config import Config, Containers
from podslice.model.desired import PodDecision
from podslice.model.node_state import PendingPod
from podslice.model.unit import Manager
from podslice.reconcile.assess import Assessment, Findings, Request, assess_findings, find_pending
from podslice.reconcile.world import World

_UNREAD = (
    "root and members of the group podslice may read it, and a running agent reports its pods to all"
    " users"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedByManifests:
    """What the manifest directories want, compared with what is applied."""

    pending: tuple[PendingPod, ...] = ()
    unwanted: Mapping[str, str] = field(default_factory=dict)
    """The applied pods whose manifests were removed, by key, with the files that these were in."""
    problems: tuple[Problem, ...] = ()
    directories: tuple[str, ...] = ()
    """The directories whose changes nothing applies, because no agent runs."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The manifests of the pods in them, by key."""
    started: frozenset[str] = frozenset()
    """The pods whose containers `apply --start` runs, by key."""


def manifest_directories(config: Config, manager: Manager) -> tuple[str, ...]:
    """Return the manifest directories of the agent of a service manager.

    The default ones belong to the host's agent; a user has `~/.config/podslice/manifests`.
    """
    if manager.is_user and config.manifests == Config().manifests:
        return (f"{manager.config_directory}/podslice/manifests",)
    return config.manifests


def sources_or_default(planning: Planning, filename: Sequence[str] | None) -> list[str]:
    """Return the stated files, or else the manifest directories with manifests.

    Raises:
        InputError: the configuration is invalid.
        HostError: this user may not read a manifest directory.
    """
    if filename:
        return list(filename)
    directories = manifest_directories(planning.config, planning.manager)
    for each in filter(_is_denied, directories):
        where = printable(each)
        raise HostError(
            f"permission denied: the manifest directory {where}; run as root, or use --user"
        )
    return list(filter(_has_content, directories))


class PodsToApply(NamedTuple):
    """The pods to apply."""

    candidates: tuple[PodDecision, ...]
    started: object = None
    """As in `PodRequest`; None: their containers are not run."""


def load_to_apply(
    planning: Planning,
    filename: Sequence[str] | None,
    namespace: str | None,
    *,
    is_for_host: bool = False,
) -> PodsToApply:
    """Return the pods to apply, if the whole input is valid.

    Without files they are those of the manifest directories. With `is_for_host` the configuration must
    not be that of another machine.

    Raises:
        InputError: there is an error in the input; it has every problem.
        PodsliceError: the stated files have nothing that podslice runs.
    """
    _, loaded = load_all(planning, sources_or_default(planning, filename), namespace)
    candidates = choose_candidates(planning, loaded, is_for_host=is_for_host)
    require_pods(loaded, filename or ())
    return PodsToApply(candidates)


LoadPods = Callable[..., PodsToApply]
"""As `load_to_apply`; features have others."""


def pods_of_manifests(planning: Planning) -> dict[str, set[str]]:
    """Return the pods of each file in the manifest directories that can be read."""
    directories = manifest_directories(planning.config, planning.manager)
    reader = ManifestDirectories(directories, validate=planning.config.validate)
    contents = reader.read()
    while contents.is_partial:
        contents = reader.read()
    found: dict[str, set[str]] = {}
    for each in contents.pods:
        found.setdefault(contents.sources[each.uid], set()).add(each.key)
    for path in contents.broken & found.keys():
        found[path].add("an invalid pod")
    return found


async def read_wanted(world: World, findings: Findings, state: Assessment) -> WantedByManifests:
    """Return what the manifests want; `state` is the assessment of these findings."""
    if state.agent is not None and state.agent.pending is not None:
        uids = {pod.uid: pod.key for pod in state.current}
        sources = {uids[uid]: path for uid, path in state.sources.items() if uid in uids}
        return WantedByManifests(
            pending=state.agent.pending,
            problems=state.agent.problems,
            sources=sources,
            started=_started(world, state, sources),
        )
    directories = manifest_directories(world.config, world.manager)
    parents = {str(Path(source).parent) for source in state.sources.values()}
    for each in sorted(denied := set(filter(_is_denied, {*directories, *parents}))):
        world.on_note(f"{each} is not readable for this user: {_UNREAD}")
    contents = {each for each in directories if each not in denied and _has_content(each)}
    contents |= parents - denied
    if not contents:
        pending = find_pending(state, (), digests={}, sources={})
        return WantedByManifests(pending=pending, started=_started(world, state, ()))

    manifests = ManifestDirectories(directories, validate=world.config.validate)
    found = await _compare(world, findings, state, manifests)
    return WantedByManifests(
        pending=found.pending,
        unwanted=found.unwanted,
        problems=found.problems,
        directories=tuple(sorted(contents)) if state.agent is None else (),
        sources=found.sources,
        started=found.started,
    )


def _started(world: World, state: Assessment, in_directories: Iterable[str]) -> frozenset[str]:
    """Return the pods whose containers `apply --start` runs: those that have quadlets, or are to."""
    keys = frozenset(in_directories)
    found = pods_run_by_features({*keys, *(pod.key for pod in state.current)}, world.manager)
    return found | keys if world.config.containers is Containers.QUADLET else found


def _has_content(directory: str) -> bool:
    """Return whether a directory has manifests, or cannot be read."""
    try:
        return bool(list_manifests(directory))
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _is_denied(where: str) -> bool:
    """Return whether the place of a problem is a path that this user may not read.

    The host is as healthy as for root, who sees more.
    """
    path = Path(where)
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return not os.access(path, os.R_OK, effective_ids=True)


async def _compare(
    world: World, findings: Findings, state: Assessment, manifests: ManifestDirectories
) -> WantedByManifests:
    """Compare the manifests with the applied pods, as a round of the agent does."""
    reader = WantedPodsReader(world, manifests)
    wanted = reader.read(state.current)
    while wanted.contents.is_partial:
        wanted = reader.read(state.current)
    # warnings are for those who write manifests: `check` and `apply` show them
    found = (*wanted.contents.problems, *wanted.problems)
    problems = [each for each in found if each.severity is Severity.ERROR]
    problems = [each for each in problems if not _is_denied(each.where)]
    request = Request(candidates=wanted.candidates, to_remove=wanted.is_unwanted)
    try:
        after = await assess_findings(world, request, findings)
    except InputError as error:
        problems += error.problems
        after = state
    marked = {mark.uid for mark in state.evicted}
    sources = {pod.key: wanted.contents.sources[pod.uid] for pod in wanted.contents.pods}
    started = _started(world, state, sources)
    return WantedByManifests(
        pending=find_pending(
            after,
            wanted.candidates,
            digests=wanted.digests,
            sources=wanted.contents.sources,
            waiting=wanted.waiting,
            started=started,
        ),
        sources=sources,
        started=started,
        unwanted={
            pod.key: state.sources[pod.uid]
            for pod in state.current
            if pod.uid not in marked and pod.uid in state.sources and wanted.is_unwanted(pod)
        },
        problems=tuple(dict.fromkeys(problems)),
    )


def is_enabled(unit: str, manager: Manager) -> bool:
    """Return whether a target that starts with the service manager wants the unit.

    That systemd has loaded a unit does not show this: others may refer to it.

    Source: systemd.unit(5), "Unit File Load Path" and "[Install] Section Options".
    """
    own = Path(manager.config_directory, "systemd")
    wanting = [own / "system/multi-user.target.wants"]
    if manager.is_user:
        wanting = [each / "user/default.target.wants" for each in (own, Path("/etc/systemd"))]
    return any((each / unit).is_symlink() for each in wanting)
