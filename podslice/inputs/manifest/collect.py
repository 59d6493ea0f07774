"""Documents → pods: takes kinds, lists and templates apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from podslice.errors import Problem, Severity
from podslice.inputs.budget import Budget, BudgetItem
from podslice.inputs.fields import OBJECT, find_slips, nearest, unknown_fields
from podslice.inputs.limits import LISTS_MAX, REPLICAS_MAX
from podslice.inputs.manifest.kinds import PASSED_OVER, WORKLOADS, Workload, is_foreign
from podslice.inputs.manifest.names import SUBDOMAIN_MAX, check_subdomain, is_uid, keep
from podslice.inputs.manifest.parse import to_problem
from podslice.inputs.manifest.podspec import Template, read_metadata, read_spec
from podslice.inputs.manifest.problems import Notes
from podslice.inputs.manifest.schema import Metadata
from podslice.inputs.manifest.yaml_builder import Document
from podslice.inputs.readers import Wrong, read_int
from podslice.inputs.scalars import describe, extend_path, shown
from podslice.model.pod import Pod, default_uid
from podslice.pausable import Steps, paced

_PODS_PER_STEP = 100
"""Replicas that are made between two pauses: a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """Pods that are to be made of one object."""

    names: tuple[str, ...]
    namespace: str
    uid: str | None
    template: Template
    where: str
    path: str
    problems: tuple[Problem, ...]

    def pod(self, name: str) -> Pod:
        """Return one of them."""
        template = self.template
        return Pod(
            name=name,
            namespace=self.namespace,
            uid=self.uid or default_uid(self.namespace, name),
            containers=template.containers,
            resources=template.resources,
            overhead=template.overhead,
            priority=template.priority,
            grace_period_sec=template.grace_period_sec,
            volumes=template.volumes,
            where=self.where,
            spec_where=template.where,
            problems=self.problems,
        )


@dataclass(slots=True)
class Collector:
    """Takes documents apart into pods, and sees to it that no two are the same."""

    namespace: str | None
    budget: Budget = field(default_factory=Budget)
    pods: list[Pod] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    _drafts: list[_Draft] = field(default_factory=list)
    _first: dict[str, str] = field(default_factory=dict)
    """Name or uid of a pod → where it stands first."""

    def add_document(self, document: Document, where: str, file: str = "") -> Steps[None]:
        """Take every pod of a document; what is wrong with its text is wrong with all of them.

        Raises:
            Exhausted: there are more pods, containers, volumes or problems than may be read.
        """
        before = len(self._drafts)
        notes = Notes(where, [to_problem(complaint, file) for complaint in document.complaints])
        self.budget.charge(BudgetItem.PROBLEMS, len(notes.problems))
        yield from self._add(document.value, notes, "", depth=0)
        if len(self._drafts) == before:
            self.problems += notes.problems

    def add_problem(self, problem: Problem) -> None:
        """Note a problem that belongs to no pod.

        Raises:
            Exhausted: there are too many.
        """
        self.budget.charge(BudgetItem.PROBLEMS)
        self.problems.append(problem)

    def complain(self, where: str, message: str, hint: str = "") -> None:
        """Note an error that belongs to no pod."""
        self.add_problem(Problem(where=where, message=message, hint=hint))

    def _add(self, value: object, notes: Notes, path: str, *, depth: int) -> Steps[None]:
        """Take an object, which may be a list of objects."""
        if not isinstance(value, dict):
            message = f"a manifest has to be a mapping, is {describe(value)}"
            self.complain(notes.at(path), message, "it begins with apiVersion, kind and metadata")
            return
        kind = value.get("kind")
        if isinstance(kind, str) and kind in WORKLOADS:
            self._add_workload(value, WORKLOADS[kind], notes, path)
        elif kind == "List" or (str(kind).endswith("List") and "items" in value):
            yield from self._add_list(value, notes, path, depth=depth + 1)
        else:
            self._pass_over(value, kind, notes, path)

    def _add_list(
        self, value: Mapping[str, object], notes: Notes, path: str, *, depth: int
    ) -> Steps[None]:
        items = value.get("items")
        where = extend_path(path, "items")
        if depth > LISTS_MAX:
            self.complain(notes.at(path), f"there are more than {LISTS_MAX} lists in one another")
        elif isinstance(items, list):
            kind = str(value["kind"]).removesuffix("List")
            for index, item in enumerate(items):
                if isinstance(item, dict) and kind and item.get("kind") is None:
                    item = {**item, "kind": kind}  # noqa: PLW2901 (a typed list leaves it out)
                yield from self._add(item, notes, extend_path(where, index), depth=depth)
                yield
        elif items is not None:
            self.complain(notes.at(where), f"has to be a list, is {describe(items)}")

    def _pass_over(
        self, value: Mapping[str, object], kind: object, notes: Notes, path: str
    ) -> None:
        """Say that an object has no pod, which is an error where a pod was probably meant."""
        at = notes.at(extend_path(path, "kind"))
        if kind is None:
            hint = "add 'kind: Pod'" if "spec" in value else "it begins with apiVersion and kind"
            self.complain(at, "a manifest has to say what it is", hint)
            unknown = unknown_fields(OBJECT, value)
            for slip in find_slips(OBJECT, value, unknown, notes.where, path):
                self.add_problem(slip)
        elif not isinstance(kind, str):
            self.complain(at, f"has to be a text, is {describe(kind)}")
        elif kind in PASSED_OVER or is_foreign(value.get("apiVersion")):
            message = f"an object of kind {shown(kind)} has no pod in it and was passed over"
            self.add_problem(Problem(where=at, message=message, severity=Severity.WARNING))
        else:
            right = nearest(kind, WORKLOADS)
            hint = f"write {right}" if right else f"podslice reads {', '.join(WORKLOADS)} and List"
            self.complain(at, f"{shown(kind)} is no kind that podslice reads", hint)

    def _add_workload(
        self, value: Mapping[str, Any], workload: Workload, shared: Notes, path: str
    ) -> None:
        notes = Notes(shared.where, list(shared.problems))
        notes.slips(OBJECT, value, path)
        at = extend_path(path, "metadata")
        metadata = read_metadata(value.get("metadata"), notes, at)
        namespace = self._choose_namespace(metadata, notes, at)
        template = _read_template(value, workload, notes, path)
        count = _read_count(value, workload, notes, path) if workload.count else None
        self._charge(template, 1 if count is None else count)
        names = _name_pods(metadata, count, notes, at)
        uid = metadata.uid if not workload.template and is_uid(metadata.uid) else None
        problems = notes.told()
        self.budget.charge(BudgetItem.PROBLEMS, len(problems) - len(shared.problems))
        if not names:
            self.problems += problems
        self._drafts.append(
            _Draft(
                names=names,
                namespace=namespace,
                uid=uid,
                template=template,
                where=notes.where,
                path=path,
                problems=problems,
            )
        )

    def found(self) -> Iterator[Problem]:
        """Yield the problems that were found before any pod was made."""
        yield from self.problems
        for draft in self._drafts:
            yield from draft.problems

    def make_pods(self) -> Steps[None]:
        """Make the pods of all documents, once it is known that there are not too many.

        Raises:
            Exhausted: there are too many problems.
        """
        drafts, self._drafts = self._drafts, []
        for draft in drafts:
            for name in paced(draft.names, _PODS_PER_STEP):
                if name is None:
                    yield
                else:
                    self._keep(draft.pod(name), draft.path)
            yield

    def _charge(self, template: Template, pods: int) -> None:
        """Take what the pods of a template are before they are made."""
        self.budget.charge(BudgetItem.PODS, pods)
        self.budget.charge(BudgetItem.CONTAINERS, pods * len(template.containers))
        self.budget.charge(BudgetItem.VOLUMES, pods * len(template.volumes))

    def _choose_namespace(self, metadata: Metadata, notes: Notes, path: str) -> str:
        """The manifest's own, or the one that was asked for.

        Source: kubectl, "the namespace from the provided object does not match the namespace".
        """
        stated, asked = metadata.namespace, self.namespace
        if stated and asked and stated != asked:
            message = f"the namespace {shown(stated)} is not {shown(asked)}, which was asked for"
            notes.error(f"{path}.namespace", message, "leave out one of the two")
        return keep(stated or asked or "default")

    def _keep(self, pod: Pod, path: str) -> None:
        """Take a pod; one that is there already is an error of the later one."""
        where = f"{pod.where}: {path}" if path else pod.where
        for what, key in (("name", pod.key), ("uid", pod.uid)):
            first = self._first.setdefault(key, where) if pod.name else where
            if first is not where:
                at = extend_path(path, "metadata", what)
                problem = Problem(
                    where=f"{pod.where}: {at}",
                    message=f"the {what} {shown(key)} is the one of a pod in {first} already",
                    hint="remove one of the two",
                )
                self.budget.charge(BudgetItem.PROBLEMS)
                pod = replace(pod, problems=(*pod.problems, problem))
                break
        self.pods.append(pod)


def _read_template(
    value: Mapping[str, Any], workload: Workload, notes: Notes, path: str
) -> Template:
    """The pod template of a workload, read as far as there is one."""
    holder: Any = value
    for step in workload.template:
        path = extend_path(path, step)
        holder = holder.get(step)
        if not isinstance(holder, dict):
            hint = f"the pod of this kind stands under {'.'.join(workload.template)}"
            notes.error(path, f"has to be a mapping, is {describe(holder)}", hint)
            return Template(where=extend_path(path, "spec"))
    return read_spec(holder.get("spec"), notes, extend_path(path, "spec"))


def _read_count(value: Mapping[str, Any], workload: Workload, notes: Notes, path: str) -> int:
    """How many pods a workload has; 1 where it does not say, or says nonsense."""
    spec = value.get("spec")
    stated = spec.get(workload.count) if isinstance(spec, dict) else None
    if stated is None:
        return 1
    at = extend_path(path, "spec", workload.count)
    try:
        count = read_int(stated)
    except Wrong as error:
        notes.error(at, error.message, error.hint)
        return 1
    if 0 <= count <= REPLICAS_MAX:
        return count
    notes.error(at, f"{count} is not possible", f"one node takes 0 to {REPLICAS_MAX}")
    return 1


def _name_pods(metadata: Metadata, count: int | None, notes: Notes, path: str) -> tuple[str, ...]:
    """The names of an object's pods: its own, or its own with a number each."""
    name, at = metadata.name, extend_path(path, "name")
    if name is None:
        if metadata.generate_name is not None:
            notes.error(at, "a name is needed; 'generateName' is for an API server", "state a name")
        elif not notes.has_error(at, path):
            notes.error(at, "a name is needed")
        return ("",)
    notes.mistake(at, check_subdomain(name, "pod"))
    base = keep(name)
    names = (base,) if count is None else tuple(f"{base}-{n}" for n in range(count))
    if len(name) <= SUBDOMAIN_MAX < len(names[-1] if names else ""):
        notes.error(at, f"{shown(names[-1])} has more than {SUBDOMAIN_MAX} characters")
    return names
