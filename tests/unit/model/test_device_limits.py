"""Limits of devices as text."""

import pytest

from podslice.model.codec import format_device_limits, parse_device_limits
from tests.cases.tables import cases


@pytest.mark.parametrize(
    ("text", "limits", "again"),
    [
        ("", (), ""),
        ("/dev/sda 1", (("/dev/sda", 1),), "/dev/sda 1"),
        (
            "/srv 5;/dev/a-b:c@1 10 ; ",
            (("/dev/a-b:c@1", 10), ("/srv", 5)),
            "/dev/a-b:c@1 10; /srv 5",
        ),
        ("/ 9223372036854775807", (("/", 2**63 - 1),), "/ 9223372036854775807"),
    ],
)
def test_limits_are_in_the_order_of_their_paths(text, limits, again):
    assert parse_device_limits(text) == limits
    assert format_device_limits(reversed(limits)) == again


@cases
def test_other_texts_are_not_limits(text):
    with pytest.raises(ValueError, match="is not a path and a number"):
        parse_device_limits(text)
