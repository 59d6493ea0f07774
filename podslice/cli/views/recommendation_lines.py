"""Recommended amounts as a table, sentences and documents. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from podslice.cli.views import pod_documents
from podslice.cli.views.documents import Document
from podslice.cli.views.layout import Column, Shorten, fold, table
from podslice.cli.views.style import Cell, Display, Role, Styled
from podslice.model.pod import Qos
from podslice.model.resources import CPU, MEMORY, format_amount, format_amounts
from podslice.policy.recommendation import PodRecommendation
from podslice.policy.present_settings import format_age
from podslice.policy.recommendation import Advice, Recommendation, Veto

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
        rows.append(_row(pod.key, pod.amounts, display))
        rows += [_row(f"  {each.name}", each.amounts, display) for each in pod.containers]
    yield from table((*_COLUMNS, *_BOUNDS) if display.wide else _COLUMNS, rows, display)
    notes = [note for pod in found for note in notes_of(pod)]
    if any(pod.amounts.confidence_days < 1 for pod in found):
        notes.append(SHORT)
    if any(pod.amounts.cpu_request for pod in found):
        notes.append(NO_CPU_LIMIT)
    if notes:
        yield ""
    for note in notes:
        yield from fold(note, display, hanging="  ")


def notes_of(pod: PodRecommendation) -> Iterator[str]:
    """Yield what the numbers do not show: savings, vetoes, and a change of the QoS class."""
    if saving := pod.saving:
        yield (
            f"{pod.key}: its containers need {format_amounts(pod.sum_of_requests)} in sum; together,"
            f" as a pod, {format_amounts(saving)} less"
        )
    for name, amounts in ((pod.key, pod.amounts), *_containers(pod)):
        for what, advice in _parts(amounts):
            if advice is not None and advice.veto is not None:
                yield f"{name}: the {what} is not decreased: {_why(advice.veto, amounts)}"
    if pod.decision and pod.decision.qos is Qos.GUARANTEED and pod.amounts.cpu_request:
        yield (
            f"{pod.key}: the pod is Guaranteed because its requests are its limits; with the"
            " recommended requests it would be Burstable"
        )


def document(pod: PodRecommendation) -> Document:
    """Return the recommended amounts of a pod."""
    namespace, _, name = pod.key.partition("/")
    return {
        "namespace": namespace,
        "name": name,
        **_amounts(pod.amounts),
        "containers": [{"name": each.name, **_amounts(each.amounts)} for each in pod.containers],
        "sum_of_requests": pod_documents.amounts(pod.sum_of_requests),
        "saving": pod_documents.amounts(pod.saving),
    }


def reason_of(what: str, advice: Advice, amounts: Recommendation) -> str:
    """Return where a recommended amount is from: `90th percentile of 3 d, and 15%`."""
    if advice.veto is not None:
        return f"not decreased: {_why(advice.veto, amounts)}"
    base = "the highest peak" if what == "memory limit" else "the 90th percentile"
    return f"{base} of {format_age(amounts.age_sec)}, and 15 %"


def _containers(pod: PodRecommendation) -> Iterator[tuple[str, Recommendation]]:
    for each in pod.containers:
        yield f"{pod.key}, container {each.name}", each.amounts


def _parts(amounts: Recommendation) -> Iterable[tuple[str, Advice | None]]:
    return (
        ("CPU request", amounts.cpu_request),
        ("memory request", amounts.memory_request),
        ("memory limit", amounts.memory_limit),
    )


def _row(name: str, amounts: Recommendation, display: Display) -> list[Cell]:
    parts = (
        (CPU, amounts.cpu_request),
        (MEMORY, amounts.memory_request),
        (MEMORY, amounts.memory_limit),
    )
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


def _amounts(amounts: Recommendation) -> Document:
    return {
        "history_sec": amounts.age_sec,
        "samples": amounts.samples,
        "confidence_days": round(amounts.confidence_days, 3),
        "oom_kills": amounts.oom_kills,
        "cpu_wait_percent": round(amounts.cpu_wait_share * 100, 3),
        "memory_wait_percent": round(amounts.memory_wait_share * 100, 3),
        "cpu_request": _advice(CPU, amounts.cpu_request),
        "memory_request": _advice(MEMORY, amounts.memory_request),
        "memory_limit": _advice(MEMORY, amounts.memory_limit),
    }


def _advice(resource: str, advice: Advice | None) -> Document | None:
    if advice is None:
        return None
    amounts = {
        "current": advice.current,
        "recommended": advice.recommended,
        "computed": advice.computed,
        "lower": advice.lower,
        "upper": advice.upper,
    }
    return {
        **{_key(name, resource): _number(resource, milli) for name, milli in amounts.items()},
        "veto": None if advice.veto is None else advice.veto.value,
    }


def _key(name: str, resource: str) -> str:
    return f"{name}_milli" if resource == CPU else f"{name}_bytes"


def _number(resource: str, milli: int | None) -> int | None:
    return milli if milli is None or resource == CPU else -(-milli // 1000)
