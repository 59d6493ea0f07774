"""Whose units are these: does a kubelet own the root slice, and which pod is a slice whose record is lost?

Two managers of one tree undo each other's work, and podslice would stop the kubelet's pods as
orphans. The units are the stronger evidence: they remain when the kubelet is stopped or upgraded,
and do not depend on a program's name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from podslice.errors import Problem, warning
from podslice.model.config import Config, Enforce, Rules, WeightMapping
from podslice.model.naming import Tree, parse_description, volume_path
from podslice.model.node import Node
from podslice.model.node_state import Foreign, Kubelet, Neighbour
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
from podslice.model.resources import CPU, MEMORY, PIDS, Resources, format_amount, human_amounts
from podslice.model.unit import (
    INFINITY,
    SYSTEM,
    Manager,
    ObservedUnit,
    UnitKind,
    UnitName,
    control_group_of,
    mount_name,
)
from podslice.policy.allocatable import allocate
from podslice.policy.convert import (
    DEFAULT_WEIGHT,
    MAX_WEIGHT,
    MIN_WEIGHT,
    requests_of_weight,
    shares_from_milli,
    weight_from_shares,
)

LIBCONTAINER = "libcontainer container "
"""The beginning of the description of every unit that libcontainer starts.

Source: opencontainers/cgroups 0.0.6, systemd/v2.go, UnifiedManager.Apply.
"""
CRI_SCOPES = ("cri-containerd-*.scope", "crio-*.scope")
"""Globs for the scopes of containers that a kubelet has started.

Source: containerd, internal/cri/server/podsandbox/helpers.go, getCgroupsPath; CRI-O,
internal/config/cgmgr/cgmgr.go, CrioPrefix.
"""
_CRI_PREFIXES = tuple(glob.partition("*")[0] for glob in CRI_SCOPES)
_SLICE = f".{UnitKind.SLICE}"
_DEFAULT_ROOT = "/"
_SHOWN = 3


def is_kubelets_root(tree: Tree, manager: Manager) -> bool:
    """Return whether the root is the one that a kubelet has by default."""
    return tree.cgroup_root == _DEFAULT_ROOT and not manager.is_user


def beside_kubelet(tree: Tree) -> UnitName:
    """Return the top slice above podslice's root, which is beside a kubelet's root."""
    return UnitName(control_group_of(tree.root).split("/")[1])


def check_claims(tree: Tree, node: Node, config: Config, neighbour: Neighbour) -> Iterator[Problem]:
    """Yield a warning for memory and CPU of which both podslice and a kubelet claim the whole node.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "Weights" (among siblings) and memory.max.
    """
    total, allocation = node.capacity.get(MEMORY), allocate(node, config)
    if total:
        if Enforce.PODS in config.enforce_node_allocatable:
            own = allocation.enforced.get(MEMORY, total)
        else:
            own = allocation.capacity[MEMORY] if config.rules is Rules.KUBERNETES else total
        limit = neighbour.memory_max_bytes
        # without its slice the kubelet counts as one that has what podslice leaves
        others = min(limit * 1000 if limit is not None else total, total)
        if own + others > total and (limit is not None or own == total):
            sums = human_amounts(MEMORY, own, others, total)
            yield warning(
                "",
                f"podslice's pods may use {sums[0]} of memory, and those of the kubelet {sums[1]}:"
                f" together more than the {sums[2]} of this node",
                'state the part of podslice\'s pods in podslice.toml, capacity = { cpu = "2", memory ='
                ' "4Gi" } for example, and the same in systemReserved of the kubelet',
            )
    top, cpu = beside_kubelet(tree), allocation.enforced.get(CPU, 0)
    # By the kubelet's formula, since the top slice competes with kubepods.slice.
    wanted = weight_from_shares(shares_from_milli(cpu), WeightMapping.KUBELET)
    # A weight other than the default was set on purpose.
    if cpu and neighbour.own_weight == DEFAULT_WEIGHT != wanted:
        theirs = f" and kubepods.slice {neighbour.cpu_weight}" if neighbour.cpu_weight else ""
        yield warning(
            "",
            f"CPUWeight of {tree.root} has no effect against the kubelet's pods: {top} has"
            f" {DEFAULT_WEIGHT}{theirs}",
            f"systemctl set-property {top} CPUWeight={wanted}, as a kubelet has for"
            f" {format_amount(CPU, cpu)} CPUs",
        )


def find_foreign(
    tree: Tree,
    units: Iterable[ObservedUnit],
    pods: Collection[Pod],
    kubelets: Sequence[Kubelet],
    *,
    manager: Manager = SYSTEM,
) -> Foreign | None:
    """Return why the root is not podslice's own; None if it is.

    Args:
        tree: the names below the configured root.
        units: the loaded units of the root, and the scopes of containers (`CRI_SCOPES`).
        pods: the recorded pods of podslice.
        kubelets: the kubelet processes of the host. They own the default root of the system
            manager only.
        manager: the manager of the units.
    """
    running = tuple(kubelets) if is_kubelets_root(tree, manager) else ()
    made = _created_by_libcontainer(tree, units, pods)
    if not running and not made:
        return None
    return Foreign(
        reason=_reason(tree.root, running, made),
        way_out=_way_out(tree, running, made, has_pods=bool(pods), manager=manager),
    )


def _created_by_libcontainer(
    tree: Tree, units: Iterable[ObservedUnit], pods: Iterable[Pod]
) -> list[UnitName]:
    """Return the root and its units that libcontainer has created and that belong to no pod.

    A container that runc has started in the slice of a recorded pod belongs to that pod.
    """
    root = tree.root
    below = f"{root.removesuffix(_SLICE)}-"
    slices = {
        unit.name: slice_
        for unit in units
        if (slice_ := _slice_by_libcontainer(unit)) == root or slice_.startswith(below)
    }
    # the names of all pods cost more than all else here
    recorded = {tree.pod(pod.uid, qos) for pod in pods for qos in Qos} if slices else ()
    made = [name for name, slice_ in slices.items() if slice_ not in recorded]
    # Slices first, and the outermost of them: messages name the first ones, and stopping these
    # stops what is below.
    return sorted(made, key=lambda name: (not name.endswith(_SLICE), name.count("-"), name))


def _slice_by_libcontainer(unit: ObservedUnit) -> str:
    """Return the slice that libcontainer has created, or a container of it is in; or nothing."""
    if unit.name.endswith(_SLICE):
        return unit.name if unit.description == LIBCONTAINER + unit.name else ""
    is_container = unit.name.startswith(_CRI_PREFIXES) and unit.name.endswith(f".{UnitKind.SCOPE}")
    return str(unit.properties.get("Slice", "")) if is_container else ""


def _reason(root: UnitName, running: Sequence[Kubelet], made: Sequence[UnitName]) -> str:
    if running:
        kubelet = running[0]
        return (
            f"a kubelet runs on this host (process {kubelet.pid}, {kubelet.name}) and uses"
            f" {root} for its pods"
        )
    if root in made:
        return f"{root} belongs to a kubelet: its description is {LIBCONTAINER + root!r}"
    count = "1 unit" if len(made) == 1 else f"{len(made)} units"
    return f"{root} belongs to a kubelet: it contains {count} of a kubelet ({_some(made)})"


def _way_out(
    tree: Tree,
    running: Sequence[Kubelet],
    made: Sequence[UnitName],
    *,
    has_pods: bool,
    manager: Manager,
) -> str:
    base = "/podslice" if tree.cgroup_root == _DEFAULT_ROOT else "/podslice2"
    elsewhere = f'use another root for podslice: cgroup-root = "{base}" in podslice.toml'
    stop = f"systemctl{manager.flag} stop"
    what = tree.root if tree.root in made else _some(made)
    if has_pods:
        steps = ["stop the kubelet"] if running else []
        steps += [f"stop its units ({stop} {what})"] if made else []
        steps += ["run podslice delete --all", elsewhere]
        return f"podslice has pods there as well; to move them: {'; '.join(steps)}"
    if running:
        return elsewhere
    return f"{elsewhere}; or, if the kubelet was removed for good: {stop} {what}"


def _some(names: Sequence[UnitName]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{' '.join(names[:_SHOWN])}{more}"


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
    # A description proves nothing: the slice must have the name that podslice gives to this uid and
    # class.
    if Tree(cgroup_root=config.cgroup_root).pod(uid, qos) != unit.name:
        return None
    limits = _stated(unit, {CPU: CPU_QUOTA, MEMORY: MEMORY_MAX})
    # a limit of process ids that the configuration sets is not the pod's own
    is_nodes = unit.properties.get(TASKS_MAX) == config.pod_max_pids
    tasks = {} if is_nodes else _stated(unit, {PIDS: TASKS_MAX})
    # state zeros, else limits would count as requests
    requests = {CPU: 0, MEMORY: 0}
    weight = unit.properties.get(CPU_WEIGHT)
    # The minimum is also the weight of a pod without a request. Several requests give one weight:
    # the least cannot claim more than the pod had.
    if isinstance(weight, int) and MIN_WEIGHT < weight <= MAX_WEIGHT:
        requests[CPU] = requests_of_weight(weight, config.cpu_weight_mapping).least
    # Which of them is set depends on memory-protection.
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
