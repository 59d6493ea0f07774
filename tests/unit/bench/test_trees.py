"""The random trees, and what is made of the rounds."""

import pytest

pytest.importorskip("podslice.features.simulate")

from podslice.features.simulate.sharing import CpuGroup
from tests.bench import trees


def every(groups):
    for group in groups:
        yield group
        yield from every(group.children)


def test_trees_are_different_and_the_same_in_each_run():
    made = [trees.make_tree(seed) for seed in trees.SEEDS]
    assert len({*made}) == len(made)
    assert made == [trees.make_tree(seed) for seed in trees.SEEDS]


def test_trees_have_all_that_divides_cpu_time():
    groups = [group for seed in trees.SEEDS for group in every(trees.make_tree(seed))]
    leaves = [group for group in groups if not group.children]
    assert {group.threads for group in leaves} >= {0, 1, 2, 3, 4}
    assert {cpu for group in leaves for cpu in group.cpus or ()} == {0, 1}
    wide = [group for seed in range(93) for group in every(trees.make_tree(seed, 4))]
    assert {cpu for group in wide for cpu in group.cpus or ()} == {0, 1, 2, 3}
    for part in ("system.slice", "user.slice", "kubepods-burstable-pod", "kubepods-pod"):
        assert any(group.name.startswith(part) for group in groups)
    assert any(group.quota_milli for group in leaves)
    assert any(group.quota_milli for group in groups if group.children)


@pytest.mark.parametrize(("off", "is_met"), [(1.0, True), (5.5, False)])
def test_one_share_in_one_tree_misses_the_aim(off, is_met):
    tree = (CpuGroup(name="a", quota_milli=500, threads=1), CpuGroup(name="b"))
    first = {"a": 25.0, "b": 75.0}
    starts = ({"a": 28.0, "b": 72.0}, {"a": 23.0, "b": 76.0})
    good = trees.Round(seed=1, tree=tree, predicted=first, starts=starts)
    other = trees.Round(seed=2, tree=tree, predicted=first, starts=({"a": 25.0, "b": 75.0 - off},))
    result = trees.make_result([good, other])
    assert result.aims[0].is_met == is_met
    assert result.tables[0].rows[0] == ("1", "2", "3", "1", "100 %", "1.00", "0.75", "3.00")
    assert [each["worst_off_points"] for each in result.rounds] == [1.0, off]
