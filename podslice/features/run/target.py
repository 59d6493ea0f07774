"""The place of a container: its pod, its unit and the properties of the unit."""

from __future__ import annotations

from difflib import get_close_matches
from typing import NamedTuple

from podslice.errors import HostError, InputError, Problem
from podslice.model.desired import ContainerDecision, PodDecision
from podslice.model.naming import describe_container, service_name
from podslice.model.unit import Observed, ObservedUnit, TransientUnit, UnitName, Value
from podslice.plan.make import feasible
from podslice.reconcile.assess import Assessment


class Place(NamedTuple):
    """A container of an applied pod, with the observed units."""

    pod: PodDecision
    container: ContainerDecision
    observed: Observed
    initializing: bool
    """Whether the pod is in its init phase."""

    @property
    def service(self) -> UnitName:
        """The service of the container where systemd starts it."""
        return service_name(self.container.scope)

    @property
    def slice_group(self) -> str:
        """The control group of the pod's slice."""
        unit = self.observed.units.get(self.pod.slice)
        return (unit.control_group if unit else "") or self.pod.control_group

    @property
    def unit(self) -> ObservedUnit | None:
        """The active scope or service of the container."""
        for name in (self.container.scope, self.service):
            unit = self.observed.units.get(name)
            if unit is not None and unit.active_state not in ("inactive", "failed"):
                return unit
        return None

    @property
    def full_name(self) -> str:
        """`container web of pod default/site`."""
        return f"container {self.container.name} of pod {self.pod.pod.key}"


def find_pod(assessment: Assessment, key: str) -> PodDecision:
    """Return an applied pod.

    Raises:
        HostError: it is not applied.
    """
    for pod in assessment.desired.pods:
        if pod.pod.key == key:
            return pod
    names = {pod.pod.name: pod.pod.key for pod in assessment.desired.pods}
    near = get_close_matches(key.rpartition("/")[2], names, n=1)
    hint = (
        f"did you mean {names[near[0]]}?"
        if near
        else "apply its manifest first: podslice apply -f FILE"
    )
    raise HostError(f"pod {key} is not applied; {hint}")


def find_slice(assessment: Assessment, key: str) -> PodDecision:
    """Return an applied pod whose slice exists.

    Raises:
        HostError: the pod is not applied, or its slice does not exist.
    """
    pod = find_pod(assessment, key)
    slice_ = assessment.observed.units.get(pod.slice)
    # A slice that exists only because of a unit in it has none of the pod's values.
    if slice_ is None or slice_.active_state != "active" or not slice_.transient:
        raise HostError(
            f"{pod.slice}, the slice of pod {key}, does not exist; to create it: podslice apply"
        )
    return pod


def find_place(assessment: Assessment, key: str, container: str | None) -> Place:
    """Return the place of a container; without a name, of the pod's only container.

    Raises:
        HostError: the pod is not applied, or its slice does not exist.
        InputError: the pod does not have the container, or has several and none is named.
    """
    pod = find_slice(assessment, key)
    return Place(
        pod=pod,
        container=find_container(pod, container),
        observed=assessment.observed,
        initializing=key in assessment.desired.initializing,
    )


def find_container(pod: PodDecision, name: str | None) -> ContainerDecision:
    """Return a container of a pod; without a name, its only container.

    Raises:
        InputError: the pod does not have the container, or has several and none is named.
        HostError: the containers are unknown, since the record is lost.
    """
    if not pod.scopes:
        raise HostError(
            f"the containers of pod {pod.pod.key} are unknown, since its record is lost; apply its"
            " manifest again: podslice apply -f FILE"
        )
    if name is None and len(pod.scopes) == 1:
        return pod.scopes[0]
    names = ", ".join(each.name for each in pod.scopes)
    for each in pod.scopes:
        if each.name == name:
            return each
    what = "it has several containers" if name is None else f"it has no container {name!r}"
    raise InputError(
        Problem(where=f"pod {pod.pod.key}", message=what, hint=f"name one with -c: {names}")
    )


def container_properties(place: Place) -> dict[str, Value]:
    """Return the properties of a container's scope or service, without its processes.

    The unit is delegated, so that more processes can be moved into it and runtimes can nest.
    """
    caps = place.observed.caps
    takes, _ = feasible(place.container.scope, place.container.properties, caps)
    mounts = tuple(volume.unit for volume in place.pod.volumes)
    return {
        "Description": describe_container(place.pod.pod, place.container.name),
        "Slice": place.pod.slice,
        "Delegate": True,
        # a failed unit would stay loaded, and the next start would find its name taken
        "CollectMode": "inactive-or-failed",
        # systemd's default for delegated units is to continue
        "OOMPolicy": "kill" if place.container.oom_group else "continue",
        "TimeoutStopUSec": place.pod.pod.grace_period_sec * 1_000_000,
        "CPUAccounting": True,
        "IOAccounting": True,
        "MemoryAccounting": True,
        "TasksAccounting": True,
        # volumes are unmounted after it has stopped
        **({"After": mounts} if mounts and not caps.manager.is_user else {}),
        **{name: property_.value for name, property_ in takes.items()},
    }


def scope_of(place: Place, processes: dict[str, Value]) -> TransientUnit:
    """Return the container's scope; `processes` is `{"PIDs": …}` or `{"PIDFDs": …}`."""
    properties = {**container_properties(place), **processes}
    return TransientUnit(name=place.container.scope, properties=properties)
