"""Pods with a quota period of their own, and a pod with a CPU of its own; part of `sharing`.

A longer period has the same limit in the long run: work that needs several quotas of 100 ms is done
without a wait, and in exchange a greedy container makes its siblings wait for longer.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.sharing_node import Node, at_percent, delays, row_of
from tests.bench.sharing_pods import CPUS, PINNED, SHARED, Row, Scale

TICK_USEC = (37_000, 2_000)
"""Some CPU time in a fixed interval, which is not a divisor of the quota's period."""
BURST_USEC = (410_000, 45_000)
"""More than the quota of 100 ms in one piece, and less than the limit in the long run."""
GREEDY_WIDTH = 4
IDLE, BUSY, OWN = "idle node", "busy node", "busy node, a CPU of its own"


def bursts(node: Node, number: int, scale: Scale) -> Iterator[Row]:
    """Measure a burst of work in a limited pod, and small work beside a greedy container."""
    periods = scale.periods_ms if number % 2 else scale.periods_ms[::-1]
    for period in periods:
        found, _, times = delays(node, (f"burst-{period}", 0), (scale.bursts, *BURST_USEC))
        yield row_of(number, "burst", "work", str(period), found) | _figures(times)
        pod = f"siblings-{period}"
        busy = [(pod, 1, f"burn {GREEDY_WIDTH}")]
        found, _, times = delays(node, (pod, 0), (scale.ticks, *TICK_USEC), busy)
        yield row_of(number, "burst", "sibling", str(period), found) | _figures(times)


def pinned(node: Node, number: int, scale: Scale) -> Iterator[Row]:
    """Measure small work in a Guaranteed pod, with and without a CPU of its own."""
    size = scale.sizes[0]
    others = [(f"{SHARED}-{size}-{pod}", 1, f"burn {CPUS}") for pod in range(1, scale.pods)]
    tick = (scale.ticks, *TICK_USEC)
    for way, busy in ((IDLE, []), (BUSY, others)):
        found, _, times = delays(node, (PINNED, 0), tick, busy)
        yield row_of(number, "pinned", "small work", way, found) | _figures(times)
    node.assign(are_exclusive=True)
    found, _, times = delays(node, (PINNED, 0), tick, others)
    yield row_of(number, "pinned", "small work", OWN, found) | _figures(times)
    node.assign(are_exclusive=False)


def _figures(times: list[float]) -> Row:
    p50, p99 = (at_percent(times, percent) for percent in (50, 99))
    return {"p50_ms": p50, "p99_ms": p99, "longest_ms": times[-1]}
