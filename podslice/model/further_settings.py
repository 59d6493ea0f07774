"""Properties that limit resources, and that podslice neither sets nor compares.

Manifests have no field for them. They are only read, to name those that are set.
"""

from __future__ import annotations

from functools import partial

from podslice.model.codec import BOOLEAN, BYTES, DURATION, SCORE, SHARE, Codec
from podslice.model.cpu_list import format_cpus, numbers_of_octets
from podslice.model.properties import OOM_SCORE_ADJ, SERVICE, SLICE, Property
from podslice.model.unit import INFINITY, UnitKind, Value


def _format_octets(value: Value) -> str:
    octets = [each for each in value if isinstance(each, int)] if isinstance(value, tuple) else []
    return format_cpus(numbers_of_octets(octets))


_OCTETS = Codec(format=_format_octets, parse=lambda _: None)
_STRUCTURES = Codec(format=lambda _: "", parse=lambda _: None, base=DURATION.base)
"""A list whose values are not shown."""

_row = partial(Property, signature="v")

# Names and values for unset: systemd.resource-control(5) and org.freedesktop.systemd1(5) of
# systemd 252 to 262. An empty list is unset. Sandboxing is listed for slices only: a service keeps
# its own.
_ROWS = tuple(
    row(name=name)
    for row, *names in (
        (
            partial(_row, unset=INFINITY, codec=BYTES),
            *("StartupCPUWeight", "CPUShares", "StartupCPUShares"),
            *("StartupMemoryHigh", "StartupMemoryMax", "MemoryLimit"),
            *("StartupMemorySwapMax", "StartupMemoryZSwapMax"),
            *("StartupIOWeight", "BlockIOWeight", "StartupBlockIOWeight"),
        ),
        (
            partial(_row, unset=0, codec=BYTES),
            *("StartupMemoryLow", "DefaultMemoryLow"),
            *("DefaultMemoryMin", "DefaultStartupMemoryLow"),
        ),
        (
            partial(_row, unset=INFINITY, codec=DURATION),
            "ManagedOOMMemoryPressureDurationUSec",
        ),
        (partial(_row, unset=0, codec=SHARE), "ManagedOOMMemoryPressureLimit"),
        (partial(_row, codec=_OCTETS), "StartupAllowedCPUs", "StartupAllowedMemoryNodes"),
        (partial(_row, codec=_STRUCTURES), "IODeviceWeight", "IODeviceLatencyTargetUSec"),
        (partial(_row, unset=True, codec=BOOLEAN), "MemoryZSwapWriteback"),
        (partial(_row, unset="auto"), "ManagedOOMSwap", "ManagedOOMMemoryPressure"),
        (partial(_row, unset="none"), "ManagedOOMPreference"),
        (partial(_row, unset=0, kinds=SERVICE, codec=SCORE), OOM_SCORE_ADJ),
        (
            partial(_row, kinds=SLICE, codec=_STRUCTURES),
            *("IPAddressAllow", "IPAddressDeny", "DeviceAllow"),
        ),
        (partial(_row, unset="auto", kinds=SLICE), "DevicePolicy"),
    )
    for name in names
)
FURTHER_SETTINGS = {
    kind: {row.name: row for row in _ROWS if kind in row.kinds} for kind in UnitKind
}
"""The settings by the kind of the unit and their name on the bus."""
