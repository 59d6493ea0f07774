"""`podslice recommend`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import starmap
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from podslice.cli import host
from podslice.cli.arguments import DONE, FAILED, Names, OnlyNamespace
from podslice.cli.host import tolerate
from podslice.cli.options import Planning, configured
from podslice.cli.output import OutputFormat, emit, note, write
from podslice.cli.pods import PodFilter, nearest_pod, pod_filter
from podslice.cli.report import AmountsEntry, amounts_entry, document
from podslice.cli.views.layout import Column, Shorten, fold, table
from podslice.cli.views.problem_lines import problem_line
from podslice.cli.views.style import Cell, Display, Role, Styled
from podslice.cli.views.tables import separated
from podslice.errors import HostError, Problem, Severity, invalid
from podslice.features.history.day import Point
from podslice.features.history.files import recorded_files, see_agent
from podslice.features.history.model import PodHistory
from podslice.features.history.prometheus import PrometheusApi
from podslice.features.history.recommendation import (
    Advice,
    PodRecommendation,
    Recommendation,
    Veto,
    recommend_pod,
)
from podslice.features.history.samples import is_expired
from podslice.features.importing.manifest import NewContainer, NewPod, format_lines
from podslice.features.importing.policy import StatedAmount
from podslice.inputs.source import read_authority
from podslice.model.desired import PodDecision
from podslice.model.pod import ContainerKind, Pod, Qos
from podslice.model.quantity import format_age, parse_quantity
from podslice.model.resources import CPU, MEMORY, Amounts, Resources, format_amount, format_amounts
from podslice.policy.aggregate import aggregate, default_pod
from podslice.policy.decide import decide


class RecommendFormat(StrEnum):
    """Values of `-o`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    PATCH = "patch"


@configured
def recommend(
    planning: Planning,
    pod: Names = None,
    namespace: OnlyNamespace = None,
    output: Annotated[
        RecommendFormat,
        typer.Option(
            "--output",
            "-o",
            metavar="FORMAT",
            help="table, wide, json, yaml, name, patch",
            show_default=False,
        ),
    ] = RecommendFormat.TABLE,
    prometheus: Annotated[
        str | None,
        typer.Option(
            "--prometheus",
            metavar="URL",
            help="Usage from this server.",
        ),
    ] = None,
    prometheus_ca: Annotated[
        Path | None,
        typer.Option(
            "--prometheus-ca",
            metavar="FILE",
            help="Trust these certificates.",
        ),
    ] = None,
) -> int:
    """Run `podslice recommend`.

    The agent records it. Nothing is changed. The amounts are for the pod as a whole, and for each
    of its containers.

    Examples:
        podslice recommend web
        podslice recommend web -o patch
    """
    if prometheus is None and prometheus_ca is not None:
        hint = "add --prometheus https://HOST:9090, or leave it out"
        raise invalid("it requires --prometheus", hint, where="--prometheus-ca")
    planning = tolerate(planning)
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
        message = "the pod is not applied, so it has no manifest"
        missing = (each.key for each in found if each.decision is None)
        hint = "to show the amounts: omit -o patch"
        problems += [Problem(where=key, message=message, hint=hint) for key in missing]
        decided = ((each, each.decision) for each in found)
        made = (manifest_lines(each, decision) for each, decision in decided if decision)
        write(separated(made, "---"))
    else:
        emit(
            OutputFormat(output.value),
            document=lambda: document(RecommendReport(pods=tuple(map(_entry, found)))),
            lines=lambda display: lines(found, display) if found else (),
            names=lambda: [each.key for each in found],
        )
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


class _HistorySource(NamedTuple):
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


_Level = tuple[dict[str, StatedAmount], dict[str, StatedAmount]]
"""Requests and limits."""


def manifest_lines(found: PodRecommendation, decision: PodDecision) -> Iterator[str]:
    """Yield the manifest of an applied pod, with the fields that determine its resources only."""
    pod = decision.pod
    has_pod_level = bool(pod.resources) or not any(each.resources for each in pod.containers)
    containers = tuple(
        _container(each.name, each.resources, found.containers.get(each.name))
        for each in pod.of_kind(ContainerKind.APP)
    )
    requests, limits = _pod_level(found, pod, containers) if has_pod_level else ({}, {})
    new = NewPod(
        name=pod.name,
        namespace=pod.namespace,
        containers=containers,
        requests=requests,
        limits=limits,
        remarks=tuple(_remarks(decision)),
    )
    origin = "Recommended from the history of usage; copy the resources into the pod's manifest."
    return format_lines(new, origin)


def _pod_level(found: PodRecommendation, pod: Pod, containers: Sequence[NewContainer]) -> _Level:
    """Return the pod level, raised to what the containers' requests and limits require."""
    requests, limits = _amounts(found.amounts, pod.resources, with_limit=True)
    patched = _with_amounts(pod, containers)
    # the pod must hold its containers: Kubernetes rejects less than their sum, or than the largest
    sums, apps = aggregate(patched).requests, patched.of_kind(ContainerKind.APP)
    for name in (CPU, MEMORY):
        largest = max((each.resources.limits.get(name, 0) for each in apps), default=0)
        for part in (requests, limits):
            _raise(part, name, sums.get(name, 0), "the sum of the containers' requests")
        _raise(limits, name, largest, "the largest limit of a container")
    return requests, limits


def _with_amounts(pod: Pod, containers: Iterable[NewContainer]) -> Pod:
    """Return the pod with the new amounts of its containers, and their defaults."""
    new = {
        each.name: Resources(requests=_milli(each.requests), limits=_milli(each.limits))
        for each in containers
    }
    patched = (
        replace(each, resources=new.get(each.name, each.resources)) for each in pod.containers
    )
    return default_pod(replace(pod, containers=tuple(patched)))


def _raise(part: dict[str, StatedAmount], name: str, least: int, source: str) -> None:
    """Replace an amount that is stated and below the least possible one."""
    if name in part and _milli(part)[name] < least:
        part[name] = StatedAmount(text=format_amount(name, least), source=source)


def _container(name: str, stated: Resources, amounts: Recommendation | None) -> NewContainer:
    """Return a container with its own resources; without any it shares the pod's."""
    if not stated:
        return NewContainer(name=name)
    if amounts is None:
        requests, limits = (_kept(each) for each in (stated.requests, stated.limits))
    else:
        requests, limits = _amounts(amounts, stated, with_limit=MEMORY in stated.limits)
    return NewContainer(name=name, requests=requests, limits=limits)


def _amounts(amounts: Recommendation, stated: Resources, *, with_limit: bool) -> _Level:
    """Return the recommended amounts, and those that are stated where none is recommended."""
    requests, limits = _kept(stated.requests), _kept(stated.limits)
    for name, what, advice in (
        (CPU, "CPU request", amounts.cpu_request),
        (MEMORY, "memory request", amounts.memory_request),
    ):
        if advice is not None:
            requests[name] = _recommended(name, what, advice, amounts)
    limit, request = amounts.memory_limit, amounts.cpu_request
    if limit is not None and with_limit:
        limits[MEMORY] = _recommended(MEMORY, "memory limit", limit, amounts)
    if request is not None and stated.limits.get(CPU, request.recommended) < request.recommended:
        limits[CPU] = StatedAmount(text=requests[CPU].text, source="the request")
    return requests, limits


def _recommended(resource: str, what: str, advice: Advice, amounts: Recommendation) -> StatedAmount:
    was = "" if advice.current is None else f", was {format_amount(resource, advice.current)}"
    text = format_amount(resource, advice.recommended)
    return StatedAmount(text=text, source=reason_of(what, advice, amounts) + was)


def _kept(stated: Amounts) -> dict[str, StatedAmount]:
    return {
        name: StatedAmount(text=format_amount(name, milli), source="as before")
        for name, milli in stated.items()
        if name in (CPU, MEMORY)
    }


def _remarks(decision: PodDecision) -> Iterator[str]:
    pod = decision.pod
    if CPU not in decision.limits:
        yield NO_CPU_LIMIT
    if len(pod.of_kind(ContainerKind.APP)) < len(pod.containers):
        yield "init containers and sidecars are not shown"
    if decision.pod.volumes or decision.pod.overhead:
        yield "volumes and the overhead are not shown"


def _milli(amounts: Mapping[str, StatedAmount]) -> dict[str, int]:
    return {name: parse_quantity(amount.text).milli for name, amount in amounts.items()}


_COLUMNS = (
    Column(title="NAME", min_width=16, shorten=Shorten.MIDDLE),
    Column(title="HISTORY", drop=1),
    Column(title="CPU REQUEST"),
    Column(title="MEM REQUEST"),
    Column(title="MEM LIMIT", drop=2),
)
_BOUNDS = (Column(title="CPU BOUNDS"), Column(title="MEM BOUNDS"), Column(title="LIMIT BOUNDS"))
NO_CPU_LIMIT = (
    "no CPU limit is recommended: it would throttle the pod while CPUs are idle; while they are"
    " scarce, the request divides them"
)

SHORT = "amounts from a history of less than a day are uncertain; their bounds: -o wide"


def lines(found: Sequence[PodRecommendation], display: Display) -> Iterator[str]:
    """Yield the table of pods and containers, and the reasons below it."""
    rows = []
    for pod in found:
        rows.append(_table_row(pod.key, pod.amounts, display))
        rows += [_table_row(f"  {name}", each, display) for name, each in pod.containers.items()]
    yield from table((*_COLUMNS, *_BOUNDS) if display.wide else _COLUMNS, rows, display)
    notes = [text for pod in found for text in notes_of(pod)]
    if any(pod.amounts.confidence_days < 1 for pod in found):
        notes.append(SHORT)
    if any(pod.amounts.cpu_request for pod in found):
        notes.append(NO_CPU_LIMIT)
    if notes:
        yield ""
    for text in notes:
        yield from fold(text, display, hanging="  ")


def notes_of(pod: PodRecommendation) -> Iterator[str]:
    """Yield what the numbers do not show: savings, vetoes, and a change of the QoS class."""
    if saving := pod.saving:
        yield (
            f"{pod.key}: its containers need {format_amounts(pod.sum_of_requests)} in sum; together,"
            f" as a pod, {format_amounts(saving)} less"
        )
    containers = ((f"{pod.key}, container {name}", e) for name, e in pod.containers.items())
    for name, amounts in ((pod.key, pod.amounts), *containers):
        for what, _, advice in _parts(amounts):
            if advice is not None and advice.veto is not None:
                yield f"{name}: the {what} is not decreased: {_why(advice.veto, amounts)}"
    if pod.decision and pod.decision.qos is Qos.GUARANTEED and pod.amounts.cpu_request:
        yield (
            f"{pod.key}: the pod is Guaranteed because its requests are its limits; with the"
            " recommended requests it would be Burstable"
        )


@dataclass(frozen=True, kw_only=True)
class CpuAdvice:
    """A recommended amount of CPU."""

    current_milli: int | None
    recommended_milli: int
    computed_milli: int
    """What the history alone results in: less after a veto."""
    lower_milli: int
    upper_milli: int | None
    veto: Veto | None


@dataclass(frozen=True, kw_only=True)
class MemoryAdvice:
    """A recommended amount of memory."""

    current_bytes: int | None
    recommended_bytes: int
    computed_bytes: int
    lower_bytes: int
    upper_bytes: int | None
    veto: Veto | None


@dataclass(frozen=True, kw_only=True)
class ContainerEntry:
    """The recommended amounts of a container."""

    name: str
    history_sec: int
    samples: int
    confidence_days: float
    """How many days of one sample a minute the history is worth."""
    oom_kills: int
    cpu_wait_percent: float
    memory_wait_percent: float
    cpu_request: CpuAdvice | None
    memory_request: MemoryAdvice | None
    memory_limit: MemoryAdvice | None


@dataclass(frozen=True, kw_only=True)
class PointEntry:
    """The highest usage in a quarter of an hour."""

    time_usec: int
    """The start of the quarter."""
    cpu_milli: int
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class PodEntry(ContainerEntry):
    """The recommended amounts of a pod."""

    namespace: str
    containers: tuple[ContainerEntry, ...]
    sum_of_requests: AmountsEntry
    saving: AmountsEntry
    day: tuple[PointEntry, ...]
    """The usage in each quarter of an hour of the last day in which samples were taken."""


@dataclass(frozen=True, kw_only=True)
class RecommendReport:
    """The recommended amounts of pods."""

    pods: tuple[PodEntry, ...]


def _entry(pod: PodRecommendation) -> PodEntry:
    namespace, _, name = pod.key.partition("/")
    return PodEntry(
        **vars(_container_entry(name, pod.amounts)),
        namespace=namespace,
        containers=tuple(starmap(_container_entry, pod.containers.items())),
        sum_of_requests=amounts_entry(pod.sum_of_requests),
        saving=amounts_entry(pod.saving),
        day=tuple(map(_point_entry, pod.day.points)),
    )


def _point_entry(point: Point) -> PointEntry:
    return PointEntry(
        time_usec=point.start_sec * 1_000_000,
        cpu_milli=point.cpu_milli,
        memory_bytes=point.memory_bytes,
    )


def _container_entry(name: str, amounts: Recommendation) -> ContainerEntry:
    return ContainerEntry(
        name=name,
        history_sec=amounts.age_sec,
        samples=amounts.samples,
        confidence_days=round(amounts.confidence_days, 3),
        oom_kills=amounts.oom_kills,
        cpu_wait_percent=round(amounts.cpu_wait_share * 100, 3),
        memory_wait_percent=round(amounts.memory_wait_share * 100, 3),
        cpu_request=_cpu_advice(amounts.cpu_request),
        memory_request=_memory_advice(amounts.memory_request),
        memory_limit=_memory_advice(amounts.memory_limit),
    )


def _cpu_advice(advice: Advice | None) -> CpuAdvice | None:
    if advice is None:
        return None
    return CpuAdvice(
        current_milli=advice.current,
        recommended_milli=advice.recommended,
        computed_milli=advice.computed,
        lower_milli=advice.lower,
        upper_milli=advice.upper,
        veto=advice.veto,
    )


def _memory_advice(advice: Advice | None) -> MemoryAdvice | None:
    if advice is None:
        return None
    return MemoryAdvice(
        current_bytes=None if advice.current is None else _bytes(advice.current),
        recommended_bytes=_bytes(advice.recommended),
        computed_bytes=_bytes(advice.computed),
        lower_bytes=_bytes(advice.lower),
        upper_bytes=None if advice.upper is None else _bytes(advice.upper),
        veto=advice.veto,
    )


def reason_of(what: str, advice: Advice, amounts: Recommendation) -> str:
    """Return where a recommended amount is from: `90th percentile of 3 d, and 15%`."""
    if advice.veto is not None:
        return f"not decreased: {_why(advice.veto, amounts)}"
    base = "the highest peak" if what == "memory limit" else "the 90th percentile"
    return f"{base} of {format_age(amounts.age_sec)}, and 15 %"


def _parts(amounts: Recommendation) -> Iterable[tuple[str, str, Advice | None]]:
    """Return the name of each amount, its resource, and the advice."""
    return (
        ("CPU request", CPU, amounts.cpu_request),
        ("memory request", MEMORY, amounts.memory_request),
        ("memory limit", MEMORY, amounts.memory_limit),
    )


def _table_row(name: str, amounts: Recommendation, display: Display) -> list[Cell]:
    parts = [(resource, advice) for _, resource, advice in _parts(amounts)]
    age = format_age(amounts.age_sec) if amounts.samples else "-"
    row: list[Cell] = [name, age, *(_change(resource, each) for resource, each in parts)]
    return [*row, *(_bounds(resource, each) for resource, each in parts)] if display.wide else row


def _change(resource: str, advice: Advice | None) -> Cell:
    """Return `500m → 120m`, or the amount alone where it stays; after a veto with a mark."""
    if advice is None:
        return "-"
    new = format_amount(resource, advice.recommended)
    if advice.veto is not None:
        return Styled(f"{new}!", Role.WARNING)
    old = "-" if advice.current is None else format_amount(resource, advice.current)
    return new if old == new else f"{old} → {new}"


def _bounds(resource: str, advice: Advice | None) -> str:
    if advice is None:
        return "-"
    upper = "" if advice.upper is None else format_amount(resource, advice.upper)
    return f"{format_amount(resource, advice.lower)} to {upper or 'unknown'}"


def _why(veto: Veto, amounts: Recommendation) -> str:
    if veto is Veto.OOM_KILLS:
        if amounts.oom_kills == 1:
            return "1 OOM kill in the last 8 days"
        return f"{amounts.oom_kills} OOM kills, the last one in the last 8 days"
    cpu, memory = (f"{share:.1%}" for share in (amounts.cpu_wait_share, amounts.memory_wait_share))
    return f"its tasks waited {cpu} of the time for a CPU and {memory} for memory"


def _bytes(milli: int) -> int:
    return -(-milli // 1000)
