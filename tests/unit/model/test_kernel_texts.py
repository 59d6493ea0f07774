"""The kernel's texts with several values, as Linux 6.12 and its documentation have them."""

import pytest

from podslice.model.codec import read_device_limits, read_weight
from tests.cases.tables import cases

TWO = (
    "254:0 rbps=10485760 wbps=20971520 riops=700 wiops=500\n"
    "8:16 rbps=2097152 wbps=max riops=max wiops=120"
)


@cases
def test_the_weight_of_a_group_is_first(text, weight):
    assert read_weight(text) == weight


@pytest.mark.parametrize(
    ("text", "key", "limits"),
    [
        ("", "rbps", "max"),
        (TWO, "rbps", "254:0 10485760; 8:16 2097152"),
        (TWO, "wbps", "254:0 20971520"),
        (TWO, "riops", "254:0 700"),
        (TWO, "wiops", "254:0 500; 8:16 120"),
        ("8:16 rbps=max wbps=max riops=max wiops=max", "rbps", "max"),
        ("8:16 rbps=1", "wiops", "max"),
        ("8:16 of=another kernel\n8:0", "rbps", "8:16 of=another kernel; 8:0"),
    ],
)
def test_the_limits_of_one_kind_by_device(text, key, limits):
    assert read_device_limits(text, key) == limits
