"""The units of a node with a kubelet, and the value of each property and file."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from podslice.features.kubelet.model import (
    CONTAINERD,
    AuditFinding,
    ExpectedNode,
    ExpectedUnit,
    ExpectedValue,
    FindingKind,
    KubeletPod,
    KubeletSettings,
)
from podslice.features.kubelet.policy import (
    KubeletDecision,
    config_of,
    decide_otherwise,
    decide_pod,
    exclusive_containers,
    has_memory_qos,
    has_pod_level,
    level_values,
    rejects_pod_level,
)
from podslice.model.config import (
    Config,
    Enforce,
    OomPolicy,
    Rules,
    WeightMapping,
)
from podslice.model.desired import ContainerDecision, Desired
from podslice.model.naming import Tree, slice_of_cgroup
from podslice.model.node import Node
from podslice.model.pod import Qos
from podslice.model.properties import (
    ALLOWED_CPUS,
    ALLOWED_MEMORY_NODES,
    CPU_QUOTA,
    CPU_QUOTA_PERIOD,
    CPU_WEIGHT,
    MANAGED,
    MEMORY_HIGH,
    MEMORY_LOW,
    MEMORY_MIN,
    MEMORY_SWAP_MAX,
    QUOTA_PERIOD_USEC,
    TASKS_MAX,
)
from podslice.model.resources import CPU, MEMORY, hugetlb_files, human_amounts
from podslice.model.unit import INFINITY, DesiredUnit, PropertyValue, UnitKind, UnitName, Value
from podslice.policy.aggregate import lacking_limit
from podslice.policy.convert import MIN_SHARES, weight_from_shares
from podslice.policy.desire import desire

_OOM_GROUP_SINCE = (1, 28)
_NO_SWAP_SINCE = (1, 30)
_GUARDS = frozenset({MEMORY_HIGH, MEMORY_LOW, MEMORY_MIN})
"""The properties that the kubelet sets only with the feature MemoryQoS."""
_GUARDS_ON = "MemoryMin and MemoryHigh are not compared: the feature gate MemoryQoS is on"
_OOM_GROUP = "memory.oom.group"
_NOT_SET = "not set by the kubelet"
_UNBOUNDED = str(2**62)
"""The limit of huge pages that no size of memory reaches.

Source: Kubernetes, pkg/kubelet/cm/qos_container_manager_linux.go, setHugePagesUnbounded.
"""


def expect_node(
    pods: Iterable[KubeletPod],
    node: Node,
    settings: KubeletSettings,
    *,
    default_tasks_max: int | None = None,
) -> ExpectedNode:
    """Return the units of a node with a kubelet, and the findings that follow from its pods.

    `default_tasks_max` is the limit of processes that systemd gives to a scope that states none.

    Source: Kubernetes v1.36.2 with containerd 2.1.9 and runc 1.3.6; pkg/kubelet/cm,
    node_container_manager_linux.go, qos_container_manager_linux.go and
    pod_container_manager_linux.go; pkg/kubelet/kuberuntime/kuberuntime_container_linux.go.
    """
    pods = tuple(pods)
    config = config_of(settings)
    # A pod that has ended has no slice, and its requests do not count in the tiers.
    active = [decide_pod(each, node, settings) for each in pods if not each.is_terminal]
    desired = desire([each.decision for each in active], node, config)
    tree = Tree(cgroup_root=config.cgroup_root)
    values = ExpectedValues(node, settings, default_tasks_max)
    units = [
        ExpectedUnit(
            name=unit.name,
            control_group=unit.control_group,
            values=tuple(values.of_node(unit, is_root=unit.name == desired.root)),
        )
        for unit in desired.units
        if unit.pod is None
    ]
    for each in active:
        units += values.pod_units(each)
    return ExpectedNode(
        root=tree.root,
        units=tuple(units),
        sandbox=tuple(values.of_sandbox()),
        terminated=_terminated(pods, active, tree),
        findings=(
            *_node_findings(desired, tree.root, config, settings),
            *(found for each in active for found in _pod_findings(each, settings)),
            *(
                [AuditFinding(FindingKind.MEMORY_QOS, tree.root, _GUARDS_ON)]
                if values.guards
                else ()
            ),
        ),
        cpus=desired.allocation.capacity.get(CPU, 0) // 1000,
    )


class ExpectedValues:
    """The values that a kubelet and its runtime set on a node."""

    def __init__(
        self, node: Node, settings: KubeletSettings, default_tasks_max: int | None
    ) -> None:
        self._node, self._settings = node, settings
        self.guards = _GUARDS if has_memory_qos(settings) else frozenset[str]()
        """The properties of memory that are not compared."""
        default = PropertyValue(
            name=TASKS_MAX, value=default_tasks_max or 0, why="DefaultTasksMax of systemd"
        )
        self._default_tasks = () if default_tasks_max is None else (default,)
        """The limit of processes of a scope that states none."""

    def of_node(self, unit: DesiredUnit, *, is_root: bool) -> Iterator[ExpectedValue]:
        """Yield the values of a slice outside of pods; of a reserved one only those that are stated."""
        sizes = self._node.hugepage_sizes
        if not unit.owned:
            yield from (_value(each.name, each) for each in unit.properties)
            yield from _hugepage_values(dict.fromkeys(sizes, 0), "0: an enforced slice")
            return
        # `audit` reports the CPUs of the root in a separate finding
        others = frozenset({ALLOWED_CPUS} if is_root else ())
        for each in self._all_values(unit.kind, unit.properties, without=others):
            yield each._replace(is_periodic=each.has_source and unit.is_tier)
        for file in chain.from_iterable(map(hugetlb_files, sizes)):
            yield ExpectedValue(
                name=file, value=_UNBOUNDED, also="max", why="unbounded", is_periodic=True
            )

    def _all_values(
        self,
        kind: UnitKind,
        properties: Iterable[PropertyValue],
        *,
        without: Container[str] = (),
    ) -> Iterator[ExpectedValue]:
        """Yield the value of every managed property, set or not, and the files without a property."""
        stated = {each.name: each for each in properties}
        # those that are stated first
        for name in dict.fromkeys((*stated, *MANAGED[kind])):
            # A period that is not stated is not compared: without a quota it has no effect.
            is_compared = name != CPU_QUOTA_PERIOD and name not in self.guards
            if name in stated or (is_compared and name not in without):
                yield _value(name, stated.get(name))
        yield ExpectedValue(name="cgroup.freeze", value="0", why=_NOT_SET, has_source=False)
        if kind is UnitKind.SLICE:
            yield ExpectedValue(name=_OOM_GROUP, value="0", why=_NOT_SET, has_source=False)

    def pod_units(self, decided: KubeletDecision) -> Iterator[ExpectedUnit]:
        """Yield the slice of a pod, and the scopes of its running containers."""
        decision, settings = decided.decision, self._settings
        exclusive = exclusive_containers(decided, settings)
        otherwise = decide_otherwise(decided.pod, self._node, settings)
        level = level_values(decided, self._node, settings)
        yield ExpectedUnit(
            name=decision.slice,
            control_group=decision.control_group,
            pod=decided.pod,
            is_required=decided.pod.is_running,
            values=(
                *(
                    each._replace(pod_level=level[each.name].value) if each.name in level else each
                    for each in self._limited_values(
                        UnitKind.SLICE,
                        (*decision.properties, _tasks_max(settings)),
                        otherwise.properties,
                        is_exclusive=bool(exclusive),
                    )
                ),
                *_hugepage_values(decision.hugepages, "requests of huge pages, or 0"),
            ),
        )
        for stated, container, other in zip(
            decision.pod.containers, decision.containers, otherwise.containers, strict=True
        ):
            scope = decided.pod.scopes.get(container.name)
            if scope is None:
                continue
            is_exclusive = container.name in exclusive
            values = self.of_container(container, other, scope, is_exclusive=is_exclusive)
            yield ExpectedUnit(
                name=scope,
                control_group=f"{decision.control_group}/{scope}",
                pod=decided.pod,
                container=container.name,
                exclusive_cpus=stated.resources.limits[CPU] // 1000 if is_exclusive else 0,
                values=tuple(values),
            )

    def of_sandbox(self) -> Iterator[ExpectedValue]:
        """Yield the values of the scope of a sandbox, which are the same for all pods.

        Source: containerd 2.1.9, internal/cri/opts/spec_linux.go, DefaultSandboxCPUshares.
        """
        weight = weight_from_shares(MIN_SHARES, WeightMapping.KUBELET, container=True)
        why = f"a sandbox → {MIN_SHARES} shares"
        stated = PropertyValue(name=CPU_WEIGHT, value=weight, why=why)
        yield from self._all_values(UnitKind.SCOPE, (stated, *self._default_tasks))
        yield ExpectedValue(name=_OOM_GROUP, value="0", why=_NOT_SET, has_source=False)

    def _limited_values(
        self,
        kind: UnitKind,
        properties: Sequence[PropertyValue],
        otherwise: Iterable[PropertyValue],
        *,
        is_exclusive: bool,
        without: Container[str] = (),
    ) -> Iterator[ExpectedValue]:
        """Yield the values of a pod's slice or a container's scope; exclusive CPUs have no quota.

        A pod may have values from before a change of the configuration: of cpuCFSQuota no quota, or
        the quota of the limits.
        """
        if is_exclusive:
            properties = [e for e in properties if e.name not in {CPU_QUOTA, CPU_QUOTA_PERIOD}]
        names = {each.name for each in properties}
        if CPU_QUOTA in names and CPU_QUOTA_PERIOD not in names:
            why = "cpuCFSQuotaPeriod, by default 100ms"
            period = PropertyValue(name=CPU_QUOTA_PERIOD, value=QUOTA_PERIOD_USEC, why=why)
            properties = (*properties, period)
        # a kubelet with another configuration changes neither quota nor period of a running pod
        quotas = frozenset({INFINITY, *(e.value for e in otherwise if e.name == CPU_QUOTA)})
        older: dict[str, frozenset[Value] | None] = {CPU_QUOTA: quotas, CPU_QUOTA_PERIOD: None}
        if kind is UnitKind.SLICE:
            older[TASKS_MAX] = None
        for each in self._all_values(kind, properties, without=without):
            yield each._replace(older=older[each.name]) if each.name in older else each

    def of_container(
        self,
        container: ContainerDecision,
        otherwise: ContainerDecision,
        scope: UnitName,
        *,
        is_exclusive: bool,
    ) -> Iterator[ExpectedValue]:
        """Yield the values of a container's scope; its weight may also be linear.

        Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_container_linux.go,
        generateLinuxContainerConfig (memory.oom.group) and configureContainerSwapResources;
        containerd, docs/cri/config.md, disable_hugetlb_controller (true by default).
        """
        settings = self._settings
        weights = {each.name: each.value for each in otherwise.properties}
        without = {
            ALLOWED_CPUS: settings.has_static_cpus,
            ALLOWED_MEMORY_NODES: settings.has_static_memory,
            MEMORY_SWAP_MAX: settings.version < _NO_SWAP_SINCE,
        }
        left_out = {name for name, is_left_out in without.items() if is_left_out}
        properties = [
            each
            for each in container.properties
            if each.name != MEMORY_SWAP_MAX or MEMORY_SWAP_MAX not in left_out
        ]
        for each in self._limited_values(
            UnitKind.SCOPE,
            # only the default of containerd's scopes is known
            (*properties, *(self._default_tasks if scope.startswith(CONTAINERD) else ())),
            otherwise.properties,
            is_exclusive=is_exclusive,
            without=left_out,
        ):
            if each.name == CPU_WEIGHT:
                yield each._replace(other=weights[CPU_WEIGHT])
            elif each.name == MEMORY_SWAP_MAX:
                yield each._replace(also=INFINITY)  # a runtime may write the file beside systemd
            else:
                yield each
        if settings.version >= _OOM_GROUP_SINCE:
            kills_all = settings.config.oom_policy is not OomPolicy.PROCESS
            why = f"singleProcessOOMKill: {'false' if kills_all else 'true'}"
            yield ExpectedValue(name=_OOM_GROUP, value=str(int(kills_all)), why=why)
        for each in _hugepage_values(container.hugepages, "limits of huge pages, or 0"):
            yield each._replace(also="max")


def _tasks_max(settings: KubeletSettings) -> PropertyValue:
    """Return the limit of a pod's processes.

    Source: Kubernetes, pkg/kubelet/cm/pod_container_manager_linux.go, EnsureExists, which sets it
    only for a new pod.
    """
    limit = INFINITY if settings.pod_pids_limit is None else settings.pod_pids_limit
    return PropertyValue(name=TASKS_MAX, value=limit, why="podPidsLimit")


def _value(name: str, stated: PropertyValue | None) -> ExpectedValue:
    if stated is None:
        return ExpectedValue(name=name, value=None, why=_NOT_SET, has_source=False)
    return ExpectedValue(name=name, value=stated.value, why=stated.why)


def _hugepage_values(hugepages: Mapping[int, int], why: str) -> Iterator[ExpectedValue]:
    for size, limit in hugepages.items():
        for file in hugetlb_files(size):
            yield ExpectedValue(name=file, value=str(limit), why=why)


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


def _node_findings(
    desired: Desired, root: UnitName, config: Config, settings: KubeletSettings
) -> Iterator[AuditFinding]:
    """Yield the findings about what the pods request together, and about the configuration."""
    for name, allocatable in sorted(desired.allocation.allocatable.items()):
        requested = desired.requested.get(name, 0)
        if requested > allocatable:
            asked, most = human_amounts(name, requested, allocatable)
            yield AuditFinding(
                kind=FindingKind.REQUESTS_EXCEED,
                object=desired.root,
                message=f"the pods request {asked} of {name}, allocatable are {most}",
                hint="move pods to another node, or lower the reservations; new pods are rejected",
            )

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

    if settings.has_cgroupfs:
        yield AuditFinding(
            kind=FindingKind.CGROUP_DRIVER,
            object=root,
            message="the configuration states cgroupDriver: cgroupfs: the kubelet creates control"
            " groups without units, unless the container runtime states another driver",
            hint="state cgroupDriver: systemd, drain the node, and restart the kubelet",
        )
    for signal in settings.ignored_thresholds:
        yield AuditFinding(
            kind=FindingKind.NO_THRESHOLD,
            object=root,
            message=f"the kubelet ignores the hard eviction threshold of {signal}: it is 0% or 100%,"
            " so that it evicts no pod before the kernel acts",
            hint=f"state an amount for {signal} in evictionHard: memory.available has 100Mi by"
            " default",
        )


def _pod_findings(decided: KubeletDecision, settings: KubeletSettings) -> Iterator[AuditFinding]:
    """Yield the findings that follow from one pod alone."""
    pod, shown = decided.pod.pod, ".".join(map(str, settings.version))
    if pod.resources and not decided.pod.has_own_level and not has_pod_level(settings):
        annotation = (
            "state the annotation podslice.io/resources in place of it for podslice agent --kubelet,"
            " see podslice-kubelet(7)"
        )
        if rejects_pod_level(settings):
            message = (
                f"kubelet {shown} without the feature gate PodLevelResources rejects pods with"
                " spec.resources (PodLevelResourcesNotSupported); it has no effect on this one, which"
                " was accepted before"
            )
            hint = f"enable the feature gate, or {annotation}"
            yield AuditFinding(FindingKind.POD_LEVEL_REJECTED, pod.key, message, hint, pod.key)
        else:
            message = f"spec.resources has no effect: kubelet {shown} does not know it"
            hint = f"run podslice agent --kubelet, or {annotation}"
            yield AuditFinding(FindingKind.POD_LEVEL_IGNORED, pod.key, message, hint, pod.key)
    by_status, by_resources = decided.decision.qos, decided.class_by_resources
    if by_status is not by_resources:
        message = (
            f"the pod remains {by_status}, as its status states; the resources that kubelet {shown}"
            f" applies would make it {by_resources}"
        )
        yield AuditFinding(FindingKind.STATUS_CLASS, pod.key, message, pod=pod.key)
    stated = decided.decision.pod
    for resource in (CPU, MEMORY):
        lacking = lacking_limit(stated, resource, Rules.PROPOSAL)
        is_counted = not lacking_limit(stated, resource, Rules.KUBERNETES)
        if lacking and is_counted and not stated.resources.limits.get(resource):
            names = ", ".join(each.name for each in lacking)
            message = (
                f"{names} without a {resource} limit shares that of the pod, which is the sum of the"
                " others: the kubelet adds up a sidecar with those before it"
            )
            yield AuditFinding(FindingKind.SIDECAR, pod.key, message, pod=pod.key)
