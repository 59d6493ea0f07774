"""Pods from manifests and manifests that verbs write, with their decisions and problems."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import chain

from podslice.cli.host import load_node
from podslice.cli.options import Planning
from podslice.cli.output import note_problems
from podslice.cli.pods import key_of, nearest_pod, pods_named
from podslice.errors import InputError, PodsliceError, Problem, Severity, printable
from podslice.inputs.budget import BYTES_MAX, PROBLEMS_MAX
from podslice.inputs.manifest.fields import WORKLOADS
from podslice.inputs.manifest.load import LoadedPods, load_pods
from podslice.inputs.source import read_stream
from podslice.model.config import Config, Validate
from podslice.model.desired import PodDecision
from podslice.model.node import Node
from podslice.policy.allocatable import check_host, validate_node
from podslice.policy.decide import decide_each


def load_manifests(sources: Sequence[str], namespace: str | None, validate: Validate) -> LoadedPods:
    """Return the pods of all files."""
    return load_pods(sources, namespace=namespace, stdin=read_stdin, validate=validate)


def read_stdin() -> bytes:
    """Read standard input to its end, within the limits of input."""
    return read_stream(sys.stdin.fileno(), limit_bytes=BYTES_MAX)


def load_all(
    planning: Planning, sources: Sequence[str], namespace: str | None
) -> tuple[Config, LoadedPods]:
    """Return the configuration and the pods of all files.

    Raises:
        InputError: the configuration is invalid; it has the problems of the manifests, too.
    """
    try:
        config = planning.config
    except InputError as error:
        loaded = load_manifests(sources, namespace, Validate.STRICT)
        raise InputError((*error.problems, *loaded.all_problems)) from error
    return config, load_manifests(sources, namespace, config.validate)


def choose_candidates(
    planning: Planning,
    loaded: LoadedPods,
    further: Iterable[Problem] = (),
    *,
    is_for_host: bool = False,
) -> tuple[PodDecision, ...]:
    """Return the pods to apply, if there is no problem with them, and no `further` one.

    With `is_for_host` the configuration must not be that of another machine.

    Raises:
        InputError: there is an error in the input; it has every problem.
    """
    config = planning.config
    node = load_node(config, manager=planning.manager)
    decisions = decide_all(loaded, node, config)
    problems = [*validate_node(node, config), *further]
    if is_for_host:
        problems += check_host(node, config)
    if decisions and not config.cgroups_per_qos:
        message = "without it there are no slices for pods"
        problems.append(Problem(where="cgroups-per-qos", message=message, hint="set it to true"))
    return valid_only(loaded, decisions, problems)


def require_pods(loaded: LoadedPods, sources: Sequence[str]) -> None:
    """Check that the stated files have an object that podslice runs, if they have any.

    Without files, reservations and applied pods are set again.

    Raises:
        PodsliceError: there are only others; it names their kinds.
    """
    if loaded.has_workload or not loaded.ignored or not sources:
        return

    found = ", ".join(dict.fromkeys(map(printable, loaded.ignored)))
    raise PodsliceError(
        f"{', '.join(map(printable, sources))}: there is no pod in it, only: {found}; podslice"
        f" applies {', '.join(WORKLOADS)} and lists of them"
    )


def decide_all(loaded: LoadedPods, node: Node, config: Config) -> tuple[PodDecision, ...]:
    """Return the decision about each pod, with its problems, in the order of their names.

    Raises:
        InputError: there are too many problems.
    """
    decisions: list[PodDecision] = []
    problems = dict.fromkeys(loaded.problems)
    last: tuple[Problem, ...] = ()
    for decision in decide_each(sorted(loaded.pods, key=lambda pod: pod.key), node, config):
        decisions.append(decision)
        if decision.problems is not last:  # replicas have the same
            last = decision.problems
            problems |= dict.fromkeys(last)
        if len(problems) > PROBLEMS_MAX:
            raise InputError(problems)
    return tuple(decisions)


def all_problems(loaded: LoadedPods, decisions: Sequence[PodDecision]) -> list[Problem]:
    """Return each problem of files and pods once, in order; replicas share their template's."""
    different = {id(each.problems): each.problems for each in decisions}.values()
    of_pods = (found for problems in different for found in problems)
    return list(dict.fromkeys((*loaded.problems, *of_pods)))


def valid_only(
    loaded: LoadedPods, decisions: Sequence[PodDecision], others: Sequence[Problem] = ()
) -> tuple[PodDecision, ...]:
    """Return the decisions if there is no error, and report warnings.

    Raises:
        InputError: there is an error in the input; it has every problem.
    """
    problems = [*others, *all_problems(loaded, decisions)]
    if any(found.severity is Severity.ERROR for found in problems):
        raise InputError(problems)
    note_problems(problems)
    return tuple(decisions)


def named_pods(
    decisions: tuple[PodDecision, ...], names: list[str] | None, namespace: str | None
) -> tuple[PodDecision, ...]:
    """Return the decisions about the named pods, or all.

    Raises:
        InputError: a pod is not in the manifests.
    """
    if not names:
        return decisions
    known = {each.pod.key: each for each in decisions}
    found = {key: pods_named(key, known) for key in (key_of(name, namespace) for name in names)}
    unknown = [
        Problem(where=key, message="no such pod in the manifests", hint=nearest_pod(key, known))
        for key, pods in found.items()
        if not pods
    ]
    if unknown:
        raise InputError(unknown)
    return tuple(known[key] for key in dict.fromkeys(chain.from_iterable(found.values())))
