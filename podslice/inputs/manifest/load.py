"""Manifests → pods, and pods → manifests.

A manifest with errors gives a pod with its valid fields and its problems; anything that is not a pod
gives a problem only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from podslice.errors import InputError, Problem, Severity
from podslice.inputs.budget import Budget, BudgetItem, Exhausted
from podslice.inputs.manifest.collect import Collector, Extent, StatedData, StatedWorkload
from podslice.inputs.manifest.parse import Document, read_documents
from podslice.inputs.source import STDIN_NAME, read_sources
from podslice.model.config import Validate
from podslice.model.pod import DEFAULT_GRACE_SEC, Container, ContainerKind, MemoryVolume, Pod
from podslice.model.properties import format_annotations
from podslice.model.resources import MEMORY, Amounts, Resources, format_amount

_COMPOSE = "compose project"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPods:
    """The pods of files, directories or standard input."""

    pods: tuple[Pod, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Problems that do not belong to a pod."""
    ignored: tuple[str, ...] = ()
    """What was found that has no pod: the kinds of objects, and compose projects."""
    has_workload: bool = False
    """Whether there is an object that holds pods, even if their number is 0."""
    documents: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    """Address of a document → its value; empty unless they were to be kept."""
    workloads: Mapping[tuple[str, str], StatedWorkload] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Address of a document and path of a spec → what it states for containers, if it was read."""
    data: tuple[StatedData, ...] = field(default=(), compare=False, repr=False)
    """ConfigMaps and Secrets, if they were read."""

    @property
    def all_problems(self) -> tuple[Problem, ...]:
        """Return every problem once, those of the pods included."""
        if not self.problems and not any(pod.problems for pod in self.pods):
            return ()
        # replicas share the tuple of their template
        different = {id(pod.problems): pod.problems for pod in self.pods}.values()
        of_pods = (problem for problems in different for problem in problems)
        return tuple(dict.fromkeys((*self.problems, *of_pods)))


def load_pods(
    sources: Sequence[str],
    *,
    namespace: str | None = None,
    stdin: Callable[[], bytes],
    validate: Validate | None = Validate.STRICT,
    budget: Budget | None = None,
    extent: Extent = Extent.PODS,
) -> LoadedPods:
    """Read the pods of files, directories and standard input.

    Args:
        sources: as `kubectl -f`: a file, a directory (not what lies below it), or `-`.
        namespace: for manifests that do not state one; to state another one is an error.
        stdin: reads standard input to its end, or raises `OSError` or `ValueError`.
        validate: what an unknown field is; None if an API server has checked fields, versions and texts.
        budget: the budget for all of them together.
        extent: what is read besides the pods.
    """
    collector = Collector(
        namespace=namespace,
        validate=validate,
        budget=Budget() if budget is None else budget,
        extent=extent,
    )
    name = ""
    try:
        for source in read_sources(tuple(sources), stdin, collector.budget):
            name = source.name
            if source.exhausted is not None:
                return _exceeded(collector, source.exhausted, name)
            if source.problem is not None:
                collector.add_problem(source.problem)
            else:
                _collect(collector, source.data, name, is_named=source.named)
        collector.create_pods()
    except Exhausted as error:
        return _exceeded(collector, error, name)
    return _loaded(collector)


def load_text(
    data: bytes,
    name: str,
    budget: Budget,
    *,
    validate: Validate | None = Validate.STRICT,
    extent: Extent = Extent.PODS,
) -> LoadedPods:
    """Read the pods of one file from its bytes; a file without a manifest is an error.

    The other arguments are as in `load_pods`.

    Raises:
        Exhausted: the file exceeds the budget.
    """
    collector = Collector(
        namespace=None,
        validate=validate,
        budget=budget,
        extent=extent,
    )
    _collect(collector, data, name, is_named=True)
    collector.create_pods()
    return _loaded(collector)


def _collect(collector: Collector, data: bytes, name: str, *, is_named: bool) -> None:
    """Collect the pods of a file; one that a directory has beside manifests need not have any."""
    documents = _numbered(read_documents(data, name, collector.budget), name)
    is_empty = True
    try:
        for document, where in documents:
            is_empty = False
            if _is_compose(document.value):
                file = "FILE" if name == STDIN_NAME else name
                problem = Problem(
                    where=where,
                    message=f"this is a {_COMPOSE}",
                    hint=f"use podslice compose -f {file}",
                    severity=Severity.ERROR if is_named else Severity.WARNING,
                )
                collector.add_problem(problem)
                collector.ignored.append(_COMPOSE)
            else:
                collector.add_document(document, where, name)
            if collector.extent is Extent.DOCUMENTS:
                collector.documents[where] = document.value
    except InputError as error:
        for problem in error.problems:
            collector.add_problem(problem.within(name))
    else:
        if is_empty and is_named:
            collector.add_error(name, "there is no manifest in it")


def _is_compose(value: object) -> bool:
    """Return whether a document is a compose project.

    Source: compose-spec, schema/compose-spec.json: `services` and `include` at the top.
    """
    if not isinstance(value, dict) or "kind" in value or "apiVersion" in value:
        return False
    return isinstance(value.get("services"), dict) or isinstance(value.get("include"), list)


def _numbered(documents: Iterable[Document], name: str) -> Iterator[tuple[Document, str]]:
    """Yield each document with its address, which has a number if the file has several.

    Raises:
        InputError, Exhausted: as `read_documents`, after all earlier documents.
    """
    first: Document | None = None
    count = 0
    for document in documents:
        count += 1
        if count == 1:
            first = document
            continue
        if first is not None:
            yield first, f"{name}[0]"
            first = None
        yield document, f"{name}[{count - 1}]"
    if first is not None:
        yield first, name


def _loaded(collector: Collector) -> LoadedPods:
    return LoadedPods(
        pods=tuple(collector.pods),
        problems=tuple(dict.fromkeys(collector.problems)),
        ignored=tuple(collector.ignored),
        has_workload=collector.has_workload,
        documents=collector.documents,
        workloads=collector.workloads,
        data=tuple(collector.data),
    )


def _exceeded(collector: Collector, error: Exhausted, name: str) -> LoadedPods:
    """Return no pods; if there are too many problems, return these."""
    problems = [error.at(name)]
    if error.item is BudgetItem.PROBLEMS:
        problems = [*dict.fromkeys(collector.all_problems()), *problems]
    return LoadedPods(problems=tuple(problems))


def parse_manifest(document: object, where: str) -> Pod:
    """Read the result of `format_manifest`.

    Raises:
        InputError: it is not a valid pod.
    """
    loaded = read_manifest(document, where, validate=None)
    found = LoadedPods(pods=loaded.pods).all_problems
    errors = [each for each in found if each.severity is Severity.ERROR]
    if errors or len(loaded.pods) != 1:
        none = Problem(where=where, message="there is not exactly one pod in it")
        raise InputError((*errors, *loaded.problems) or none)
    return loaded.pods[0]


def read_manifest(
    document: object, where: str, *, validate: Validate | None = Validate.STRICT
) -> LoadedPods:
    """Read the pods of a document of plain values, with their problems.

    `validate` is as in `load_pods`.

    Raises:
        InputError: the document exceeds the budget.
    """
    collector = Collector(namespace=None, validate=validate)
    try:
        collector.add_document(Document(value=document), where)
        collector.create_pods()
    except Exhausted as error:
        raise InputError(error.at(where)) from error
    return _loaded(collector)


def format_manifest(pod: Pod) -> dict[str, object]:
    """Return the pod as a manifest, from which `parse_manifest` reads the same pod."""
    spec: dict[str, object] = {
        "containers": [_format_container(c) for c in pod.of_kind(ContainerKind.APP)]
    }
    before = pod.of_kind(ContainerKind.INIT, ContainerKind.SIDECAR)
    if before:
        spec["initContainers"] = [_format_container(c) for c in before]
    if pod.resources or pod.has_empty_level:
        spec["resources"] = _format_resources(pod.resources)
    if pod.overhead:
        spec["overhead"] = _format_amounts(pod.overhead)
    if pod.priority:
        spec["priority"] = pod.priority
    if pod.grace_period_sec != DEFAULT_GRACE_SEC:
        spec["terminationGracePeriodSeconds"] = pod.grace_period_sec
    if pod.volumes:
        spec["volumes"] = [_format_volume(volume) for volume in pod.volumes]
    metadata: dict[str, object] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    annotations = format_annotations(pod.properties)
    for container in pod.containers:
        annotations |= format_annotations(container.properties, container.name)
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _format_container(container: Container) -> dict[str, object]:
    fields: dict[str, object] = {"name": container.name}
    if container.kind is ContainerKind.SIDECAR:
        fields["restartPolicy"] = "Always"
    if container.resources:
        fields["resources"] = _format_resources(container.resources)
    return fields


def _format_volume(volume: MemoryVolume) -> dict[str, object]:
    empty_dir = {"medium": "Memory"}
    if volume.size_bytes is not None:
        empty_dir["sizeLimit"] = format_amount(MEMORY, volume.size_bytes * 1000)
    return {"name": volume.name, "emptyDir": empty_dir}


def _format_resources(resources: Resources) -> dict[str, dict[str, str]]:
    parts = {"requests": resources.requests, "limits": resources.limits}
    return {name: _format_amounts(amounts) for name, amounts in parts.items() if amounts}


def _format_amounts(amounts: Amounts) -> dict[str, str]:
    return {name: format_amount(name, milli) for name, milli in amounts.items()}
