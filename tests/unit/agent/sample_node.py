"""A node with a value for every metric."""

from __future__ import annotations

from podslice.agent.context import Counters
from podslice.agent.endpoints.snapshot import Snapshot
from podslice.kernel.cgroup import Pressure, Sample, Waited
from podslice.kernel.host import Availability
from podslice.model.config import Threshold
from podslice.model.desired import Desired
from podslice.model.event import Kind
from podslice.model.node_state import Condition
from podslice.model.resources import RecommendedAmounts
from podslice.model.unit import UnitName
from podslice.policy.allocatable import allocate
from podslice.policy.eviction import SignalObservation, eviction_thresholds
from podslice.usage.stats import ContainerStats, FileSystem, GroupStats, NodeStats, PodStats
from tests.unit import builders

MI = 2**20
BOOT_USEC = 1_700_000_000 * 10**6
NOW_USEC = BOOT_USEC + 3600 * 10**6

CONFIG = builders.config(
    eviction_hard={"memory.available": Threshold(amount=100 * MI * 1000)},
    eviction_soft={
        "memory.available": Threshold(percent_milli=5_000),
        "nodefs.available": Threshold(percent_milli=10_000),
    },
    kube_reserved=builders.amounts("cpu=200m,memory=2Gi"),
    system_reserved=builders.amounts("cpu=300m,memory=1Gi"),
)


def sample(scale=1, **fields):
    """Return a sample in which no two figures are equal."""
    figures = {
        "cpu_usec": 1_500_000 * scale,
        "throttled_usec": 250_000 * scale,
        "periods": 40 * scale,
        "throttled_periods": 10 * scale,
        "memory_bytes": 64 * MI * scale,
        "working_set_bytes": 48 * MI * scale,
        "rss_bytes": 32 * MI * scale,
        "swap_bytes": 4096 * scale,
        "page_faults": 1000 * scale,
        "major_page_faults": 7 * scale,
        "tasks": 3 * scale,
        "oom_kills": 2 * scale,
        "written_bytes": {"254:0": 8192 * scale},
        "pressure": {
            name: Pressure(
                some=Waited(usec=500_000 * place * scale, avg10_milli=1230),
                full=Waited(usec=100_000 * place * scale),
            )
            for place, name in enumerate(("cpu", "memory", "io"), 1)
        },
    }
    return Sample(**{**figures, **fields})


def pod_stats(decision, scale=1, **fields):
    containers = tuple(
        ContainerStats(name=each.name, unit=each.scope, sample=sample(scale))
        for each in decision.containers
    )
    return PodStats(
        decision=decision,
        sample=sample(scale),
        started_usec=BOOT_USEC + 60 * 10**6,
        **{"containers": containers, **fields},
    )


def node_stats(*pods, **fields):
    groups = (
        ("pods", "kubepods.slice"),
        ("burstable", "kubepods-burstable.slice"),
        ("besteffort", "kubepods-besteffort.slice"),
        ("kubelet", "podslice-agent.service"),
        ("runtime", "podruntime.slice"),
        ("misc", "system.slice"),
    )
    made = NodeStats(
        time_usec=NOW_USEC,
        uptime_usec=NOW_USEC - BOOT_USEC,
        boot_time_usec=BOOT_USEC,
        sample=sample(100),
        memory=Availability(capacity=32 * 1024 * MI, available=20 * 1024 * MI),
        file_system=FileSystem(
            capacity_bytes=100 * 1024 * MI,
            available_bytes=60 * 1024 * MI,
            used_bytes=40 * 1024 * MI,
            inodes=6_000_000,
            inodes_free=5_000_000,
        ),
        pids_max=32768,
        pids=400,
        groups=tuple(
            GroupStats(name=name, unit=UnitName(unit), sample=sample(10 + place))
            for place, (name, unit) in enumerate(groups)
        ),
        pods=pods,
    )
    return made._replace(**fields)


def volume():
    return FileSystem(
        capacity_bytes=16 * MI,
        available_bytes=12 * MI,
        used_bytes=4 * MI,
        inodes=1000,
        inodes_free=900,
    )


def snapshot(*decisions, config=CONFIG, **fields):
    """Return a snapshot; by default with the pods of `default_stats`.

    Fields of what is desired are among the others.
    """
    observations = {
        "memory.available": SignalObservation(
            available=20 * 2**30 * 1000, capacity=32 * 2**30 * 1000
        ),
        "pid.available": SignalObservation(available=32_368_000, capacity=32_768_000),
    }
    given = {
        "node_name": "node-1",
        "read_stats": lambda pods: node_stats(*map(pod_stats, pods)),
        "observe": lambda: observations,
        "counters": Counters(),
        "thresholds": eviction_thresholds(config),
        "conditions": frozenset({Condition.MEMORY}),
        "events": {Kind.POD_EVICTED: 4},
        "recommended": {"default/web": recommended()},
    }
    desired = {
        "pods": decisions or default_decisions(),
        "allocation": allocate(builders.node(), config),
    }
    desired |= {name: fields.pop(name) for name in [*fields] if name in Desired.__slots__}
    desired = Desired(root=UnitName("kubepods.slice"), **desired)
    return Snapshot(desired=desired, **{**given, **fields})


def recommended():
    """Return amounts as from a day of 1 CPU and 100 MiB."""
    return RecommendedAmounts(
        cpu_request=1169, memory_request=121 * MI * 1000, memory_limit=121 * MI * 1000
    )


def default_decisions():
    """Return a pod of each class; `web` has limits and two containers."""
    web = builders.pod(
        "web",
        containers=(
            builders.container("main", "cpu=100m,memory=128Mi", "cpu=500m,memory=256Mi"),
            builders.container("log", "cpu=50m", "cpu=250m,memory=64Mi"),
        ),
    )
    return builders.decisions(web, builders.guaranteed("db"), builders.besteffort("batch"))


def default_stats():
    """Return the use of the default pods; `web` has a volume."""
    web, *others = default_decisions()
    return node_stats(
        pod_stats(web, volumes={"cache": volume()}),
        *(pod_stats(each, scale) for scale, each in enumerate(others, 2)),
    )
