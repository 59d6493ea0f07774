"""`podslice explain`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

import typer

from podslice.cli.arguments import DONE, Names, Namespace, Output, code_of, files_option
from podslice.cli.extensions import cpu_stage
from podslice.cli.host import applied_pods, load_node, read_cpus, tolerate
from podslice.cli.manifests import all_problems, decide_all, load_all, named_pods
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note, note_problems
from podslice.cli.pods import pod_filter
from podslice.cli.views import documents, tables
from podslice.errors import Problem, bounded, invalid
from podslice.inputs.manifest.load import LoadedPods
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Config
from podslice.model.desired import Desired, PodDecision, Refusal
from podslice.model.node import Node
from podslice.policy.allocatable import allocate, validate_node
from podslice.policy.decide import compare_rules, decide, unmounted
from podslice.policy.desire import desire
from podslice.policy.exclusive import without_own_cpus


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
        document=lambda: documents.document(
            node=tables.node_document(allocate(node, config), desired.requested),
            pods=documents.listed(shown, tables.pod_document),
            problems=documents.listed(bounded((*of_node, *loaded.problems)), documents.problem),
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
        document=lambda: documents.document(
            pods=[tables.differences_document(each, differences) for each, differences in found]
        ),
        lines=lambda display: tables.separated(
            tables.differences_of_rules(each, differences, display) for each, differences in found
        ),
        names=lambda: [each.pod.key for each, differences in found if differences],
    )
    return DONE
