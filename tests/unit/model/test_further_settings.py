"""Settings that podslice only names: their text, and that no property is among them."""

import pytest

from podslice.model.codec import share_of_percent
from podslice.model.properties import FURTHER_SETTINGS, MANAGED
from podslice.model.unit import INFINITY, UnitKind


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("StartupIOWeight", 50, "50"),
        ("StartupMemoryZSwapMax", 0, "0"),
        ("StartupMemoryMax", INFINITY, "infinity"),
        ("MemoryZSwapWriteback", False, "no"),
        ("ManagedOOMPreference", "avoid", "avoid"),
        ("ManagedOOMMemoryPressureDurationUSec", 20_000_000, "20000000us"),
        ("ManagedOOMMemoryPressureLimit", share_of_percent(60), "60%"),
        ("ManagedOOMMemoryPressureLimit", 7, ""),
        ("OOMScoreAdjust", -900, "-900"),
        ("StartupAllowedMemoryNodes", (0b1111, 0b1), "0-3,8"),
        ("StartupAllowedCPUs", (0b101, 0, 0b110), "0,2,17-18"),
        ("StartupAllowedMemoryNodes", (1,), "0"),
        ("IODeviceWeight", (("/dev/sda", 50),), ""),
    ],
)
def test_a_value_is_as_in_a_unit_file(name, value, text):
    rows = FURTHER_SETTINGS[UnitKind.SLICE] | FURTHER_SETTINGS[UnitKind.SERVICE]
    assert rows[name].format(value) == text


@pytest.mark.parametrize("kind", [UnitKind.SERVICE, UnitKind.SCOPE, UnitKind.SLICE])
def test_managed_properties_are_not_among_them(kind):
    common = FURTHER_SETTINGS[kind].keys() & set(MANAGED[kind])
    # those of systemd-oomd, which podslice sets on tiers, and manifests do not have
    assert {name for name in common if not name.startswith("ManagedOOM")} == set()


def test_keys_are_those_of_unit_files():
    keys = {row.name: row.key for row in FURTHER_SETTINGS[UnitKind.SERVICE].values()}
    assert keys["StartupIOWeight"] == "StartupIOWeight"
    assert keys["IODeviceLatencyTargetUSec"] == "IODeviceLatencyTargetSec"
