"""Kubelets, and their ownership of the root slice."""

from __future__ import annotations

from typing import NamedTuple


class Kubelet(NamedTuple):
    """A kubelet process."""

    pid: int
    name: str
    """The program: `kubelet`, `k3s-server`, …"""


class Neighbour(NamedTuple):
    """What a kubelet has beside podslice; None where the kernel has no such control group."""

    memory_max_bytes: int | None = None
    """The limit of the kubelet's root."""
    cpu_weight: int | None = None
    """The weight of the kubelet's root."""
    own_weight: int | None = None
    """The weight of the slice that has podslice's root and is beside the kubelet's."""


class Foreign(NamedTuple):
    """A root slice that belongs to a kubelet; podslice changes nothing below it."""

    reason: str
    """The evidence, in one sentence."""
    way_out: str

    def __str__(self) -> str:
        """Return the evidence, its consequence and the way out."""
        return f"{self.reason}; podslice changes nothing; {self.way_out}"
