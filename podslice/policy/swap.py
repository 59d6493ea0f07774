"""The swap that a container may use."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.model.config import Config, Rules, SwapBehavior
from podslice.model.node import Node
from podslice.model.pod import Container, ContainerKind, Pod, Qos
from podslice.model.properties import MEMORY_SWAP_MAX
from podslice.model.quantity import format_bytes
from podslice.model.resources import MEMORY, memory_bytes
from podslice.model.unit import PropertyValue
from podslice.policy.eviction.thresholds import is_critical

_OPTION = "memory-swap-behavior"


def swap_behavior(config: Config) -> SwapBehavior:
    """Return the behavior that applies: the stated one, else the default of the rules.

    Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_container_linux.go,
    configureContainerSwapResources: without memorySwap.swapBehavior a container has no swap.
    """
    if config.memory_swap_behavior is not None:
        return config.memory_swap_behavior
    is_kubernetes = config.rules is Rules.KUBERNETES
    return SwapBehavior.NO_SWAP if is_kubernetes else SwapBehavior.UNLIMITED


def node_memory(node: Node, config: Config) -> int:
    """Return the memory of the node in bytes; 0 if it is not known."""
    capacity = config.capacity if MEMORY in config.capacity else node.capacity
    return memory_bytes(capacity) or 0


def swap_limit(
    pod: Pod, container: Container, qos: Qos, node: Node, config: Config
) -> Iterator[PropertyValue]:
    """Yield MemorySwapMax of a container of a pod with its defaults; nothing if it is unlimited.

    With LimitedSwap it is the container's share of the node's swap, rounded down: memory request /
    memory of the node × swap of the node. The kubelet computes with floating point numbers, whose
    result is a byte less at times.

    Source: KEP-2400, "Steps to Calculate Swap Limit"; Kubernetes,
    pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, calcSwapForBurstablePods.
    """
    behavior = swap_behavior(config)
    if behavior is SwapBehavior.UNLIMITED:
        return
    why = f"{_OPTION} {behavior}"
    if behavior is SwapBehavior.NO_SWAP:
        if config.memory_swap_behavior is None:
            why += ", the default of these rules"
        yield PropertyValue(name=MEMORY_SWAP_MAX, value=0, why=why)
        return
    of_node = node_memory(node, config)
    reason = why_no_swap(pod, container, qos, of_node)
    if reason:
        yield PropertyValue(name=MEMORY_SWAP_MAX, value=0, why=f"{why}: {reason}")
        return
    request = memory_bytes(container.resources.requests) or 0
    share = f"requests.memory {format_bytes(request)} of {format_bytes(of_node)}"
    why += f": {share}, × {format_bytes(node.swap_bytes)} of swap"
    value = request * node.swap_bytes // of_node
    yield PropertyValue(name=MEMORY_SWAP_MAX, value=value, why=why)


def why_no_swap(pod: Pod, container: Container, qos: Qos, node_memory_bytes: int) -> str:
    """Return why a container gets no part of the node's swap; empty when it gets one.

    Source: KEP-2400, "Steps to Calculate Swap Limit"; Kubernetes,
    pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, GetContainerSwapBehavior, and
    calcSwapForBurstablePods, which fails for a request above the memory of the node.
    """
    if qos is not Qos.BURSTABLE:
        return f"{qos} pods get none"
    if is_critical(pod) or container.kind is ContainerKind.OVERHEAD:
        return "critical pods and the helpers of pods get none"
    request = memory_bytes(container.resources.requests)
    if not request:
        return "no memory request"
    if request == memory_bytes(container.resources.limits):
        return "the memory request is the limit"
    if request > node_memory_bytes:
        return "the memory request is more than the node's memory"
    return ""
