"""Amounts of resources, and the sums and maxima that Kubernetes' rules are made of.

An amount is an integer number of thousandths, whatever the resource: 500m CPU is 500, 1Ki of memory
is 1024000. A resource that is not stated is absent; 0 is a statement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple, TypeVar

from podslice.model.quantity import format_milli, format_shortest, human_bytes

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PIDS = "pid"
HUGEPAGES_PREFIX = "hugepages-"
RESERVED_SUFFIX = ".rsvd.max"
"""The suffix of files that limit reserved huge pages; since Linux 5.7."""

Amounts = Mapping[str, int]
"""Name of a resource → thousandths of its base unit (CPUs, bytes, processes)."""
ExactAmounts = Mapping[str, int | Fraction]
"""As `Amounts`, and exact where a quantity is finer than a thousandth."""
_Number = TypeVar("_Number", int, int | Fraction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Requests and limits, as stated or as computed."""

    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether anything is stated."""
        return bool(self.requests or self.limits)


def is_hugepages(resource: str) -> bool:
    """Return whether the resource is a size of huge pages (`hugepages-2Mi`)."""
    return resource.startswith(HUGEPAGES_PREFIX)


def is_bytes(resource: str) -> bool:
    """Return whether the resource is counted in bytes."""
    return resource in (MEMORY, EPHEMERAL_STORAGE) or is_hugepages(resource)


def is_extended(resource: str) -> bool:
    """Return whether the resource is one of a vendor, such as `example.com/gpu`.

    Source: Kubernetes, pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName.
    """
    is_native = "/" not in resource or "kubernetes.io/" in resource
    return not is_native and not resource.startswith("requests.")


def hugetlb_files(size_bytes: int) -> tuple[str, str]:
    """Return the files that limit the huge pages of a size: those in use, and those reserved.

    `hugetlb.2MB.max`, `hugetlb.2MB.rsvd.max`; with the first alone a process that has mapped more
    than it may use gets SIGBUS, with the second mmap(2) fails.

    Source: Linux, mm/hugetlb_cgroup.c, mem_fmt; Documentation/admin-guide/cgroup-v2.rst, "HugeTLB".
    """
    units = ((2**30, "GB"), (2**20, "MB"), (1024, "KB"))
    unit, suffix = next((u, s) for u, s in units if size_bytes >= u or s == "KB")
    stem = f"hugetlb.{size_bytes // unit}{suffix}"
    return f"{stem}.max", f"{stem}{RESERVED_SUFFIX}"


def is_pod_level_resource(resource: str) -> bool:
    """Return whether the pod level may state it: cpu, memory and huge pages.

    Source: Kubernetes, component-helpers/resource/helpers.go, IsSupportedPodLevelResource.
    """
    return resource in (CPU, MEMORY) or is_hugepages(resource)


def cpu_milli(amounts: Amounts) -> int | None:
    """Return CPU in thousandths of a CPU."""
    return amounts.get(CPU)


def memory_bytes(amounts: Amounts) -> int | None:
    """Return memory in bytes, rounded up to a whole byte."""
    return whole(amounts, MEMORY)


def whole(amounts: Amounts, resource: str) -> int | None:
    """Return a resource in whole base units, rounded up.

    Source: Kubernetes, quantity.go, Value: "rounded up to the nearest integer away from 0".
    """
    milli = amounts.get(resource)
    return None if milli is None else -(-milli // 1000)


def rounded_up(amounts: ExactAmounts) -> dict[str, int]:
    """Return amounts in whole thousandths.

    Source: Kubernetes, quantity.go, MilliValue: "rounded up to the nearest integer away from 0".
    """
    return {name: math.ceil(milli) for name, milli in amounts.items()}


def total(lists: Iterable[Mapping[str, _Number]]) -> dict[str, _Number]:
    """Return the sum per resource; a resource that none of them states is absent.

    Source: Kubernetes, component-helpers/resource/helpers.go, addResourceList.
    """
    result: dict[str, _Number] = {}
    for amounts in lists:
        for resource, milli in amounts.items():
            result[resource] = result.get(resource, 0) + milli
    return result


def format_amount(resource: str, milli: int) -> str:
    """Return an amount as a Kubernetes quantity: `500m` for CPU, `3Gi` or `128M` for memory."""
    return format_milli(milli) if resource in (CPU, PIDS) else format_shortest(milli)


def human_amounts(resource: str, *milli: int) -> list[str]:
    """Return amounts for a sentence: bytes as `23.5 GiB`, exactly where different ones would read the same."""
    exact = [format_amount(resource, each) for each in milli]
    if not is_bytes(resource):
        return exact
    shown = [human_bytes(each // 1000) for each in milli]
    if len(set(shown)) == len(set(milli)):
        return shown
    return [f"{each} B" if each.isdecimal() else each for each in exact]


def format_amounts(amounts: Amounts) -> str:
    """Return `cpu=500m,memory=3Gi`, sorted by name."""
    return ",".join(f"{name}={format_amount(name, amounts[name])}" for name in sorted(amounts))


class RecommendedAmounts(NamedTuple):
    """The amounts that are recommended for a pod; None where nothing is known."""

    cpu_request: int | None
    memory_request: int | None
    memory_limit: int | None

    @property
    def requests(self) -> Amounts:
        """Return the requests that are known."""
        return _known({CPU: self.cpu_request, MEMORY: self.memory_request})

    @property
    def limits(self) -> Amounts:
        """Return the limits that are known."""
        return _known({MEMORY: self.memory_limit})


def _known(amounts: Mapping[str, int | None]) -> Amounts:
    return {name: milli for name, milli in amounts.items() if milli is not None}


class UsedAmounts(NamedTuple):
    """What a slice has used: a percentile and the maximum; None without samples."""

    cpu_milli: int | None = None
    cpu_peak_milli: int | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
