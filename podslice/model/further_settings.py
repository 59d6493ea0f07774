"""Settings of units that limit resources, and that podslice neither sets nor compares.

Manifests have no field for them. They are only read, to name those that are set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from podslice.model.codec import share_of_percent
from podslice.model.cpu_list import format_cpus, numbers_of_octets
from podslice.model.unit import INFINITY, UnitKind

_LIMITED = frozenset({UnitKind.SLICE, UnitKind.SCOPE, UnitKind.SERVICE})
_SLICE = frozenset({UnitKind.SLICE})
_SERVICE = frozenset({UnitKind.SERVICE})


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherSetting:
    """One setting of a unit."""

    name: str
    """Its name on the bus."""
    key: str
    """Its key in a unit file."""
    unset: object
    """Its value when it was never set."""
    kinds: frozenset[UnitKind] = _LIMITED
    """The kinds of units for which it is of interest."""


def _settings(
    *names: str, unset: object, kinds: frozenset[UnitKind] = _LIMITED
) -> tuple[FurtherSetting, ...]:
    return tuple(
        FurtherSetting(name=name, key=name.replace("USec", "Sec"), unset=unset, kinds=kinds)
        for name in names
    )


# Names and values for unset: systemd.resource-control(5) and org.freedesktop.systemd1(5) of
# systemd 252 to 262. Sandboxing is listed for slices only: a service keeps its own.
_ROWS = (
    *_settings(
        *("StartupCPUWeight", "CPUShares", "StartupCPUShares"),
        *("StartupMemoryHigh", "StartupMemoryMax", "MemoryLimit"),
        *("StartupMemorySwapMax", "StartupMemoryZSwapMax"),
        *("StartupIOWeight", "BlockIOWeight", "StartupBlockIOWeight"),
        "ManagedOOMMemoryPressureDurationUSec",
        unset=INFINITY,
    ),
    *_settings(
        *("StartupMemoryLow", "DefaultMemoryLow", "DefaultMemoryMin", "DefaultStartupMemoryLow"),
        "ManagedOOMMemoryPressureLimit",
        unset=0,
    ),
    *_settings(
        *("StartupAllowedCPUs", "StartupAllowedMemoryNodes"),
        *("IODeviceWeight", "IODeviceLatencyTargetUSec"),
        unset=(),
    ),
    *_settings("MemoryZSwapWriteback", unset=True),
    *_settings("ManagedOOMSwap", "ManagedOOMMemoryPressure", unset="auto"),
    *_settings("ManagedOOMPreference", unset="none"),
    *_settings("OOMScoreAdjust", unset=0, kinds=_SERVICE),
    *_settings("IPAddressAllow", "IPAddressDeny", "DeviceAllow", unset=(), kinds=_SLICE),
    *_settings("DevicePolicy", unset="auto", kinds=_SLICE),
)
FURTHER_SETTINGS: Mapping[UnitKind, Mapping[str, FurtherSetting]] = {
    kind: {row.name: row for row in _ROWS if kind in row.kinds} for kind in UnitKind
}
"""The settings by the kind of the unit and their name on the bus."""

_BIT_MASKS = frozenset(row.name for row in _ROWS if row.name.startswith("StartupAllowed"))
_SHARES = frozenset({"ManagedOOMMemoryPressureLimit"})
_WHOLE_PERCENTS = {share_of_percent(percent): percent for percent in range(101)}


def format_setting(name: str, value: object) -> str:
    """Return the value of a setting as its unit file has it; empty for a list of structures."""
    if name in _BIT_MASKS and isinstance(value, Sequence):
        return format_cpus(numbers_of_octets(value))
    if name in _SHARES:
        percent = _WHOLE_PERCENTS.get(value) if isinstance(value, int) else None
        return "" if percent is None else f"{percent}%"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == INFINITY:
        return "infinity"
    if isinstance(value, int) and name.endswith("USec"):
        return f"{value}us"
    return str(value) if isinstance(value, int | str) else ""
