"""The pod levels that podslice sets on the slices of a kubelet that does not.

A slice has one of three values: the kubelet's, which follows from the containers, the pod level's, or
another one. Only the first two are ever replaced, so that the kubelet's own decisions persist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from podslice.errors import Problem, Severity
from podslice.features.kubelet.decision import (
    KubeletDecision,
    config_of,
    decide_pod,
    exclusive_containers,
    has_memory_qos,
)
from podslice.features.kubelet.node import (
    LEVEL_PROPERTIES,
    KubeletPod,
    KubeletSettings,
    LeftAlone,
    LeftReason,
    LevelChange,
    LevelPlan,
    LevelValues,
)
from podslice.model.config import MemoryProtection
from podslice.model.desired import PodDecision
from podslice.model.node import Node
from podslice.model.properties import (
    CPU_QUOTA,
    MEMORY_LOW,
    PREFIX,
    PROPERTIES,
    RESOURCES,
    format_value,
)
from podslice.model.unit import ObservedUnit, PropertyValue, UnitName
from podslice.policy.decide import decide
from podslice.policy.ownership import LIBCONTAINER

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
    """The slice of a pod as it is."""

    unit: ObservedUnit
    rewritten: frozenset[str] = frozenset()
    """The properties of which the kernel has another value than systemd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The part of a plan that concerns one pod."""

    pod: str
    unit: UnitName
    changes: tuple[PropertyValue, ...] = ()
    left: tuple[LeftAlone, ...] = ()
    own: Mapping[str, int | str] = field(default_factory=dict)


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
        removes: whether to replace all values of podslice by those of the kubelet.

    Source: Pod-Level Resource Limits, "Proof of Concept Architecture"; Kubernetes,
    pkg/kubelet/cm/helpers_linux.go, ResourceConfigForPod, for pods with a pod level.
    """
    outcomes = [
        _plan_pod(pod, slices, own, node, settings, removes=removes)
        for pod in pods
        if not pod.is_terminal
    ]
    lasting = slices.keys() - {each.unit for each in outcomes}
    return LevelPlan(
        changes=tuple(
            LevelChange(pod=each.pod, unit=each.unit, properties=each.changes)
            for each in outcomes
            if each.changes
        ),
        left=tuple(left for each in outcomes for left in each.left),
        own={unit: values for unit, values in own.items() if unit in lasting}
        | {each.unit: each.own for each in outcomes if each.own},
        pods={each.unit: each.pod for each in outcomes if each.own},
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


def _plan_pod(
    pod: KubeletPod,
    slices: Mapping[UnitName, SliceState],
    own: LevelValues,
    node: Node,
    settings: KubeletSettings,
    *,
    removes: bool,
) -> _Outcome:
    decided = decide_pod(pod, node, settings)
    unit = _slice_of(decided.decision, slices)
    state, before = slices.get(unit), own.get(unit, {})
    is_removed = removes or not (pod.pod.resources or _errors_of(pod.pod.problems, pod))
    level = None if is_removed else _decide_level(decided, node, settings)
    why = None if is_removed else _why_left(decided, level, state)
    if why is not None or state is None:
        left = () if why is None else (_leave(decided, unit, *why),)
        return _Outcome(pod=pod.pod.key, unit=unit, left=left, own=before if state else {})
    wanted = {} if level is None else _values_of(level, decided, settings)
    if not before and _is_set_already(decided, wanted, state):
        left = (_leave(decided, unit, LeftReason.KUBELET_APPLIES, _SET_ALREADY),)
        return _Outcome(pod=pod.pod.key, unit=unit, left=left)
    outcome = _compare(decided, wanted, state, before)
    excluded = {} if level is None else _excluded(decided, settings)
    more = (_leave(decided, unit, each, _WHY[each], name) for name, each in excluded.items())
    return replace(outcome, left=(*outcome.left, *more))


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


def _compare(
    decided: KubeletDecision,
    wanted: Mapping[str, PropertyValue],
    state: SliceState,
    before: Mapping[str, int | str],
) -> _Outcome:
    """Compare the properties of a slice with the kubelet's and the wanted ones."""
    kubelets = {each.name: each for each in decided.decision.properties}
    changes, left, own = [], [], {}
    for name in LEVEL_PROPERTIES:
        kubelets_own = kubelets.get(name) or _unset(name)
        target = wanted.get(name, kubelets_own)
        if target.value == kubelets_own.value and name not in before:
            continue
        unset = _unset(name).value
        found = state.unit.properties.get(name, unset)
        if found == target.value and name not in before:
            continue  # not podslice's, and not removed by it
        if found not in (target.value, kubelets_own.value, unset, before.get(name)):
            message = f"{PROPERTIES[name].key} is {format_value(name, found)}, {_OTHER_VALUE}"
            reason = LeftReason.OTHER_VALUE
            left.append(_leave(decided, state.unit.name, reason, message, name))
            continue
        if found != target.value or name in state.rewritten:
            changes.append(target)
        if target.value != kubelets_own.value:
            own[name] = target.value
    key, unit = decided.pod.pod.key, state.unit.name
    return _Outcome(pod=key, unit=unit, changes=tuple(changes), left=tuple(left), own=own)


def _unset(name: str) -> PropertyValue:
    return PropertyValue(name=name, value=PROPERTIES[name].unset or 0, why=_NOT_SET)


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

    Without a pod level there are those of an annotation that states none that is valid. Errors of
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


def _leave(
    decided: KubeletDecision,
    unit: UnitName,
    reason: LeftReason,
    message: str,
    name: str | None = None,
) -> LeftAlone:
    return LeftAlone(decided.pod.pod.key, unit, reason, message, property=name)
