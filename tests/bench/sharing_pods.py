"""The pods and operations of `sharing`, and the effect of their limits alone. No effects here."""

from __future__ import annotations

from dataclasses import dataclass

from podslice.features.simulate.sharing import CpuGroup, share_cpu
from tests.bench.result import Round

SPLIT, SHARED = WAYS = ("split", "shared")
CPUS = 2
CPU_MILLI = 1500
"""The budget of a pod."""
REQUEST_MILLI = 60
"""Of every pod but one, so that they have the same weight."""
PERIOD_MS = 100
"""The kernel's period of CPU quotas."""
PRECISION_MS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The extent of a measurement."""

    sizes: tuple[int, ...] = (6, 3)
    """Containers of a pod; the first number is that of the pods that take turns."""
    pods: int = 5
    rounds: int = 5
    turns_ms: int = 12_000
    ticks: int = 135


QUICK = Scale(sizes=(3,), pods=2, rounds=1, turns_ms=2_000, ticks=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod whose budget is split evenly among its containers, or stated at the pod level."""

    name: str
    size: int
    way: str
    first_milli: int = 0
    """The request of the first container, if it is larger than those of the others."""
    second_limit_milli: int = 0
    """A limit that the second container has although the pod is shared."""

    def limit(self, container: int) -> int:
        """Return the limit of a container, in thousandths of a CPU; 0 for none."""
        if self.way == SPLIT:
            return CPU_MILLI // self.size
        return self.second_limit_milli if container == 1 else 0

    def manifest(self) -> Round:
        """Return the manifest for `podslice apply`."""
        containers = []
        for at in range(self.size):
            milli = (at == 0 and self.first_milli) or REQUEST_MILLI // self.size
            resources = {"requests": {"cpu": f"{milli}m", "memory": "4Mi"}}
            resources |= _limits(self.limit(at))
            containers.append({"name": f"c{at}", "resources": resources})
        spec: Round = {"containers": containers}
        if self.way == SHARED:
            spec["resources"] = _limits(CPU_MILLI)
        metadata = {"name": self.name, "uid": self.name}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def in_kernel(self, container: int) -> dict[str, str]:
        """Return the expected limits of a container and its pod in the kernel."""
        return {
            "container_cpu": _cpu_max(self.limit(container)),
            "pod_cpu": _cpu_max(CPU_MILLI),
        }


def _limits(milli: int) -> dict[str, dict[str, str]]:
    return {"limits": {"cpu": f"{milli}m"}} if milli else {}


def _cpu_max(milli: int) -> str:
    return f"{milli * PERIOD_MS or 'max'} {PERIOD_MS * 1000}"


def pods_of(scale: Scale) -> dict[Pod, int]:
    """Return all pods, and the number of their containers with a process: the others are idle."""
    pods = {}
    for way in WAYS:
        for size in scale.sizes:
            pods[Pod(name=f"{way}-{size}-0", size=size, way=way)] = size
        size = scale.sizes[0]
        for number in range(1, scale.pods):
            pods[Pod(name=f"{way}-{size}-{number}", size=size, way=way)] = 2
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
        whole = CpuGroup(name="pod", quota_milli=CPU_MILLI, children=groups)
        rates = share_cpu([whole], CPUS)
        step_ms = min(left / rates[f"{part.container}"] for part, left in left_ms.items())
        passed_ms += step_ms
        after = {
            part: left - step_ms * rates[f"{part.container}"] for part, left in left_ms.items()
        }
        left_ms = {part: left for part, left in after.items() if left > PRECISION_MS}
    return passed_ms
