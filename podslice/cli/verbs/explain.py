"""`podslice explain`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from podslice.cli.arguments import DONE, Names, Namespace, Output, code_of, files_option
from podslice.cli.extensions import cpu_stage
from podslice.cli.host import applied_pods, load_node, read_cpus, tolerate
from podslice.cli.manifests import all_problems, decide_all, load_all, named_pods
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note, note_problems
from podslice.cli.pods import pod_filter
from podslice.cli.report import (
    AmountsEntry,
    Problems,
    PropertyEntry,
    amounts_entry,
    document,
    hugetlb_bytes,
    property_entries,
)
from podslice.cli.views import tables
from podslice.errors import Problem, invalid
from podslice.inputs.manifest.load import LoadedPods
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Config
from podslice.model.desired import Desired, PodDecision, Refusal, VolumeDecision
from podslice.model.node import Node
from podslice.model.pod import ContainerKind, Qos
from podslice.model.unit import UnitName
from podslice.policy.allocatable import allocate, validate_node
from podslice.policy.decide import Difference, compare_rules, decide, unmounted
from podslice.policy.desire import desire
from podslice.policy.exclusive import without_own_cpus


@dataclass(frozen=True, kw_only=True)
class ContainerEntry:
    """The decision on one container of a pod."""

    name: str
    kind: ContainerKind
    scope: UnitName
    oom_score_adj: int
    properties: tuple[PropertyEntry, ...]
    hugetlb_bytes: dict[str, int] | None = None
    """Limits of huge pages, by the size of a page in bytes."""


@dataclass(frozen=True, kw_only=True)
class PodEntry:
    """The decision about a pod."""

    namespace: str
    name: str
    uid: str
    qos_class: Qos
    requests: AmountsEntry
    limits: AmountsEntry
    grace_period_sec: int
    slice: UnitName
    control_group: str
    properties: tuple[PropertyEntry, ...]
    init_properties: tuple[PropertyEntry, ...] | None = None
    """Those until the init containers have finished, if they differ."""
    hugetlb_bytes: dict[str, int] | None = None
    containers: tuple[ContainerEntry, ...]
    volumes: tuple[VolumeDecision, ...]
    notes: tuple[str, ...]
    problems: Problems


@dataclass(frozen=True, kw_only=True)
class Report:
    """The decisions about pods, and the node that they are for."""

    node: tables.NodeEntry
    pods: tuple[PodEntry, ...]
    problems: Problems


@dataclass(frozen=True, kw_only=True)
class DifferenceEntry:
    """One value on which the rule sets differ."""

    what: str
    proposal: str
    kubernetes: str


@dataclass(frozen=True, kw_only=True)
class PodDifferences:
    """The differences of the rule sets for a pod."""

    namespace: str
    name: str
    differences: tuple[DifferenceEntry, ...]


@dataclass(frozen=True, kw_only=True)
class DifferencesReport:
    """The differences of the rule sets."""

    pods: tuple[PodDifferences, ...]


AnyReport = Report | DifferencesReport


def pod_entry(decision: PodDecision) -> PodEntry:
    """Return the decision about a pod."""
    in_init = decision.init_properties
    containers = (
        ContainerEntry(
            name=each.name,
            kind=each.kind,
            scope=each.scope,
            oom_score_adj=each.oom_score_adj,
            properties=property_entries(each.properties),
            hugetlb_bytes=hugetlb_bytes(each.hugepages),
        )
        for each in decision.scopes
    )
    return PodEntry(
        namespace=decision.pod.namespace,
        name=decision.pod.name,
        uid=decision.pod.uid,
        qos_class=decision.qos,
        requests=amounts_entry(decision.requests),
        limits=amounts_entry(decision.limits),
        grace_period_sec=decision.pod.grace_period_sec,
        slice=decision.slice,
        control_group=decision.control_group,
        properties=property_entries(decision.properties),
        init_properties=None if in_init is None else property_entries(in_init),
        hugetlb_bytes=hugetlb_bytes(decision.hugepages),
        containers=tuple(containers),
        volumes=tuple(decision.volumes),
        notes=tuple(decision.notes),
        problems=tuple(decision.problems),
    )


def _differences_entry(decision: PodDecision, found: Iterable[Difference]) -> PodDifferences:
    differences = (
        DifferenceEntry(what=each.what, proposal=each.proposal, kubernetes=each.kubernetes)
        for each in found
    )
    return PodDifferences(
        namespace=decision.pod.namespace,
        name=decision.pod.name,
        differences=tuple(differences),
    )


@planning_options
def explain(
    planning: Planning,
    filename: Annotated[
        list[str] | None,
        files_option(
            "Read this file or directory, or - for stdin; may be repeated. Without, explain applied pods."
        ),
    ] = None,
    pod: Names = None,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
    diff_rules: Annotated[  # noqa: FBT002
        bool, typer.Option("--diff-rules", help="Show only where the two rule sets differ.")
    ] = False,
) -> int:
    """Run `podslice explain`.

    A reason is the field of the manifest, or the formula, that determines the value.

    Examples:
        podslice explain -f web.yaml
        podslice explain web --rules kubernetes
    """
    if not filename:
        config, loaded = _load_applied(planning, pod, namespace)
    else:
        config, loaded = load_all(planning, filename, namespace)
    node = load_node(config, manager=planning.manager)
    decisions, stage = decide_all(loaded, node, config), cpu_stage(config)
    if filename:
        valid = [each for each in decisions if each.is_valid]
        desired = desire(valid, node, config, stage=stage)
    else:
        now = read_cpus(config, loaded.pods, planning.manager, CgroupFs()) if stage else {}
        desired = desire((), node, config, current=loaded.pods, stage=stage, cpus=now)
    shown = named_pods(_assigned(decisions, desired, node, config), pod, namespace)
    if planning.manager.is_user:
        shown = tuple(replace(each, volumes=tuple(map(unmounted, each.volumes))) for each in shown)
    if diff_rules:
        return _emit_differences(shown, node, config, output)
    of_node = validate_node(node, config)
    note_problems((*of_node, *loaded.problems))
    # the problems of other pods are in the output
    listed = set() if output is OutputFormat.NAME else {each.pod.key for each in shown}
    _note_refused(desired, (each for each in decisions if each.pod.key not in listed))
    emit(
        output,
        document=lambda: document(
            Report(
                node=tables.node_entry(allocate(node, config), desired.requested),
                pods=tuple(map(pod_entry, shown)),
                problems=(*of_node, *loaded.problems),
            )
        ),
        lines=lambda display: tables.separated(tables.explanation(each, display) for each in shown),
        names=lambda: [each.pod.key for each in shown],
    )
    return code_of([*of_node, *all_problems(loaded, shown)])


def _assigned(
    decisions: tuple[PodDecision, ...], desired: Desired, node: Node, config: Config
) -> tuple[PodDecision, ...]:
    """Return the decisions with the CPUs of the pods; that a pod cannot have its own is a problem."""
    assigned = {each.pod.key: each for each in desired.pods}
    claiming = {each.pod.key for each in decisions if each.has_own_cpus}
    lacking = {
        each.pod: each for each in (*desired.refused, *desired.lacking_cpus) if each.pod in claiming
    }
    found = []
    for each in decisions:
        decision, why = assigned.get(each.pod.key, each), lacking.get(each.pod.key)
        found.append(_lack_cpus(decision, why, node, config) if why else decision)
    return tuple(found)


def _lack_cpus(pod: PodDecision, why: Refusal, node: Node, config: Config) -> PodDecision:
    decided = decide(pod.pod, node, without_own_cpus(config), qos=pod.qos)
    message = f"pod {why.pod} cannot have exclusive CPUs ({why.reason}): {why.message}"
    problem = Problem(where=pod.pod.where, message=message)
    return replace(decided, problems=(*pod.problems, problem))


def _note_refused(desired: Desired, decisions: Iterable[PodDecision]) -> None:
    """Note which of the pods claim exclusive CPUs and cannot have them."""
    claiming = {each.pod.key for each in decisions if each.has_own_cpus}
    for refusal in desired.refused:
        if refusal.pod in claiming:
            note(f"pod {refusal.pod} would be refused ({refusal.reason}): {refusal.message}")


def _load_applied(
    planning: Planning, names: list[str] | None, namespace: str | None
) -> tuple[Config, LoadedPods]:
    """Return the configuration and the applied pods, from their records.

    Raises:
        InputError: no pod is named, or one is not applied.
    """
    if not names:
        raise invalid(
            "missing option '--filename' / '-f', or the name of an applied pod",
            "see: podslice explain --help",
        )
    planning = tolerate(planning)
    pods = applied_pods(planning)
    pod_filter(names, namespace).resolve({pod.key for pod in pods})
    return planning.config, LoadedPods(pods=pods)


def _emit_differences(
    shown: tuple[PodDecision, ...], node: Node, config: Config, output: OutputFormat
) -> int:
    found = [(each, compare_rules(each.pod, node, config)) for each in shown]
    emit(
        output,
        document=lambda: document(
            DifferencesReport(pods=tuple(_differences_entry(*each) for each in found))
        ),
        lines=lambda display: tables.separated(
            tables.differences_of_rules(each, differences, display) for each, differences in found
        ),
        names=lambda: [each.pod.key for each, differences in found if differences],
    )
    return DONE
