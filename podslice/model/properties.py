"""The one table of systemd's unit properties that podslice uses.

A row serves the bus, unit files, drift detection, feasibility and the kernel's values. To add a property, add a row;
policy may then state it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from podslice.model.codec import (
    AMOUNT,
    BOOLEAN,
    BUS_ONLY,
    CPUS,
    DEVICES,
    DURATION,
    INTEGER,
    LIST,
    NUMBER,
    OCTAL,
    QUOTA,
    SHARE,
    TIMEOUT,
    WEIGHT,
    WHOLE_SHARE,
)
from podslice.model.kernel_texts import read_device_limits, read_weight
from podslice.model.quantity import format_bytes
from podslice.model.unit import INFINITY, Caps, DesiredUnit, UnitKind, Value
from podslice.model.unit_property import CONTAINER, LIMITED, Property

ALL = frozenset(UnitKind)
TIMER = frozenset({UnitKind.TIMER})
SLICE = frozenset({UnitKind.SLICE})
SCOPE = frozenset({UnitKind.SCOPE})
SERVICE = frozenset({UnitKind.SERVICE})
MOUNT = frozenset({UnitKind.MOUNT})

PARTITION = "CPUSetPartition"
PARTITION_ROOT, PARTITION_ISOLATED = "root", "isolated"
"""A partition of the kernel that others can be part of, and one without balancing of load."""
QUOTA_PERIOD_USEC = 100_000
"""The default CFS period of systemd and Kubernetes: 100 ms.

Source: systemd.resource-control(5), CPUQuotaPeriodSec=; Kubelet pod level resource management,
"Conversion of CPU millicores".
"""


_of_timer = partial(Property, kinds=TIMER)

# Since-versions: systemd's NEWS file. Ranges and "infinity" for unset: SYSTEMD.md, section 3.
_ROWS = (
    Property(name="Description", key="Description", signature="s", section="Unit", kinds=ALL),
    Property(
        name="DefaultDependencies",
        key="DefaultDependencies",
        signature="b",
        section="Unit",
        kinds=ALL,
        codec=BOOLEAN,
    ),
    Property(name="Wants", key="Wants", signature="as", section="Unit", kinds=ALL, codec=LIST),
    Property(name="After", key="After", signature="as", section="Unit", kinds=ALL, codec=LIST),
    Property(
        name="Conflicts", key="Conflicts", signature="as", section="Unit", kinds=ALL, codec=LIST
    ),
    Property(
        name="CollectMode", key="CollectMode", signature="s", section="Unit", kinds=ALL, since=236
    ),
    # a slice's own follows from its name
    Property(
        name="Slice", key="Slice", signature="s", kinds=CONTAINER | MOUNT, observed=LIMITED | MOUNT
    ),
    Property(
        name="Delegate",
        key="Delegate",
        signature="b",
        kinds=CONTAINER,
        observed=CONTAINER,
        codec=BOOLEAN,
    ),
    # the processes to move into a scope: their ids, or descriptors
    Property(name="PIDs", key="PIDs", signature="au", kinds=SCOPE, codec=BUS_ONLY),
    Property(name="PIDFDs", key="PIDFDs", signature="ah", kinds=SCOPE, since=255, codec=BUS_ONLY),
    # the commands of a service
    Property(name="ExecStart", key="ExecStart", signature="a(sasb)", kinds=SERVICE, codec=BUS_ONLY),
    Property(
        name="ExecStopPost", key="ExecStopPost", signature="a(sasb)", kinds=SERVICE, codec=BUS_ONLY
    ),
    Property(name="Environment", key="Environment", signature="as", kinds=SERVICE, codec=BUS_ONLY),
    Property(name="WorkingDirectory", key="WorkingDirectory", signature="s", kinds=SERVICE),
    Property(
        name="OOMScoreAdjust",
        key="OOMScoreAdjust",
        signature="i",
        kinds=SERVICE,
        minimum=-1000,
        maximum=1000,
        codec=INTEGER,
    ),
    Property(
        name="RemainAfterExit", key="RemainAfterExit", signature="b", kinds=SERVICE, codec=BOOLEAN
    ),
    # how the processes of a container are stopped
    Property(
        name="TimeoutStopUSec",
        key="TimeoutStopSec",
        signature="t",
        kinds=CONTAINER,
        maximum=INFINITY,
        codec=TIMEOUT,
    ),
    Property(name="KillMode", key="KillMode", signature="s", kinds=CONTAINER),
    Property(name="OOMPolicy", key="OOMPolicy", signature="s", kinds=CONTAINER),
    Property(name="SendSIGHUP", key="SendSIGHUP", signature="b", kinds=CONTAINER, codec=BOOLEAN),
    # when a service is up: `exec`, `oneshot`; the file system of a mount: `tmpfs`
    Property(name="Type", key="Type", signature="s", kinds=SERVICE | MOUNT, observed=MOUNT),
    Property(name="What", key="What", signature="s", kinds=MOUNT, observed=MOUNT),
    Property(name="Options", key="Options", signature="s", kinds=MOUNT, observed=MOUNT),
    Property(
        name="DirectoryMode",
        key="DirectoryMode",
        signature="u",
        kinds=MOUNT,
        maximum=0o7777,
        codec=OCTAL,
    ),
    Property(name="LazyUnmount", key="LazyUnmount", signature="b", kinds=MOUNT, codec=BOOLEAN),
    # when a timer elapses, and whether it stays loaded after that
    _of_timer(name="TimersMonotonic", key="TimersMonotonic", signature="a(st)", codec=BUS_ONLY),
    _of_timer(name="AccuracyUSec", key="AccuracySec", signature="t", minimum=1, codec=DURATION),
    _of_timer(name="RemainAfterElapse", key="RemainAfterElapse", signature="b", codec=BOOLEAN),
    *(
        Property(
            name=f"{what}Accounting",
            key=f"{what}Accounting",
            signature="b",
            # systemd 258 and later accept CPUAccounting= and do not show it: it is always on
            observed=frozenset() if what == "CPU" else LIMITED,
            codec=BOOLEAN,
        )
        for what in ("CPU", "Memory", "IO", "Tasks")
    ),
    Property(
        name="CPUWeight",
        key="CPUWeight",
        signature="t",
        since=232,
        unset=INFINITY,
        managed=LIMITED,
        minimum=0,
        maximum=10_000,
        codec=WEIGHT,
        kernel_file="cpu.weight",
        kernel_file_v1="cpu/cpu.shares",
    ),
    Property(
        name="CPUQuotaPerSecUSec",
        key="CPUQuota",
        signature="t",
        unset=INFINITY,
        managed=LIMITED,
        minimum=1,
        codec=QUOTA,
        kernel_file="cpu.max",
        kernel_file_v1="cpu/cpu.cfs_quota_us",
    ),
    Property(
        name="CPUQuotaPeriodUSec",
        key="CPUQuotaPeriodSec",
        signature="t",
        since=242,
        unset=INFINITY,
        managed=LIMITED,
        minimum=1_000,
        maximum=1_000_000,
        codec=DURATION,
    ),
    *(
        Property(
            name=name,
            key=name,
            signature="t",
            since=since,
            unset=unset,
            managed=LIMITED,
            minimum=minimum,
            codec=AMOUNT,
            kernel_file=f"memory.{file}",
            kernel_file_v1="memory/memory.limit_in_bytes" if name == "MemoryMax" else "",
            of_pods=name == "MemoryZSwapMax",
        )
        for name, file, since, unset, minimum in (
            ("MemoryMin", "min", 240, 0, 0),
            ("MemoryLow", "low", 231, 0, 0),
            ("MemoryHigh", "high", 231, INFINITY, 1),
            ("MemoryMax", "max", 231, INFINITY, 1),
            ("MemorySwapMax", "swap.max", 232, INFINITY, 0),
            ("MemoryZSwapMax", "zswap.max", 253, INFINITY, 0),
        )
    ),
    Property(
        name="IOWeight",
        key="IOWeight",
        signature="t",
        unset=INFINITY,
        managed=LIMITED,
        minimum=1,
        maximum=10_000,
        codec=NUMBER,
        kernel_file="io.weight",
        of_kernel=read_weight,
        of_pods=True,
    ),
    *(
        Property(
            name=name,
            key=name,
            signature="a(st)",
            unset="",
            managed=LIMITED,
            codec=DEVICES,
            is_text=True,
            kernel_file="io.max",
            of_kernel=partial(read_device_limits, key=key),
            of_pods=True,
        )
        for name, key in (
            ("IOReadBandwidthMax", "rbps"),
            ("IOWriteBandwidthMax", "wbps"),
            ("IOReadIOPSMax", "riops"),
            ("IOWriteIOPSMax", "wiops"),
        )
    ),
    # a container without one has the manager's DefaultTasksMax=, which podslice does not override
    Property(
        name="TasksMax",
        key="TasksMax",
        signature="t",
        unset=INFINITY,
        observed=LIMITED,
        managed=SLICE,
        minimum=1,
        codec=AMOUNT,
        kernel_file="pids.max",
        kernel_file_v1="pids/pids.max",
    ),
    *(
        Property(
            name=name,
            key=name,
            signature="ay",
            since=244,
            unset="",
            managed=LIMITED,
            codec=CPUS,
            is_text=True,
            kernel_file=file,
            of_pods=True,
            of_tiers=name == "AllowedCPUs",
        )
        for name, file in (("AllowedCPUs", "cpuset.cpus"), ("AllowedMemoryNodes", "cpuset.mems"))
    ),
    *(
        Property(
            name=name,
            key=name,
            signature="s",
            kinds=SLICE,
            since=since,
            unset=unset,
            managed=SLICE,
            is_text=name == PARTITION,
            kernel_file="cpuset.cpus.partition" if name == PARTITION else "",
            of_pods=name == PARTITION,
        )
        for name, since, unset in (
            # what systemd-oomd may do below: `kill` or `auto`, which leaves it to the slices above
            ("ManagedOOMSwap", 247, "auto"),
            ("ManagedOOMMemoryPressure", 247, "auto"),
            # `isolated`, `root`, or `member`, which is none
            (PARTITION, 261, "member"),
        )
    ),
    Property(
        name="ManagedOOMMemoryPressureLimit",
        key="ManagedOOMMemoryPressureLimit",
        signature="u",
        kinds=SLICE,
        since=248,
        unset=0,
        managed=SLICE,
        maximum=WHOLE_SHARE,
        codec=SHARE,
    ),
)

PROPERTIES = {row.name: row for row in _ROWS}
"""Every property that podslice sets or compares, by its name on the bus."""

OBSERVED = {
    kind: frozenset(row.name for row in _ROWS if kind in row.observed | row.managed)
    for kind in UnitKind
}
"""The properties that are observed, by the unit's kind."""

NEWER: Mapping[UnitKind, Mapping[str, Value]] = {
    kind: {
        row.name: row.unset
        for row in _ROWS
        if row.name in names and row.since > 252 and row.unset is not None
    }
    for kind, names in OBSERVED.items()
}
"""The observed properties that systemd 252 lacks, the oldest: there they count as unset."""

MANAGED = {
    kind: tuple(sorted(row.name for row in _ROWS if kind in row.managed)) for kind in UnitKind
}
"""The properties that are kept at the desired value, or unset, by the unit's kind."""


def managed_of(unit: DesiredUnit) -> tuple[str, ...]:
    """Return the properties that podslice keeps on a unit of its own, by name."""
    names = MANAGED[unit.kind]
    if unit.pod is not None:
        return names
    rows, stated = (PROPERTIES[name] for name in names), unit.values.keys()
    is_tier = unit.is_tier
    return tuple(
        row.name
        for row in rows
        if not row.of_pods or (row.of_tiers and is_tier) or row.name in stated
    )


def supported(values: Mapping[str, Value], caps: Caps) -> dict[str, Value]:
    """Return the values of properties that a service manager supports, not only counts as unset."""
    version = caps.systemd_version
    return {name: each for name, each in values.items() if PROPERTIES[name].since <= version}


MEMORY_PROPERTIES = (
    *("MemoryMin", "MemoryLow", "MemoryHigh", "MemoryMax", "MemorySwapMax", "MemoryZSwapMax"),
)


def format_value(name: str, value: Value | None) -> str:
    """Format the value of a property: `512Mi`, `11%`, `unset`."""
    if value is None or value == PROPERTIES[name].unset:
        return "unset"
    if value == INFINITY:
        return "infinity"
    if name in MEMORY_PROPERTIES and isinstance(value, int):
        return format_bytes(value)
    return PROPERTIES[name].format(value)
