"""A new pod as a manifest with a comment on each field. Pure: values in, lines out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from podslice.cli.host import load_node
from podslice.errors import Problem
from podslice.features.importing.policy import ProposedAmounts, StatedAmount, at_least, at_most
from podslice.inputs.manifest.load import read_manifest
from podslice.model.config import Config
from podslice.model.desired import PodDecision
from podslice.model.properties import CPU_WEIGHT, annotation_key
from podslice.model.quantity import format_milli, parse_quantity
from podslice.model.resources import CPU, MEMORY
from podslice.policy.convert import NOT_RESERVED, share_request_milli
from podslice.policy.decide import decide

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

_NOT_SET_IN_POD = {
    **_NOT_SET,
    ("limits", CPU): "it may use all CPUs that the pod may use",
    ("limits", MEMORY): "it may use all memory that the pod may use",
}
"""As `_NOT_SET`, for a container."""

Row = tuple[str, str]
"""A line of YAML and its comment; a comment without YAML has a line for itself."""


class NewContainer(NamedTuple):
    """A container of a new pod."""

    name: str
    requests: Mapping[str, StatedAmount] = {}
    """By resource: `cpu` and `memory`."""
    limits: Mapping[str, StatedAmount] = {}
    annotations: Mapping[str, StatedAmount] = {}
    """What annotations state about it, by their names: `cpu-weight`."""
    origin: str = ""
    """The unit or container that it is imported from."""
    remarks: tuple[str, ...] = ()
    """Comments on what the manifest does not have."""


class NewPod(NamedTuple):
    """A pod as it was requested, before it is validated."""

    name: str
    containers: tuple[NewContainer, ...]
    namespace: str | None = None
    requests: Mapping[str, StatedAmount] = {}
    limits: Mapping[str, StatedAmount] = {}
    annotations: Mapping[str, StatedAmount] = {}
    """What annotations state about the pod, by their names."""
    remarks: tuple[str, ...] = ()

    @property
    def all_annotations(self) -> Mapping[str, StatedAmount]:
        """Return the annotations of the pod and its containers, as the manifest has them."""
        found = {annotation_key(name): each for name, each in self.annotations.items()}
        for container in self.containers:
            for name, each in container.annotations.items():
                found[annotation_key(name, container.name)] = each
        return found

    @property
    def key(self) -> str:
        """Return the pod as commands take it."""
        return self.name if self.namespace is None else f"{self.namespace}/{self.name}"


def with_proposals(pod: NewPod, proposed: ProposedAmounts) -> NewPod:
    """Return the pod with proposals where it states nothing, and nothing contradicts them."""
    requests = {
        CPU: at_most(proposed.cpu, pod.limits.get(CPU)),
        MEMORY: at_most(proposed.memory, pod.limits.get(MEMORY)),
    }
    limits = {MEMORY: at_least(proposed.memory_limit, pod.requests.get(MEMORY))}
    return pod._replace(
        requests={name: amount for name, amount in requests.items() if amount} | dict(pod.requests),
        limits={name: amount for name, amount in limits.items() if amount} | dict(pod.limits),
    )


def with_requests(pod: NewPod, *, reserve: bool) -> NewPod:
    """Return the pod with a request beside each limit, which would count as the request otherwise.

    Args:
        pod: a pod whose amounts are valid.
        reserve: whether the limits are the requests. Without it, memory has a request of 0, and CPUs
            one for the weight of a unit without a setting.
    """
    requests = dict(pod.requests)
    for name, limit in pod.limits.items():
        if name in requests:
            continue
        if reserve:
            requests[name] = StatedAmount(text=limit.text, source="the limit, which is reserved")
        elif name == CPU:
            milli = share_request_milli(parse_quantity(limit.text).milli)
            requests[name] = StatedAmount(text=format_milli(milli), source=NOT_RESERVED)
        else:
            requests[name] = StatedAmount(text="0", source=NOT_RESERVED)
    return pod._replace(requests=requests)


def make_document(pod: NewPod) -> dict[str, object]:
    """Return the manifest as values; `format_lines` has the same as text."""
    metadata: dict[str, object] = {"name": pod.name}
    if pod.namespace is not None:
        metadata["namespace"] = pod.namespace
    if pod.all_annotations:
        metadata["annotations"] = {key: each.text for key, each in pod.all_annotations.items()}
    spec = _make_resources(pod)
    spec["containers"] = [
        {"name": container.name, **_make_resources(container)} for container in pod.containers
    ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _make_resources(level: NewPod | NewContainer) -> dict[str, object]:
    """Return the field `resources`, if there is anything in it."""
    resources = {
        part: {name: amount.text for name, amount in amounts.items()}
        for part, amounts in _parts(level).items()
        if amounts
    }
    return {"resources": resources} if resources else {}


def _parts(level: NewPod | NewContainer) -> dict[str, Mapping[str, StatedAmount]]:
    return {"requests": level.requests, "limits": level.limits}


def format_lines(pod: NewPod, origin: str = "") -> Iterator[str]:
    """Yield the lines of the manifest; `origin` is a sentence about where its values are from."""
    rows = [*_head(pod), *_pod_resources(pod), *_containers(pod)]
    column = min(max(len(text) for text, _ in rows) + 2, _COLUMN_MAX)
    yield "# Show what each value becomes: podslice explain -f FILE; start the pod: podslice apply -f FILE"
    if origin:
        yield f"# {origin}"
    for text, comment in rows:
        indented = not text.strip()
        yield f"{text}# {comment}" if indented else f"{text.ljust(column - 2)}  # {comment}"


def _head(pod: NewPod) -> Iterator[Row]:
    yield "apiVersion: v1", "the format is that of Kubernetes"
    yield "kind: Pod", "processes with a common budget"
    yield "metadata:", "identifies the pod"
    yield f"  name: {_name(pod.name)}", "a pod with another name is another pod"
    if pod.namespace is not None:
        yield f"  namespace: {_name(pod.namespace)}", "the names of its pods are unique"
    if pod.all_annotations:
        yield "  annotations:", "what Kubernetes has no field for, of the pod and its containers"
        for key, each in pod.all_annotations.items():
            yield f"    {key}: {json.dumps(each.text)}", each.source


def _pod_resources(pod: NewPod) -> Iterator[Row]:
    yield "spec:", "what the pod consists of"
    if pod.requests or pod.limits:
        yield "  resources:", "the budget that all containers share"
        yield from _resources(pod, "    ", _NOT_SET)
    elif not any(each.requests or each.limits for each in pod.containers):
        yield "  ", "No resources: the pod may use what is idle, and is the first to be evicted."
    for remark in pod.remarks:
        yield "  ", remark


def _resources(
    level: NewPod | NewContainer, indent: str, not_set: Mapping[tuple[str, str], str]
) -> Iterator[Row]:
    """Yield the requests and limits of the pod level or a container."""
    comments = {"requests": "kept for the pod while the host is busy", "limits": "never exceeded"}
    for part, amounts in _parts(level).items():
        missing = [name for name in (CPU, MEMORY) if name not in amounts]
        if amounts:
            yield f"{indent}{part}:", comments[part]
        for name in (each for each in (CPU, MEMORY) if each in amounts):
            amount = amounts[name]
            meaning = _MEANING[part, name]
            why = f"{meaning}; {amount.source}" if amount.source else meaning
            if part == "requests" and name == CPU and CPU_WEIGHT in level.annotations:
                why = f"counted when pods are admitted; {amount.source}"
            is_plain = _PLAIN_AMOUNT.fullmatch(amount.text)
            yield f"{indent}  {name}: {amount.text if is_plain else json.dumps(amount.text)}", why
        for name in missing:
            why = _explain_missing(part, name, level, not_set)
            at = f"{indent}  " if amounts else indent
            yield at, f"no {name} {part.removesuffix('s')}: {why}"


def _explain_missing(
    part: str, name: str, level: NewPod | NewContainer, not_set: Mapping[tuple[str, str], str]
) -> str:
    if isinstance(level, NewPod) and _is_sum_of_containers(part, name, level):
        return f"the sum of its containers' {part} applies"
    if part == "requests" and name in level.limits:
        return f"the limit, {level.limits[name].text}, counts as the request"
    if part == "requests" and name == CPU and CPU_WEIGHT in level.annotations:
        return f"{annotation_key(CPU_WEIGHT)} states its share when CPUs are scarce"
    return not_set[part, name]


def _is_sum_of_containers(part: str, name: str, pod: NewPod) -> bool:
    """Return whether the containers determine an amount that the pod level does not state."""
    if part == "limits":
        return all(name in each.limits for each in pod.containers)
    return any(name in each.requests or name in each.limits for each in pod.containers)


def _containers(pod: NewPod) -> Iterator[Row]:
    yield "  containers:", "groups of processes in the pod"
    for container in pod.containers:
        command = f"podslice run {pod.key} -c {container.name} -- COMMAND"
        yield f"  - name: {_name(container.name)}", container.origin or command
        if container.requests or container.limits:
            yield "    resources:", "its part of the budget"
            yield from _resources(container, "      ", _NOT_SET_IN_POD)
        for remark in container.remarks:
            yield "    ", remark


def _name(text: str) -> str:
    is_plain = _PLAIN_NAME.fullmatch(text) and text not in _NOT_PLAIN
    return text if is_plain else json.dumps(text)


def decide_draft(pod: NewPod, config: Config) -> tuple[list[PodDecision], list[Problem]]:
    """Return the decision about a pod as the manifest would have it, and all problems."""
    loaded = read_manifest(make_document(pod), "")
    node = load_node(config, lenient=True)
    decisions = [decide(each, node, config) for each in loaded.pods]
    of_pods = (found for each in decisions for found in each.problems)
    return decisions, list(dict.fromkeys((*loaded.problems, *of_pods)))
