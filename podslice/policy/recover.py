"""Recovery of a pod from its slice, if its record is lost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from podslice.model.config import Config, WeightMapping
from podslice.model.naming import Tree, parse_description, volume_path
from podslice.model.pod import Container, MemoryVolume, Pod, Qos
from podslice.model.properties import (
    ANNOTATIONS,
    CPU_QUOTA,
    CPU_QUOTA_PERIOD,
    CPU_WEIGHT,
    MEMORY_LOW,
    MEMORY_MAX,
    MEMORY_MIN,
    OOM_SCORE_ADJ,
    PROPERTIES,
    TASKS_MAX,
)
from podslice.model.quantity import tmpfs_size_bytes
from podslice.model.resources import CPU, MEMORY, PIDS, Resources
from podslice.model.unit import INFINITY, ObservedUnit, UnitName, mount_name
from podslice.policy.convert import weight_from_shares

# `kubepods-burstable-pod12_34.slice`
_POD_SLICE = re.compile(r".*-pod([A-Za-z0-9.:_]+)\.slice")


def uid_of(name: UnitName) -> str | None:
    """Return the uid in the name of a pod's slice; None for other names."""
    found = _POD_SLICE.fullmatch(name)
    return found[1].replace("_", "-") if found else None


def recover(unit: ObservedUnit, config: Config, others: Iterable[ObservedUnit] = ()) -> Pod | None:
    """Return the pod of a slice's name, description and properties; None for foreign slices.

    Properties and mounted volumes are recovered; containers, overhead, priority and grace period
    are lost.
    """
    description, uid = parse_description(unit.description), uid_of(unit.name)
    if description is None or description.qos is None or uid is None:
        return None
    qos = description.qos
    namespace, _, name = description.pod.partition("/")
    if Tree(cgroup_root=config.cgroup_root).pod(uid, qos) != unit.name:
        return None
    limits = _stated(unit, {CPU: CPU_QUOTA, MEMORY: MEMORY_MAX})
    # a limit of process ids that the configuration sets is not the pod's own
    is_nodes = unit.properties.get(TASKS_MAX) == config.pod_max_pids
    tasks = {} if is_nodes else _stated(unit, {PIDS: TASKS_MAX})
    # state zeros, else limits would count as requests
    requests = {CPU: _milli_from_weight(unit, config.cpu_weight_mapping), MEMORY: 0}
    requests |= _stated(unit, {MEMORY: MEMORY_MIN}) | _stated(unit, {MEMORY: MEMORY_LOW})
    if qos is Qos.GUARANTEED:
        requests = dict(limits)
    elif not any((*requests.values(), *limits.values())):
        requests[CPU] = 1  # the minimum, which keeps the class and has the same weight as none
    return Pod(
        namespace=namespace,
        name=name,
        uid=uid,
        containers=(Container(name="unknown", where="spec.containers[0]"),),
        volumes=tuple(_volumes(uid, description.pod, others)),
        properties=_annotated(unit, config),
        resources=Resources(limits=tasks)
        if qos is Qos.BESTEFFORT
        else Resources(requests=requests, limits={**limits, **tasks}),
    )


def _annotated(unit: ObservedUnit, config: Config) -> dict[str, int | str]:
    """Return the properties that only annotations state of a pod's slice.

    Every pod has a weight, and the scores of processes are not in the slice.
    """
    found: dict[str, int | str] = {}
    names = {row.name for row in ANNOTATIONS.values()} - {TASKS_MAX, CPU_WEIGHT, OOM_SCORE_ADJ}
    for name in sorted(names):
        value = unit.properties.get(name)
        is_default = name == CPU_QUOTA_PERIOD and value == config.cpu_cfs_quota_period_usec
        is_set = value not in (None, PROPERTIES[name].unset)
        if isinstance(value, int | str) and is_set and not is_default:
            found[name] = value
    return found


def _volumes(uid: str, key: str, units: Iterable[ObservedUnit]) -> Iterator[MemoryVolume]:
    """Yield the pod's mounted volumes."""
    for unit in units:
        description = parse_description(unit.description)
        if description is None or description.volume is None or description.pod != key:
            continue
        if unit.name == mount_name(volume_path(uid, description.volume)):
            size = tmpfs_size_bytes(str(unit.properties.get("Options", "")))
            yield MemoryVolume(name=description.volume, size_bytes=size, where="spec.volumes")


def _stated(unit: ObservedUnit, properties: dict[str, str]) -> dict[str, int]:
    """Return amounts in thousandths; a quota of 1,000 µs per second is a thousandth of a CPU."""
    amounts = {}
    for resource, name in properties.items():
        value = unit.properties.get(name)
        if isinstance(value, int) and 0 < value < INFINITY:
            amounts[resource] = value // 1000 if resource == CPU else value * 1000
    return amounts


def _milli_from_weight(unit: ObservedUnit, mapping: WeightMapping) -> int:
    """Return the least CPU request with the slice's weight."""
    weight = unit.properties.get(CPU_WEIGHT)
    if not isinstance(weight, int) or not 1 < weight <= 10_000:
        return 0
    low, high = 2, 262_144
    while low < high:
        middle = (low + high) // 2
        if weight_from_shares(middle, mapping) < weight:
            low = middle + 1
        else:
            high = middle
    return -(-low * 1000 // 1024)
