"""The known name that an unknown one resembles."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_NEAR = 0.75
"""Similarity from which a name is taken for a misspelled one; that of `gpu` and `cpu` is 0.67."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a name is probably meant to be."""
    if len(name) > 40:
        return None

    lower = {other.lower(): other for other in sorted(known)}
    found = get_close_matches(name.lower(), lower, n=1, cutoff=_NEAR)
    return lower[found[0]] if found else None
