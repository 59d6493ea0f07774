"""The CPUs that pods have for themselves now, from the kernel and the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from podslice.cli.views.cpu_map import NodeCpus
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Config
from podslice.model.manager import Manager
from podslice.model.naming import Tree, scope_name, service_name
from podslice.model.node import Node
from podslice.model.pod import Pod, Qos
from podslice.model.unit import UnitName, control_group_of
from podslice.policy.cpu_manager import cpu_manager
from podslice.policy.desire import desire

_FILE = "cpuset.cpus"


def find_cpus(
    node: Node, config: Config, pods: Iterable[Pod], manager: Manager, cgroups: CgroupFs
) -> NodeCpus | None:
    """Return the CPUs of the node; None if all pods share all of them.

    A pod whose slice has none, as before its first apply with the policy, has those that it would get.
    """
    found = cpu_manager(node, config)
    if found is None:
        return None
    pods = tuple(pods)
    now = read_cpus(config, pods, manager, cgroups)
    own = desire((), node, config, current=pods, cpus=now).own_cpus
    kept = found.reserved if found.is_strict else frozenset()
    return NodeCpus(
        topology=found.topology,
        reserved=found.reserved,
        own=own,
        shared=found.topology.all.difference(*own.values(), kept),
        for_host=found.for_host,
    )


def read_cpus(
    config: Config, pods: Iterable[Pod], manager: Manager, cgroups: CgroupFs
) -> Mapping[UnitName, str]:
    """Return the lists of CPUs of the tier, and of Guaranteed pods and their containers.

    A container that is a service counts as its scope. Units without a list are absent.
    """
    groups = _control_groups(Tree(cgroup_root=config.cgroup_root), pods)
    above = manager.control_group.rstrip("/")
    found = ((name, cgroups.files(f"{above}{group}", (_FILE,))) for name, group in groups)
    return {name: files[_FILE] for name, files in found if files.get(_FILE)}


def _control_groups(tree: Tree, pods: Iterable[Pod]) -> Iterator[tuple[UnitName, str]]:
    tier = tree.tier(Qos.BURSTABLE)
    yield tier, control_group_of(tier)
    for pod in pods:
        slice_ = tree.pod(pod.uid, Qos.GUARANTEED)
        group = control_group_of(slice_)
        yield slice_, group
        for container in pod.containers:
            scope = scope_name(pod.uid, container.name)
            yield scope, f"{group}/{service_name(scope)}"
            yield scope, f"{group}/{scope}"
