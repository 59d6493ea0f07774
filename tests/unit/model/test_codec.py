"""The text of every property in a unit file is read back as the same value."""

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st

from podslice.errors import InputError
from podslice.model import codec
from podslice.model.codec import format_device_limits
from podslice.model.node import format_cpus
from podslice.model.properties import PROPERTIES
from podslice.model.quantity import INT64_MAX
from podslice.model.unit import INFINITY
from tests.unit.properties.strategies import few

NUMBERS = st.integers(0, 2**63)
DEVICES = st.dictionaries(st.sampled_from(["/", "/dev/sda", "/srv/a"]), NUMBERS).map(
    lambda limits: format_device_limits(limits.items())
)
WORDS = st.text("abz.-@\\", min_size=1, max_size=5)
REPRESENTABLE = {
    codec.BYTES: NUMBERS | st.just(INFINITY),
    codec.COUNT: NUMBERS | st.just(INFINITY),
    codec.SCORE: st.integers(-1000, 1000),
    codec.STRING: st.text(max_size=9),
    codec.BOOLEAN: st.booleans(),
    codec.LIST: st.lists(WORDS, max_size=3).map(tuple),
    codec.OCTAL: st.integers(0, 0o7777),
    codec.WEIGHT: st.integers(0, 10_000) | st.just(INFINITY),
    # a file has two decimals of a percentage
    codec.QUOTA: NUMBERS.map(lambda number: number * 100) | st.just(INFINITY),
    codec.SHARE: st.integers(0, 100).map(codec.share_of_percent),
    codec.DURATION: NUMBERS | st.just(INFINITY),
    codec.TIMEOUT: NUMBERS | st.just(INFINITY),
    codec.NUMBER: NUMBERS | st.just(INFINITY),
    codec.BANDWIDTHS: DEVICES,
    codec.RATES: DEVICES,
    codec.CPUS: st.sets(st.integers(0, 300)).map(format_cpus),
}
ON_BUS_ONLY = {"PIDs", "PIDFDs", "ExecStart", "ExecStopPost", "Environment", "TimersMonotonic"}
IN_FILES = [row for row in PROPERTIES.values() if row.codec != codec.BUS_ONLY]


def test_structures_are_sent_over_the_bus_only():
    assert PROPERTIES.keys() - {row.name for row in IN_FILES} == ON_BUS_ONLY
    assert all(PROPERTIES[name].parse("a") is None for name in ON_BUS_ONLY)


@pytest.mark.parametrize("row", IN_FILES, ids=lambda row: row.name)
@few
@given(data=st.data())
def test_a_value_is_read_back_from_its_text(row, data):
    value = data.draw(REPRESENTABLE[row.codec])
    assert row.parse(row.format(value)) == value


@pytest.mark.parametrize("row", IN_FILES, ids=lambda row: row.name)
def test_an_unset_value_is_read_back_from_its_text(row):
    if row.unset is not None:
        assert row.parse(row.format(row.unset)) == row.unset


@pytest.mark.parametrize("row", IN_FILES, ids=lambda row: row.name)
@few
@given(text=st.text(max_size=9) | st.from_regex(r"[0-9]{1,3}(\.[0-9]{2})?(%|us|ms|s)?"))
def test_any_text_is_a_value_or_unknown(row, text):
    value = row.parse(text)
    if value is not None:
        assert row.parse(row.format(value)) == value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("MemoryMax", "50%", None),
        ("MemoryMax", "", None),
        ("OOMScoreAdjust", "-997", -997),
        ("OOMScoreAdjust", "--1", None),
        ("Delegate", "maybe", None),
        ("Wants", "a.slice  b.slice", ("a.slice", "b.slice")),
        ("DirectoryMode", "0755", 0o755),
        ("DirectoryMode", "8", None),
        ("CPUWeight", "x", None),
        ("CPUQuotaPerSecUSec", "25.00%", 250_000),
        ("CPUQuotaPerSecUSec", "25", None),
        ("CPUQuotaPeriodUSec", "10ms", 10_000),
        ("CPUQuotaPeriodUSec", "1s", 1_000_000),
        ("CPUQuotaPeriodUSec", "1min", None),
        ("TimeoutStopUSec", "", None),
        ("TimeoutStopUSec", "5s", 5_000_000),
        ("ManagedOOMMemoryPressureLimit", "59.60%", 2_559_800_508),
        ("ManagedOOMMemoryPressureLimit", "60", None),
        ("AllowedCPUs", "0-3 8", "0-3,8"),
        ("AllowedCPUs", "64-200", "64-200"),
        ("AllowedCPUs", "3-1", None),
        ("IOWeight", "", INFINITY),
        ("IOWeight", "idle", None),
        ("IOReadIOPSMax", "/srv 5; /dev/sda 10", "/dev/sda 10; /srv 5"),
        ("IOReadIOPSMax", "/srv much", None),
    ],
)
def test_texts_that_systemd_writes(name, text, value):
    assert PROPERTIES[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("MemoryMax", INFINITY, "infinity"),
        ("MemoryMax", 1, "1"),
        ("OOMScoreAdjust", -997, "-997"),
        ("Delegate", True, "yes"),
        ("Delegate", False, "no"),
        ("Wants", ("a.slice", "b.slice"), "a.slice b.slice"),
        ("DirectoryMode", 0o755, "0755"),
        ("CPUWeight", 0, "idle"),
        ("CPUWeight", 1, "1"),
        ("CPUWeight", INFINITY, ""),
        ("IOWeight", INFINITY, ""),
        ("IOWeight", 5, "5"),
        ("CPUQuotaPerSecUSec", 250_000, "25%"),
        ("CPUQuotaPerSecUSec", 10_500, "1.05%"),
        ("CPUQuotaPerSecUSec", 2_000_000, "200%"),
        ("CPUQuotaPerSecUSec", INFINITY, ""),
        ("CPUQuotaPeriodUSec", 10_000, "10000us"),
        ("CPUQuotaPeriodUSec", INFINITY, ""),
        ("TimeoutStopUSec", INFINITY, "infinity"),
        ("ManagedOOMMemoryPressureLimit", 2_559_800_508, "59.60%"),
        ("ManagedOOMMemoryPressureLimit", 2**32 - 1, "100%"),
        ("ManagedOOMMemoryPressureLimit", 171_798, ""),  # 0.004 %
        ("ManagedOOMMemoryPressureLimit", 257_698, "0.01%"),  # 0.006 %
        ("ManagedOOMMemoryPressureLimit", 0, ""),
    ],
)
def test_texts_that_systemd_reads(name, value, text):
    """Source: systemd.resource-control(5), systemd.exec(5), systemd.syntax(7); 59.6 % of 2^32 - 1, and the nearest hundredth."""
    assert PROPERTIES[name].format(value) == text


def test_devices_have_a_line_each_in_a_unit_file():
    assert PROPERTIES["IOReadIOPSMax"].texts("/dev/sda 10; /srv 5") == ["/dev/sda 10", "/srv 5"]
    assert PROPERTIES["IOReadIOPSMax"].texts("") == [""]
    assert PROPERTIES["AllowedCPUs"].texts("0,3") == ["0,3"]


@pytest.mark.parametrize(
    ("kind", "text", "bounds", "value"),
    [
        (codec.DURATION, "1ms", (1_000, 1_000_000), 1_000),
        (codec.DURATION, "1s", (1_000, 1_000_000), 1_000_000),
        (codec.DURATION, "1.5ms", (1_000, 1_000_000), 1_500),
        (codec.DURATION, "0.0125s", (1_000, 1_000_000), 12_500),
        (codec.BYTES, str(INT64_MAX), (0, INFINITY), INT64_MAX),
        (codec.SCORE, "-997", (-997, 1000), -997),
        (codec.SCORE, "1000", (-997, 1000), 1000),
        (codec.RATES, "/dev/sda 1", (0, INFINITY), "/dev/sda 1"),
    ],
)
def test_an_annotation_at_its_bounds_is_read(kind, text, bounds, value):
    assert kind.read(text, *bounds) == value


@pytest.mark.parametrize(
    ("kind", "text", "bounds", "message"),
    [
        (codec.DURATION, "999us", (1_000, 1_000_000), "'999us' is out of range"),
        (codec.DURATION, "1000001us", (1_000, 1_000_000), "'1000001us' is out of range"),
        (codec.DURATION, "1.0005ms", (1_000, 1_000_000), "is out of range"),
        (codec.DURATION, "5", (1_000, 1_000_000), "must be a duration, not the string '5'"),
        (codec.BYTES, str(INT64_MAX + 1), (0, INFINITY), "does not fit 64 bits"),
        (codec.BYTES, "1500m", (0, INFINITY), "is not a number of bytes"),
        (codec.SCORE, "-998", (-997, 1000), "is not a score from -997 to 1000"),
        (codec.SCORE, "1001", (-997, 1000), "is not a score from -997 to 1000"),
        (codec.RATES, "/dev/sda 0", (0, INFINITY), "'0' is out of range"),
    ],
)
def test_an_annotation_beyond_its_bounds_is_refused(kind, text, bounds, message):
    with pytest.raises(InputError) as raised:
        kind.read(text, *bounds)
    assert message in str(raised.value)
