"""A new pod as a manifest with a comment on each field. Pure: values in, lines out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from podslice.dataclass import dataclass
from podslice.model.quantity import parse_quantity
from podslice.model.resources import CPU, MEMORY
from podslice.policy.proposal import StatedAmount, format_age

if TYPE_CHECKING:
    from podslice.policy.proposal import PresentUse, ProposedAmounts

_COLUMN_MAX = 34
"""Where comments start at most; after a longer line they follow at once."""
_PLAIN_AMOUNT = re.compile(r"[1-9][0-9]*([mkMGT]|[KMGT]i)?")
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9-]*")
_NOT_PLAIN = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Names that YAML reads as something else than a string."""

_MEANING = {
    ("requests", CPU): "its share of the CPUs when they are scarce (CPUWeight)",
    ("requests", MEMORY): "its memory that is protected from reclaim (MemoryLow)",
    ("limits", CPU): "it is throttled above this (CPUQuota)",
    ("limits", MEMORY): "above this its processes are OOM-killed (MemoryMax)",
}
_NOT_SET = {
    ("requests", CPU): "the minimal share when CPUs are scarce",
    ("requests", MEMORY): "none of its memory is protected",
    ("limits", CPU): "it may use all idle CPUs",
    ("limits", MEMORY): "it may use all memory that pods may use",
}

Row = tuple[str, str]
"""A line of YAML and its comment. A comment without a line is a line of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPod:
    """A pod as it was requested, before it is validated."""

    name: str
    namespace: str | None = None
    containers: tuple[str, ...]
    requests: Mapping[str, StatedAmount] = field(default_factory=dict)
    """By resource: `cpu` and `memory`."""
    limits: Mapping[str, StatedAmount] = field(default_factory=dict)


def with_proposals(pod: NewPod, proposed: ProposedAmounts) -> NewPod:
    """Return the pod with proposals where it states nothing, and nothing contradicts them."""
    requests = {
        CPU: _at_most(proposed.cpu, pod.limits.get(CPU)),
        MEMORY: _at_most(proposed.memory, pod.limits.get(MEMORY)),
    }
    limits = {MEMORY: _at_least(proposed.memory_limit, pod.requests.get(MEMORY))}
    return replace(
        pod,
        requests={name: amount for name, amount in requests.items() if amount} | dict(pod.requests),
        limits={name: amount for name, amount in limits.items() if amount} | dict(pod.limits),
    )


def _at_most(proposed: StatedAmount | None, limit: StatedAmount | None) -> StatedAmount | None:
    if proposed is None or limit is None or _milli(proposed) <= _milli(limit):
        return proposed
    return StatedAmount(text=limit.text, source=f"the limit; {proposed.source}: {proposed.text}")


def _at_least(proposed: StatedAmount | None, request: StatedAmount | None) -> StatedAmount | None:
    if proposed is None or request is None or _milli(proposed) >= _milli(request):
        return proposed
    source = f"the request; {proposed.source} would be {proposed.text}"
    return StatedAmount(text=request.text, source=source)


def _milli(amount: StatedAmount) -> int:
    return parse_quantity(amount.text).milli


def make_document(pod: NewPod) -> dict[str, object]:
    """Return the manifest as values; `format_lines` has the same as text."""
    metadata = {"name": pod.name}
    if pod.namespace is not None:
        metadata["namespace"] = pod.namespace
    spec: dict[str, object] = {}
    parts = {"requests": pod.requests, "limits": pod.limits}
    resources = {
        part: {name: amount.text for name, amount in amounts.items()}
        for part, amounts in parts.items()
        if amounts
    }
    if resources:
        spec["resources"] = resources
    spec["containers"] = [{"name": name} for name in pod.containers]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def format_lines(pod: NewPod, use: PresentUse | None = None) -> Iterator[str]:
    """Yield the lines of the manifest; `use` is what the proposals are from."""
    rows = [*_head(pod), *_resources(pod), *_containers(pod)]
    column = min(max(len(text) for text, _ in rows) + 2, _COLUMN_MAX)
    yield from _preface(use)
    for text, comment in rows:
        indented = not text.strip()
        yield f"{text}# {comment}" if indented else f"{text.ljust(column - 2)}  # {comment}"


def _preface(use: PresentUse | None) -> Iterator[str]:
    yield "# Show what each value becomes: podslice explain -f FILE; start the pod: podslice apply -f FILE"
    if use is not None:
        tasks = f", with {use.tasks} {'task' if use.tasks == 1 else 'tasks'}" if use.tasks else ""
        age = format_age(use.age_sec)
        yield f"# Proposed from the present use of {use.what}, which has run for {age}{tasks}."


def _head(pod: NewPod) -> Iterator[Row]:
    yield "apiVersion: v1", "the format is that of Kubernetes"
    yield "kind: Pod", "processes with a common budget"
    yield "metadata:", "identifies the pod"
    yield f"  name: {_name(pod.name)}", "a pod with another name is another pod"
    if pod.namespace is not None:
        yield f"  namespace: {_name(pod.namespace)}", "the names of its pods are unique"


def _resources(pod: NewPod) -> Iterator[Row]:
    yield "spec:", "what the pod consists of"
    stated = {"requests": pod.requests, "limits": pod.limits}
    if not any(stated.values()):
        yield "  ", "No resources: the pod may use what is idle, and is the first to be evicted."
        return
    yield "  resources:", "the budget that all containers share"
    comments = {"requests": "kept for the pod while the host is busy", "limits": "never exceeded"}
    for part, amounts in stated.items():
        missing = [name for name in (CPU, MEMORY) if name not in amounts]
        if amounts:
            yield f"    {part}:", comments[part]
        for name in (each for each in (CPU, MEMORY) if each in amounts):
            amount = amounts[name]
            yield f"      {name}: {_amount(amount.text)}", _explain(part, name, amount)
        for name in missing:
            indent = "      " if amounts else "    "
            yield indent, f"no {name} {part.removesuffix('s')}: {_explain_missing(part, name, pod)}"


def _explain(part: str, name: str, amount: StatedAmount) -> str:
    meaning = _MEANING[part, name]
    return f"{meaning}; {amount.source}" if amount.source else meaning


def _explain_missing(part: str, name: str, pod: NewPod) -> str:
    if part == "requests" and name in pod.limits:
        return f"the limit, {pod.limits[name].text}, counts as the request"
    return _NOT_SET[part, name]


def _containers(pod: NewPod) -> Iterator[Row]:
    yield "  containers:", "groups of processes in the pod"
    key = pod.name if pod.namespace is None else f"{pod.namespace}/{pod.name}"
    for name in pod.containers:
        yield f"  - name: {_name(name)}", f"podslice run {key} -c {name} -- COMMAND"


def _amount(text: str) -> str:
    return text if _PLAIN_AMOUNT.fullmatch(text) else json.dumps(text)


def _name(text: str) -> str:
    is_plain = _PLAIN_NAME.fullmatch(text) and text not in _NOT_PLAIN
    return text if is_plain else json.dumps(text)
