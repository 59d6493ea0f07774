"""The units of pods for podman's generator, from manifests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from podslice.cli.host import PROGRAM, own_program
from podslice.cli.manifests import read_stdin
from podslice.cli.options import Planning
from podslice.errors import HostError, InputError, Problem
from podslice.features.quadlet.generate import generate
from podslice.features.quadlet.probes import program_problem
from podslice.features.quadlet.result import (
    Options,
    Quadlets,
)
from podslice.features.quadlet.workloads import LoadedWorkloads, read_workloads
from podslice.inputs.manifest.load import Extent, LoadedPods, load_pods
from podslice.kernel.programs import NoAnswerError, run_program
from podslice.model.config import Rules, Validate
from podslice.model.desired import PodDecision

_VERSION_WAIT_SEC = 30.0
_EXTRACT = "tar --extract --preserve-permissions --directory=/ --file=FILE"


def load_with_workloads(
    sources: Sequence[str], namespace: str | None, ignored: frozenset[str], validate: Validate
) -> tuple[LoadedPods, LoadedWorkloads]:
    """Return the pods of all files, and their workloads."""
    loaded = load_pods(
        sources, namespace=namespace, stdin=read_stdin, validate=validate, extent=Extent.WORKLOADS
    )
    workloads = read_workloads(loaded, namespace=namespace, ignored=ignored)
    return loaded, workloads


def make_quadlets(
    decisions: Iterable[PodDecision], workloads: LoadedWorkloads, options: Options
) -> tuple[Quadlets, ...]:
    """Return the units of pods.

    Raises:
        InputError: podman is too old for them, their services cannot execute podslice, or a text
            does not fit in a unit.
    """
    if options.problem is not None:
        raise InputError(options.problem)
    pods = [(each, workloads.workloads[each.pod.key]) for each in decisions]
    found = [program_problem(each.pod.key, workload, options) for each, workload in pods]
    problems = [each for each in found if each is not None]
    made: list[Quadlets] = []
    for each, workload in pods:
        try:
            made.append(generate(each, workload, options))
        except InputError as error:
            problems += [problem.within(f"pod {each.pod.key}") for problem in error.problems]
    if problems:
        raise InputError(problems)
    return tuple(made)


def host_options(planning: Planning, *, is_for_host: bool, is_kept: bool = False) -> Options:
    """Return the options for this host, or for one with recent versions of its programs.

    Raises:
        HostError: podman or systemd is not installed on this host.
    """
    has_init_phase = planning.config.rules is not Rules.KUBERNETES
    if not is_for_host:
        return Options(manager=planning.manager, has_init_phase=has_init_phase, program=PROGRAM)
    return Options(
        manager=planning.manager,
        has_init_phase=has_init_phase,
        systemd_version=_version_of("systemctl")[0],
        podman_version=_version_of("podman"),
        is_kept=is_kept,
        program=own_program(),
    )


def _version_of(program: str) -> tuple[int, int]:
    try:
        ended = run_program([program, "--version"], limit_sec=_VERSION_WAIT_SEC)
    except OSError as error:
        raise HostError(f"{program}: {str(error.strerror).lower()}; install {program}") from error
    except NoAnswerError as error:
        raise HostError(f"{program} --version: {error}") from error
    if ended.code:
        raise HostError(f"{program} --version: exit code {ended.code}")
    printed = ended.out.decode(errors="replace")
    found = re.search(r"([0-9]{1,6})(?:\.([0-9]{1,6}))?", printed)
    if found is None:
        raise HostError(f"{program} --version: no version in {printed[:64]!r}")
    return int(found[1]), int(found[2] or 0)


def further_problems(problems: Iterable[Problem], loaded: LoadedPods) -> list[Problem]:
    """Return the problems that the pods do not have already."""
    known = {str(each) for each in loaded.all_problems}
    return [each for each in problems if str(each) not in known]
