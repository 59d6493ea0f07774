"""`podslice recommend`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podslice.cli import configuration, host
from podslice.cli.arguments import (
    DONE,
    FAILED,
    OnlyNamespace,
    ShownPods,
    nearest_pod,
    pod_filter,
)
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note, write
from podslice.cli.recorded_usage import recorded_files, see_agent
from podslice.cli.views import documents, recommendation_lines
from podslice.cli.views.problem_lines import problem_line
from podslice.cli.views.recommendation_manifest import manifest_lines
from podslice.errors import HostError, Problem, Severity, invalid
from podslice.inputs.kubelet.kubelet_files import read_authority
from podslice.model.usage_history import PodHistory
from podslice.policy.decide import decide
from podslice.policy.pod_recommendation import PodRecommendation, recommend_pod
from podslice.policy.usage_samples import is_expired
from podslice.usage.prometheus_history import PrometheusApi

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


Server = Annotated[
    str | None,
    typer.Option(
        "--prometheus",
        metavar="URL",
        help="Read the usage of this Prometheus server instead of what the agent has recorded.",
    ),
]
ServerCa = Annotated[
    Path | None,
    typer.Option(
        "--prometheus-ca",
        metavar="FILE",
        help="Trust these certificates of the Prometheus server, instead of those of the host.",
    ),
]


@planning_options
def recommend(
    planning: Planning,
    pod: ShownPods = None,
    namespace: OnlyNamespace = None,
    output: Format = RecommendFormat.TABLE,
    prometheus: Server = None,
    prometheus_ca: ServerCa = None,
) -> int:
    """Run `podslice recommend`.

    The agent records it. Nothing is changed. The amounts are for the pod as a whole, and for each of its containers.
    """
    if prometheus is None and prometheus_ca is not None:
        hint = "add --prometheus https://HOST:9090, or leave it out"
        raise invalid("it requires --prometheus", hint, where="--prometheus-ca")
    planning = configuration.tolerate(planning)
    shown, applied, now = pod_filter(pod, namespace), _decide_applied(planning), int(time.time())
    if prometheus is None:
        source, shown = _recorded(planning, shown, applied)
    else:
        source = _from_server(prometheus, prometheus_ca, applied, now)
    keys = shown.keys or sorted(filter(shown.selects, applied))
    histories, problems = _read(source, keys, now)
    found = [
        recommend_pod(key, history, now, decision=applied.get(key))
        for key, history in histories.items()
    ]
    if output is RecommendFormat.PATCH:
        problems += [_without_manifest(each.key) for each in found if each.decision is None]
    _emit(found, output)
    if not found and not problems:
        where = "" if namespace is None else f" in the namespace {namespace}"
        note(f"no pods are applied{where}{'' if prometheus is None else '; name the pods to show'}")
    severity = Severity.ERROR if shown.keys else Severity.WARNING
    for problem in problems:
        note(problem_line(replace(problem, severity=severity)))
    return FAILED if shown.keys and problems else DONE


def _decide_applied(planning: Planning) -> dict[str, PodDecision]:
    """Return the decisions on the applied pods, by key."""
    pods = host.recorded_pods(planning)
    if not pods:
        return {}
    node = host.load_node(planning.config, lenient=True)
    return {pod.key: decide(pod, node, planning.config) for pod in pods}


@dataclass(frozen=True, slots=True, kw_only=True)
class _HistorySource:
    """Where histories are from."""

    read: Callable[[str], PodHistory | None]
    """Return the history of a pod, by its key."""
    hint: Callable[[str], str]
    """Return the remedy where a pod has no history."""


def _recorded(
    planning: Planning, shown: PodFilter, applied: Collection[str]
) -> tuple[_HistorySource, PodFilter]:
    """Return what the agent has recorded, and the pods to show.

    Raises:
        InputError: nothing is recorded, or a named pod has neither a history nor is it applied.
    """
    files = recorded_files(planning)
    shown = shown.resolve({*applied, *files.pods()})
    hint = (
        "the agent takes a sample each minute, and writes them every ten minutes;"
        f" {see_agent(planning.manager)}"
    )
    source = _HistorySource(read=lambda key: files.read(files.pod_path(key)), hint=lambda _: hint)
    return source, shown


def _from_server(
    url: str, authority: Path | None, applied: Collection[str], now_sec: int
) -> _HistorySource:
    """Return the usage that a Prometheus server has.

    Raises:
        InputError: it is not the address of a server, or the file has no certificates.
    """
    trusted = "" if authority is None else read_authority(authority, "--prometheus-ca")
    server = PrometheusApi(url, trusted)
    metrics = "the server needs metrics of podslice-agent or of cAdvisor with this pod"

    def hint(key: str) -> str:
        near = "" if key in applied else nearest_pod(key, applied)
        return f"{metrics}; {near}" if near else metrics

    return _HistorySource(read=lambda key: server.read_history(key, now_sec), hint=hint)


def _read(
    source: _HistorySource, keys: Iterable[str], now_sec: int
) -> tuple[dict[str, PodHistory], list[Problem]]:
    """Return the histories of pods, and what is missing, with its remedy."""
    histories, missing = {}, []
    for key in keys:
        try:
            history = source.read(key)
        except HostError as error:
            missing.append(Problem(where=key, message=str(error)))
            continue
        if history is None or not history.pod.samples:
            message = "no usage is recorded yet"
        elif is_expired(history.pod, now_sec):
            message = "no usage was recorded in the last 8 days"
        else:
            histories[key] = history
            continue
        missing.append(Problem(where=key, message=message, hint=source.hint(key)))
    return histories, missing


def _without_manifest(key: str) -> Problem:
    hint = "to show the amounts: omit -o patch"
    return Problem(where=key, message="the pod is not applied, so it has no manifest", hint=hint)


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
    for number, pod in enumerate(each for each in found if each.decision is not None):
        if number:
            yield "---"
        if pod.decision is not None:
            yield from manifest_lines(pod, pod.decision)
