from dataclasses import replace

import pytest

from podslice.errors import InputError
from podslice.model import codec
from podslice.model.codec import format_duration, share_of_percent
from podslice.model.properties import (
    MANAGED,
    OBSERVED,
    PROPERTIES,
    format_value,
    managed_of,
    supported,
)
from podslice.model.unit import INFINITY, Caps, UnitKind
from tests.cases.tables import cases
from tests.unit.builders import slice_unit

BOOLEANS = [row for row in PROPERTIES.values() if row.signature == "b"]


def test_a_row_is_found_by_its_name():
    assert all(row.name == name for name, row in PROPERTIES.items())


def test_managed_properties_can_be_unset():
    assert MANAGED.keys() == set(UnitKind)
    for kind, names in MANAGED.items():
        assert list(names) == sorted(names)
        for name in names:
            row = PROPERTIES[name]
            assert kind in row.managed <= row.kinds
            assert row.signature in ("t", "u", "s") or row.is_text
            assert row.takes(row.unset)


WITHOUT_KERNEL_FILE = {
    # in the file of the quota
    "CPUQuotaPeriodUSec",
    # systemd-oomd has these, and not the kernel
    *("ManagedOOMSwap", "ManagedOOMMemoryPressure", "ManagedOOMMemoryPressureLimit"),
}


def test_managed_properties_have_a_file_of_the_kernel():
    """Otherwise `status` has no value for them, and the agent sees no external write to it."""
    managed = {name for names in MANAGED.values() for name in names}
    without = {name for name in managed if not PROPERTIES[name].kernel_file}
    assert without == WITHOUT_KERNEL_FILE
    files = [row.kernel_file for row in PROPERTIES.values() if row.kernel_file]
    assert {each for each in files if files.count(each) > 1} == {"io.max"}


def test_structure_is_not_managed():
    for name in ("Description", "Wants", "Slice", "PIDs", "DefaultDependencies", "CPUAccounting"):
        assert not PROPERTIES[name].managed


def test_the_process_limit_of_a_container_is_the_manager_s_default():
    assert "TasksMax" in MANAGED[UnitKind.SLICE]
    assert "TasksMax" not in MANAGED[UnitKind.SCOPE]


def test_a_container_is_managed_the_same_way_as_scope_or_service():
    assert MANAGED[UnitKind.SERVICE] == MANAGED[UnitKind.SCOPE]
    assert OBSERVED[UnitKind.SERVICE] == OBSERVED[UnitKind.SCOPE]


def test_some_properties_are_managed_on_units_of_pods_only():
    tier, of_pod = slice_unit("kubepods.slice"), slice_unit("kubepods-poda.slice", pod="default/a")
    assert managed_of(of_pod) == MANAGED[UnitKind.SLICE]
    only_of_pods = set(managed_of(of_pod)) - set(managed_of(tier))
    assert {"AllowedCPUs", "IOWeight", "MemoryZSwapMax"} <= only_of_pods
    assert all(PROPERTIES[name].of_pods for name in only_of_pods)


def test_all_cpus_of_a_machine_with_64_are_not_infinity():
    assert format_value("AllowedCPUs", "0-63") == "0-63"
    assert format_value("AllowedCPUs", "") == "unset"


def test_nothing_is_managed_on_a_mount():
    assert MANAGED[UnitKind.MOUNT] == ()
    assert OBSERVED[UnitKind.MOUNT] == {"What", "Type", "Options", "Slice"}


def test_nothing_is_managed_on_a_timer():
    assert (MANAGED[UnitKind.TIMER], OBSERVED[UnitKind.TIMER]) == ((), frozenset())


@pytest.mark.parametrize("kind", UnitKind)
def test_what_is_managed_is_observed_and_what_only_starts_a_unit_is_not(kind):
    assert set(MANAGED[kind]) <= OBSERVED[kind]
    assert not OBSERVED[kind] & {"PIDs", "PIDFDs", "ExecStart", "TimeoutStopUSec", "Description"}


@cases
def test_ranges_are_systemd_s(name, value, taken):
    assert PROPERTIES[name].takes(value) is taken


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("CPUWeight", 100, "100"),
        ("CPUWeight", 0, "idle"),
        ("CPUWeight", INFINITY, ""),
        ("MemoryMax", 4096, "4096"),
        ("MemoryMax", INFINITY, "infinity"),
        ("CPUQuotaPerSecUSec", 110_000, "11%"),
        ("CPUQuotaPerSecUSec", 4_000_000, "400%"),
        ("CPUQuotaPerSecUSec", 15_500, "1.55%"),
        ("CPUQuotaPerSecUSec", INFINITY, ""),
        ("CPUQuotaPeriodUSec", 10_000, "10000us"),
        ("CPUQuotaPeriodUSec", INFINITY, ""),
        ("Wants", ("a.slice", "b.slice"), "a.slice b.slice"),
        ("Wants", "a.slice", "a.slice"),
        ("Description", "Pod a/b", "Pod a/b"),
        ("DirectoryMode", 0o755, "0755"),
        ("TimeoutStopUSec", 30_000_000, "30000000us"),
        ("TimeoutStopUSec", INFINITY, "infinity"),
        ("ManagedOOMSwap", "kill", "kill"),
        ("ManagedOOMMemoryPressureLimit", 2_576_980_377, "60%"),
        ("ManagedOOMMemoryPressureLimit", 2_559_800_508, "59.60%"),
        ("ManagedOOMMemoryPressureLimit", 2_147_741_346, "50.01%"),
        ("ManagedOOMMemoryPressureLimit", 2**32 - 1, "100%"),
        ("ManagedOOMMemoryPressureLimit", 0, ""),
        ("Delegate", True, "yes"),
        ("Delegate", False, "no"),
    ],
)
def test_values_are_text_in_unit_files(name, value, expected):
    assert PROPERTIES[name].format(value) == expected


def test_booleans_are_words_in_unit_files():
    for value, word in ((True, "yes"), (False, "no")):
        assert {row.format(value) for row in BOOLEANS} == {word}


def test_only_scopes_take_processes_in():
    assert PROPERTIES["PIDs"].kinds == PROPERTIES["PIDFDs"].kinds == {UnitKind.SCOPE}


@pytest.mark.parametrize("percent", range(1, 101))
def test_a_percentage_survives_the_way_through_a_file(percent):
    """Source: systemd 252 and 257, which read it back from `60.00%`; percent-util.h."""
    share = share_of_percent(percent)
    assert PROPERTIES["ManagedOOMMemoryPressureLimit"].format(share) == f"{percent}%"
    assert PROPERTIES["ManagedOOMMemoryPressureLimit"].parse(f"{percent}.00%") == share
    assert share == (percent * 100 * (2**32 - 1) + 5000) // 10_000


@cases
def test_a_value_that_is_not_set_is_not_an_amount(name, value, text):
    assert format_value(name, value) == text


def test_an_annotation_may_state_that_there_is_no_limit():
    assert PROPERTIES["TasksMax"].read("infinity") == INFINITY


def test_a_property_without_a_reader_cannot_be_stated():
    with pytest.raises(InputError, match="Description cannot be stated"):
        PROPERTIES["Description"].read("a pod")


@pytest.mark.parametrize(
    ("usec", "text"),
    [
        (0, "0us"),
        (1, "1us"),
        (999, "999us"),
        (1_500, "1500us"),
        (2_000, "2ms"),
        (3_000_000, "3s"),
        (120_000_000, "2m"),
    ],
)
def test_durations_are_written_in_their_largest_whole_unit(usec, text):
    assert format_duration(usec) == text


def test_a_property_is_set_from_its_version_of_systemd_on():
    values = {"MemoryZSwapMax": 0, "MemoryMax": 4096}
    since = PROPERTIES["MemoryZSwapMax"].since
    assert supported(values, Caps(systemd_version=since)) == values
    assert supported(values, Caps(systemd_version=since - 1)) == {"MemoryMax": 4096}


def test_a_property_in_microseconds_has_a_codec_that_converts_them():
    with pytest.raises(ValueError, match="does not convert microseconds"):
        replace(PROPERTIES["CPUQuotaPeriodUSec"], codec=codec.NUMBER)
