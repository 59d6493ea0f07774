"""The one table of systemd's unit properties that podslice uses.

A row serves annotations, the bus, unit files, drift detection, feasibility, the kernel's values, container
runtimes, metrics and the manual. To add a property, add a row; policy may then state it. Formulas
name a property by its constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import NamedTuple

from podslice.errors import invalid
from podslice.model import codec as codecs
from podslice.model.codec import Codec
from podslice.model.node import format_cpus, numbers_of_octets
from podslice.model.unit import INFINITY, Caps, DesiredUnit, UnitKind, Value

PREFIX = "podslice.io/"
"""The prefix of podslice's annotations.

`podslice.io/NAME` is about the pod's slice, `podslice.io/NAME.CONTAINER` about a container.
"""
RESOURCES = "resources"
"""The name of the annotation that states the pod level as JSON, in place of `spec.resources`."""

ALLOWED_CPUS, ALLOWED_MEMORY_NODES = "AllowedCPUs", "AllowedMemoryNodes"
CPU_QUOTA, CPU_QUOTA_PERIOD = "CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec"
CPU_WEIGHT = "CPUWeight"
MEMORY_MIN, MEMORY_LOW = "MemoryMin", "MemoryLow"
MEMORY_HIGH, MEMORY_MAX, MEMORY_SWAP_MAX = "MemoryHigh", "MemoryMax", "MemorySwapMax"
OOM_SCORE_ADJ = "OOMScoreAdjust"
OOMD_SWAP, OOMD_PRESSURE = "ManagedOOMSwap", "ManagedOOMMemoryPressure"
OOMD_PRESSURE_LIMIT = "ManagedOOMMemoryPressureLimit"
PARTITION = "CPUSetPartition"
TASKS_MAX = "TasksMax"

PROTECTIONS = (MEMORY_LOW, MEMORY_MIN)
"""The properties that protect memory from being reclaimed."""
PARTITION_ROOT, PARTITION_ISOLATED = "root", "isolated"
"""A partition of the kernel that others can be part of, and one without balancing of load."""
QUOTA_PERIOD_USEC = 100_000
"""The default CFS period of systemd and Kubernetes: 100 ms.

Source: systemd.resource-control(5), CPUQuotaPeriodSec=; Kubelet pod level resource management,
"Conversion of CPU millicores".
"""
_SCORE_MAX = 1000
"""Source: proc_pid_oom_score_adj(5)."""
_WEIGHT_MAX = 10_000
"""Source: systemd, src/basic/cgroup-util.h, CGROUP_WEIGHT_MAX."""

SLICE = frozenset({UnitKind.SLICE})
SCOPE = frozenset({UnitKind.SCOPE})
SERVICE = frozenset({UnitKind.SERVICE})
MOUNT = frozenset({UnitKind.MOUNT})
CONTAINER = SCOPE | SERVICE
LIMITED = SLICE | CONTAINER

StatedProperties = Mapping[str, int | str]
"""Name of a property on the bus → the value that a manifest states."""


class Tighter(Enum):
    """Which of two values of a property limits a unit more."""

    LOWER = auto()
    """The lower number; unset is infinity."""
    FEWER = auto()
    """A list of CPUs that lacks some; unset is all."""


class Metric(NamedTuple):
    """The labels of a property's metric."""

    resource: str
    unit: str = ""
    """Empty for a weight."""


class RuntimeOption(NamedTuple):
    """The settings of container runtimes that result in a property."""

    docker: str = ""
    """The option of `docker run` and `podman run`; empty if there is none for the property."""
    compose: str = ""
    """The key of a service in a compose file."""
    is_file: bool = False
    """Whether podman writes the kernel's file (`--cgroup-conf`): the conversion of CPU shares differs
    between versions of runtimes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One property of a unit."""

    name: str
    """Its name on the bus."""
    file_key: str = ""
    """Its key in a unit file; empty if `key` follows from the name."""
    signature: str
    """The type of its value on the bus."""
    section: str = "resource"
    """`Unit`, or `resource` for the section of the unit's own kind (`[Slice]`, `[Scope]`)."""
    kinds: frozenset[UnitKind] = LIMITED
    """The kinds of units for which it may be stated."""
    since: int = 230
    """The first version of systemd that supports it."""
    observed: frozenset[UnitKind] = frozenset()
    """The kinds of units of which it is observed, beside those on which it is managed; the others
    have it for their start only."""
    unset: int | str | None = None
    """Its value when it was never set; None if it is not compared."""
    managed: frozenset[UnitKind] = frozenset()
    """The kinds of podslice's units on which it is kept at the desired value, or unset; it can change
    while the unit is active."""
    minimum: int = 0
    maximum: int = INFINITY - 1
    """The range of values beside `unset` that systemd accepts."""
    codec: Codec = codecs.STRING
    """The texts of its value. Nothing else converts its unit."""
    is_text: bool = False
    """Whether its value is that text, whatever its type on the bus."""
    kernel_file: str = ""
    """The file of a control group that has its value; empty if there is none."""
    kernel_file_v1: str = ""
    """The same with cgroup v1, below the controller's directory. Remove once systemd < 258 is no
    longer supported."""
    kernel_unset: str = "max"
    """What the kernel has while it is unset; a list of CPUs has no such value."""
    of_kernel: Callable[[str], str] = str
    """Returns its part of the text of that file."""
    possible: str = ""
    """The file of the kernel, below the root, that lists everything a value can name."""
    of_pods: bool = False
    """Whether it is managed on the units of pods only: on other slices administrators set it."""
    of_tiers: bool = False
    """Whether it is managed on tiers as well."""
    annotation: str = ""
    """The name of the annotation that states it, below the prefix; empty if there is none."""
    controller: str = ""
    """The controller of the kernel that it requires; empty for none."""
    tighter: Tighter | None = None
    """Which of two values limits a unit more; None if no order is kept."""
    runtime: RuntimeOption = RuntimeOption()
    """How podslice has container runtimes set it."""
    metric: Metric | None = None
    """The labels of its value in metrics of pods and containers; None if there is no metric."""
    meaning: str = ""
    """A sentence for the manual."""

    def __post_init__(self) -> None:
        """Check that texts of microseconds have a unit.

        Raises:
            ValueError: in a unit file `25000` would be seconds.
        """
        if self.name.endswith("USec") and self.codec.base != 1_000_000:
            raise ValueError(f"{self.name}: the codec does not convert microseconds")

    @property
    def key(self) -> str:
        """Return its key in a unit file: by systemd's convention times are not in µs there."""
        return self.file_key or self.name.replace("USec", "Sec")

    @property
    def is_of_pod_only(self) -> bool:
        """Return whether only the slice of a pod has it: containers have the manager's default."""
        return self.managed == SLICE

    def format(self, value: Value) -> str:
        """Return a value as text in a unit file."""
        return self.codec.format(value)

    def texts(self, value: Value) -> list[str]:
        """Return a value as the texts of one or more lines: of devices, each has its own."""
        text, separator = self.format(value), self.codec.separator
        return text.split(separator) if separator else [text]

    def parse(self, text: str) -> Value | None:
        """Return the value of a text in a unit file; None if podslice does not know the text."""
        return self.codec.parse(text)

    def read(self, text: str) -> int | str:
        """Return the value of a text in an annotation or an option.

        Raises:
            InputError: the text is not valid.
        """
        if self.codec.read is None:
            raise invalid(f"{self.key} cannot be stated")
        return self.codec.read(text, self.minimum, self.maximum)

    def show(self, value: Value | None) -> str:
        """Return a value as text for people: `512Mi`, `11%`, `unset`."""
        if value is None or value == self.unset:
            return "unset"
        if value == INFINITY:
            return "infinity"
        return (self.codec.show or self.format)(value)

    def takes(self, value: Value) -> bool:
        """Return whether systemd accepts the value."""
        if value == self.unset or not isinstance(value, int):
            return True
        return self.minimum <= value <= self.maximum


_of_all = partial(Property, section="Unit", kinds=frozenset(UnitKind))
_of_container = partial(Property, kinds=CONTAINER)
_of_service = partial(Property, kinds=SERVICE)
_of_mount = partial(Property, kinds=MOUNT)
_of_timer = partial(Property, kinds=frozenset({UnitKind.TIMER}))
_limit = partial(Property, signature="t", unset=INFINITY, managed=LIMITED)
_of_memory = partial(_limit, codec=codecs.BYTES, controller="memory")

# Since-versions: systemd's NEWS file. Ranges and "infinity" for unset: SYSTEMD.md, section 3.
ROWS = (
    _of_all(name="Description", signature="s"),
    _of_all(name="DefaultDependencies", signature="b", codec=codecs.BOOLEAN),
    _of_all(name="Wants", signature="as", codec=codecs.LIST),
    _of_all(name="After", signature="as", codec=codecs.LIST),
    _of_all(name="Conflicts", signature="as", codec=codecs.LIST),
    _of_all(name="CollectMode", signature="s", since=236),
    # a slice's own follows from its name
    Property(name="Slice", signature="s", kinds=CONTAINER | MOUNT, observed=LIMITED | MOUNT),
    _of_container(name="Delegate", signature="b", observed=CONTAINER, codec=codecs.BOOLEAN),
    # the processes to move into a scope: their ids, or descriptors
    Property(name="PIDs", signature="au", kinds=SCOPE, codec=codecs.BUS_ONLY),
    Property(name="PIDFDs", signature="ah", kinds=SCOPE, since=255, codec=codecs.BUS_ONLY),
    # the commands of a service
    _of_service(name="ExecStart", signature="a(sasb)", codec=codecs.BUS_ONLY),
    _of_service(name="ExecStopPost", signature="a(sasb)", codec=codecs.BUS_ONLY),
    _of_service(name="Environment", signature="as", codec=codecs.BUS_ONLY),
    _of_service(name="WorkingDirectory", signature="s"),
    _of_service(name="RemainAfterExit", signature="b", codec=codecs.BOOLEAN),
    # how the processes of a container are stopped
    _of_container(name="TimeoutStopUSec", signature="t", maximum=INFINITY, codec=codecs.TIMEOUT),
    _of_container(name="KillMode", signature="s"),
    _of_container(name="OOMPolicy", signature="s"),
    _of_container(name="SendSIGHUP", signature="b", codec=codecs.BOOLEAN),
    # when a service is up: `exec`, `oneshot`; the file system of a mount: `tmpfs`
    Property(name="Type", signature="s", kinds=SERVICE | MOUNT, observed=MOUNT),
    _of_mount(name="What", signature="s", observed=MOUNT),
    _of_mount(name="Options", signature="s", observed=MOUNT),
    _of_mount(name="DirectoryMode", signature="u", maximum=0o7777, codec=codecs.OCTAL),
    _of_mount(name="LazyUnmount", signature="b", codec=codecs.BOOLEAN),
    # when a timer elapses, and whether it stays loaded after that
    _of_timer(name="TimersMonotonic", signature="a(st)", codec=codecs.BUS_ONLY),
    _of_timer(name="AccuracyUSec", signature="t", minimum=1, codec=codecs.DURATION),
    _of_timer(name="RemainAfterElapse", signature="b", codec=codecs.BOOLEAN),
    *(
        Property(
            name=f"{what}Accounting",
            signature="b",
            # systemd 258 and later accept CPUAccounting= and do not show it: it is always on
            observed=frozenset() if what == "CPU" else LIMITED,
            codec=codecs.BOOLEAN,
        )
        for what in ("CPU", "Memory", "IO", "Tasks")
    ),
    _limit(
        name=CPU_QUOTA_PERIOD,
        since=242,
        # Source: Kubernetes, pkg/kubelet/apis/config/validation/validation.go, cpuCFSQuotaPeriod
        minimum=1_000,
        maximum=1_000_000,
        codec=codecs.DURATION,
        annotation="cpu-quota-period",
        controller="cpu",
        runtime=RuntimeOption(docker="--cpu-period", compose="cpu_period"),
        meaning="The period of the CPU quota",
    ),
    _limit(
        name=CPU_WEIGHT,
        since=232,
        # 0 is `idle`
        minimum=0,
        maximum=_WEIGHT_MAX,
        codec=codecs.WEIGHT,
        kernel_file="cpu.weight",
        kernel_unset="100",
        kernel_file_v1="cpu/cpu.shares",
        annotation="cpu-weight",
        controller="cpu",
        runtime=RuntimeOption(is_file=True),
        meaning="The share of CPU time under contention",
    ),
    # a property of processes: the score of a pod applies to its containers
    Property(
        name=OOM_SCORE_ADJ,
        signature="i",
        kinds=SERVICE,
        minimum=-_SCORE_MAX,
        maximum=_SCORE_MAX,
        codec=codecs.SCORE,
        annotation="oom-score-adj",
        runtime=RuntimeOption(docker="--oom-score-adj", compose="oom_score_adj"),
        meaning="How likely the OOM killer selects a process",
    ),
    _limit(
        name=CPU_QUOTA,
        file_key="CPUQuota",
        minimum=1,
        codec=codecs.QUOTA,
        kernel_file="cpu.max",
        kernel_file_v1="cpu/cpu.cfs_quota_us",
        controller="cpu",
        tighter=Tighter.LOWER,
        runtime=RuntimeOption(docker="--cpu-quota", compose="cpu_quota"),
        metric=Metric(resource="cpu", unit="cores"),
        meaning="The CPU time in each period, in percent of one CPU",
    ),
    _of_memory(
        name=MEMORY_MIN,
        since=240,
        unset=0,
        kernel_file="memory.min",
        runtime=RuntimeOption(is_file=True),
        meaning="Memory that the kernel never reclaims",
    ),
    _of_memory(
        name=MEMORY_LOW,
        since=231,
        unset=0,
        kernel_file="memory.low",
        runtime=RuntimeOption(docker="--memory-reservation", compose="mem_reservation"),
        meaning="Memory that the kernel reclaims last",
    ),
    _of_memory(
        name=MEMORY_HIGH,
        since=231,
        minimum=1,
        kernel_file="memory.high",
        annotation="memory-high",
        tighter=Tighter.LOWER,
        runtime=RuntimeOption(is_file=True),
        meaning="The memory above which the kernel throttles and reclaims",
    ),
    _of_memory(
        name=MEMORY_MAX,
        since=231,
        minimum=1,
        kernel_file="memory.max",
        kernel_file_v1="memory/memory.limit_in_bytes",
        tighter=Tighter.LOWER,
        runtime=RuntimeOption(docker="--memory", compose="mem_limit"),
        metric=Metric(resource="memory", unit="bytes"),
        meaning="The memory above which the OOM killer acts",
    ),
    _of_memory(
        name=MEMORY_SWAP_MAX,
        since=232,
        kernel_file="memory.swap.max",
        annotation="memory-swap-max",
        tighter=Tighter.LOWER,
        runtime=RuntimeOption(docker="--memory-swap", compose="memswap_limit", is_file=True),
        metric=Metric(resource="swap", unit="bytes"),
        meaning="The limit of swap",
    ),
    _of_memory(
        name="MemoryZSwapMax",
        since=253,
        kernel_file="memory.zswap.max",
        of_pods=True,
        annotation="memory-zswap-max",
        metric=Metric(resource="zswap", unit="bytes"),
        meaning="The limit of compressed swap in memory",
    ),
    _limit(
        name="IOWeight",
        minimum=1,
        maximum=_WEIGHT_MAX,
        codec=codecs.NUMBER,
        kernel_file="io.weight",
        kernel_unset="100",
        of_kernel=codecs.read_weight,
        of_pods=True,
        annotation="io-weight",
        controller="io",
        metric=Metric(resource="io"),
        meaning="The share of input and output under contention",
    ),
    *(
        Property(
            name=name,
            signature="a(st)",
            unset="",
            managed=LIMITED,
            codec=codecs.RATES if key.endswith("iops") else codecs.BANDWIDTHS,
            is_text=True,
            kernel_file="io.max",
            of_kernel=partial(codecs.read_device_limits, key=key),
            of_pods=True,
            annotation=annotation,
            controller="io",
            metric=Metric(resource=f"io_{what}", unit=f"{unit}_per_second"),
            meaning=f"The limit of each device to {what}, in {unit} per second",
        )
        for name, key, annotation, what, unit in (
            ("IOReadBandwidthMax", "rbps", "io-read-bandwidth-max", "read", "bytes"),
            ("IOWriteBandwidthMax", "wbps", "io-write-bandwidth-max", "write", "bytes"),
            ("IOReadIOPSMax", "riops", "io-read-iops-max", "read", "operations"),
            ("IOWriteIOPSMax", "wiops", "io-write-iops-max", "write", "operations"),
        )
    ),
    # a container without one has the manager's DefaultTasksMax=, which podslice does not override
    _limit(
        name=TASKS_MAX,
        observed=LIMITED,
        managed=SLICE,
        minimum=1,
        codec=codecs.COUNT,
        kernel_file="pids.max",
        kernel_file_v1="pids/pids.max",
        annotation="tasks-max",
        controller="pids",
        tighter=Tighter.LOWER,
        metric=Metric(resource="pid", unit="integer"),
        meaning="The limit of processes and threads",
    ),
    Property(
        name=ALLOWED_CPUS,
        signature="ay",
        since=244,
        unset="",
        managed=LIMITED,
        codec=codecs.CPUS,
        is_text=True,
        kernel_file="cpuset.cpus",
        possible="sys/devices/system/cpu/possible",
        of_pods=True,
        of_tiers=True,
        annotation="allowed-cpus",
        controller="cpuset",
        tighter=Tighter.FEWER,
        runtime=RuntimeOption(docker="--cpuset-cpus", compose="cpuset"),
        meaning="The CPUs that processes may use",
    ),
    Property(
        name=ALLOWED_MEMORY_NODES,
        signature="ay",
        since=244,
        unset="",
        managed=LIMITED,
        codec=codecs.CPUS,
        is_text=True,
        kernel_file="cpuset.mems",
        possible="sys/devices/system/node/possible",
        of_pods=True,
        controller="cpuset",
        # compose has no key for it
        runtime=RuntimeOption(docker="--cpuset-mems"),
        meaning="The NUMA nodes whose memory processes may use",
    ),
    # what systemd-oomd may do below: `kill` or `auto`, which leaves it to the slices above
    *(
        Property(
            name=name,
            signature="s",
            kinds=SLICE,
            since=247,
            unset="auto",
            managed=SLICE,
            meaning=f"Whether systemd-oomd kills under pressure on {what}",
        )
        for name, what in ((OOMD_SWAP, "swap"), (OOMD_PRESSURE, "memory"))
    ),
    # `isolated`, `root`, or `member`, which is none
    Property(
        name=PARTITION,
        signature="s",
        kinds=SLICE,
        since=261,
        unset="member",
        managed=SLICE,
        is_text=True,
        kernel_file="cpuset.cpus.partition",
        of_pods=True,
        controller="cpuset",
        meaning="Whether the CPUs are a partition of the kernel",
    ),
    Property(
        name=OOMD_PRESSURE_LIMIT,
        signature="u",
        kinds=SLICE,
        since=248,
        unset=0,
        managed=SLICE,
        maximum=codecs.WHOLE_SHARE,
        codec=codecs.SHARE,
        meaning="The pressure on memory at which systemd-oomd kills",
    ),
)
"""Every row, in the order of the manual's annotations."""

PROPERTIES: dict[str, Property] = {}
"""Every property that podslice sets or compares, by its name on the bus."""

ANNOTATIONS: dict[str, Property] = {}
"""The properties that annotations state, by the annotation's name below the prefix."""

OBSERVED: dict[UnitKind, frozenset[str]] = {}
"""The properties that are observed, by the unit's kind."""

NEWER: dict[UnitKind, Mapping[str, Value]] = {}
"""The observed properties that systemd 252 lacks, the oldest: there they count as unset."""

MANAGED: dict[UnitKind, tuple[str, ...]] = {}
"""The properties that are kept at the desired value, or unset, by the unit's kind."""


def set_rows(rows: Iterable[Property]) -> None:
    """Make rows the table; the other tables of this module follow from it, in place.

    No other module keeps values that follow from all rows.
    """
    PROPERTIES.clear()
    PROPERTIES.update({row.name: row for row in rows})
    ANNOTATIONS.clear()
    ANNOTATIONS.update({row.annotation: row for row in PROPERTIES.values() if row.annotation})
    for kind in UnitKind:
        observed = [row for row in PROPERTIES.values() if kind in row.observed | row.managed]
        OBSERVED[kind] = frozenset(row.name for row in observed)
        MANAGED[kind] = tuple(sorted(row.name for row in observed if kind in row.managed))
        newer = (row for row in observed if row.since > 252)
        NEWER[kind] = {row.name: row.unset for row in newer if row.unset is not None}


set_rows(ROWS)


def managed_of(unit: DesiredUnit) -> tuple[str, ...]:
    """Return the properties that podslice keeps on a unit of its own, by name."""
    names = MANAGED[unit.kind]
    if unit.pod is not None:
        return names
    rows, stated = (PROPERTIES[name] for name in names), unit.values
    return tuple(
        row.name
        for row in rows
        if not row.of_pods or (row.of_tiers and unit.is_tier) or row.name in stated
    )


def supported(values: Mapping[str, Value], caps: Caps) -> dict[str, Value]:
    """Return the values of properties that a service manager supports, not only counts as unset."""
    version = caps.systemd_version
    return {name: each for name, each in values.items() if PROPERTIES[name].since <= version}


def format_value(name: str, value: Value | None) -> str:
    """Format the value of a property: `512Mi`, `11%`, `unset`."""
    return PROPERTIES[name].show(value)


def annotation_key(property_: str, container: str = "") -> str:
    """Return the annotation of a property of a pod, or of a container."""
    suffix = f".{container}" if container else ""
    return f"{PREFIX}{PROPERTIES[property_].annotation}{suffix}"


def describe_annotation(property_: str, value: int | str) -> str:
    """Return the annotation of a property with its value: `podslice.io/memory-high 64Mi`."""
    row = PROPERTIES[property_]
    text = "infinity" if value == INFINITY else (row.codec.reason or row.show)(value)
    return f"{annotation_key(property_)} {text}"


def format_annotations(stated: StatedProperties, container: str = "") -> dict[str, str]:
    """Return the annotations that state these properties of a pod, or of a container."""
    return {
        annotation_key(name, container): PROPERTIES[name].format(value)
        for name, value in stated.items()
    }


# Properties that limit resources, and that podslice neither sets nor compares. Manifests have no field
# for them. They are only read, to name those that are set.


def _format_octets(value: Value) -> str:
    octets = [each for each in value if isinstance(each, int)] if isinstance(value, tuple) else []
    return format_cpus(numbers_of_octets(octets))


_OCTETS = Codec(format=_format_octets, parse=lambda _: None)
_STRUCTURES = Codec(format=lambda _: "", parse=lambda _: None, base=codecs.DURATION.base)
"""A list whose values are not shown."""

_row = partial(Property, signature="v")

# Names and values for unset: systemd.resource-control(5) and org.freedesktop.systemd1(5) of
# systemd 252 to 262. An empty list is unset. Sandboxing is listed for slices only: a service keeps
# its own.
_FURTHER_ROWS = tuple(
    row(name=name)
    for row, *names in (
        (
            partial(_row, unset=INFINITY, codec=codecs.BYTES),
            *("StartupCPUWeight", "CPUShares", "StartupCPUShares"),
            *("StartupMemoryHigh", "StartupMemoryMax", "MemoryLimit"),
            *("StartupMemorySwapMax", "StartupMemoryZSwapMax"),
            *("StartupIOWeight", "BlockIOWeight", "StartupBlockIOWeight"),
        ),
        (
            partial(_row, unset=0, codec=codecs.BYTES),
            *("StartupMemoryLow", "DefaultMemoryLow"),
            *("DefaultMemoryMin", "DefaultStartupMemoryLow"),
        ),
        (
            partial(_row, unset=INFINITY, codec=codecs.DURATION),
            "ManagedOOMMemoryPressureDurationUSec",
        ),
        (partial(_row, unset=0, codec=codecs.SHARE), OOMD_PRESSURE_LIMIT),
        (partial(_row, codec=_OCTETS), "StartupAllowedCPUs", "StartupAllowedMemoryNodes"),
        (partial(_row, codec=_STRUCTURES), "IODeviceWeight", "IODeviceLatencyTargetUSec"),
        (partial(_row, unset=True, codec=codecs.BOOLEAN), "MemoryZSwapWriteback"),
        (partial(_row, unset="auto"), OOMD_SWAP, OOMD_PRESSURE),
        (partial(_row, unset="none"), "ManagedOOMPreference"),
        (partial(_row, unset=0, kinds=SERVICE, codec=codecs.SCORE), OOM_SCORE_ADJ),
        (
            partial(_row, kinds=SLICE, codec=_STRUCTURES),
            *("IPAddressAllow", "IPAddressDeny", "DeviceAllow"),
        ),
        (partial(_row, unset="auto", kinds=SLICE), "DevicePolicy"),
    )
    for name in names
)
FURTHER_SETTINGS = {
    kind: {row.name: row for row in _FURTHER_ROWS if kind in row.kinds} for kind in UnitKind
}
"""The settings by the kind of the unit and their name on the bus."""
