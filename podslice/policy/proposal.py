"""Requests and limits for a new pod, from the present use of a running program."""

from __future__ import annotations

from typing import NamedTuple

from podslice.model.quantity import about_bytes, format_bytes, format_milli, parse_quantity

MI = 2**20

_CPU_STEP_MILLI = 10
"""A hundredth of a CPU, the precision that systemd stores."""
_SPARE_PERCENT = 25
"""What the proposed memory limit leaves above the peak."""
_SPARE_WITHOUT_PEAK_PERCENT = 50

_SHARE_MILLI = 1000
"""A request of one CPU: CPUWeight=100, the weight of a unit without a setting.

Source: podslice-policy(7), CPUWeight; systemd.resource-control(5), CPUWeight=.
"""
NOT_RESERVED = "the limit is not reserved, see --reserve"
"""The reason of a request beside a limit that it does not reserve."""


class PresentUse(NamedTuple):
    """What a running unit or process uses; None where the kernel does not count it."""

    name: str
    """`nginx`."""
    what: str
    """`nginx.service`, or `process 226 (sleep)`."""
    age_sec: int
    """The time since its oldest process started, at least 1."""
    cpu_usec: int | None = None
    """Since the start."""
    memory_bytes: int | None = None
    """The memory that cannot be reclaimed at once."""
    peak_bytes: int | None = None
    """The most memory since the start."""
    tasks: int | None = None
    """Processes and threads."""


class StatedAmount(NamedTuple):
    """A quantity, as the manifest has it, and its source."""

    text: str
    source: str = ""
    """Empty if the user has chosen it."""


class ProposedAmounts(NamedTuple):
    """Amounts for the level of a pod; None where nothing is known."""

    cpu: StatedAmount | None = None
    memory: StatedAmount | None = None
    memory_limit: StatedAmount | None = None


def propose_amounts(use: PresentUse) -> ProposedAmounts:
    """Return requests of the present use, and a memory limit above the peak.

    There is no CPU limit: the average does not show the peak.
    """
    limit = _propose_memory_limit(use)
    return ProposedAmounts(cpu=_propose_cpu(use), memory=_propose_memory(use), memory_limit=limit)


def share_request_milli(limit_milli: int | None) -> int:
    """Return the request of CPUs, in thousandths, beside a limit that reserves nothing.

    The pod gets the weight of a unit without a setting, or less if its limit is less.
    """
    return _SHARE_MILLI if limit_milli is None else min(limit_milli, _SHARE_MILLI)


def at_most(proposed: StatedAmount | None, limit: StatedAmount | None) -> StatedAmount | None:
    """Return a proposed request, or the limit if that is less."""
    if proposed is None or limit is None or _milli(proposed) <= _milli(limit):
        return proposed
    return StatedAmount(text=limit.text, source=f"the limit; {proposed.source}: {proposed.text}")


def at_least(proposed: StatedAmount | None, request: StatedAmount | None) -> StatedAmount | None:
    """Return a proposed limit, or the request if that is more."""
    if proposed is None or request is None or _milli(proposed) >= _milli(request):
        return proposed
    source = f"the request; {proposed.source} would be {proposed.text}"
    return StatedAmount(text=request.text, source=source)


def format_age(seconds: int) -> str:
    """Return a duration in its largest unit: `3 h`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _propose_cpu(use: PresentUse) -> StatedAmount | None:
    if use.cpu_usec is None:
        return None
    average_milli = use.cpu_usec // (use.age_sec * 1000)
    proposed = _round_up(max(average_milli, 1), _CPU_STEP_MILLI)
    source = f"its average in {format_age(use.age_sec)} is {average_milli}m"
    return StatedAmount(text=format_milli(proposed), source=source)


def _propose_memory(use: PresentUse) -> StatedAmount | None:
    if use.memory_bytes is None:
        return None
    proposed = _round_up(max(use.memory_bytes, 1), MI)
    return StatedAmount(text=format_bytes(proposed), source="what it uses now")


def _propose_memory_limit(use: PresentUse) -> StatedAmount | None:
    if use.memory_bytes is None:
        return None
    if use.peak_bytes is None:
        spare, base = _SPARE_WITHOUT_PEAK_PERCENT, use.memory_bytes
        source = "1.5 times what it uses now; its peak is not known"
    else:
        spare, base = _SPARE_PERCENT, max(use.peak_bytes, use.memory_bytes)
        source = f"1.25 times its peak, {about_bytes(base)}"
    proposed = _round_up(max(base, 1) * (100 + spare) // 100, MI)
    return StatedAmount(text=format_bytes(max(proposed, MI)), source=source)


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step


def _milli(amount: StatedAmount) -> int:
    return parse_quantity(amount.text).milli
