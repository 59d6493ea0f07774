"""The CPUs that pods have for themselves now, from the kernel and the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podslice.cli.views.cpu_map import NodeCpus
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Config
from podslice.model.manager import Manager
from podslice.model.naming import Tree
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
    now = _read(Tree(cgroup_root=config.cgroup_root), pods, manager, cgroups)
    own = desire((), node, config, current=pods, cpus=now).own_cpus
    kept = found.reserved if found.is_strict else frozenset()
    return NodeCpus(
        topology=found.topology,
        reserved=found.reserved,
        own=own,
        shared=found.topology.all.difference(*own.values(), kept),
        for_host=found.for_host,
    )


def _read(
    tree: Tree, pods: tuple[Pod, ...], manager: Manager, cgroups: CgroupFs
) -> Mapping[UnitName, str]:
    names = (tree.tier(Qos.BURSTABLE), *(tree.pod(pod.uid, Qos.GUARANTEED) for pod in pods))
    above = manager.control_group.rstrip("/")
    files = {name: cgroups.files(f"{above}{control_group_of(name)}", (_FILE,)) for name in names}
    return {name: each[_FILE] for name, each in files.items() if each.get(_FILE)}
