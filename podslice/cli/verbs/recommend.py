"""`podslice recommend`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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


_NOT_RECORDED = (
    "the agent takes a sample each minute, and writes them every ten minutes; see: systemctl status"
    " podslice-agent"
)
_NOT_SCRAPED = "the server needs metrics of podslice-agent or of cAdvisor with this pod"


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


Server = Annotated[
    str | None,
    typer.Option(
        "--prometheus",
        metavar="URL",
        help="Read the usage of this Prometheus server instead of what the agent has recorded.",
    ),
]


@planning_options
def recommend(
    planning: Planning,
    pod: ShownPods = None,
    namespace: OnlyNamespace = None,
    output: Format = RecommendFormat.TABLE,
    prometheus: Server = None,
) -> int:
    """Recommend requests and limits from recorded usage.

    The agent records it. Nothing is changed. The amounts are for the pod as a whole, and for each of its containers.
    """
    planning = configuration.tolerate(planning)
    shown, applied, now = pod_filter(pod, namespace), _decide_applied(planning), int(time.time())
    if prometheus is None:
        read, hint = _recorded(planning, shown, set(applied)), _NOT_RECORDED
    else:
        read, hint = _from_server(prometheus, now), _NOT_SCRAPED
    histories, missing = _read(read, shown.keys or sorted(filter(shown.selects, applied)), hint)
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


def _recorded(
    planning: Planning, shown: PodFilter, applied: set[str]
) -> Callable[[str], PodHistory | None]:
    """Return a function that reads what the agent has recorded of a pod.

    Raises:
        InputError: nothing is recorded, or a named pod has neither a history nor is it applied.
    """
    directory = session.usage_directory(planning.config, planning.manager)
    if not directory:
        raise invalid("no usage is recorded", "set usage-history to a directory")
    files = UsageFiles(Path(directory))
    shown.require({*applied, *files.pods()})
    return lambda key: files.read(files.pod_path(key))


def _from_server(url: str, now_sec: int) -> Callable[[str], PodHistory | None]:
    """Return a function that reads the usage of a pod from a Prometheus server.

    Raises:
        InputError: it is not the address of a server.
    """
    from podslice.usage.prometheus_history import check_url, read_history

    server = check_url(url)
    return lambda key: read_history(server, key, now_sec)


def _read(
    read: Callable[[str], PodHistory | None], keys: Iterable[str], hint: str
) -> tuple[dict[str, PodHistory], list[Problem]]:
    """Return the histories of pods, and what is missing, with the hint for no history."""
    histories, missing = {}, []
    for key in keys:
        try:
            history = read(key)
        except HostError as error:
            missing.append(Problem(where=key, message=str(error)))
            continue
        if history is None or not history.pod.samples:
            missing.append(Problem(where=key, message="no usage is recorded yet", hint=hint))
        else:
            histories[key] = history
    return histories, missing


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
