"""The memory from which on the kernel throttles a container."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.model.config import Config
from podslice.model.node import Node
from podslice.model.pod import Container, Pod
from podslice.model.properties import MEMORY_HIGH
from podslice.model.quantity import format_bytes
from podslice.model.resources import memory_bytes
from podslice.model.unit import PropertyValue
from podslice.policy.allocatable import allocate


def memory_high(
    pod: Pod, container: Container, node: Node, config: Config
) -> Iterator[PropertyValue]:
    """Yield MemoryHigh of a container of a pod with its defaults; nothing without a factor.

    It is request + factor × (limit - request), in whole pages. A container without a limit has that
    of the pod level, or else the capacity of the node less the reservations. A container whose
    request is its limit is not throttled, and neither is one without both. The class of the pod has
    no effect.

    Source: KEP-2570, "Alpha v1.27"; Kubernetes 1.36.2,
    pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, generateLinuxContainerResources, with
    pkg/kubelet/cm/node_container_manager_linux.go, getNodeAllocatableAbsolute. That kubelet does not
    use the limit of the pod level.
    """
    factor_milli = config.memory_throttling_factor_milli
    own, at_pod = (memory_bytes(each.resources.limits) for each in (container, pod))
    request, limit = memory_bytes(container.resources.requests) or 0, own or at_pod or 0
    if factor_milli is None or request == limit:
        return
    what = "limits.memory" if own else "the pod's limits.memory"
    if not limit:
        limit = memory_bytes(allocate(node, config).enforced) or 0
        what = "the node's memory less the reservations"
    page = node.page_size_bytes
    value = (request * 1000 + (limit - request) * factor_milli) // (1000 * page) * page
    if value > request:
        why = f"requests.memory {format_bytes(request)}, and {factor_milli / 1000:g} of the rest of"
        why += f" {what} {format_bytes(limit)}"
        yield PropertyValue(name=MEMORY_HIGH, value=value, why=why)
