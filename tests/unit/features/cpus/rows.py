"""Rows about CPUs of one's own: which CPUs a request gets, and which ones the pods of a node have."""

from dataclasses import replace

from podslice.features.cpus.assignment import CpuOptions, CpuRefusal, align_cpus, assign_cpus
from podslice.features.cpus.manager import CpuManager, HeldCpus, allowed_cpus, pool_cpus
from podslice.model.config import Config, TopologyManagerPolicy
from podslice.model.node import CpuTopology, Node, format_cpus, parse_cpus, regular_topology
from podslice.policy.decide import decide
from tests.cases.rows import to_pod

STRICT = "strict"


def run_cpus(row):
    """The CPUs that a request gets on a machine, `sockets,numa,cores per socket,threads[,uncore]`."""
    topology = machine(row["machine"], offline=row.get("offline", ""))
    got = assign_cpus(
        topology,
        row["count"],
        free=frozenset(parse_cpus(row["free"])) if "free" in row else topology.all,
        options=CpuOptions(**dict.fromkeys(row.get("options", ()), True)),
        numa_nodes=row.get("numa_nodes", ()),
    )
    if isinstance(got, CpuRefusal):
        return {"refused": f"{got.reason}: {got.message}"}
    return {"expect": format_cpus(got)}


def run_numa_alignment(row):
    """The CPUs that a request gets by a policy of the topology manager, on a machine as above."""
    topology = machine(row["machine"], offline=row.get("offline", ""))
    got = align_cpus(
        topology,
        row["count"],
        free=to_cpus(row["free"]) if "free" in row else topology.all,
        options=CpuOptions(**dict.fromkeys(row.get("options", ()), True)),
        policy=TopologyManagerPolicy(row["policy"]),
    )
    if isinstance(got, CpuRefusal):
        return {"refused": f"{got.reason}: {got.message}"}
    return {"expect": format_cpus(got)}


def run_cpu_pools(row):
    """The CPUs of units, as `pod` or `pod/container`, and the `shared` ones; CPU 0 is reserved.

    `held` is what units have now, with the same names; `memory` is their NUMA nodes.
    """
    options = set(row.get("options", ()))
    manager = CpuManager(
        topology=machine(row["machine"], offline=row.get("offline", "")),
        reserved=to_cpus(row.get("reserved", "0")),
        options=CpuOptions(**dict.fromkeys(options - {STRICT}, True)),
        is_strict=STRICT in options,
        alignment=TopologyManagerPolicy(row.get("policy", "none")),
        aligns_pods=row.get("scope") == "pod",
    )
    before, after = (to_decisions(row.get(key, ())) for key in ("in_force", "pods"))
    names = dict(each for pod in (*before, *after) for each in names_of(pod))
    units = {name: unit for unit, name in names.items()}
    held = {name: to_cpus(text) for name, text in row.get("held", {}).items()}
    shared = held.pop("shared", frozenset())
    found = pool_cpus(
        manager,
        before,
        after,
        HeldCpus(units={units[name]: cpus for name, cpus in held.items()}, shared=shared),
    )
    refused = {each.pod: f"{each.reason}: {each.message}" for each in found.refused}
    pods = {pod.pod.key: pod for pod in before}
    pods |= {pod.pod.key: pod for pod in after if pod.pod.key not in refused}
    units = [each for pod in pods.values() for each in allowed_cpus(found, pod).items()]
    allowed = {names[unit]: format_cpus(each.cpus) for unit, each in units}
    nodes = {names[unit]: format_cpus(each.memory_nodes) for unit, each in units}
    return {
        "memory": {name: text for name, text in nodes.items() if text},
        "expect": {**allowed, "shared": format_cpus(found.shared)},
        "refused": refused,
        "lacking": {each.pod: f"{each.reason}: {each.message}" for each in found.lacking},
    }


def to_decisions(rows):
    """The decisions on pods, on a node without a known capacity."""
    return [decide(to_pod(each), Node(capacity={}), Config()) for each in rows]


def names_of(pod):
    """The units of a pod with their names in rows."""
    yield pod.slice, pod.pod.name
    for each in pod.scopes:
        yield each.scope, f"{pod.pod.name}/{each.name}"


def to_cpus(text):
    """`0-3,8`."""
    return frozenset(parse_cpus(text))


def machine(text, *, offline):
    """A machine, `2,2,4,2`; with a fifth number, its CPUs share caches in cores of so many.

    Without the CPUs that are offline. If these are threads of some cores, it is a hybrid machine.
    """
    sockets, numa, cores, threads, *uncore = map(int, text.split(","))
    made = regular_topology(sockets=sockets, numa=numa, cores=cores, threads=threads)
    online = made.all - parse_cpus(offline)
    cpus = [cpu for cpu in made.cpus if cpu.cpu in online]
    if uncore:
        cpus = [replace(cpu, uncore=cpu.core // uncore[0]) for cpu in cpus]
    return CpuTopology(cpus=tuple(cpus))


KINDS = {"cpus": run_cpus, "cpu_pools": run_cpu_pools, "numa_alignment": run_numa_alignment}
