"""The memory from which on the kernel throttles a container."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.model.config import Config
from podslice.model.node import Node
from podslice.model.pod import Container, Pod, Qos
from podslice.model.quantity import format_bytes
from podslice.model.resources import memory_bytes
from podslice.model.unit import PropertyValue
from podslice.policy.allocatable import allocate


def memory_high(
    pod: Pod, container: Container, qos: Qos, node: Node, config: Config
) -> Iterator[PropertyValue]:
    """Yield MemoryHigh of a container of a pod with its defaults; nothing without a factor.

    It is request + factor × (limit - request), in whole pages. A container without a limit has that
    of the pod level, or else the allocatable memory of the node. A container whose request is its
    limit is not throttled.

    Source: KEP-2570, "Alpha v1.27"; Kubernetes,
    pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, generateLinuxContainerResources.
    """
    factor_milli = config.memory_throttling_factor_milli
    own = memory_bytes(container.resources.limits)
    request = memory_bytes(container.resources.requests) or 0
    if factor_milli is None or qos is Qos.GUARANTEED or request == own:
        return
    limit, what = _upper(pod, own, node, config)
    page = node.page_size_bytes
    value = (request * 1000 + (limit - request) * factor_milli) // (1000 * page) * page
    if value > request:
        why = f"requests.memory {format_bytes(request)}, and {factor_milli / 1000:g} of the rest of"
        why += f" {what} {format_bytes(limit)}"
        yield PropertyValue(name="MemoryHigh", value=value, why=why)


def _upper(pod: Pod, own: int | None, node: Node, config: Config) -> tuple[int, str]:
    """Return the most memory that a container with this limit may use, and what limits it."""
    at_pod = memory_bytes(pod.resources.limits)
    if own:
        return own, "limits.memory"
    if at_pod:
        return at_pod, "the pod's limits.memory"
    return memory_bytes(allocate(node, config).allocatable) or 0, "the node's allocatable memory"
