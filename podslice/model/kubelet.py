"""Who owns the root slice: podslice, or a kubelet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelet:
    """A process that runs a kubelet."""

    pid: int
    name: str
    """The program: `kubelet`, `k3s-server`, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """The root slice belongs to a kubelet; podslice changes nothing while that is so."""

    reason: str
    """The evidence, in one sentence."""
    way_out: str

    def __str__(self) -> str:
        """The evidence, what follows from it and the way out."""
        return f"{self.reason}; podslice changes nothing; {self.way_out}"
