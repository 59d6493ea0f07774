"""Kubelets, and their ownership of the root slice."""

from __future__ import annotations

from podslice.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """A kubelet process."""

    pid: int
    name: str
    """The program: `kubelet`, `k3s-server`, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A root slice that belongs to a kubelet; podslice changes nothing below it."""

    reason: str
    """The evidence, in one sentence."""
    way_out: str

    def __str__(self) -> str:
        """Return the evidence, its consequence and the way out."""
        return f"{self.reason}; podslice changes nothing; {self.way_out}"
