"""The simulated memory of pods, as a table and as a document. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from podslice.cli.views.layout import Align, Column, Shorten, fold, table
from podslice.cli.views.tables import human_bytes
from podslice.model.quantity import format_bytes
from podslice.model.resources import memory_bytes

if TYPE_CHECKING:
    from podslice.cli.views.documents import Document
    from podslice.cli.views.style import Display
    from podslice.policy.memory_sharing import MemorySharing, PodMemory

_NUMBER = Align.RIGHT
_COLUMNS = (
    Column(title="NAME", min_width=20, shorten=Shorten.MIDDLE),
    Column(title="REQUEST", align=_NUMBER, drop=1),
    Column(title="LIMIT", align=_NUMBER),
    Column(title="PROTECTED", align=_NUMBER),
    Column(title="RECLAIMABLE", align=_NUMBER, drop=2),
    Column(title="OOM SCORE", align=_NUMBER),
    Column(title="EVICTED", align=_NUMBER, drop=3),
)
_NAMED = 5
"""Pods without a limit that are named; the others are counted."""


def memory_lines(found: MemorySharing, display: Display) -> Iterator[str]:
    """Yield a line for each pod, those that are killed first at the top, and a summary."""
    yield from table(_COLUMNS, [_cells(each, display) for each in found.pods], display)
    yield ""
    for text in _summary(found, display):
        yield from fold(text, display)


def _cells(each: PodMemory, display: Display) -> Sequence[str]:
    request = memory_bytes(each.pod.requests)
    return [
        each.pod.pod.key,
        "-" if request is None else _amount(request, display),
        _amount(each.limit_bytes, display) if each.is_limited else "-",
        _amount(each.protected_bytes, display),
        _amount(each.reclaimable_bytes, display),
        str(each.oom_score),
        "-" if each.eviction_rank is None else str(each.eviction_rank),
    ]


def _summary(found: MemorySharing, display: Display) -> Iterator[str]:
    limits, available, over = (
        _amount(number, display)
        for number in (found.limit_bytes, found.available_bytes, found.overcommitted_bytes)
    )
    text = f"The pods can use {limits} of {available} together"
    yield f"{text}: {over} is overcommitted." if found.overcommitted_bytes else f"{text}."
    if unlimited := [each.pod.pod.key for each in found.pods if not each.is_limited]:
        rest = len(unlimited) - _NAMED
        names = ", ".join(unlimited[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
        yield f"Without a memory limit: {names}."


def _amount(number: int, display: Display) -> str:
    return format_bytes(number) if display.is_exact else human_bytes(number)


def memory_document(found: MemorySharing) -> Document:
    """Return the sums of all pods."""
    return {
        "available_bytes": found.available_bytes,
        "limit_bytes": found.limit_bytes,
        "overcommitted_bytes": found.overcommitted_bytes,
    }


def pod_memory_document(each: PodMemory) -> Document:
    """Return what a pod's document has in addition."""
    return {
        "requested_memory_bytes": memory_bytes(each.pod.requests),
        "limit_memory_bytes": each.limit_bytes if each.is_limited else None,
        "protected_memory_bytes": each.protected_bytes,
        "reclaimable_memory_bytes": each.reclaimable_bytes,
        "oom_score": each.oom_score,
        "eviction_rank": each.eviction_rank,
    }
