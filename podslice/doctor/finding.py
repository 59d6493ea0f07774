"""What a finding is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingState(StrEnum):
    """How grave a finding is."""

    OK = "ok"
    INFO = "info"
    """Worth knowing; nothing has to be done."""
    ATTENTION = "attention"
    """Something will not be as the manifests ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing about the host."""

    check: str
    state: FindingState
    what: str
    effect: str = ""
    fix: str = ""
