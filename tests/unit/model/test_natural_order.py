"""Names with numbers, in order."""

import random

from podslice.model.naming import natural_key

ORDERED = ["", "7", "7a", "07b", "10", "shop", "shop-6", "shop-06x", "shop-54", "shop-60", "shop-x"]


def test_numbers_are_compared_by_value():
    mixed = random.Random(1).sample(ORDERED, len(ORDERED))
    assert sorted(mixed, key=natural_key) == ORDERED


def test_names_that_differ_in_leading_zeros_have_a_fixed_order():
    assert sorted(["a-7", "a-07"], key=natural_key) == ["a-07", "a-7"]
    assert sorted(["a-07", "a-7"], key=natural_key) == ["a-07", "a-7"]
