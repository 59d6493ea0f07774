"""Lists of CPUs as text and as octets."""

import pytest

from podslice.model.node import format_cpus, numbers_of_octets, octets_of_numbers, parse_cpus
from tests.cases.tables import cases


@pytest.mark.parametrize(
    ("cpus", "text"),
    [((), ""), ((3,), "3"), ((0, 1), "0-1"), ((8, 2, 0, 1, 3), "0-3,8"), ((0, 2, 4), "0,2,4")],
)
def test_cpus_are_written_as_the_kernel_writes_them(cpus, text):
    assert format_cpus(cpus) == text


@cases
def test_lists_of_cpus(text, cpus):
    cpus = set(cpus)
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize("text", ["a", "1-", "-1", "2-1", "8192", "0-8192", "1:2", "٣", "0x1"])
def test_texts_that_are_not_lists_of_cpus(text):
    with pytest.raises(ValueError, match="is not a range of CPUs"):
        parse_cpus(text)


@cases
def test_the_first_octet_has_the_lowest_cpus(octets, cpus):
    """Source: systemd, src/shared/cpu-set-util.c, cpu_set_to_dbus."""
    octets = octets.encode("latin-1")
    assert octets_of_numbers(cpus) == octets
    assert list(numbers_of_octets(octets)) == cpus
    assert list(numbers_of_octets(octets + b"\x00")) == cpus
