"""The units of a node with a kubelet, and the value of each property and file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from podslice.model.config import (
    Config,
    Enforce,
    OomPolicy,
    Rules,
)
from podslice.model.desired import ContainerDecision, Desired
from podslice.model.kubelet_node import (
    AuditFinding,
    ExpectedNode,
    ExpectedUnit,
    ExpectedValue,
    FindingKind,
    KubeletPod,
    KubeletSettings,
)
from podslice.model.naming import Tree, slice_of_cgroup
from podslice.model.node import Node
from podslice.model.pod import Qos
from podslice.model.properties import QUOTA_PERIOD_USEC
from podslice.model.resources import CPU, MEMORY, format_amount, hugetlb_files
from podslice.model.unit import DesiredUnit, PropertyValue, UnitName
from podslice.policy.aggregate import lacking_limit
from podslice.policy.desire import desire
from podslice.policy.kubelet_decision import (
    KubeletDecision,
    config_of,
    decide_linear,
    decide_pod,
    exclusive_containers,
    has_memory_qos,
    has_pod_level,
)
from podslice.policy.pod_level import level_values

_OOM_GROUP_SINCE = (1, 28)
_NO_SWAP_SINCE = (1, 30)
_LIMITS = ("CPUQuotaPerSecUSec", "MemoryMax")
_GUARDS = ("MemoryHigh", "MemoryLow", "MemoryMin")
"""The properties that the kubelet sets only with the feature MemoryQoS."""


def expect_node(pods: Iterable[KubeletPod], node: Node, settings: KubeletSettings) -> ExpectedNode:
    """Return the units of a node with a kubelet, and the findings that follow from its pods.

    Source: Kubernetes v1.36.2 with containerd 2.1.9 and runc 1.3.6; pkg/kubelet/cm,
    node_container_manager_linux.go, qos_container_manager_linux.go and
    pod_container_manager_linux.go; pkg/kubelet/kuberuntime/kuberuntime_container_linux.go.
    """
    pods = tuple(pods)
    config = config_of(settings)
    active = [decide_pod(each, node, settings) for each in pods if not each.is_terminal]
    desired = desire([each.decision for each in active], node, config)
    tree = Tree(cgroup_root=config.cgroup_root)
    return ExpectedNode(
        root=tree.root,
        units=(
            *_node_units(desired, settings),
            *(unit for each in active for unit in _pod_units(each, node, settings)),
        ),
        terminated=_terminated(pods, active, tree),
        findings=(
            *_exceeding(desired),
            *_not_enforced(config),
            *(found for each in active for found in _findings_of(each, settings)),
            *_memory_qos(tree.root, settings),
        ),
        cpus=desired.allocation.capacity.get(CPU, 0) // 1000,
    )


def _node_units(desired: Desired, settings: KubeletSettings) -> Iterator[ExpectedUnit]:
    """Yield the reserved slices, the root and the tiers."""
    for unit in desired.units:
        if unit.pod is None:
            yield ExpectedUnit(
                name=unit.name,
                control_group=unit.control_group,
                values=tuple(_node_values(unit, settings)),
            )


def _node_values(unit: DesiredUnit, settings: KubeletSettings) -> Iterator[ExpectedValue]:
    """Yield the values of a slice outside of pods; of a reserved one only those that are stated."""
    stated = {each.name: each for each in unit.properties}
    names = (*_slice_names(settings), "TasksMax") if unit.owned else tuple(stated)
    return (_value(name, stated.get(name)) for name in names)


def _slice_names(settings: KubeletSettings) -> tuple[str, ...]:
    guards = () if has_memory_qos(settings) else _GUARDS
    return ("CPUWeight", *_LIMITS, *guards)


def _value(
    name: str, stated: PropertyValue | None, *, depends_on_configuration: bool = False
) -> ExpectedValue:
    return ExpectedValue(
        name=name,
        value=stated.value if stated else None,
        why=stated.why if stated else "not set by the kubelet",
        depends_on_configuration=depends_on_configuration,
    )


def _pod_units(
    decided: KubeletDecision, node: Node, settings: KubeletSettings
) -> Iterator[ExpectedUnit]:
    """Yield the slice of a pod, and the scopes of its running containers."""
    decision, exclusive = decided.decision, exclusive_containers(decided, settings)
    yield ExpectedUnit(
        name=decision.slice,
        control_group=decision.control_group,
        pod=decided.pod,
        is_required=decided.pod.is_running,
        values=(
            *_pod_values(decided, node, settings, has_exclusive_cpus=bool(exclusive)),
            _tasks_max(settings),
            *_hugepage_values(decision.hugepages),
        ),
    )
    linears = decide_linear(decided.pod, node, settings)
    for container, linear in zip(decision.containers, linears, strict=True):
        scope = decided.pod.scopes.get(container.name)
        if scope is not None:
            yield ExpectedUnit(
                name=scope,
                control_group=f"{decision.control_group}/{scope}",
                pod=decided.pod,
                container=container.name,
                values=tuple(
                    _container_values(
                        _enforced(
                            container.properties,
                            has_exclusive_cpus=container.name in exclusive,
                        ),
                        linear,
                        settings,
                    )
                ),
            )


def _enforced(
    properties: Sequence[PropertyValue], *, has_exclusive_cpus: bool
) -> Sequence[PropertyValue]:
    """Return the properties, without the quota where CPUs are exclusive."""
    if not has_exclusive_cpus:
        return properties
    return [each for each in properties if not each.name.startswith("CPUQuota")]


def _pod_values(
    decided: KubeletDecision, node: Node, settings: KubeletSettings, *, has_exclusive_cpus: bool
) -> Iterator[ExpectedValue]:
    """Yield the values of a pod's slice, each with that of a pod level which only podslice applies."""
    level = level_values(decided, node, settings)
    stated = _enforced(decided.decision.properties, has_exclusive_cpus=has_exclusive_cpus)
    for each in _limited_values(stated, settings):
        own = level.get(each.name)
        yield each if own is None else replace(each, pod_level=own.value)


def _limited_values(
    properties: Sequence[PropertyValue], settings: KubeletSettings
) -> Iterator[ExpectedValue]:
    """Yield the values of a pod's slice or a container's scope, unset ones as well."""
    stated = {each.name: each for each in properties}
    quota = "CPUQuotaPerSecUSec"
    for name in _slice_names(settings):
        yield _value(name, stated.get(name), depends_on_configuration=name == quota)
    if quota in stated:
        name = "CPUQuotaPeriodUSec"
        default = PropertyValue(
            name=name, value=QUOTA_PERIOD_USEC, why="cpuCFSQuotaPeriod, by default 100ms"
        )
        yield _value(name, stated.get(name, default), depends_on_configuration=True)


def _container_values(
    properties: Sequence[PropertyValue], linear: ContainerDecision, settings: KubeletSettings
) -> Iterator[ExpectedValue]:
    """Yield the values of a container's scope; its weight may also be linear.

    Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_container_linux.go,
    generateLinuxContainerConfig (memory.oom.group) and configureContainerSwapResources.
    """
    others = {each.name: each.value for each in linear.properties}
    for each in _limited_values(properties, settings):
        is_weight = each.name == "CPUWeight"
        yield replace(each, other=others[each.name]) if is_weight else each
    if settings.version >= _OOM_GROUP_SINCE:
        kills_all = settings.config.oom_policy is not OomPolicy.PROCESS
        why = f"singleProcessOOMKill: {'false' if kills_all else 'true'}"
        yield ExpectedValue(name="memory.oom.group", value=str(int(kills_all)), why=why)
    if settings.version >= _NO_SWAP_SINCE and not settings.swaps:
        yield ExpectedValue(name="memory.swap.max", value="0", why="swapBehavior: NoSwap")


def _tasks_max(settings: KubeletSettings) -> ExpectedValue:
    """Return the limit of a pod's processes.

    Source: Kubernetes, pkg/kubelet/cm/pod_container_manager_linux.go, EnsureExists, which sets it
    only for a new pod.
    """
    return ExpectedValue(
        name="TasksMax",
        value=settings.pod_pids_limit,
        why="podPidsLimit",
        depends_on_configuration=True,
    )


def _hugepage_values(hugepages: Mapping[int, int]) -> Iterator[ExpectedValue]:
    for size, limit in hugepages.items():
        for file in hugetlb_files(size):
            yield ExpectedValue(name=file, value=str(limit), why="requests of huge pages, or 0")


def _terminated(
    pods: Iterable[KubeletPod], active: Iterable[KubeletDecision], tree: Tree
) -> Mapping[UnitName, str]:
    """Return the slices that pods must not have, with the reason."""
    found = {
        tree.pod(each.pod.uid, qos): f"pod {each.pod.key} has ended"
        for each in pods
        if each.is_terminal
        for qos in Qos
    }
    for each in active:
        why = f"pod {each.pod.pod.key} is {each.decision.qos}"
        found |= dict.fromkeys(each.decision.elsewhere, why)
    return found


def _exceeding(desired: Desired) -> Iterator[AuditFinding]:
    """Yield the resources of which the pods request more than the node can allocate."""
    for name, allocatable in sorted(desired.allocation.allocatable.items()):
        requested = desired.requested.get(name, 0)
        if requested > allocatable:
            yield AuditFinding(
                kind=FindingKind.REQUESTS_EXCEED,
                object=desired.root,
                message=f"the pods request {format_amount(name, requested)} of {name}, allocatable"
                f" are {format_amount(name, allocatable)}",
                hint="move pods to another node, or lower the reservations; new pods are rejected",
            )


def _not_enforced(config: Config) -> Iterator[AuditFinding]:
    """Yield the slices of reservations that are named and not enforced."""
    enforced = config.enforce_node_allocatable
    for kind, cgroup in (
        (Enforce.KUBE_RESERVED, config.kube_reserved_cgroup),
        (Enforce.SYSTEM_RESERVED, config.system_reserved_cgroup),
    ):
        if cgroup and not enforced & {kind, Enforce(f"{kind}-compressible")}:
            yield AuditFinding(
                kind=FindingKind.NOT_ENFORCED,
                object=slice_of_cgroup(cgroup),
                message=f"it is the slice of {kind}, which is not enforced",
                hint=f"add {kind} to enforceNodeAllocatable",
            )


def _findings_of(decided: KubeletDecision, settings: KubeletSettings) -> Iterator[AuditFinding]:
    """Yield the findings that follow from one pod alone."""
    pod, shown = decided.pod.pod, ".".join(map(str, settings.version))
    if pod.resources and not decided.pod.has_own_level and not has_pod_level(settings):
        yield _finding(
            FindingKind.POD_LEVEL_IGNORED,
            decided,
            f"spec.resources has no effect: kubelet {shown} does not apply it",
            hint="enable the feature gate PodLevelResources, or run podslice agent --kubelet, see"
            " podslice-kubelet(7)",
        )
    by_status, by_resources = decided.decision.qos, decided.class_by_resources
    if by_status is not by_resources:
        yield _finding(
            FindingKind.STATUS_CLASS,
            decided,
            f"the pod remains {by_status}, as its status states; the resources that kubelet {shown}"
            f" applies would make it {by_resources}",
        )
    stated = decided.decision.pod
    for resource in (CPU, MEMORY):
        lacking = lacking_limit(stated, resource, Rules.PROPOSAL)
        is_counted = not lacking_limit(stated, resource, Rules.KUBERNETES)
        if lacking and is_counted and not stated.resources.limits.get(resource):
            names = ", ".join(each.name for each in lacking)
            yield _finding(
                FindingKind.SIDECAR,
                decided,
                f"{names} without a {resource} limit shares that of the pod, which is the sum of the"
                " others: the kubelet adds up a sidecar with those before it",
            )


def _finding(
    kind: FindingKind, decided: KubeletDecision, message: str, *, hint: str = ""
) -> AuditFinding:
    """Return a finding about a pod."""
    key = decided.pod.pod.key
    return AuditFinding(kind=kind, object=key, pod=key, message=message, hint=hint)


def _memory_qos(root: UnitName, settings: KubeletSettings) -> Iterator[AuditFinding]:
    if has_memory_qos(settings):
        yield AuditFinding(
            kind=FindingKind.MEMORY_QOS,
            object=root,
            message="MemoryMin and MemoryHigh are not compared: the feature gate MemoryQoS is on",
        )
