"""Manifests → pods, and pods → manifests.

A manifest with errors gives a pod with its valid fields and its problems; anything that is not a pod
gives a problem only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple

from podslice.errors import InputError, Problem, Severity, quote, warning
from podslice.inputs.budget import (
    LISTS_MAX,
    POD_AMOUNTS_MAX,
    REPLICAS_MAX,
    UNKNOWN_FIELDS_MAX,
    Budget,
    BudgetItem,
    Exhausted,
)
from podslice.inputs.manifest.fields import (
    API_VERSIONS,
    DATA_KINDS,
    IGNORED_KINDS,
    LIST,
    WORKLOADS,
    Workload,
    type_of,
)
from podslice.inputs.manifest.parse import Document, read_documents
from podslice.inputs.manifest.podspec import (
    has_too_many_amounts,
    make_pod,
    read_annotations,
    read_metadata,
    to_stored,
)
from podslice.inputs.manifest.reading import Fields, Problems, Reading, read, unstated
from podslice.inputs.manifest.unknown_fields import check_fields
from podslice.inputs.scalars import describe, extend_path, nearest, read_int
from podslice.inputs.source import STDIN_NAME, read_sources
from podslice.model.config import Validate
from podslice.model.grammar import SUBDOMAIN_MAX, check_subdomain
from podslice.model.naming import is_reserved
from podslice.model.pod import (
    DEFAULT_GRACE_SEC,
    Container,
    ContainerKind,
    MemoryVolume,
    Pod,
    default_uid,
    is_uid,
)
from podslice.model.properties import PREFIX, format_annotations
from podslice.model.resources import MEMORY, Amounts, Resources, format_amount

_COMPOSE = "compose project"
_OF_QUADLETS = "only apply --start and render --format quadlet use them"
_NAMES_MAX = 100
"""Fields of an object without a kind that are compared with `kind`."""


class Extent(StrEnum):
    """What is read of manifests."""

    PODS = "pods"
    DOCUMENTS = "documents"
    """Pods; the documents are kept."""
    WORKLOADS = "workloads"
    """Pods, and whatever their containers need."""


class StatedWorkload(NamedTuple):
    """What an object states of its pods besides their resources."""

    spec: Reading
    """The `spec` of the pods."""
    owner: Reading | None
    """The `spec` of the object with their template; None if it has no other."""
    owner_path: str
    metadata: Mapping[str, Any]
    """The mapping with the labels and annotations of the pods, as it is stated."""

    @property
    def owner_fields(self) -> Fields:
        """Return the fields of the owner; none where there is no owner."""
        return self.owner.fields if self.owner else {}


class StatedData(NamedTuple):
    """A ConfigMap, a Secret or a Service."""

    kind: str
    where: str
    path: str
    metadata: Mapping[str, Any]
    data: Reading


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
    """ConfigMaps, Secrets and Services, if they were read."""

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
    collector = _Collector(namespace, budget or Budget(), validate, extent)
    name = ""
    try:
        for source in read_sources(tuple(sources), stdin, collector.budget):
            name = source.name
            if source.exhausted is not None:
                raise source.exhausted
            if source.problem is not None:
                collector.add_problem(source.problem)
            else:
                collector.add_text(source.data, name, is_named=source.named)
        return collector.create_pods()
    except Exhausted as error:
        found = collector.all_problems() if error.item is BudgetItem.PROBLEMS else ()
        return LoadedPods(problems=(*dict.fromkeys(found), error.at(name)))


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
    collector = _Collector(None, budget, validate, extent)
    collector.add_text(data, name, is_named=True)
    return collector.create_pods()


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
    collector = _Collector(None, Budget(), validate)
    try:
        collector.add_document(Document(value=document), where)
        return collector.create_pods()
    except Exhausted as error:
        raise InputError(error.at(where)) from error


class _Draft(NamedTuple):
    """The pods of one object, before they are created."""

    names: tuple[str, ...]
    uid: str | None
    """The stated uid."""
    pod: Pod
    """The pod as its `spec` states it."""
    more: dict[str, Any]
    """Other fields of the pod."""
    path: str
    """The path of the object in its document."""


@dataclass(slots=True)
class _Collector:
    """The pods of documents, with unique names and uids."""

    namespace: str | None
    budget: Budget
    validate: Validate | None
    extent: Extent = Extent.PODS
    # the other fields are as in LoadedPods
    pods: list[Pod] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    has_workload: bool = False
    documents: dict[str, object] = field(default_factory=dict)
    workloads: dict[tuple[str, str], StatedWorkload] = field(default_factory=dict)
    data: list[StatedData] = field(default_factory=list)
    _drafts: list[_Draft] = field(default_factory=list)
    _first: dict[str, str] = field(default_factory=dict)
    """Name or uid of a pod → the address of the first pod with it."""

    def add_text(self, data: bytes, name: str, *, is_named: bool) -> None:
        """Collect the pods of a file; one that a directory has beside manifests need not have any."""
        is_empty = True
        try:
            for document, where in _numbered(read_documents(data, name, self.budget), name):
                is_empty = False
                if _is_compose(document.value):
                    file = "FILE" if name == STDIN_NAME else name
                    problem = Problem(
                        where=where,
                        message=f"this is a {_COMPOSE}",
                        hint=f"use podslice compose -f {file}",
                        severity=Severity.ERROR if is_named else Severity.WARNING,
                    )
                    self.add_problem(problem)
                    self.ignored.append(_COMPOSE)
                else:
                    self.add_document(document, where, name)
                if self.extent is Extent.DOCUMENTS:
                    self.documents[where] = document.value
        except InputError as error:
            for problem in error.problems:
                self.add_problem(problem.within(name))
        else:
            if is_empty and is_named:
                self.add_error(name, "there is no manifest in it")

    def add_document(self, document: Document, where: str, file: str = "") -> None:
        """Collect the pods of a document; all of them get the problems of its text.

        Raises:
            Exhausted: the pods, containers, volumes or problems exceed the budget.
        """
        before = len(self._drafts)
        found = [each.within(file) for each in document.problems]
        found += [each.within(where) for each in document.invalid_texts]
        problems = Problems(where, found, self.validate or Validate.STRICT)
        self.budget.charge(BudgetItem.PROBLEMS, len(problems.found))
        self._add(document.value, problems, "", depth=0)
        if len(self._drafts) == before:
            self.problems += problems.found

    def add_problem(self, problem: Problem) -> None:
        """Add a problem that does not belong to a pod.

        Raises:
            Exhausted: there are too many.
        """
        self.budget.charge(BudgetItem.PROBLEMS)
        self.problems.append(problem)

    def add_error(self, where: str, message: str, hint: str = "") -> None:
        """Add an error that does not belong to a pod."""
        self.add_problem(Problem(where=where, message=message, hint=hint))

    def _add(self, value: object, problems: Problems, path: str, *, depth: int) -> None:
        """Collect the pods of an object, which may be a list of objects."""
        if not isinstance(value, dict):
            message = f"a manifest must be a mapping, not {describe(value)}"
            hint = "it begins with apiVersion, kind and metadata"
            self.add_error(problems.at(path), message, hint)
            return
        kind = value.get("kind")
        of_object = Problems(problems.where, validate=problems.validate)
        if isinstance(kind, str) and self.validate is not None:
            _check_object(value, kind, of_object, path)
        if isinstance(kind, str) and kind in WORKLOADS:
            # The problems of the text come first: these have been charged already.
            of_object.found[:0] = problems.found
            self._add_workload(value, WORKLOADS[kind], of_object, path, len(problems.found))
            return
        for each in of_object.bounded():
            self.add_problem(each)
        if kind == LIST or (str(kind).endswith(LIST) and "items" in value):
            self._add_list(value, problems, path, depth=depth + 1)
        else:
            self._ignore(value, kind, problems, path)

    def _add_list(
        self, value: Mapping[str, object], problems: Problems, path: str, *, depth: int
    ) -> None:
        items = value.get("items")
        where = extend_path(path, "items")
        if depth > LISTS_MAX:
            self.add_error(problems.at(path), f"lists are nested more than {LISTS_MAX} levels deep")
        elif isinstance(items, list):
            kind = str(value["kind"]).removesuffix(LIST)
            # a typed list leaves them out
            of_list = {"kind": kind, "apiVersion": value.get("apiVersion")} if kind else {}
            for index, item in enumerate(items):
                if isinstance(item, dict):
                    missing = {name: of_list[name] for name in of_list if item.get(name) is None}
                    item = {**item, **missing} if missing else item  # noqa: PLW2901
                self._add(item, problems, extend_path(where, index), depth=depth)
        elif items is not None:
            self.add_error(problems.at(where), f"must be a list, not {describe(items)}")

    def _ignore(
        self, value: Mapping[str, object], kind: object, problems: Problems, path: str
    ) -> None:
        """Report an object without a pod: an error if a pod was probably meant."""
        at = problems.at(extend_path(path, "kind"))
        if kind is None:
            hint = "add 'kind: Pod'" if "spec" in value else "it begins with apiVersion and kind"
            near = nearest("kind", islice(value, _NAMES_MAX))
            hint = f"write kind, not {quote(near)}" if near else hint
            self.add_error(at, "the kind is missing", hint)
        elif not isinstance(kind, str):
            self.add_error(at, f"must be a string, not {describe(kind)}")
        elif self.extent is Extent.WORKLOADS and kind in DATA_KINDS:
            self.ignored.append(kind)
            stated = value.get("metadata")
            metadata = stated if isinstance(stated, dict) else {}
            data = self._read(kind, value, path)
            self.data.append(StatedData(kind, problems.where, path, metadata, data))
        elif kind in IGNORED_KINDS or _is_foreign(value.get("apiVersion")):
            self.ignored.append(kind)
            hint = _OF_QUADLETS if kind in DATA_KINDS else ""
            message = f"objects of kind {quote(kind)} have no pod and are ignored"
            self.add_problem(warning(at, message, hint))
        else:
            right = nearest(kind, WORKLOADS)
            hint = f"write {right}" if right else f"podslice reads {', '.join(WORKLOADS)} and List"
            self.add_error(at, f"unknown kind {quote(kind)}", hint)

    def _add_workload(
        self,
        value: Mapping[str, Any],
        workload: Workload,
        problems: Problems,
        path: str,
        charged: int,
    ) -> None:
        """Collect the pods of an object, of whose problems the first ones are charged."""
        self.has_workload = True
        at = extend_path(path, "metadata")
        if workload.template and self.validate is not None:
            _check_misplaced(value.get("metadata"), workload, problems, at)
        metadata = read_metadata(value.get("metadata"), problems, at)
        namespace = self._choose_namespace(metadata, problems, at)
        pod = self._read_template(value, workload, problems, path)
        count = _read_count(value, workload, problems, path) if workload.replicas else None
        # charged before the pods are created
        number = 1 if count is None else count
        self.budget.charge(BudgetItem.PODS, number)
        self.budget.charge(BudgetItem.CONTAINERS, number * len(pod.containers))
        self.budget.charge(BudgetItem.VOLUMES, number * len(pod.volumes))
        names = _name_pods(metadata, count, problems, at)
        # The names of replicas begin alike: the first one decides.
        if self.validate is not None and any(
            is_reserved(f"{namespace}/{each}") for each in names[:1]
        ):
            message = f"{quote(names[0])} is reserved for units of podslice"
            problems.error(extend_path(at, "name"), message, "choose another name")
        uid = metadata["uid"] if not workload.template and is_uid(metadata["uid"]) else None
        found = problems.bounded()
        self.budget.charge(BudgetItem.PROBLEMS, len(found) - charged)
        if not names:
            self.problems += found
        stated = {"namespace": namespace, "where": problems.where, "problems": found}
        self._drafts.append(_Draft(names, uid, pod, stated, path))

    def all_problems(self) -> Iterator[Problem]:
        """Yield the problems of all documents, before their pods are created."""
        yield from self.problems
        for draft in self._drafts:
            yield from draft.more["problems"]

    def create_pods(self) -> LoadedPods:
        """Create the pods of all documents, whose number is within the budget.

        Raises:
            Exhausted: there are too many problems.
        """
        drafts, self._drafts = self._drafts, []
        for draft in drafts:
            for name in draft.names:
                uid = draft.uid or default_uid(draft.more["namespace"], name)
                self._add_pod(replace(draft.pod, name=name, uid=uid, **draft.more), draft.path)
        return LoadedPods(
            pods=tuple(self.pods),
            problems=tuple(dict.fromkeys(self.problems)),
            ignored=tuple(self.ignored),
            has_workload=self.has_workload,
            documents=self.documents,
            workloads=self.workloads,
            data=tuple(self.data),
        )

    def _read_template(
        self, value: Mapping[str, Any], workload: Workload, problems: Problems, path: str
    ) -> Pod:
        """Read the pod template of a workload, and the `spec` beside it."""
        holder: Any = value
        at = path
        for step in workload.template:
            at = extend_path(at, step)
            holder = holder.get(step)
            if not isinstance(holder, dict):
                hint = f"the pod of this kind is under {'.'.join(workload.template)}"
                problems.error(at, f"must be a mapping, not {describe(holder)}", hint)
                break
        is_stated = isinstance(holder, dict)
        spec, metadata = (holder.get("spec"), holder.get("metadata")) if is_stated else (None, None)
        at_metadata, at = extend_path(at, "metadata"), extend_path(at, "spec")
        found, pod = Reading(unstated("PodSpec")), Pod(name="", uid="", spec_where=at)
        # Before the spec is read, which parses each of them.
        if has_too_many_amounts(spec):
            message = f"the containers have more than {POD_AMOUNTS_MAX:,} requests and limits"
            problems.error(at, message)
        elif is_stated:
            found = self._read("PodSpec", {} if spec is None else spec, at)
            problems.add("", *found.problems)
            pod = make_pod(found.fields, problems, at)
        owner, at_owner = None, extend_path(path, "spec")
        if workload.template[:1] == ("spec",):
            type_ = type_of(value["kind"]).fields["spec"].type
            owner = self._read(type_, value.get("spec"), at_owner)
        problems.add("", *found.texts, *(owner.texts if owner else ()))
        if self.extent is Extent.WORKLOADS:
            stated = metadata if isinstance(metadata, dict) else {}
            self.workloads[problems.where, at] = StatedWorkload(found, owner, at_owner, stated)
        return read_annotations(metadata, pod, problems, at_metadata)

    def _read(self, type_: str, value: object, path: str) -> Reading:
        checks = self.validate is not None
        return read(type_, value, path, checks=checks, is_whole=self.extent is Extent.WORKLOADS)

    def _choose_namespace(self, metadata: Fields, problems: Problems, path: str) -> str:
        """Return the namespace of the manifest, or else that of the command line.

        Source: kubectl, "the namespace from the provided object does not match the namespace".
        """
        stated, requested = metadata["namespace"], self.namespace
        if stated and requested and stated != requested:
            message = f"the namespace {quote(stated)} is not the requested one, {quote(requested)}"
            problems.error(f"{path}.namespace", message, "leave out one of the two")
        return to_stored(stated or requested or "default")

    def _add_pod(self, pod: Pod, path: str) -> None:
        """Add a pod; if its name or uid is taken, the later pod has the error."""
        where = f"{pod.where}: {path}" if path else pod.where
        for what, key in (("name", pod.key), ("uid", pod.uid)):
            first = self._first.setdefault(key, where) if pod.name else where
            if first is not where:
                at = extend_path(path, "metadata", what)
                problem = Problem(
                    where=f"{pod.where}: {at}",
                    message=f"the {what} {quote(key)} is already used by a pod in {first}",
                    hint="remove one of the two",
                )
                self.budget.charge(BudgetItem.PROBLEMS)
                pod = replace(pod, problems=(*pod.problems, problem))
                break
        self.pods.append(pod)


def _is_foreign(api_version: object) -> bool:
    """Return whether an object belongs to an extension: `cert-manager.io/v1`, not `apps/v1`."""
    group = str(api_version).partition("/")[0] if "/" in str(api_version) else ""
    return "." in group and not group.endswith(".k8s.io")


def _check_object(value: Mapping[str, object], kind: str, problems: Problems, path: str) -> None:
    """Check the version of an object, and the fields of it and of all objects in it."""
    plain = LIST if kind == LIST else kind.removesuffix(LIST)
    right = API_VERSIONS.get(plain)
    if right is None:
        return
    stated, at = value.get("apiVersion"), extend_path(path, "apiVersion")
    if stated is None:
        problems.error(at, "the apiVersion is missing", f"add 'apiVersion: {right}'")
    elif stated != right:
        shown = quote(stated) if isinstance(stated, str) else describe(stated)
        problems.error(at, f"{shown} is not the apiVersion of a {plain}", f"write {right}")
    check_fields(value, LIST if kind.endswith(LIST) else kind, path, problems)


def _check_misplaced(metadata: object, workload: Workload, problems: Problems, path: str) -> None:
    """Report podslice's annotations of the workload itself, which apply to no pod."""
    stated = metadata.get("annotations") if isinstance(metadata, dict) else None
    at = extend_path(path, "annotations")
    right = ".".join((*workload.template, "metadata", "annotations"))
    for key in islice(stated if isinstance(stated, dict) else (), UNKNOWN_FIELDS_MAX):
        if str(key).startswith(PREFIX):
            message = "an annotation for pods has no effect here"
            problems.unknown(extend_path(at, key), message, f"it belongs under {right}")


def _read_count(value: Mapping[str, Any], workload: Workload, problems: Problems, path: str) -> int:
    """Return the number of pods of a workload; 1 if it is not stated or invalid."""
    spec = value.get("spec")
    stated = spec.get(workload.replicas) if isinstance(spec, dict) else None
    if stated is None:
        return 1
    at = extend_path(path, "spec", workload.replicas)
    try:
        count = read_int(stated)
    except InputError as error:
        problems.add(at, *error.problems)
        return 1
    if 0 <= count <= REPLICAS_MAX:
        return count
    problems.error(at, f"{count} is out of range", f"write 0 to {REPLICAS_MAX}")
    return 1


def _name_pods(
    metadata: Fields, count: int | None, problems: Problems, path: str
) -> tuple[str, ...]:
    """Return the names of an object's pods: its own, or for replicas its own with an index."""
    name, at = metadata["name"], extend_path(path, "name")
    if name is None:
        if metadata["generateName"] is not None:
            problems.error(at, "'generateName' is not supported: a name is required", "add a name")
        elif not problems.has_error(at, path):
            problems.error(at, "a name is required")
        return ("",)
    problems.add(at, check_subdomain(name, "pod"))
    base = to_stored(name)
    names = (base,) if count is None else tuple(f"{base}-{n}" for n in range(count))
    if len(name) <= SUBDOMAIN_MAX < len(names[-1] if names else ""):
        problems.error(at, f"{quote(names[-1])} is longer than {SUBDOMAIN_MAX} characters")
    return names


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
