"""`podslice node`; the verbs below it are in `node_init` and `node_recommend`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from podslice.cli import configuration, coroutines
from podslice.cli.arguments import DONE, Output, code_of
from podslice.cli.host import load_node, recorded_pods
from podslice.cli.node_cpus import find_cpus
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.views import cpu_map, documents, pod_documents, tables
from podslice.cli.views.node_bars import node_bars
from podslice.cli.views.problem_lines import problem_lines
from podslice.cli.views.tier_evictions import tier_documents, tier_evictions, tier_lines
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import CpuManagerPolicy
from podslice.policy.allocatable import allocate, validate_node
from podslice.policy.desire import desire
from podslice.reconcile.guard import Guard, claims_beside_kubelet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from podslice.cli.views.cpu_map import NodeCpus
    from podslice.errors import Problem
    from podslice.model.node import Node
    from podslice.model.pod import Pod


@planning_options
def node(planning: Planning, context: typer.Context, output: Output = OutputFormat.TABLE) -> int:
    """Run `podslice node`.

    Allocatable is the capacity without the reservations and the hard eviction thresholds.
    """
    if context.invoked_subcommand is not None:
        return DONE
    planning = configuration.tolerate(planning)
    config = planning.config
    host = load_node(config, manager=planning.manager)
    allocation, pods = allocate(host, config), recorded_pods(planning)
    desired = desire((), host, config, current=pods)
    requested, tiers = desired.requested, tier_evictions(desired, config)
    cpus = _find_cpus(planning, host, pods)
    problems = (*validate_node(host, config), *_beside_kubelet(planning, host))
    for line in problem_lines(problems):
        note(line)
    emit(
        output,
        document=lambda: (
            pod_documents.node_status(allocation)
            if output is OutputFormat.YAML
            else documents.document(
                **configuration.document(planning.origin),
                **pod_documents.node(allocation, requested),
                **({"eviction_tiers": tier_documents(tiers)} if tiers else {}),
                **({"cpus": cpu_map.cpu_document(cpus)} if cpus else {}),
            )
        ),
        lines=lambda display: (
            *tables.node(allocation, requested, display),
            *tier_lines(tiers, display),
            "",
            *node_bars(allocation, requested, display),
            *(("", *cpu_map.cpu_map(cpus, display)) if cpus else ()),
        ),
        names=lambda: sorted(allocation.capacity),
    )
    return code_of(problems)


def _beside_kubelet(planning: Planning, host: Node) -> tuple[Problem, ...]:
    """Return a warning for each resource that a kubelet of this host claims as well."""
    claims = claims_beside_kubelet(Guard(), CgroupFs(), host, planning.config, planning.manager)
    return coroutines.run(claims)


def _find_cpus(planning: Planning, host: Node, pods: Iterable[Pod]) -> NodeCpus | None:
    """Return the CPUs, if pods can have some for themselves."""
    if planning.config.cpu_manager_policy is CpuManagerPolicy.NONE:
        return None
    return find_cpus(host, planning.config, pods, planning.manager, CgroupFs())
