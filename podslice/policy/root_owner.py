"""Detect whether a kubelet owns the root slice, from its units and the running kubelets.

Two managers of one tree undo each other's work, and podslice would stop the kubelet's pods as
orphans. The units are the stronger evidence: they remain when the kubelet is stopped or upgraded,
and do not depend on a program's name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from podslice.errors import Problem, warning
from podslice.model.config import Config, Enforce, Rules, WeightMapping
from podslice.model.naming import Tree
from podslice.model.node import Node
from podslice.model.node_state import Foreign, Kubelet, Neighbour
from podslice.model.pod import Pod, Qos
from podslice.model.resources import CPU, MEMORY, format_amount
from podslice.model.unit import SYSTEM, Manager, ObservedUnit, UnitKind, UnitName, control_group_of
from podslice.policy.allocatable import allocate
from podslice.policy.convert import shares_from_milli, weight_from_shares

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
_SCOPE, _SLICE = f".{UnitKind.SCOPE}", f".{UnitKind.SLICE}"
_DEFAULT_ROOT = "/"
_KUBELETS = "kubepods.slice"
_DEFAULT_WEIGHT = 100
"""Of a slice that states none. Source: systemd.resource-control(5), CPUWeight=."""
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
            sums = [format_amount(MEMORY, each) for each in (own, others, total)]
            yield warning(
                "",
                f"podslice's pods may use {sums[0]} of memory, and those of the kubelet {sums[1]}:"
                f" together more than the {sums[2]} of this node",
                'state the part of podslice\'s pods in podslice.toml, capacity = { cpu = "2", memory ='
                ' "4Gi" } for example, and the same in systemReserved of the kubelet',
            )
    top, cpu = beside_kubelet(tree), allocation.enforced.get(CPU, 0)
    wanted = weight_from_shares(shares_from_milli(cpu), WeightMapping.KUBELET)
    if cpu and neighbour.own_weight == _DEFAULT_WEIGHT != wanted:
        theirs = f" and {_KUBELETS} {neighbour.cpu_weight}" if neighbour.cpu_weight else ""
        yield warning(
            "",
            f"CPUWeight of {tree.root} has no effect against the kubelet's pods: {top} has"
            f" {_DEFAULT_WEIGHT}{theirs}",
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
    return sorted(made, key=lambda name: (not name.endswith(_SLICE), name.count("-"), name))


def _slice_by_libcontainer(unit: ObservedUnit) -> str:
    """Return the slice that libcontainer has created, or a container of it is in; or nothing."""
    if unit.name.endswith(_SLICE):
        return unit.name if unit.description == LIBCONTAINER + unit.name else ""
    is_container = unit.name.startswith(_CRI_PREFIXES) and unit.name.endswith(_SCOPE)
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
