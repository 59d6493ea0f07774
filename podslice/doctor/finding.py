"""A finding about the host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingState(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    INFO = "info"
    """Informative; no action is needed."""
    ATTENTION = "attention"
    """Something will not work as the manifests request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    check: str
    state: FindingState
    what: str
    effect: str = ""
    fix: str = ""
