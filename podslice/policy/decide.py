"""The decision on one pod, independent of other pods on the node; replicas share the decision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from podslice.errors import Problem
from podslice.model.config import Config, Rules
from podslice.model.desired import ContainerDecision, PodDecision, VolumeDecision
from podslice.model.naming import (
    OVERHEAD,
    Tree,
    describe_container,
    describe_pod,
    describe_volume,
    scope_name,
    volume_path,
)
from podslice.model.node import Node
from podslice.model.pod import Container, ContainerKind, Pod, Qos
from podslice.model.properties import CPU_QUOTA, CPU_QUOTA_PERIOD, MEMORY_MAX
from podslice.model.quantity import format_bytes, human_bytes
from podslice.model.resources import CPU, MEMORY, Amounts, Resources, memory_bytes
from podslice.model.unit import (
    INFINITY,
    UNIT_NAME_MAX,
    DesiredUnit,
    PropertyValue,
    UnitKind,
    UnitName,
    Value,
    control_group_of,
    limit_of,
    mount_name,
    parent_slice,
)
from podslice.policy.aggregate import (
    HugePages,
    classify,
    container_hugepages,
    counts_as_memory,
    default_pod,
    defaults_limits,
    effective,
    most_bytes,
    own_pages_bytes,
    pod_hugepages,
    why_qos,
    with_hugepages,
)
from podslice.policy.allocatable import allocate, node_cpus
from podslice.policy.exclusive import CpuClaim, exclusive, with_quota
from podslice.policy.unit_properties import (
    check_annotations,
    container_properties,
    describe_stall,
    init_properties,
    kills_whole_container,
    memory_high,
    node_memory,
    oom_score_adj,
    overhead_properties,
    pod_properties,
    settle,
    swap_limit,
    why_no_limit,
    with_period,
    with_stated,
)
from podslice.policy.validate import validate


def decide(pod: Pod, node: Node, config: Config, *, qos: Qos | None = None) -> PodDecision:
    """Decide one pod, also one with an error; `qos` is its class if not that of its resources."""
    defaulted = default_pod(pod, with_limits=defaults_limits(config))
    qos = qos or classify(defaulted, config.rules, config.kubernetes_version)
    counted = effective(defaulted)
    tree = Tree(cgroup_root=config.cgroup_root)
    slice_ = tree.pod(pod.uid, qos)
    capacity = {**node.capacity, **config.capacity}
    problems = validate(defaulted, pod, config, page_size=node.page_size_bytes, capacity=capacity)
    problems += _validate_names(pod, slice_)
    # one that was reported when reading the manifest is not repeated
    reported = {(each.where, each.severity, each.message) for each in pod.problems}
    new = (each for each in problems if (each.where, each.severity, each.message) not in reported)
    hugepages = pod_hugepages(counted, node.hugepage_sizes)
    claim = exclusive(pod, qos, config)
    by = with_period(with_quota(config, applies=not claim), pod.properties)
    properties = pod_properties(defaulted, pod, qos, counted, by)
    # The pages count in MemoryMax only where the kernel charges them to the control group.
    in_memory = sum(hugepages.values()) if counts_as_memory(node, config) else 0
    before = init_properties(defaulted, pod, qos, by)

    def complete(of_slice: tuple[PropertyValue, ...]) -> tuple[PropertyValue, ...]:
        # Annotations last: a stated value is the complete one, to which no huge pages are added.
        return with_stated(with_hugepages(of_slice, in_memory, in_memory), pod.properties)

    decision = PodDecision(
        pod=pod,
        qos=qos,
        requests=counted.requests,
        limits=counted.limits,
        slice=slice_,
        control_group=control_group_of(slice_),
        properties=complete(properties),
        containers=tuple(
            _decide_container(defaulted, container, qos, node, config, claim)
            for container in defaulted.containers
        ),
        overhead=_decide_overhead(defaulted, qos, node, config) if pod.overhead else None,
        volumes=tuple(_decide_volumes(pod, properties, node, config)),
        init_properties=None if before is None else complete(before),
        hugepages=hugepages,
        hugepages_in_memory_bytes=in_memory,
        notes=tuple(_notes(defaulted, qos, hugepages, config)),
        problems=tuple(dict.fromkeys((*pod.problems, *new))),
        has_own_cpus=bool(claim),
        elsewhere=tree.elsewhere(pod.uid, qos),
    )
    # After all formulas, since an annotation may have no effect beside the values they gave.
    judged = _judge_annotations(decision, capacity, node, config)
    return replace(judged, units=tuple(units_of(judged)))


def _judge_annotations(
    decision: PodDecision, capacity: Amounts, node: Node, config: Config
) -> PodDecision:
    """Return the decision with the effect of the annotations, and the problems with them."""
    pod = decision.pod
    if not (pod.properties or any(container.properties for container in pod.containers)):
        return decision
    stall = describe_stall(decision.properties, pod.properties, capacity)
    where = f"{pod.spec_where.removesuffix('spec')}metadata.annotations"
    check = partial(
        check_annotations,
        of_pod=pod.properties,
        node=node,
        cpus=node_cpus(node, config),
        config=config,
        where=f"{pod.where}: {where}" if pod.where else where,
    )
    found = [*check(pod.properties, decision.properties)]
    for container, decided in zip(pod.containers, decision.containers, strict=True):
        found += check(container.properties, decided.properties, container=container.name)
    return replace(
        decision,
        notes=(*decision.notes, stall) if stall else decision.notes,
        problems=(*decision.problems, *found),
    )


def units_of(pod: PodDecision) -> Iterator[DesiredUnit]:
    """Yield the units of a pod, its slice first."""
    yield DesiredUnit(
        name=pod.slice,
        kind=UnitKind.SLICE,
        parent=parent_slice(pod.slice),
        control_group=pod.control_group,
        description=describe_pod(pod.pod, pod.qos),
        properties=pod.properties,
        pod=pod.pod.key,
        hugepages=pod.hugepages,
    )
    for volume in pod.volumes:
        yield DesiredUnit(
            name=volume.unit,
            kind=UnitKind.MOUNT,
            parent=pod.slice,
            control_group=f"{pod.control_group}/{volume.unit}",
            description=describe_volume(pod.pod, volume.name),
            properties=(),
            pod=pod.pod.key,
            structure=mount_structure(volume),
        )
    for container in pod.scopes:
        yield DesiredUnit(
            name=container.scope,
            kind=UnitKind.SCOPE,
            parent=pod.slice,
            control_group=f"{pod.control_group}/{container.scope}",
            description=describe_container(pod.pod, container.name),
            properties=container.properties,
            pod=pod.pod.key,
            hugepages=container.hugepages,
        )


def _decide_container(
    pod: Pod, container: Container, qos: Qos, node: Node, config: Config, claim: CpuClaim
) -> ContainerDecision:
    hugepages = container_hugepages(pod, container, config.rules, node.hugepage_sizes)
    stated = container.properties
    if CPU_QUOTA_PERIOD in pod.properties:
        # with another period than its pod it would be throttled as without one of the pod's
        stated = {CPU_QUOTA_PERIOD: pod.properties[CPU_QUOTA_PERIOD], **stated}
    by = with_period(with_quota(config, applies=container.name not in claim.containers), stated)
    properties = settle(
        (
            *container_properties(pod, container, qos, by),
            *memory_high(pod, container, node, config),
            *swap_limit(pod, container, qos, node, config),
        )
    )
    if counts_as_memory(node, config):
        properties = with_hugepages(
            properties, most_bytes(pod, hugepages), own_pages_bytes(container)
        )
    return ContainerDecision(
        name=container.name,
        kind=container.kind,
        scope=scope_name(pod.uid, container.name),
        oom_score_adj=oom_score_adj(pod, container, qos, node_memory(node, config)),
        properties=with_stated(properties, stated),
        oom_group=kills_whole_container(config),
        hugepages=hugepages,
    )


def _decide_overhead(pod: Pod, qos: Qos, node: Node, config: Config) -> ContainerDecision:
    """Decide the pod's helpers, which count as a container that requests the overhead."""
    helpers = Container(
        name=OVERHEAD, kind=ContainerKind.OVERHEAD, resources=Resources(requests=pod.overhead)
    )
    # the surplus of the pod level belongs to the containers
    alone = replace(pod, resources=Resources())
    return ContainerDecision(
        name=helpers.name,
        kind=helpers.kind,
        scope=scope_name(pod.uid, helpers.name),
        oom_score_adj=oom_score_adj(alone, helpers, qos, node_memory(node, config)),
        properties=(
            *overhead_properties(pod, qos, config),
            *swap_limit(pod, helpers, qos, node, config),
        ),
        oom_group=kills_whole_container(config),
    )


def _decide_volumes(
    pod: Pod, properties: tuple[PropertyValue, ...], node: Node, config: Config
) -> Iterator[VolumeDecision]:
    """Yield the pod's volumes; `properties` are those of its slice.

    The size of a volume is the least of its own limit, the pod's memory limit and the node's
    allocatable memory; zero counts as not stated. One whose unit would have an invalid name is left
    out, see `_validate_names`.

    Source: Kubernetes, pkg/volume/emptydir/empty_dir.go, calculateEmptyDirMemorySize.
    """
    allocatable_bytes = memory_bytes(allocate(node, config).allocatable) if pod.volumes else None
    for volume in pod.volumes:
        bounds = {
            "sizeLimit": volume.size_bytes,
            "the pod's memory limit": limit_of(properties, MEMORY_MAX),
            "allocatable memory": allocatable_bytes,
        }
        stated = {name: size for name, size in bounds.items() if size}
        *others, why = [f"{name} {human_bytes(size)}" for name, size in stated.items()] or [
            "the kernel's default: half of the memory"
        ]
        path = volume_path(pod.uid, volume.name)
        with suppress(ValueError):
            yield VolumeDecision(
                name=volume.name,
                unit=mount_name(path),
                path=path,
                size_bytes=min(stated.values(), default=None),
                why=f"the least of {', '.join(others)} and {why}" if others else why,
            )


def _notes(pod: Pod, qos: Qos, hugepages: HugePages, config: Config) -> Iterator[str]:
    """Yield the reason for the class, and for expected properties that are unset."""
    yield f"{qos}: {why_qos(pod, qos, config.rules)}"
    if exclusive(pod, qos, config):
        yield "no CPUQuotaPerSecUSec: it has CPUs of its own"
    for size, limit in hugepages.items():
        if not limit:
            continue
        yield (
            f"huge pages of {format_bytes(size)}: {format_bytes(limit)}, enforced if the"
            " kernel's hugetlb controller is available (see podslice doctor)"
        )
    if qos is not Qos.BURSTABLE:
        return
    for resource, name in ((CPU, CPU_QUOTA), (MEMORY, MEMORY_MAX)):
        if reason := why_no_limit(pod, resource, config.rules):
            yield f"no {name}: {reason}"
    if not config.cpu_cfs_quota:
        yield "no CPUQuotaPerSecUSec: cpu-cfs-quota is off"


def _validate_names(pod: Pod, slice_: UnitName) -> Iterator[Problem]:
    """Return problems of names that systemd would refuse; their parts were checked when read."""
    where = f"{pod.where}: metadata.uid" if pod.where else "metadata.uid"
    for name in (slice_, *(scope_name(pod.uid, each.name) for each in pod.containers)):
        if len(name.encode()) > UNIT_NAME_MAX:
            yield Problem(
                where=where,
                message=f"the unit {name!r} would have {len(name.encode())} bytes",
                hint=f"a unit's name has at most {UNIT_NAME_MAX}; shorten the uid or cgroup-root",
            )
    for volume in pod.volumes:
        try:
            mount_name(volume_path(pod.uid, volume.name))
        except ValueError as error:
            hint = "shorten the uid or the volume's name; '-' counts as four"
            yield Problem(where=where, message=str(error), hint=hint)


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
    parts = pod.containers, pod.resources, pod.overhead, pod.volumes, pod.properties, pod.problems
    # The length of escaped names depends on these: systemd escapes each dash in a mount's name.
    shape = (len(pod.uid), pod.uid.count("-"))
    where = (pod.where, pod.spec_where, pod.priority, pod.grace_period_sec)
    return (*map(id, parts), shape, where)


def _renamed(template: PodDecision, pod: Pod, config: Config) -> PodDecision:
    """Return the decision of a pod that differs from the template's in its names only."""
    tree = Tree(cgroup_root=config.cgroup_root)
    slice_ = tree.pod(pod.uid, template.qos)

    def renamed(container: ContainerDecision) -> ContainerDecision:
        return replace(container, scope=scope_name(pod.uid, container.name))

    paths = [volume_path(pod.uid, each.name) for each in template.volumes]
    decision = replace(
        template,
        pod=pod,
        slice=slice_,
        control_group=control_group_of(slice_),
        containers=tuple(map(renamed, template.containers)),
        overhead=renamed(template.overhead) if template.overhead else None,
        volumes=tuple(
            replace(each, path=path, unit=mount_name(path))
            for each, path in zip(template.volumes, paths, strict=True)
        ),
        elsewhere=tree.elsewhere(pod.uid, template.qos),
    )
    return replace(decision, units=tuple(units_of(decision)))


def unmounted(volume: VolumeDecision) -> VolumeDecision:
    """Return the volume as a plain directory, since a user manager can't mount."""
    path = f"$XDG_RUNTIME_DIR{volume.path.removeprefix('/run')}"
    why = "a plain directory without a size limit: a user manager can't mount"
    return replace(volume, path=path, size_bytes=None, why=why)


def mount_structure(volume: VolumeDecision) -> dict[str, Value]:
    """Return the properties with which the mount of a volume is started.

    Every process of the pod may write to it, as in Kubernetes, but only remove files of its own
    user, since other users of the host can reach the directory as well.

    Source: Kubernetes, pkg/volume/emptydir/empty_dir.go, setupTmpfs and stickyBitMode.
    """
    size = [] if volume.size_bytes is None else [f"size={volume.size_bytes}"]
    return {
        "What": "tmpfs",
        "Type": "tmpfs",
        "Options": ",".join(["mode=1777", "nosuid", "nodev", *size]),
        # a process with an open file in it does not prevent the pod from being deleted
        "LazyUnmount": True,
    }


class Difference(NamedTuple):
    """One value on which the rule sets differ."""

    what: str
    """`qos_class`, `CPUQuotaPerSecUSec of container main`, `spec.resources.limits[cpu]`, …"""
    proposal: str
    kubernetes: str
    property: str | None = None
    """The property whose value differs, if it is one."""
    is_problem: bool = False
    """Whether `what` is a problem, and the values are its severities."""


def compare_rules(pod: Pod, node: Node, config: Config) -> tuple[Difference, ...]:
    """Return every difference, in the order of `explain`; empty if the rules agree."""
    ours = decide(pod, node, replace(config, rules=Rules.PROPOSAL))
    theirs = decide(pod, node, replace(config, rules=Rules.KUBERNETES))
    return tuple(each for each in _pairs(ours, theirs) if each.proposal != each.kubernetes)


_MEANWHILE = " until the init containers have finished"


def _pairs(ours: PodDecision, theirs: PodDecision) -> Iterator[Difference]:
    """Yield everything that may differ, equal values as well."""
    yield Difference("qos_class", proposal=ours.qos, kubernetes=theirs.qos)
    yield Difference("slice", proposal=ours.slice, kubernetes=theirs.slice)
    yield from _properties("", ours.properties, theirs.properties)
    if ours.init_properties is not None:
        # Kubernetes has no init phase: its values apply from the start.
        yield from _properties(_MEANWHILE, ours.init_properties, theirs.properties)
    for left, right in zip(ours.scopes, theirs.scopes, strict=True):
        of = f" of container {left.name}"
        scores = str(left.oom_score_adj), str(right.oom_score_adj)
        yield Difference(f"oom_score_adj{of}", *scores)
        yield from _properties(of, left.properties, right.properties)
        yield Difference(f"huge pages{of}", _sizes(left.hugepages), _sizes(right.hugepages))
    yield from _problems(ours, theirs)


def _properties(
    of: str, left: tuple[PropertyValue, ...], right: tuple[PropertyValue, ...]
) -> Iterator[Difference]:
    one = {property_.name: property_.value for property_ in left}
    other = {property_.name: property_.value for property_ in right}
    for name in sorted(one.keys() | other.keys()):
        values = _text(one.get(name)), _text(other.get(name))
        yield Difference(f"{name}{of}", *values, property=name)


def _text(value: int | str | None) -> str:
    if value is None:
        return "unset"
    return "infinity" if value == INFINITY else str(value)


def _sizes(hugepages: Mapping[int, int]) -> str:
    sizes = (f"{format_bytes(size)}={format_bytes(limit)}" for size, limit in hugepages.items())
    return ",".join(sizes) or "unlimited"


def _problems(ours: PodDecision, theirs: PodDecision) -> Iterator[Difference]:
    """Yield the severity of each problem under either rule set."""
    one = {(found.where, found.message): found.severity for found in ours.problems}
    other = {(found.where, found.message): found.severity for found in theirs.problems}
    file = f"{ours.pod.where}: "
    for where, message in sorted(one.keys() | other.keys()):
        left, right = one.get((where, message), "fine"), other.get((where, message), "fine")
        what = f"{where.removeprefix(file)}: {message}"
        yield Difference(what=what, proposal=left, kubernetes=right, is_problem=True)
