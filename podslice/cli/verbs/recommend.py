"""`podslice recommend`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podslice.cli import configuration, session
from podslice.cli.arguments import DONE, FAILED, OnlyNamespace, ShownPods, pod_filter
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note, write
from podslice.cli.views import documents, recommendation_lines
from podslice.cli.views.problem_lines import problem_line
from podslice.errors import HostError, Problem, Severity, invalid
from podslice.model.usage_history import PodHistory
from podslice.policy.decide import decide
from podslice.policy.pod_recommendation import PodRecommendation, recommend_pod
from podslice.store.usage_files import UsageFiles

if TYPE_CHECKING:
    from podslice.cli.arguments import PodFilter
    from podslice.model.desired import PodDecision


class RecommendFormat(StrEnum):
    """Values of `-o`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    PATCH = "patch"


Format = Annotated[
    RecommendFormat,
    typer.Option("--output", "-o", help="Output format; patch: manifests with the new amounts."),
]


@planning_options
def recommend(
    planning: Planning,
    pod: ShownPods = None,
    namespace: OnlyNamespace = None,
    output: Format = RecommendFormat.TABLE,
) -> int:
    """Recommend requests and limits from recorded usage.

    The agent records it. Nothing is changed. The amounts are for the pod as a whole, and for each of its containers.
    """
    planning = configuration.tolerate(planning)
    directory = session.usage_directory(planning.config, planning.manager)
    if not directory:
        raise invalid("no usage is recorded", "set usage-history to a directory")
    shown = pod_filter(pod, namespace)
    files = UsageFiles(Path(directory))
    applied = _decide_applied(planning)
    histories, missing = _read(files, shown, {*applied, *files.pods()}, set(applied))
    now = int(time.time())
    found = [
        recommend_pod(key, history, now, decision=applied.get(key))
        for key, history in histories.items()
    ]
    _emit(found, output)
    if not found and not missing:
        note("no pods are applied")
    severity = Severity.ERROR if shown.keys else Severity.WARNING
    for problem in missing:
        note(problem_line(replace(problem, severity=severity)))
    return FAILED if shown.keys and missing else DONE


def _decide_applied(planning: Planning) -> dict[str, PodDecision]:
    """Return the decisions on the applied pods, by key."""
    pods = session.recorded_pods(planning)
    if not pods:
        return {}
    node = session.load_node(planning.config, lenient=True)
    return {pod.key: decide(pod, node, planning.config) for pod in pods}


def _read(
    files: UsageFiles, shown: PodFilter, known: set[str], applied: set[str]
) -> tuple[dict[str, PodHistory], list[Problem]]:
    """Return the histories of the named pods, or else of the applied ones, and what is missing.

    Raises:
        InputError: a named pod has neither a history nor is it applied.
    """
    shown.require(known)
    histories, missing = {}, []
    for key in shown.keys or sorted(filter(shown.selects, applied)):
        try:
            history = files.read(files.pod_path(key))
        except HostError as error:
            missing.append(Problem(where=key, message=str(error)))
            continue
        if history is None or not history.pod.samples:
            missing.append(_no_history(key))
        else:
            histories[key] = history
    return histories, missing


def _no_history(key: str) -> Problem:
    return Problem(
        where=key,
        message="no usage is recorded yet",
        hint="the agent takes a sample each minute, and writes them every ten minutes; see:"
        " systemctl status podslice-agent",
    )


def _emit(found: Sequence[PodRecommendation], output: RecommendFormat) -> None:
    if output is RecommendFormat.PATCH:
        write(_patches(found))
        return
    emit(
        OutputFormat(output.value),
        document=lambda: documents.document(
            pods=documents.listed(found, recommendation_lines.document)
        ),
        lines=lambda display: recommendation_lines.lines(found, display) if found else (),
        names=lambda: [each.key for each in found],
    )


def _patches(found: Sequence[PodRecommendation]) -> Iterator[str]:
    """Yield the manifests of the pods that are applied."""
    from podslice.cli.views.recommendation_manifest import manifest_lines

    for number, pod in enumerate(each for each in found if each.decision is not None):
        if number:
            yield "---"
        if pod.decision is not None:
            yield from manifest_lines(pod, pod.decision)
