"""The decision on one pod of a kubelet, under the kubelet's rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from podslice.errors import Problem, Severity
from podslice.features.kubelet.model import (
    LEVEL_PROPERTIES,
    KubeletPod,
    KubeletSettings,
    LeftAlone,
    LeftReason,
    LevelChange,
    LevelPlan,
    LevelValues,
)
from podslice.model.config import (
    VERSION_RULES,
    Config,
    MemoryProtection,
    Rules,
    WeightMapping,
    version_of,
)
from podslice.model.desired import PodDecision
from podslice.model.node import Node
from podslice.model.pod import Pod, Qos
from podslice.model.properties import (
    CPU_QUOTA,
    MEMORY_LOW,
    PREFIX,
    PROPERTIES,
    RESOURCES,
    format_value,
)
from podslice.model.resources import CPU, Resources
from podslice.model.unit import ObservedUnit, PropertyValue, UnitName
from podslice.policy.decide import decide
from podslice.policy.ownership import LIBCONTAINER

_POD_LEVEL_KNOWN_SINCE = (1, 32)
_POD_LEVEL_SINCE = (1, 34)
_NO_QUOTA_SINCE = (1, 33)


class KubeletDecision(NamedTuple):
    """A pod of the kubelet with the decision about it."""

    pod: KubeletPod
    decision: PodDecision
    """In the class that the pod's status states."""
    class_by_resources: Qos
    """The class that follows from the resources that the kubelet knows."""


def has_pod_level(settings: KubeletSettings) -> bool:
    """Return whether the kubelet applies `spec.resources`.

    Source: Kubernetes, pkg/features/kube_features.go, PodLevelResources: alpha in 1.32, on by
    default since 1.34.
    """
    return settings.feature_gates.get("PodLevelResources", settings.version >= _POD_LEVEL_SINCE)


def rejects_pod_level(settings: KubeletSettings) -> bool:
    """Return whether the kubelet knows `spec.resources`, and rejects pods with it.

    Source: Kubernetes, pkg/kubelet/lifecycle/features_linux.go, since 1.32:
    PodLevelResourcesNotSupported.
    """
    return settings.version >= _POD_LEVEL_KNOWN_SINCE and not has_pod_level(settings)


def has_memory_qos(settings: KubeletSettings) -> bool:
    """Return whether the kubelet protects and throttles memory.

    Source: Kubernetes, pkg/features/kube_features.go, MemoryQoS: alpha, off by default; since 1.37
    on by default, without an effect unless a factor or a policy is configured (KEP-2570).
    """
    rules = VERSION_RULES[version_of(settings.version)]
    is_on = settings.feature_gates.get("MemoryQoS", rules.has_memory_qos)
    has_default = rules.throttling_factor_milli is not None
    return is_on and (has_default or settings.configures_memory_qos)


def config_of(settings: KubeletSettings) -> Config:
    """Return the configuration under the kubelet's rules.

    The kubelet protects no memory, and adds no huge pages to memory limits.
    """
    return replace(
        settings.config,
        rules=Rules.KUBERNETES,
        kubernetes_version=version_of(settings.version),
        cpu_weight_mapping=WeightMapping.KUBELET,
        memory_protection=MemoryProtection.NONE,
        memory_hugetlb_accounting=False,
        # the kubelet has admitted its pods already
        admission=False,
    )


def decide_pod(pod: KubeletPod, node: Node, settings: KubeletSettings) -> KubeletDecision:
    """Decide a pod as its kubelet does: the class of its status has effect on the slice only.

    Source: Kubernetes, pkg/apis/core/v1/helper/qos/qos.go, GetPodQOS (the class in the status, or the
    computed one where it has none); pkg/kubelet/kuberuntime/kuberuntime_container_linux.go,
    calculateLinuxResources, which does not ask for the class.
    """
    config = config_of(settings)
    stated = as_known(pod, settings)
    decision = by_resources = decide(stated, node, config)
    # an API server that is newer than the kubelet may have put the pod into another class
    if pod.qos not in {None, by_resources.qos}:
        in_class = decide(stated, node, config, qos=pod.qos)
        decision = replace(in_class, containers=by_resources.containers)
    return KubeletDecision(pod=pod, decision=decision, class_by_resources=by_resources.qos)


def decide_otherwise(pod: KubeletPod, node: Node, settings: KubeletSettings) -> PodDecision:
    """Decide a pod where the weights of the runtime are linear, and the kubelet sets quotas."""
    config = replace(
        config_of(settings), cpu_weight_mapping=WeightMapping.KUBELET_LINEAR, cpu_cfs_quota=True
    )
    return decide(as_known(pod, settings), node, config)


def as_known(pod: KubeletPod, settings: KubeletSettings) -> Pod:
    """Return a pod as the kubelet knows it: without podslice's annotations."""
    containers = tuple(replace(each, properties={}) for each in pod.pod.containers)
    is_known = has_pod_level(settings) and not pod.has_own_level
    known = pod.pod if is_known else replace(pod.pod, resources=Resources(), has_empty_level=False)
    return replace(known, properties={}, containers=containers)


def exclusive_containers(decided: KubeletDecision, settings: KubeletSettings) -> frozenset[str]:
    """Return the containers with exclusive CPUs, for which the kubelet sets no quota.

    Source: Kubernetes, pkg/kubelet/cm/cpumanager/policy_static.go, guaranteedCPUs (whole CPUs in a
    Guaranteed pod without a pod level); pkg/features/kube_features.go,
    DisableCPUQuotaWithExclusiveCPUs: on by default since 1.33.
    """
    decision = decided.decision
    gate = settings.feature_gates.get(
        "DisableCPUQuotaWithExclusiveCPUs", settings.version >= _NO_QUOTA_SINCE
    )
    # A request below the limit excludes the class, so that the limit alone shows whole CPUs.
    is_possible = settings.has_static_cpus and decision.qos is Qos.GUARANTEED
    if not gate or not is_possible or decision.pod.resources:
        return frozenset()
    return frozenset(
        each.name
        for each in decision.pod.containers
        if (limit := each.resources.limits.get(CPU, 0)) and limit % 1000 == 0
    )


_LEVEL = "resources"
"""The place of the pod level in the spec."""
_ANNOTATION = f"{PREFIX}{RESOURCES}"
_OF_KUBELET = frozenset(LEVEL_PROPERTIES) - {MEMORY_LOW}
"""The properties that a kubelet with pod levels sets as well."""
_NOT_SET = "not set by the kubelet"
_SET_ALREADY = "its slice has the values of spec.resources already, which podslice has not set"
_OTHER_VALUE = "which follows neither from the containers nor from the pod level"
_WHY: Mapping[LeftReason, str] = {
    LeftReason.KUBELET_APPLIES: "the kubelet applies spec.resources itself",
    LeftReason.NO_SLICE: "the kubelet has no slice for it",
    LeftReason.NOT_CREATED_BY_KUBELET: "its slice was not created by a kubelet",
    LeftReason.RESIZING: "the kubelet changes its resources in place",
    LeftReason.EXCLUSIVE_CPUS: "its containers have CPUs of their own, which have no quota",
    LeftReason.MEMORY_QOS: "the kubelet protects memory itself (MemoryQoS)",
}


class SliceState(NamedTuple):
    """The present slice of a pod."""

    unit: ObservedUnit
    rewritten: frozenset[str] = frozenset()
    """The properties of which the kernel has another value than systemd."""


def plan_levels(
    pods: Iterable[KubeletPod],
    slices: Mapping[UnitName, SliceState],
    own: LevelValues,
    node: Node,
    settings: KubeletSettings,
    *,
    removes: bool = False,
) -> LevelPlan:
    """Return the properties to set, so that pod levels apply that the kubelet does not apply.

    Pods without a pod level are left alone, except for values that podslice has set before.

    Args:
        pods: all pods of the kubelet.
        slices: the loaded slices below its root.
        own: the values that podslice has set; a kubelet that has just started lists no pods yet.
        node: the host.
        settings: the kubelet's configuration.
        removes: whether to set all properties back to the kubelet's values.

    Source: Pod-Level Resource Limits, "Proof of Concept Architecture"; Kubernetes,
    pkg/kubelet/cm/helpers_linux.go, ResourceConfigForPod, for pods with a pod level.
    """
    planner = _Planner(slices, own, node, settings)
    for pod in pods:
        if not pod.is_terminal:
            planner.plan(pod, removes=removes)
    # Slices without a listed pod: a kubelet that has just started does not list all pods yet.
    lasting = slices.keys() - planner.units
    return LevelPlan(
        changes=tuple(planner.changes),
        left=tuple(planner.left),
        own={**{unit: own[unit] for unit in own if unit in lasting}, **planner.own},
        pods=planner.pods,
    )


def level_values(
    decided: KubeletDecision, node: Node, settings: KubeletSettings
) -> Mapping[str, PropertyValue]:
    """Return the values of the pod level by property; none where the kubelet applies it itself."""
    level = _decide_level(decided, node, settings)
    return {} if level is None else _values_of(level, decided, settings)


def _decide_level(
    decided: KubeletDecision, node: Node, settings: KubeletSettings
) -> PodDecision | None:
    """Decide a pod as a kubelet with pod levels does, with its memory request as protection.

    None if it has no pod level, or the kubelet applies it itself.
    """
    if decided.decision.pod.resources or not decided.pod.pod.resources:
        return None
    config = replace(config_of(settings), memory_protection=MemoryProtection.LOW)
    return decide(replace(decided.pod.pod, properties={}), node, config)


def _values_of(
    level: PodDecision, decided: KubeletDecision, settings: KubeletSettings
) -> Mapping[str, PropertyValue]:
    """Return the values of a pod level that are not the kubelet's alone."""
    excluded = _excluded(decided, settings)
    return {
        each.name: each
        for each in level.properties
        if each.name in LEVEL_PROPERTIES and each.name not in excluded
    }


def _excluded(decided: KubeletDecision, settings: KubeletSettings) -> Mapping[str, LeftReason]:
    """Return the properties that belong to the kubelet alone."""
    found = {}
    if exclusive_containers(decided, settings):
        found[CPU_QUOTA] = LeftReason.EXCLUSIVE_CPUS
    if has_memory_qos(settings):
        found[MEMORY_LOW] = LeftReason.MEMORY_QOS
    return found


class _Planner:
    """The plan for the pods of a kubelet, one after the other."""

    def __init__(
        self,
        slices: Mapping[UnitName, SliceState],
        own: LevelValues,
        node: Node,
        settings: KubeletSettings,
    ) -> None:
        self._slices, self._before, self._node, self._settings = slices, own, node, settings
        self.units: set[UnitName] = set()
        """The slices of all pods."""
        self.changes: list[LevelChange] = []
        self.left: list[LeftAlone] = []
        self.own: dict[UnitName, Mapping[str, int | str]] = {}
        self.pods: dict[UnitName, str] = {}

    def plan(self, pod: KubeletPod, *, removes: bool) -> None:
        """Add what concerns one pod."""
        decided = decide_pod(pod, self._node, self._settings)
        unit, key = _slice_of(decided.decision, self._slices), pod.pod.key
        self.units.add(unit)
        state, before = self._slices.get(unit), self._before.get(unit, {})
        is_removed = removes or not (pod.pod.resources or _errors_of(pod.pod.problems, pod))
        level = None if is_removed else _decide_level(decided, self._node, self._settings)
        why = None if is_removed else _why_left(decided, level, state)
        wanted = {} if level is None else _values_of(level, decided, self._settings)
        if why is not None:
            self.left.append(LeftAlone(key, unit, *why))
        if why is not None or state is None:
            own = before if state else {}
        elif not before and _is_set_already(decided, wanted, state):
            reason = LeftReason.KUBELET_APPLIES
            self.left.append(LeftAlone(key, unit, reason, _SET_ALREADY))
            own = {}
        else:
            own = self._compare(decided, wanted, state, before)
            excluded = {} if level is None else _excluded(decided, self._settings)
            for name, reason in excluded.items():
                self.left.append(LeftAlone(key, unit, reason, _WHY[reason], name))
        if own:
            self.own[unit], self.pods[unit] = own, key

    def _compare(
        self,
        decided: KubeletDecision,
        wanted: Mapping[str, PropertyValue],
        state: SliceState,
        before: Mapping[str, int | str],
    ) -> Mapping[str, int | str]:
        """Compare the properties of a slice with the kubelet's and the wanted ones.

        Return the values of podslice once the changes are made.
        """
        key, unit = decided.pod.pod.key, state.unit.name
        kubelets = {each.name: each for each in decided.decision.properties}
        changes, own = [], {}
        for name in LEVEL_PROPERTIES:
            unset = PropertyValue(name=name, value=PROPERTIES[name].unset or 0, why=_NOT_SET)
            kubelets_own = kubelets.get(name, unset)
            target = wanted.get(name, kubelets_own)
            # Nothing to set, and nothing of podslice's to set back.
            if target.value == kubelets_own.value and name not in before:
                continue
            found = state.unit.properties.get(name, unset.value)
            if found == target.value and name not in before:
                continue  # not podslice's, and not removed by it
            # never replace a value that neither the kubelet, nor podslice, nor a default explains
            if found not in (target.value, kubelets_own.value, unset.value, before.get(name)):
                message = f"{PROPERTIES[name].key} is {format_value(name, found)}, {_OTHER_VALUE}"
                self.left.append(LeftAlone(key, unit, LeftReason.OTHER_VALUE, message, name))
                continue
            if found != target.value or name in state.rewritten:
                changes.append(target)
            if target.value != kubelets_own.value:
                own[name] = target.value
        if changes:
            self.changes.append(LevelChange(pod=key, unit=unit, properties=tuple(changes)))
        return own


def _is_set_already(
    decided: KubeletDecision, wanted: Mapping[str, PropertyValue], state: SliceState
) -> bool:
    """Return whether a slice has all values of `spec.resources` that a kubelet would set.

    The kubelet then applies them itself, other than its version and its feature gates state.
    """
    kubelets = {each.name: each.value for each in decided.decision.properties}
    differing = [
        each
        for name, each in wanted.items()
        if name in _OF_KUBELET and each.value != kubelets.get(name)
    ]
    if decided.pod.has_own_level or not differing:
        return False
    return all(state.unit.properties.get(each.name) == each.value for each in differing)


def _slice_of(decision: PodDecision, slices: Collection[UnitName]) -> UnitName:
    """Return the slice of a pod, also one of another class than podslice computes.

    Source: Kubernetes, pkg/apis/core/v1/helper/qos/qos.go, GetPodQOS: the class in the status.
    """
    names = (decision.slice, *decision.elsewhere)
    return next((name for name in names if name in slices), decision.slice)


def _why_left(
    decided: KubeletDecision, level: PodDecision | None, state: SliceState | None
) -> tuple[LeftReason, str] | None:
    """Return why a pod with a pod level is left alone, with a sentence; None if it is not."""
    pod = decided.pod
    if level is not None:
        problems = level.problems
    else:
        problems = () if pod.pod.resources else pod.pod.problems
    if errors := _errors_of(problems, pod):
        return LeftReason.INVALID, "; ".join(errors)
    if level is None:
        reason = LeftReason.KUBELET_APPLIES
    elif state is None:
        reason = LeftReason.NO_SLICE
    elif state.unit.description != LIBCONTAINER + state.unit.name:
        reason = LeftReason.NOT_CREATED_BY_KUBELET
    elif decided.pod.is_resizing:
        reason = LeftReason.RESIZING
    else:
        return None
    return reason, _WHY[reason]


def _errors_of(problems: Iterable[Problem], pod: KubeletPod) -> list[str]:
    """Return the errors of a pod level, with their places in the annotation or the spec.

    Without a pod level, the annotation may have errors that keep it from stating one. Errors of
    podslice's other annotations have no effect here.
    """
    found = []
    for each in problems:
        place = each.where.removeprefix(f"{pod.pod.where}: ").removeprefix(f"{pod.pod.spec_where}.")
        _, is_stated, below = place.partition(f"[{_ANNOTATION}]")
        if is_stated or (pod.has_own_level and place.startswith(_LEVEL)):
            place = f"{_ANNOTATION}{below if is_stated else place.removeprefix(_LEVEL)}"
        elif not pod.pod.resources or f"[{PREFIX}" in place:
            continue
        if each.severity is Severity.ERROR:
            found.append(str(replace(each, where=place)))
    return found
