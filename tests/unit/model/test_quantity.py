import string
from fractions import Fraction

import pytest

from tests.cases.tables import cases

pytest.importorskip("hypothesis")

from hypothesis import example, given
from hypothesis import strategies as st

from podslice.errors import InputError
from podslice.model.quantity import (
    INT64_MAX,
    TEXT_MAX,
    Format,
    Quantity,
    format_age,
    format_bytes,
    format_milli,
    format_quantity,
    human_bytes,
    parse_quantity,
    read_milli,
    tmpfs_size_bytes,
)

NANO = 10**9
LARGEST = INT64_MAX * NANO

nanos = st.one_of(
    st.integers(-LARGEST, LARGEST),
    st.integers(-INT64_MAX, INT64_MAX).map(lambda n: n * NANO),
    st.builds(lambda n, e: n * 10**e, st.integers(-999, 999), st.integers(0, 25)),
    st.builds(lambda n, e: n * NANO * 1024**e, st.integers(-999, 999), st.integers(0, 5)),
).filter(lambda nano: abs(nano) <= LARGEST)


def value_of(text):
    """What a text means, by its suffix, with fractions: independent of the code under test."""
    suffixes = {
        **{s: Fraction(10) ** (3 * n) for n, s in enumerate(["n", "u", "m", "", "k"], -3)},
        **{s: Fraction(10) ** (3 * n) for n, s in enumerate("MGTPE", 2)},
        **{f"{s}i": Fraction(1024) ** n for n, s in enumerate("KMGTPE", 1)},
    }
    digits = text.lstrip("+-")
    number = digits.rstrip(string.ascii_letters)
    if "e" in digits[1:] and digits[-1].isdigit():
        number, _, exponent = digits.partition("e")
        scale = Fraction(10) ** int(exponent)
    else:
        scale = suffixes[digits.removeprefix(number)]
    value = Fraction(number) * scale
    return -value if text.startswith("-") else value


@given(nanos, st.sampled_from(Format))
def test_what_is_printed_reads_as_the_same_amount(nano, format_):
    quantity = Quantity(nano, format_)
    assert parse_quantity(str(quantity)).nano == nano


@given(nanos, st.sampled_from(Format))
def test_what_is_printed_means_the_amount(nano, format_):
    assert value_of(str(Quantity(nano, format_))) * NANO == nano


@given(nanos, st.sampled_from(Format))
def test_printing_is_canonical(nano, format_):
    text = str(Quantity(nano, format_))
    assert str(Quantity(parse_quantity(text).nano, format_)) == text
    assert "." not in text
    assert not text.startswith(("+", "-0"))


@given(st.integers(-INT64_MAX // 1000, INT64_MAX // 1000))
def test_thousandths_read_back(milli):
    assert parse_quantity(format_milli(milli)).milli == milli


@given(st.integers(-INT64_MAX, INT64_MAX))
def test_bytes_read_back(number):
    assert parse_quantity(format_bytes(number)).nano == number * NANO


SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
SUFFIXES += ["e3", "E3", "e-3", "e0", "e+6"]


@given(
    st.sampled_from(["", "+", "-"]),
    st.from_regex(r"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}", fullmatch=True),
    st.sampled_from(SUFFIXES),
)
@example("", "0.000000000001", "Ki")
def test_an_amount_is_rounded_up_to_a_billionth_and_never_otherwise(sign, number, suffix):
    exact = value_of(sign + number + suffix.replace("E3", "e3")) * NANO
    text = sign + number + suffix
    if abs(exact) > LARGEST:
        with pytest.raises(ValueError, match="does not fit 64 bits"):
            parse_quantity(text)
        return
    nano = parse_quantity(text).nano
    assert abs(nano) >= abs(exact)
    assert abs(nano - exact) < 1
    assert nano * exact >= 0


@given(st.text(max_size=80))
@example("9" * TEXT_MAX)
@example("1e-" + "9" * 60)
@example("0." + "0" * 60)
def test_any_text_is_a_quantity_or_an_error_in_one_line(text):
    try:
        quantity = parse_quantity(text)
    except ValueError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 400
    else:
        assert abs(quantity.nano) <= LARGEST
        assert text.isascii()


def problem_of(text):
    """Return the error message for a text; an empty one for a quantity."""
    try:
        parse_quantity(text)
    except ValueError as error:
        return str(error)
    return ""


@given(st.text(string.ascii_letters + string.digits + ".,+- ", max_size=8))
def test_what_a_hint_proposes_is_a_quantity(text):
    _, _, hint = problem_of(text).partition("; write ")
    for proposal in hint.split(" or ") if "such as" not in hint else ():
        problem = problem_of(proposal.split(" ")[0]) if proposal else ""
        assert not problem or "64 bits" in problem, (text, proposal)


@given(nanos, nanos)
def test_thousandths_keep_the_order(first, second):
    low, high = sorted((first, second))
    assert Quantity(low).milli <= Quantity(high).milli


def test_a_huge_amount_that_does_not_fit_is_still_printed():
    assert format_quantity(Quantity(10**21 * NANO)) == "1000E"
    assert format_milli(3 * 10**24) == "3000E"
    assert format_quantity(Quantity(10**36, Format.EXPONENT)) == "1e27"


def test_bytes_below_a_kibibyte_have_a_decimal_suffix():
    """Source: Kubernetes, quantity.go, CanonicalizeBytes: below 1024, BinarySI is DecimalSI."""
    assert format_bytes(1000) == "1k"
    assert format_bytes(1024) == "1Ki"


def test_white_space_around_a_quantity_is_named():
    with pytest.raises(ValueError, match="remove the white space around it"):
        parse_quantity(" 1Gi")


def test_an_amount_in_the_middle_of_nowhere_keeps_its_exponent():
    assert format_quantity(Quantity(10**21 * NANO, Format.EXPONENT)) == "1e21"


@cases
def test_the_size_of_a_tmpfs(options, expect):
    assert tmpfs_size_bytes(options) == expect


@cases
def test_usage_is_for_people(number, shown):
    assert human_bytes(number) == shown


@cases
def test_an_age_is_for_people(seconds, shown):
    assert format_age(seconds) == shown


def test_the_longest_text_is_explained_in_full():
    with pytest.raises(ValueError, match=r"write 1{62}G ") as raised:
        parse_quantity("1" * (TEXT_MAX - 2) + "gb")
    assert "…" not in str(raised.value)


def test_the_longest_text_is_read():
    assert parse_quantity("1".rjust(TEXT_MAX, "0")).milli == 1000
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity("1".rjust(TEXT_MAX + 1, "0"))
    assert read_milli("1".rjust(TEXT_MAX, "0")) == 1000
    with pytest.raises(InputError, match=f"at most {TEXT_MAX} characters"):
        read_milli("1".rjust(TEXT_MAX + 1, "0"))
