"""The shares of the processors when all control groups want all of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from podslice.inputs.manifest.load import load_pods
from podslice.model.config import Config, Enforce, WeightMapping
from podslice.model.desired import Desired
from podslice.model.node import Node
from podslice.model.pod import Qos
from podslice.policy.decide import decide
from podslice.policy.desire import desire
from tests.bench.load import watch_load
from tests.bench.simulation import CpuGroup, share_cpu
from tests.lab.vm import Vm

SETTLE_SEC, WINDOW_SEC = 1.5, 4.0
OTHERS_LIMIT_PERCENT = 5.0
"""More than this for other processes or for none, and the weights did not determine the shares."""
CPUS, SYSTEM_MILLI, PODS_MILLI = 2, 500, 1500
GUEST = "/src/tests/bench/guest"
CONFIG_FILE = "/etc/podslice/podslice.toml"
BUSY, SYSTEM = "system.slice/bench-busy.service", "system.slice"
ALL_PODS = "all pods"
MAPPINGS = (WeightMapping.SYSTEMD, WeightMapping.KUBELET, WeightMapping.OCI)
"""The mappings that differ for slices; `kubelet-linear` gives slices the weights of `kubelet`."""
# in this order in turn: class, and the part of the requests
PATTERN = (
    (Qos.GUARANTEED, 8),
    (Qos.BURSTABLE, 4),
    (Qos.BURSTABLE, 1),
    (Qos.GUARANTEED, 2),
    (Qos.BESTEFFORT, 0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The number of pods, and whether system.slice has a weight for its reservation."""

    pods: int
    reserved: bool = True

    @property
    def title(self) -> str:
        return f"{self.pods}" if self.reserved else f"{self.pods}, nothing reserved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod with one container."""

    name: str
    qos: Qos
    cpu_milli: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The share of one control group, in percent of the machine."""

    weight: int
    predicted: float
    measured: float
    requested: float | None = None
    """None without a request."""

    @property
    def off_points(self) -> float:
        """Relative to the prediction."""
        return abs(self.measured - self.predicted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One measurement of one mapping."""

    number: int
    case: Case
    mapping: WeightMapping
    shares: dict[str, Share]
    """By the names of control groups in tables."""
    others_percent: float
    """Of the machine: the use of processes other than pods and the loops in system.slice."""
    disturbed: bool

    @property
    def off_points(self) -> list[float]:
        return [share.off_points for share in self.shares.values()]

    @property
    def shortfall_points(self) -> float:
        """The largest shortfall of a pod or of system.slice against its request."""
        return max(s.requested - s.measured for s in self.shares.values() if s.requested)

    @property
    def received_percent(self) -> float:
        """The smallest fulfilled part of a request."""
        return min(100 * s.measured / s.requested for s in self.shares.values() if s.requested)


def spinner() -> tuple[str, ...]:
    """Return the command that uses every processor once it is released."""
    return "sh", f"{GUEST}/spin.sh"


def make_pods(count: int) -> list[Pod]:
    """Return pods that request PODS_MILLI together, each class with large and small ones."""
    turns = [PATTERN[number % len(PATTERN)] for number in range(count)]
    part_milli = PODS_MILLI // sum(parts for _, parts in turns)
    return [
        Pod(name=f"pod-{number}", qos=qos, cpu_milli=parts * part_milli)
        for number, (qos, parts) in enumerate(turns)
    ]


def manifests(pods: Iterable[Pod]) -> str:
    """Return the manifests for podslice."""
    return "---\n".join(json.dumps(_manifest(pod)) + "\n" for pod in pods)


def _manifest(pod: Pod) -> dict[str, object]:
    requests = {"cpu": f"{pod.cpu_milli}m", "memory": "16Mi"}
    resources = {
        Qos.GUARANTEED: {"requests": requests, "limits": requests},
        Qos.BURSTABLE: {"requests": requests},
        Qos.BESTEFFORT: {},
    }[pod.qos]
    spec = {"containers": [{"name": "main", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name}, "spec": spec}


def config_text(mapping: WeightMapping, case: Case) -> str:
    """Return the node's configuration."""
    lines = [f'cpu-weight-mapping = "{mapping.value}"', "cpu-cfs-quota = false"]
    if case.reserved:
        lines += [
            f'system-reserved = "cpu={SYSTEM_MILLI}m"',
            f'system-reserved-cgroup = "/{SYSTEM}"',
            f'enforce-node-allocatable = "pods,{Enforce.SYSTEM_RESERVED_COMPRESSIBLE.value}"',
        ]
    return "\n".join(lines) + "\n"


def decided(pods: list[Pod], mapping: WeightMapping, case: Case) -> Desired:
    """Return the expected weights."""
    enforce = {Enforce.PODS, Enforce.SYSTEM_RESERVED_COMPRESSIBLE}
    reserved: dict[str, Any] = {
        "system_reserved": {"cpu": SYSTEM_MILLI},
        "system_reserved_cgroup": f"/{SYSTEM}",
        "enforce_node_allocatable": frozenset(enforce),
    }
    config = Config(
        cpu_weight_mapping=mapping, cpu_cfs_quota=False, **(reserved if case.reserved else {})
    )
    node = Node(capacity={"cpu": 1000 * CPUS, "memory": 2**30 * 1000})
    loaded = load_pods(("-",), stdin=manifests(pods).encode)
    return desire([decide(pod, node, config) for pod in loaded.pods], node, config)


def prepare(machine: Vm) -> None:
    """The machine and state of all cases."""
    machine.run("systemd-run", f"--unit={BUSY.rpartition('/')[2]}", *spinner())


def measure(machine: Vm, case: Case, count: int) -> list[Round]:
    """Measure all mappings of one case, in turn."""
    pods = make_pods(case.pods)
    mappings = list(MAPPINGS)
    rounds = []
    for number in range(count):
        sys.stderr.write(f"weights: {case.title} pods, round {number + 1}\n")
        turn = number % len(mappings)
        for mapping in mappings[turn:] + mappings[:turn]:
            machine.put(CONFIG_FILE, config_text(mapping, case))
            machine.podslice("apply", "-f", "-", input=manifests(pods))
            if not rounds:
                for pod in pods:
                    machine.podslice("run", "--detach", pod.name, "--", *spinner())
            rounds.append(contend(machine, pods, case, mapping, number + 1))
    machine.podslice("delete", "--all", "--grace-period", "0")
    return rounds


def contend(machine: Vm, pods: list[Pod], case: Case, mapping: WeightMapping, number: int) -> Round:
    """Let all loops run for a while."""
    desired = decided(pods, mapping, case)
    groups = {each.pod.key.partition("/")[2]: each.control_group[1:] for each in desired.pods}
    tree = {each.control_group[1:] for each in desired.units if each.name.endswith(".slice")}
    watched = sorted({*tree, SYSTEM, BUSY, "init.scope"})
    argv = ("python3", f"{GUEST}/contend.py", f"{SETTLE_SEC}", f"{WINDOW_SEC}")
    with watch_load() as load:
        out = machine.run(*argv, *groups.values(), BUSY, "--", *watched).stdout
    found = json.loads(out)
    check(found, desired, case)
    capacity_usec = 1e6 * found["window_sec"] * found["cpus"]
    used = {name: 100 * each["usec"] / capacity_usec for name, each in found["groups"].items()}
    others = 100 - used[BUSY] - sum(used[group] for group in groups.values())
    weights = {name: each["weight"] for name, each in found["groups"].items()}
    predicted = predict(weights, [*groups.values(), SYSTEM])
    requested = requests_of(pods, groups, case)
    shares = {
        name: Share(
            weight=weights[group],
            predicted=100 * predicted[group],
            measured=used[group],
            requested=requested.get(group),
        )
        for group, name in names_of(pods, groups).items()
        if group in predicted
    }
    return Round(
        number=number,
        case=case,
        mapping=mapping,
        shares=shares,
        others_percent=others,
        disturbed=load.is_disturbed or others > OTHERS_LIMIT_PERCENT,
    )


def check(found: Mapping[str, Any], desired: Desired, case: Case) -> None:
    """Check that the kernel has the expected weights.

    Raises:
        RuntimeError: it has others, so that something else was measured.
    """
    wanted = {
        unit.control_group[1:]: unit.values["CPUWeight"]
        for unit in desired.units
        if unit.name.endswith(".slice")
    }
    if not case.reserved:
        wanted[SYSTEM] = 100
    for group, weight in wanted.items():
        there = found["groups"][group]
        if there["weight"] != weight or there["max"] != "max":
            raise RuntimeError(f"{group} should have cpu.weight {weight} and no limit: {there}")
    if found["cpus"] != CPUS:
        raise RuntimeError(f"the machine has {found['cpus']} processors instead of {CPUS}")


def predict(weights: Mapping[str, int], busy: Iterable[str]) -> dict[str, float]:
    """Return the share of every control group with busy processes in it or below; 1 is the machine.

    Args:
        weights: cpu.weight by path: `kubepods.slice/kubepods-burstable.slice`.
        busy: paths of the groups that want more than they can get.
    """
    active = {group for leaf in busy for group in _with_parents(leaf)}
    used = share_cpu(_groups_in("", active, weights), CPUS)
    return {group: cpus / CPUS for group, cpus in used.items()}


def _groups_in(parent: str, active: set[str], weights: Mapping[str, int]) -> tuple[CpuGroup, ...]:
    return tuple(
        CpuGroup(name=group, weight=weights[group], children=_groups_in(group, active, weights))
        for group in sorted(active)
        if _parent(group) == parent
    )


def _parent(group: str) -> str:
    return group.rpartition("/")[0]


def _with_parents(group: str) -> list[str]:
    return [group, *_with_parents(_parent(group))] if group else []


def requests_of(pods: list[Pod], groups: Mapping[str, str], case: Case) -> dict[str, float]:
    """Return the requests by control group, in percent of the machine."""
    asked = {groups[pod.name]: pod.cpu_milli for pod in pods if pod.cpu_milli}
    if case.reserved:
        asked[SYSTEM] = SYSTEM_MILLI
    return {group: milli / (10 * CPUS) for group, milli in asked.items()}


def names_of(pods: list[Pod], groups: Mapping[str, str]) -> dict[str, str]:
    """Return the names of control groups in tables."""
    return {
        SYSTEM: SYSTEM,
        "kubepods.slice": ALL_PODS,
        "kubepods.slice/kubepods-burstable.slice": "Burstable tier",
        "kubepods.slice/kubepods-besteffort.slice": "BestEffort tier",
        **{groups[pod.name]: f"{pod.name} {pod.qos.value} {pod.cpu_milli}m" for pod in pods},
    }
