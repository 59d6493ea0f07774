"""The bars of `node`, at several widths."""

import pytest

from podslice.cli.verbs.node import node_bars
from podslice.cli.views.style import Display
from podslice.cli.views.text_width import width_of
from podslice.model.config import Config
from podslice.policy.allocatable import allocate
from tests.unit.builders import config, node

EVICTION = {"eviction_hard": Config().eviction_hard}
LEGEND = "        ▓ reserved  ▒ eviction  █ requested  ░ free"


def bars(requested=None, capacity="cpu=10,memory=10Gi", display=None, **options):
    allocation = allocate(node(capacity), config(**options))
    return list(node_bars(allocation, requested or {}, display or Display()))


def test_each_part_has_its_share():
    reserved = {"cpu": 1000, "memory": 2**31 * 1000}
    assert bars({"cpu": 4000, "memory": 2**30 * 1000}, kube_reserved=reserved) == [
        LEGEND,
        "cpu     " + "▓" * 4 + "█" * 16 + "░" * 20 + "  1 reserved, 4 requested, 5 free of 10",
        "memory  "
        + ("▓" * 8 + "█" * 4 + "░" * 28)
        + "  2 GiB reserved, 1 GiB requested, 7 GiB free of 10 GiB",
    ]


def test_a_small_part_is_shown():
    _, cpu, memory = bars({"cpu": 1}, **EVICTION)
    assert cpu.split()[1] == "█" + "░" * 39
    assert memory.split()[1] == "▒" + "░" * 39


def test_pods_that_request_more_than_allocatable():
    """`--set admission=false` accepts them."""
    _, cpu, _ = bars({"cpu": 15_000})
    assert cpu == f"cpu     {'█' * 40}  15 requested, requested above allocatable: 5 of 10"


def test_a_node_whose_capacity_is_not_known():
    assert bars(capacity="cpu=0") == []


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_the_bars_fit_the_terminal(width):
    lines = bars({"cpu": 4000}, display=Display(width=width))
    assert max(map(width_of, lines[1:])) <= width
    assert ("free of" in lines[1]) == (width >= 60)


def test_the_parts_have_colors():
    lines = bars({"cpu": 15_000}, display=Display(is_colored=True), **EVICTION)
    assert f"\x1b[32m{'█' * 40}\x1b[0m" in lines[1]
    assert "\x1b[31m" in lines[1]
    assert f"\x1b[33m▒\x1b[0m{'░' * 39}" in lines[2]
