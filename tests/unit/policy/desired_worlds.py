"""Pods, nodes and configurations of the tests of the desired state."""

import itertools

from podslice.model.config import Config, Enforce, MemoryProtection, Rules, WeightMapping
from podslice.model.node import Node
from podslice.model.pod import MemoryVolume
from podslice.model.resources import Resources
from podslice.policy.decide import decide
from podslice.policy.desire import desire
from tests.unit.policy.worlds import KINDS, container, pod

GI = 2**30 * 1000
NODE = Node(capacity={"cpu": 8000, "memory": 32 * GI, "pid": 32_768_000})
PLAIN = Config(eviction_hard={})

GUARANTEED = Resources(limits={"cpu": 500, "memory": GI})
BURSTABLE = Resources(requests={"cpu": 250, "memory": GI // 4}, limits={"memory": GI})
BESTEFFORT = Resources()
VOLUMES = (MemoryVolume(name="my-cache", size_bytes=2**26), MemoryVolume(name="free"))
LEVELS = (GUARANTEED, BURSTABLE, BESTEFFORT)


def pods(count=9):
    """Pods of every class; some with init containers, sidecars, overhead, pod levels, volumes."""
    for index in range(count):
        first, second = LEVELS[index % 3], LEVELS[index // 3 % 3]
        kind = KINDS[index % 3]
        yield pod(
            container(first),
            container(second, 1, kind),
            name=f"pod-{index}",
            overhead={"cpu": 10, "memory": 2**20 * 1000} if index % 4 == 3 else {},
            resources=Resources(limits={"memory": 4 * GI}) if index % 5 == 4 else Resources(),
            priority=index % 2,
            volumes=VOLUMES if index % 2 else (),
        )


CONFIGS = [
    Config(eviction_hard={}, rules=rules, cpu_weight_mapping=mapping, memory_protection=protection)
    for rules, mapping, protection in itertools.product(Rules, WeightMapping, MemoryProtection)
]
CONFIGS += [
    Config(),
    Config(qos_reserved={"memory": 100}),
    Config(cgroup_root="/custom/pods", cpu_cfs_quota_period_usec=10_000),
    Config(cpu_cfs_quota=False, enforce_node_allocatable=frozenset()),
    Config(
        kube_reserved={"cpu": 500, "memory": GI, "pid": 1000_000},
        system_reserved={"cpu": 250, "memory": GI},
        kube_reserved_cgroup="/podruntime.slice",
        system_reserved_cgroup="/system.slice",
        enforce_node_allocatable=frozenset(
            {Enforce.PODS, Enforce.KUBE_RESERVED, Enforce.SYSTEM_RESERVED_COMPRESSIBLE}
        ),
    ),
]


def desire_all(config, which=None, **more):
    decisions = [decide(each, NODE, config) for each in which or pods()]
    return desire(decisions, NODE, config, **more)
