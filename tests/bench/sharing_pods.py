"""The pods and operations of `sharing`, and the effect of their limits alone. No effects here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tests.bench.simulation import CpuGroup, share_cpu

Row = dict[str, Any]
SPLIT, SHARED = WAYS = ("split", "shared")
CPUS = 2
CPU_MILLI, MEMORY_MIB = 1500, 96
"""The resources of pods."""
REQUEST_MILLI = 60
"""Of every pod but one, so that they have the same weight."""
PERIOD_MS = 100
"""The kernel's period of CPU quotas."""
PRECISION_MS = 1e-6
BURST_MILLI = 200
"""The limit of the pods whose work does not fit into one period."""
PINNED = "pinned"
"""The Guaranteed pod that gets a CPU of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The extent of a measurement."""

    sizes: tuple[int, ...] = (6, 3)
    """Containers of a pod; the first number is that of the pods that take turns."""
    pods: int = 5
    rounds: int = 5
    turns_ms: int = 12_000
    ticks: int = 135
    memory_rounds: int = 3
    periods_ms: tuple[int, ...] = (PERIOD_MS, 250, 500, 1000)
    """The periods of the pods with a quota period of their own."""
    bursts: int = 20


QUICK = Scale(
    sizes=(3,),
    pods=2,
    rounds=1,
    turns_ms=2_500,
    ticks=8,
    memory_rounds=1,
    periods_ms=(PERIOD_MS, 500),
    bursts=2,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod whose budget is split evenly among its containers, or stated at the pod level."""

    name: str
    size: int
    way: str
    is_for_memory: bool = False
    first_milli: int = 0
    """The request of the first container, if it is larger than those of the others."""
    second_limit_milli: int = 0
    """A limit that the second container has although the pod is shared."""
    cpu_milli: int = CPU_MILLI
    period_ms: int = PERIOD_MS
    is_guaranteed: bool = False
    """Whether its only container requests what it is limited to, in memory, too."""
    has_own_cpus: bool = False
    """Whether its CPUs are exclusive, so that it has no quota."""

    @property
    def budget(self) -> int:
        """In thousandths of a CPU, or MiB."""
        return MEMORY_MIB if self.is_for_memory else self.cpu_milli

    def limit(self, container: int) -> int:
        """The same of a container; 0 for none."""
        if self.way == SPLIT:
            return self.budget // self.size
        return self.second_limit_milli if container == 1 else 0

    def manifest(self) -> Row:
        """Return the manifest for `podslice apply`."""
        metadata: Row = {"name": self.name, "uid": self.name}
        if self.period_ms != PERIOD_MS:
            metadata["annotations"] = {"podslice.io/cpu-quota-period": f"{self.period_ms}ms"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self._spec()}

    def _spec(self) -> Row:
        if self.is_guaranteed:
            same = {"cpu": f"{self.cpu_milli}m", "memory": f"{MEMORY_MIB}Mi"}
            resources: Row = {"requests": same, "limits": same}
            return {"containers": [{"name": "c0", "resources": resources}]}
        containers = []
        for at in range(self.size):
            milli = (at == 0 and self.first_milli) or REQUEST_MILLI // self.size
            resources = {"requests": {"cpu": f"{milli}m", "memory": "4Mi"}}
            resources |= self._limits(self.limit(at))
            containers.append({"name": f"c{at}", "resources": resources})
        spec: Row = {"containers": containers}
        if self.way == SHARED:
            spec["resources"] = self._limits(self.budget)
        return spec

    def in_kernel(self, container: int) -> dict[str, str]:
        """Return the expected limits of a container and its pod in the kernel."""
        own, whole, none = self.limit(container), self.budget, 0
        if self.is_for_memory:
            cpu, memory = (none, none), (own, whole)
        else:
            cpu, memory = (own, whole), (none, none)
        if self.is_guaranteed:
            memory = (MEMORY_MIB, MEMORY_MIB)
        if self.has_own_cpus:
            cpu = (none, none)
        return {
            "container_cpu": _cpu_max(cpu[0], PERIOD_MS),
            "pod_cpu": _cpu_max(cpu[1], self.period_ms),
            **dict(zip(("container_memory", "pod_memory"), map(_memory_max, memory), strict=True)),
        }

    def _limits(self, limit: int) -> dict[str, dict[str, str]]:
        if not limit:
            return {}
        text = {"memory": f"{limit}Mi"} if self.is_for_memory else {"cpu": f"{limit}m"}
        return {"limits": text}


def _cpu_max(milli: int, period_ms: int) -> str:
    return f"{milli * period_ms or 'max'} {period_ms * 1000}"


def _memory_max(mebibytes: int) -> str:
    return str(mebibytes * 2**20 or "max")


def pods_of(scale: Scale) -> dict[Pod, int]:
    """All pods, and the number of their containers with a process: the others are idle."""
    pods = {}
    for way in WAYS:
        for size in scale.sizes:
            pods[Pod(name=f"{way}-{size}-0", size=size, way=way)] = size
        size = scale.sizes[0]
        for number in range(1, scale.pods):
            pods[Pod(name=f"{way}-{size}-{number}", size=size, way=way)] = 2
        pods[Pod(name=f"memory-{way}", size=3, way=way, is_for_memory=True)] = 3
    for period in scale.periods_ms:
        burst = Pod(name=f"burst-{period}", size=1, way=SHARED, cpu_milli=BURST_MILLI)
        siblings = Pod(name=f"siblings-{period}", size=3, way=SHARED)
        pods[replace(burst, period_ms=period)] = 1
        pods[replace(siblings, period_ms=period)] = 2
    pods[Pod(name=PINNED, size=1, way=SPLIT, cpu_milli=1000, is_guaranteed=True)] = 1
    pods[Pod(name="weighed", size=3, way=SHARED, first_milli=560)] = 2
    pods[Pod(name="capped", size=3, way=SHARED, second_limit_milli=1000)] = 2
    return pods


@dataclass(frozen=True, slots=True)
class Part:
    """The work of one container in an operation."""

    container: int
    width: int
    """The number of processes that divide the work."""
    cpu_ms: int
    wait_ms: int = 0
    """Pauses in between, for work other than CPU."""


START_UP_MS = (480, 60, 30, 15, 10, 5)
"""One-time work of a pod's containers; the first does it with two processes."""


def operations(size: int) -> dict[str, tuple[Part, ...]]:
    """Return the operations of a pod of so many containers; in the last two all of them work."""
    start = enumerate(START_UP_MS[:size])
    return {
        "20 ms": (Part(0, 1, 20),),
        "90 ms": (Part(0, 1, 90),),
        "300 ms": (Part(0, 1, 300),),
        "450 ms by 2": (Part(1, 2, 450),),
        "600 ms by 4": (Part(1, 4, 600),),
        "150 ms, waits": (Part(0, 1, 150, wait_ms=150),),
        "start-up": tuple(Part(at, 1 + (at == 0), cpu_ms) for at, cpu_ms in start),
        "all at once": tuple(Part(at, 1, 100) for at in range(size)),
    }


def by_quotas(parts: tuple[Part, ...], size: int) -> dict[str, float]:
    """Return the ms of an operation by limits, widths and CPUs alone, on an idle node.

    As if quotas were even streams. A wait costs nothing while the quota is used up.
    """
    waiting = max(part.cpu_ms / min(part.width, CPUS) + part.wait_ms for part in parts)
    return {way: max(waiting, _working_ms(parts, size, way)) for way in WAYS}


def _working_ms(parts: tuple[Part, ...], size: int, way: str) -> float:
    """Return when the last container has done its work, without its waits."""
    pod = Pod(name="pod", size=size, way=way)
    left_ms = {part: float(part.cpu_ms) for part in parts}
    passed_ms = 0.0
    while left_ms:
        groups = tuple(
            CpuGroup(
                name=f"{part.container}",
                quota_milli=pod.limit(part.container) or None,
                threads=part.width,
            )
            for part in left_ms
        )
        whole = CpuGroup(name="pod", quota_milli=pod.budget, children=groups)
        rates = share_cpu([whole], CPUS)
        step_ms = min(left / rates[f"{part.container}"] for part, left in left_ms.items())
        passed_ms += step_ms
        after = {
            part: left - step_ms * rates[f"{part.container}"] for part, left in left_ms.items()
        }
        left_ms = {part: left for part, left in after.items() if left > PRECISION_MS}
    return passed_ms
