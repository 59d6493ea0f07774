"""The eviction thresholds of tiers, beside the limits that they are within."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from podslice.cli.views.documents import Document
from podslice.cli.views.layout import fold
from podslice.cli.views.style import Display
from podslice.cli.views.tables import human_bytes
from podslice.model.config import Config
from podslice.model.desired import Desired
from podslice.model.naming import Tree
from podslice.model.pod import Qos
from podslice.model.properties import MEMORY_MAX
from podslice.model.quantity import format_bytes
from podslice.model.unit import limit_of
from podslice.policy.allocatable import threshold_amount


class TierEviction(NamedTuple):
    """The threshold of a tier."""

    qos: Qos
    limit_bytes: int
    threshold_bytes: int


def tier_evictions(desired: Desired, config: Config) -> tuple[TierEviction, ...]:
    """Return the thresholds of the tiers that exist, by class."""
    tree = Tree(cgroup_root=config.cgroup_root)
    limits = {
        unit.name: limit
        for unit in desired.units
        if (limit := limit_of(unit.properties, MEMORY_MAX)) is not None
    }
    return tuple(
        TierEviction(
            qos=qos,
            limit_bytes=limits[tree.tier(qos)],
            threshold_bytes=threshold_amount(threshold, limits[tree.tier(qos)] * 1000) // 1000,
        )
        for qos, threshold in sorted(config.eviction_tier.items())
        if tree.tier(qos) in limits
    )


def tier_lines(found: Iterable[TierEviction], display: Display) -> Iterator[str]:
    """Yield a sentence for each tier."""
    show = format_bytes if display.is_exact else human_bytes
    for each in found:
        text = (
            f"{each.qos} pods are evicted when less than {show(each.threshold_bytes)} of the"
            f" {show(each.limit_bytes)} of their tier are available."
        )
        yield from fold(text, display)


def tier_documents(found: Iterable[TierEviction]) -> list[Document]:
    """Return the thresholds of tiers for programs."""
    return [
        {
            "tier": each.qos.lower(),
            "limit_bytes": each.limit_bytes,
            "threshold_bytes": each.threshold_bytes,
        }
        for each in found
    ]
