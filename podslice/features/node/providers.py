"""Reservations for a node, by the formulas of the large providers.

They are a starting point: measure the usage of your daemons, and adjust them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from podslice.model.node import Node
from podslice.model.quantity import human_bytes
from podslice.model.resources import CPU, Amounts, memory_bytes

MI = 2**20
GI = 2**30

_CPU_STEPS = ((1, 60), (1, 10), (2, 5))
"""Of the first CPU 6 %, of the next 1 %, of the next two 0.5 % each, in thousandths of a CPU.

Source: GKE, "Plan GKE node sizes", CPU reservations; EKS, bootstrap.sh, get_cpu_millicores_to_reserve.
"""
_CPU_FURTHER_TENTHS = 25
"""Of every further CPU 0.25 %, in tenths of a thousandth."""

_MEMORY_STEPS = ((4 * GI, 25), (4 * GI, 20), (8 * GI, 10), (112 * GI, 6))
"""Of the first 4Gi 25 %, of the next 4Gi 20 %, of the next 8Gi 10 %, of the next 112Gi 6 %; of
everything above 2 %.

Source: GKE, "Plan GKE node sizes", memory reservations.
"""

_AKS_CPU = ((1, 60), (2, 100), (4, 140), (8, 180), (16, 260), (32, 420), (64, 740))
"""CPUs of the node → thousandths reserved. Source: AKS, "Resource reservations", CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """CPU in thousandths, memory in bytes."""

    cpu_milli: int
    memory_bytes: int


def gke(cpus: int, memory: int, pods: int) -> Reservation:
    """Return GKE's reservation for its components.

    Source: GKE, "Plan GKE node sizes"; 255Mi on nodes with less than 1Gi.
    """
    del pods
    return Reservation(cpu_milli=_stepped_cpu(cpus), memory_bytes=_stepped_memory(memory))


def eks(cpus: int, memory: int, pods: int) -> Reservation:
    """Return EKS's reservation: CPU as GKE, memory by the number of pods.

    Source: EKS, amazon-eks-ami, bootstrap.sh: 255Mi + 11Mi for every pod.
    """
    del memory
    return Reservation(cpu_milli=_stepped_cpu(cpus), memory_bytes=(255 + 11 * pods) * MI)


def aks(cpus: int, memory: int, pods: int) -> Reservation:
    """Return AKS's reservation: CPU by a table, memory by the number of pods, at most a quarter.

    Source: AKS, "Resource reservations", Kubernetes 1.29 and later: 20 MB for every pod and 50 MB,
    or 25 % of the memory, whichever is less.
    """
    cpu_milli = max((milli for least, milli in _AKS_CPU if cpus >= least), default=60)
    return Reservation(cpu_milli=cpu_milli, memory_bytes=min((20 * pods + 50) * MI, memory // 4))


class Provider(NamedTuple):
    """A provider's formula, as a function and as a sentence."""

    formula: Callable[[int, int, int], Reservation]
    """CPUs of the node, its memory in bytes and the number of pods → the reservation."""
    explanation: str
    """The sentence, with `{pods}` for their number."""
    source: str


_CPU_EXPLANATION = "6% of the first CPU, 1% of the second, 0.5% of the next two each and 0.25% of every further one"
PROVIDERS: Mapping[str, Provider] = {
    "gke": Provider(
        formula=gke,
        explanation=f"{_CPU_EXPLANATION}; 25% of the first 4 GiB of memory, 20% of the next 4 GiB, 10%"
        " of the next 8 GiB, 6% of the next 112 GiB and 2% of the rest",
        source='GKE, "Plan GKE node sizes"',
    ),
    "eks": Provider(
        formula=eks,
        explanation=f"{_CPU_EXPLANATION}; 255 MiB of memory and 11 MiB for each of {{pods}} pods",
        source="EKS, amazon-eks-ami, bootstrap.sh",
    ),
    "aks": Provider(
        formula=aks,
        explanation="60m to 740m of CPU by the number of CPUs; 50 MiB of memory and 20 MiB for each of"
        " {pods} pods, at most a quarter of the memory",
        source='AKS, "Resource reservations"',
    ),
}


def explain_provider(name: str, pods: int) -> str:
    """Return a provider's formula and its source as one sentence."""
    provider = PROVIDERS[name]
    return f"{provider.explanation.format(pods=pods)} ({provider.source})"


def by_provider(capacity: Amounts, pods: int) -> dict[str, Reservation]:
    """Return each provider's reservation on a node for a number of pods, in whole Mi."""
    cpus, memory = capacity[CPU] // 1000, memory_bytes(capacity) or 0
    kept = {name: each.formula(cpus, memory, pods) for name, each in PROVIDERS.items()}
    return {
        name: replace(each, memory_bytes=-(-each.memory_bytes // MI) * MI)
        for name, each in kept.items()
    }


def system_reservation(node: Node, used_bytes: int | None) -> Reservation:
    """Return the reservation for the system's daemons: 1.5 times their usage.

    If the usage is unknown, 5 % of the memory, at least 128Mi and at most 1Gi. In steps of 64Mi;
    100m of CPU.
    """
    memory = memory_bytes(node.capacity) or 0
    wanted = min(memory // 20, GI) if used_bytes is None else used_bytes * 3 // 2
    # whole steps, so that small changes of the usage propose the same value
    step = 64 * MI
    return Reservation(cpu_milli=100, memory_bytes=max(-(-wanted // step) * step, 2 * step))


def explain_system(used_bytes: int | None) -> str:
    """Return the formula of `system_reservation` and its source as one sentence."""
    if used_bytes is None:
        use = "because the use of the slices is unknown"
        return f"100m of CPU; 5% of the memory, 128 MiB to 1 GiB, {use}"
    return (
        "100m of CPU; 1.5 times the memory that system.slice and user.slice use now,"
        f" {human_bytes(used_bytes)}, in steps of 64 MiB"
    )


def _stepped_cpu(cpus: int) -> int:
    """Return thousandths of a CPU, rounded up."""
    # tenths of a thousandth: 0.25 % of a CPU is 2.5m
    tenths, left = 0, cpus
    for count, milli in _CPU_STEPS:
        taken = min(count, left)
        tenths, left = tenths + taken * milli * 10, left - taken
    return -(-(tenths + left * _CPU_FURTHER_TENTHS) // 10)


def _stepped_memory(memory: int) -> int:
    if memory < GI:
        return 255 * MI
    reserved, left = 0, memory
    for size, percent in _MEMORY_STEPS:
        taken = min(size, left)
        reserved, left = reserved + taken * percent // 100, left - taken
    return reserved + left * 2 // 100
