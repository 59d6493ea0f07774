"""The output of a tool as plain values, within the limits of input."""

import pytest

from podslice.errors import InputError
from podslice.features.compose.tools import parse_resolved
from podslice.inputs.budget import BYTES_MAX, VALUES_MAX


def test_yaml_and_json_are_the_same():
    expected = {"name": "shop", "services": {"a": {"cpus": "0.5"}}}
    assert parse_resolved(b"name: shop\nservices:\n  a: {cpus: 0.5}\n", "x") == expected
    assert parse_resolved(b'{"name": "shop", "services": {"a": {"cpus": 0.5}}}', "x") == expected


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b" " * (BYTES_MAX + 1), "x: is larger than the limit of 8,192 KiB"),
        (b'{"a": [' + b"1," * VALUES_MAX + b"1]}", "x: there are more than 350,000 values"),
        (b"a: 1\na: 2\n", "x: line 2: "),
        (b"\xff", "x: line 1: the byte 0xff is not UTF-8"),
        (b'{"name": "\\ud800"}', "x: name: '\\ud800' has an unpaired surrogate"),
    ],
)
def test_what_is_not_read(data, error):
    with pytest.raises(InputError) as raised:
        parse_resolved(data, "x")
    assert str(raised.value).startswith(error)
