"""The CPUs of a node and the pods with exclusive CPUs: as they are now, drawn, as JSON."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from podslice.cli.extensions import NodeSection
from podslice.cli.host import read_cpus
from podslice.cli.report import part
from podslice.cli.views.layout import Column, table
from podslice.cli.views.style import Display
from podslice.cli.views.text_width import folded
from podslice.features.cpus.manager import assign, cpu_manager
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Config, ExclusiveFor
from podslice.model.naming import HOST_SLICES
from podslice.model.node import Cpus, CpuTopology, Node, format_cpus
from podslice.model.pod import Pod
from podslice.model.unit import Manager
from podslice.policy.desire import desire

_RESERVED, _SHARED, _OTHER = "▓", "░", "+"
_GAP = "  "
_COLUMNS = (Column(title=""), Column(title="CPUS"), Column(title="USED BY"))


class NodeCpus(NamedTuple):
    """The CPUs of a node, and the pods with exclusive CPUs."""

    topology: CpuTopology
    reserved: Cpus
    own: Mapping[str, Cpus]
    """Those of pods, by key."""
    shared: Cpus
    """Those of all other pods; the reserved ones are among them unless no pod may use them."""
    for_host: bool = False
    """Whether `system.slice` and `user.slice` do not run on the CPUs of pods."""


def cpu_map(cpus: NodeCpus, display: Display) -> Iterator[str]:
    """Yield a line for each NUMA node, in which the threads of a core are together, and a legend."""
    letters = dict(zip(sorted(cpus.own), string.ascii_letters, strict=False))
    marks = dict.fromkeys(cpus.topology.all, _SHARED) | dict.fromkeys(cpus.reserved, _RESERVED)
    for pod, own in cpus.own.items():
        marks |= dict.fromkeys(own, letters.get(pod, _OTHER))
    labels = {node: f"NUMA node {node}" for node in cpus.topology.numa_nodes}
    indent = max(map(len, labels.values())) + len(_GAP)
    for node, members in cpus.topology.numa_nodes.items():
        cores = (core & members for core in cpus.topology.cores.values())
        drawn = " ".join("".join(marks[cpu] for cpu in sorted(core)) for core in cores if core)
        lines = [drawn] if display.width is None else folded(drawn, display.width - indent)
        for number, line in enumerate(lines):
            yield ("" if number else labels[node]).ljust(indent) + line
    yield ""
    is_strict = cpus.reserved.isdisjoint(cpus.shared)
    users = ", ".join([*([] if is_strict else ["all other pods"]), *_host_slices(cpus)])
    rows = [(_RESERVED, format_cpus(cpus.reserved), f"{users or 'no pod'}: reserved")]
    rows += [
        (letters.get(pod, _OTHER), format_cpus(cpus.own[pod]), pod) for pod in sorted(cpus.own)
    ]
    users = ", ".join(["all other pods", *_host_slices(cpus)])
    rows.append((_SHARED, format_cpus(cpus.shared - cpus.reserved), users))
    yield from table(_COLUMNS, rows, display)


def _host_slices(cpus: NodeCpus) -> tuple[str, ...]:
    return HOST_SLICES if cpus.for_host else ()


@dataclass(frozen=True, kw_only=True)
class PodCpusEntry:
    """The CPUs that a pod has for itself, as a list of the kernel."""

    namespace: str
    name: str
    cpus: str


@dataclass(frozen=True, kw_only=True)
class CpusEntry:
    """The CPUs of a node, as lists of the kernel."""

    exclusive_for: ExclusiveFor
    reserved: str
    shared: str
    pods: tuple[PodCpusEntry, ...]


def cpus_entry(cpus: NodeCpus) -> CpusEntry:
    """Return the CPUs as lists."""
    return CpusEntry(
        exclusive_for=ExclusiveFor.HOST if cpus.for_host else ExclusiveFor.PODS,
        reserved=format_cpus(cpus.reserved),
        shared=format_cpus(cpus.shared),
        pods=tuple(
            PodCpusEntry(namespace=namespace, name=name, cpus=format_cpus(own))
            for key, own in sorted(cpus.own.items())
            for namespace, _, name in [key.partition("/")]
        ),
    )


def node_section(
    node: Node, config: Config, pods: Sequence[Pod], manager: Manager
) -> NodeSection | None:
    """Return the CPUs of the node; None if all pods share all of them.

    A pod whose slice has no CPUs, as before its first apply with the policy, has those that it
    would get.
    """
    found = cpu_manager(node, config)
    if found is None:
        return None
    now = read_cpus(config, pods, manager, CgroupFs())
    own = desire((), node, config, current=pods, stage=assign, cpus=now).own_cpus
    kept = found.reserved if found.is_strict else frozenset()
    cpus = NodeCpus(
        topology=found.topology,
        reserved=found.reserved,
        own=own,
        shared=found.topology.all.difference(*own.values(), kept),
        for_host=found.for_host,
    )
    return NodeSection("cpus", part(cpus_entry(cpus)), lambda display: cpu_map(cpus, display))
