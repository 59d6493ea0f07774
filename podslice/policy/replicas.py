"""Decisions on many pods: replicas share the decision on their template."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from podslice.model.config import Config
from podslice.model.desired import ContainerDecision, PodDecision, VolumeDecision
from podslice.model.naming import Tree, scope_name, volume_path
from podslice.model.node import Node
from podslice.model.pod import Pod
from podslice.model.unit import control_group_of, mount_name
from podslice.policy.decide import decide, units_of


def decide_each(pods: Iterable[Pod], node: Node, config: Config) -> Iterator[PodDecision]:
    """Decide pods, in their order.

    Pods that differ only in their names and uids, as replicas do, are decided once; the decisions of
    the others have other names of units and are the same objects otherwise.
    """
    known: dict[object, PodDecision] = {}
    for pod in pods:
        template = known.get(key := _template_of(pod))
        if template is None:
            known[key] = template = decide(pod, node, config)
            yield template
        else:
            yield _renamed(template, pod, config)


def _template_of(pod: Pod) -> object:
    """Return what identifies a template: the shared objects, and the length of the uid in names.

    The objects live as long as the decision under this key, so their ids are not used again.
    """
    parts = (
        *(pod.containers, pod.resources, pod.overhead, pod.volumes, pod.properties, pod.problems),
    )
    shape = (len(pod.uid), pod.uid.count("-"))
    where = (pod.where, pod.spec_where, pod.priority, pod.grace_period_sec)
    return (*map(id, parts), shape, where)


def _renamed(template: PodDecision, pod: Pod, config: Config) -> PodDecision:
    """Return the decision of a pod that differs from the template's in its names only."""
    tree = Tree(cgroup_root=config.cgroup_root)
    slice_ = tree.pod(pod.uid, template.qos)
    decision = replace(
        template,
        pod=pod,
        slice=slice_,
        control_group=control_group_of(slice_),
        containers=tuple(_container(each, pod) for each in template.containers),
        overhead=_container(template.overhead, pod) if template.overhead else None,
        volumes=tuple(_volume(each, pod) for each in template.volumes),
        elsewhere=tree.elsewhere(pod.uid, template.qos),
    )
    return replace(decision, units=tuple(units_of(decision)))


def _container(template: ContainerDecision, pod: Pod) -> ContainerDecision:
    return replace(template, scope=scope_name(pod.uid, template.name))


def _volume(template: VolumeDecision, pod: Pod) -> VolumeDecision:
    path = volume_path(pod.uid, template.name)
    return template._replace(path=path, unit=mount_name(path))
