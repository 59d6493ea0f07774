"""Amounts of compose files: what docker and podman read, and nothing that they would read otherwise."""

import pytest

from podslice.errors import InputError
from podslice.features.compose.project import read_cpus, read_memory, read_whole
from podslice.inputs.scalars import Boolean, Number, Odd

MI = 2**20 * 1000


@pytest.mark.parametrize(
    ("value", "milli"),
    [
        ("0.5", 500),
        (Number("2"), 2000),
        (".25", 250),
        ("1.", 1000),
        (0.1, 100),
        (3, 3000),
        ("0.0001", 1),
        ("0", 0),
    ],
)
def test_cpus(value, milli):
    assert read_cpus(value) == milli


# Source: docker/go-units, size_test.go, TestRAMInBytes
@pytest.mark.parametrize(
    ("value", "milli"),
    [
        ("32", 32_000),
        ("32b", 32_000),
        ("32k", 32 * 1024 * 1000),
        ("32Kb", 32 * 1024 * 1000),
        ("32Kib", 32 * 1024 * 1000),
        ("32m", 32 * MI),
        ("32 MB", 32 * MI),
        ("1.5g", 1536 * MI),
        ("32Tb", 32 * 2**20 * MI),
        ("1p", 2**30 * MI),
        (Number("1073741824"), 1024 * MI),
        ("0.3b", 0),
    ],
)
def test_memory(value, milli):
    assert read_memory(value) == milli


@pytest.mark.parametrize(("value", "number"), [("-1", -1), (Number("100"), 100), (7, 7)])
def test_whole_numbers(value, number):
    assert read_whole(value) == number


@pytest.mark.parametrize("read", [read_cpus, read_memory, read_whole])
@pytest.mark.parametrize(
    "value",
    [
        "",
        "-",
        "1e",
        "١",
        "1,5",
        "9" * 33,
        None,
        [],
        {},
        True,
        Boolean("yes"),
        Odd("010"),
        "${CPUS}",
    ],
)
def test_what_is_not_an_amount(read, value):
    with pytest.raises(InputError):
        read(value)


@pytest.mark.parametrize("value", ["-1", "1e3", "nan", "inf", "0x1"])
def test_what_is_not_a_number_of_cpus(value):
    with pytest.raises(InputError, match="number of CPUs"):
        read_cpus(value)


@pytest.mark.parametrize("value", ["-1", "1e3", "32bb", "m", "1 g b", "1 GB of memory"])
def test_what_is_not_an_amount_of_memory(value):
    with pytest.raises(InputError, match="byte value"):
        read_memory(value)
