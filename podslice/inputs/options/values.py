"""Values of options, in the syntax of the kubelet's flags or as TOML tables.

Every reader takes the value from a flag or a file and returns that of a `Config` field. It raises
`InputError` with all problems; their `keys` are the entries of the value.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from podslice.errors import InputError, Problem, invalid, quote
from podslice.inputs.scalars import Boolean, Number, Odd, describe, nearest, read_amount, read_exact
from podslice.inputs.source import read_bytes
from podslice.model.config import TIER_SIGNALS, CpuManagerOption, Enforce, Threshold, Validate
from podslice.model.node import CPUS_MAX, Cpu, CpuTopology, parse_cpus, regular_topology
from podslice.model.pod import UID_MAX, Qos
from podslice.model.properties import CPU_QUOTA_PERIOD, PROPERTIES
from podslice.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PIDS,
    Amounts,
    ExactAmounts,
    is_hugepages,
)
from podslice.model.unit import (
    UNIT_NAME_MAX,
    UnitName,
    control_group_of,
    escape_component,
    is_unit_name,
)

Reader = Callable[[object], Any]
E = TypeVar("E", bound=StrEnum)
N = TypeVar("N")

# Single values


def is_text(value: object) -> bool:
    """Return whether a value is a string; a number in a file is not a string."""
    return isinstance(value, str) and not isinstance(value, Number)


_TRUE = ("true", "1", "t", "yes", "on")
_FALSE = ("false", "0", "f", "no", "off")


def read_boolean(value: object) -> bool:
    """Return the boolean of `true` or `false`."""
    if isinstance(value, bool):
        return value
    text = value.lower() if isinstance(value, str) else ""
    if text in (*_TRUE, *_FALSE):
        return text in _TRUE
    raise invalid(f"must be true or false, not {describe(value)}")


def optional(read: Callable[[object], N]) -> Callable[[object], N | None]:
    """Return a reader that reads None of an empty string: the default of the host or the rules."""
    return lambda value: None if value == "" else read(value)


def choose(kinds: type[E]) -> Callable[[object], E]:
    """Return a reader of the names of an enumeration."""
    names = ", ".join(kinds)

    def read(value: object) -> E:
        if isinstance(value, str) and value in list(kinds):
            return kinds(value)
        right = nearest(str(value), map(str, kinds))
        hint = f"write {right}" if right else ""
        raise invalid(f"must be one of {names}, not {describe(value)}", hint)

    return read


def read_validate(value: object) -> Validate:
    """Return what an unknown field is; true is `strict` and false is `ignore`, as for kubectl.

    Source: kubectl, "--validate='strict': Must be one of: strict (or true), warn, ignore (or false)".
    """
    if value in (True, "true"):
        return Validate.STRICT
    if value in (False, "false"):
        return Validate.IGNORE
    return choose(Validate)(value)


def read_driver(value: object) -> None:
    """Accept only `systemd`."""
    if value != "systemd":
        hint = "podslice supports only the systemd driver"
        raise invalid(f"must be systemd, not {describe(value)}", hint)


_FACTOR = re.compile(r"([01])(?:\.([0-9]{1,3}))?", re.ASCII)
_WHOLE_PERCENT = re.compile(r"([0-9]{1,6})%", re.ASCII)
_PERCENT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)%", re.ASCII)


def read_factor(value: object) -> int:
    """Return the thousandths of `0.9`.

    Source: Kubernetes, pkg/kubelet/apis/config/validation/validation.go, memoryThrottlingFactor:
    above 0, and at most 1.
    """
    found = _FACTOR.fullmatch(str(value))
    milli = int(found[1] + (found[2] or "").ljust(3, "0")) if found else 0
    if not 0 < milli <= 1000:
        raise invalid(f"must be a number above 0 and at most 1, not {describe(value)}", "write 0.9")
    return milli


def read_seconds(value: object) -> int:
    """Return a whole number of seconds, as the kubelet's flag accepts it."""
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch("[0-9]{1,9}", text, re.ASCII):
        raise invalid(f"must be a whole number of seconds, not {describe(value)}")
    return int(text)


def read_pids(value: object) -> int | None:
    """Return a number of process ids; None of `-1` or an empty string: unlimited.

    Source: Kubernetes, pkg/kubelet/apis/config/types.go, PodPidsLimit.
    """
    text = str(value)
    if text in ("", "-1"):
        return None
    if isinstance(value, bool) or not re.fullmatch("[1-9][0-9]{0,8}", text, re.ASCII):
        message = f"must be a whole number above 0, not {describe(value)}"
        raise invalid(message, "write -1 for no limit")
    return int(text)


def read_pressure_limit(value: object) -> int:
    """Return the whole percentage of `60%`."""
    return _read_whole_percent(value, 1)


def _read_whole_percent(value: object, least: int) -> int:
    match = _WHOLE_PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None or not least <= int(match[1]) <= 100:
        raise invalid(f"must be a percentage, not {describe(value)}", f"write {least}% to 100%")
    return int(match[1])


_USEC = {"us": 1, "µs": 1, "μs": 1, "ms": 1_000, "s": 1_000_000}
_USEC |= {"m": 60_000_000, "h": 3_600_000_000}
# `1m30s`, `1.5h`, and a part of these
_DURATION_PART = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,6}))?(us|µs|μs|ms|s|m|h)", re.ASCII)
_DURATION = re.compile(f"(?:{_DURATION_PART.pattern}){{1,8}}", re.ASCII)
SYNC_MIN_USEC, SYNC_MAX_USEC = 100_000, 3_600_000_000


def read_duration(value: object) -> int:
    """Return a duration in Go's notation, such as `1h`, `1m30s` or `1.5s`, in microseconds.

    Source: Go, time.ParseDuration.
    """
    stated = value if isinstance(value, str) else ""
    if not _DURATION.fullmatch(stated):
        message = f"must be a duration, not {describe(value)}"
        raise invalid(message, "write 30s or 1m30s, for example")
    usec = 0
    for number, decimals, unit in _DURATION_PART.findall(stated):
        usec += int(number + decimals) * _USEC[unit] // int(10 ** len(decimals))
    return usec


def read_sync_period(value: object) -> int:
    """Return a duration such as `1m` in microseconds."""
    usec = read_duration(value)
    if not SYNC_MIN_USEC <= usec <= SYNC_MAX_USEC:
        raise invalid(f"{quote(str(value))} is out of range", "write 100ms to 1h")
    return usec


def read_period(value: object) -> int:
    """Return the period of CPU quotas, such as `100ms`, in microseconds."""
    if not isinstance(value, str) or isinstance(value, Number | Boolean | Odd):
        raise invalid(f"must be a duration, not {describe(value)}", "write 100ms, for example")
    return int(PROPERTIES[CPU_QUOTA_PERIOD].read(value))


def read_directory(value: object) -> str:
    """Return the absolute path of a directory, or an empty string."""
    if value == "":
        return ""
    if not isinstance(value, str) or not _is_absolute(value):
        hint = "write /var/lib/podslice/usage, for example"
        raise invalid(f"must be an absolute path, not {describe(value)}", hint)
    return str(PurePosixPath(value))


def _is_absolute(path: str) -> bool:
    return path.startswith("/") and "\0" not in path


# `127.0.0.1:9469`, `[::1]:9469`, `localhost:9469`
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:]+)):([0-9]{1,5})", re.ASCII)
_PORT_MAX = 65_535


def read_listen(value: object) -> str:
    """Return a loopback address such as `127.0.0.1:9469`, or an empty string."""
    if value == "":
        return ""
    match = _ADDRESS.fullmatch(str(value)) if is_text(value) else None
    if match is None or not 1 <= int(match[3]) <= _PORT_MAX:
        raise invalid(f"must be HOST:PORT, not {describe(value)}", "write 127.0.0.1:9469")
    if match[2] != "localhost" and not _is_loopback(match[1], match[2]):
        raise invalid(
            f"{quote(match[0])} is not a loopback address: other hosts could connect",
            f"write 127.0.0.1:{match[3]}, behind a proxy that authenticates clients",
        )
    return match[0]


def _is_loopback(in_brackets: str | None, host: str) -> bool:
    try:
        if in_brackets is not None:
            return ipaddress.IPv6Address(in_brackets).is_loopback
        return ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False


# Lists of names


def read_list(value: object, what: str, *, example: str) -> list[str]:
    """Return the parts of `a, b` or of a list of strings, without empty ones."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list):
        raise invalid(f"must be a list of {what}, not {describe(value)}", f"write '{example}'")
    for part in parts:
        if not isinstance(part, str):
            raise invalid(f"every entry must be a string, not {describe(part)}")
    return [part.strip() for part in parts if part.strip()]


def _reject(wrong: Iterable[str], message: str, hint: str) -> list[Problem]:
    """Return a problem for each of some entries."""
    return [Problem(keys=(each,), message=message.format(quote(each)), hint=hint) for each in wrong]


def read_enforce(value: object) -> frozenset[Enforce]:
    """Return the set of `pods,kube-reserved`; it is empty for an empty string or `none`.

    Source: Kubernetes, validation.go, EnforceNodeAllocatable.
    """
    stated = read_list(value, "names", example="pods,kube-reserved")
    known = {str(kind): kind for kind in Enforce}
    wrong = [each for each in stated if each not in known and each != "none"]
    problems = _reject(wrong, "{} can't be enforced", f"write {', '.join(known)} or none")
    if "none" in stated and len(set(stated)) > 1:
        problems += _reject(["none"], "{} excludes other names", "write only 'none'")
    if problems:
        raise InputError(problems)
    return frozenset(known[name] for name in stated if name != "none")


_TIERS = {"burstable": Qos.BURSTABLE, "besteffort": Qos.BESTEFFORT}


def read_tiers(value: object) -> frozenset[Qos]:
    """Return the tiers of `burstable,besteffort`, or of an empty string."""
    stated = read_list(value, "tiers", example="besteffort")
    wrong = (name for name in stated if name not in _TIERS)
    if problems := _reject(wrong, "unknown tier {}", f"write {' or '.join(_TIERS)}"):
        raise InputError(problems)
    return frozenset(_TIERS[name] for name in stated)


def read_directories(value: object) -> tuple[str, ...]:
    """Return the directories of `/etc/podslice/manifests,/srv/manifests`, or of a list."""
    stated = read_list(value, "directories", example="/etc/podslice/manifests")
    wrong = (path for path in stated if not _is_absolute(path))
    hint = "write /etc/podslice/manifests, for example"
    if problems := _reject(wrong, "{} is not an absolute path", hint):
        raise InputError(problems)
    return tuple(dict.fromkeys(str(PurePosixPath(path)) for path in stated))


def read_cpus(value: object) -> frozenset[int]:
    """Return the CPUs of `0-1,8`; none of an empty string.

    Source: Kubernetes, cmd/kubelet/app/options/options.go, --reserved-cpus.
    """
    message = f"must be a list of CPUs, not {describe(value)}"
    if not is_text(value):
        raise invalid(message, "write '0-1,8', for example")
    try:
        return frozenset(parse_cpus(str(value)))
    except ValueError as error:
        raise invalid(message, "write 0-1,8, for example") from error


# Tables, or texts such as `cpu=1,memory=1Gi`

# `memory.available<100Mi`, `cpu=500m`
_ENTRY = re.compile(r"\s*([^=<>]*?)\s*([=<>]=?)\s*(.*?)\s*", re.DOTALL)


def read_map(value: object, operator: str, read: Callable[[str, object], N]) -> dict[str, N]:
    """Read every entry of a table, or of a string such as `cpu=1,memory=1Gi`."""
    result: dict[str, N] = {}
    problems: list[Problem] = []
    for name, text in _entries(value, operator, problems):
        try:
            found = read(name, text)
        except InputError as error:
            problems += [replace(each, keys=(name,)) for each in error.problems]
            continue
        if name in result:
            message = f"duplicate key {quote(name)}"
            problems.append(Problem(keys=(name,), message=message, hint="remove one"))
        result[name] = found
    if problems:
        raise InputError(problems)
    return result


def _entries(value: object, operator: str, problems: list[Problem]) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from value.items()
        return
    if not is_text(value):
        message = f"must be a string or a table, not {describe(value)}"
        raise invalid(message, f"write 'a{operator}b,…'")
    for entry in str(value).split(",") if str(value).strip() else ():
        match = _ENTRY.fullmatch(entry)
        if match is None or match[2] != operator or not match[1] or not match[3]:
            message = f"{quote(entry.strip())} is not of the form name{operator}value"
            problems.append(Problem(message=message, hint=f"the operator is '{operator}'"))
        else:
            yield match[1], match[3]


RESERVABLE = (CPU, MEMORY, EPHEMERAL_STORAGE, PIDS)
"""Source: Kubernetes, cmd/kubelet/app/server.go, parseResourceList."""


def read_reservation(value: object) -> ExactAmounts:
    """Return the exact amounts of `cpu=500m,memory=5Mi`: they are rounded only after they are added.

    Source: Kubernetes, pkg/kubelet/cm/node_container_manager_linux.go,
    getNodeAllocatableAbsoluteImpl, which subtracts quantities.
    """

    def read(name: str, text: object) -> Any:  # noqa: ANN401 (an integer or a fraction)
        return read_exact(_supported(name, text, RESERVABLE))

    return read_map(value, "=", read)


def read_capacity(value: object) -> Amounts:
    """Return the amounts of `cpu=8,memory=32Gi,hugepages-2Mi=1Gi`."""

    def read(name: str, text: object) -> int:
        names = (*RESERVABLE, "hugepages-<size>")
        return read_amount(text if is_hugepages(name) else _supported(name, text, names))

    return read_map(value, "=", read)


def _supported(name: str, text: object, names: Collection[str]) -> object:
    """Return the value of a resource.

    Raises:
        InputError: it is not among those that can be stated here.
    """
    if name not in RESERVABLE:
        raise invalid(f"{quote(name)} is not supported here", f"write one of {', '.join(names)}")
    return text


def read_percents(value: object) -> dict[str, int]:
    """Return the percentages of `memory=50%`.

    Source: Kubernetes, pkg/kubelet/cm/qos_container_manager_linux.go and ParseQOSReserved: only
    memory, 0% to 100%, whole numbers.
    """

    def read(name: str, text: object) -> int:
        if name != MEMORY:
            raise invalid(f"{quote(name)} can't be reserved", "write memory")
        return _read_whole_percent(text, 0)

    return read_map(value, "=", read)


def read_cpu_options(value: object) -> frozenset[CpuManagerOption]:
    """Return the options of `full-pcpus-only=true,strict-cpu-reservation=true` that are true.

    Source: Kubernetes, pkg/kubelet/cm/cpumanager/policy_options.go.
    """
    known = {str(each): each for each in CpuManagerOption}

    def read(name: str, text: object) -> bool:
        if name not in known:
            right = nearest(name, known)
            hint = f"write {right}" if right else f"options are {', '.join(known)}"
            raise invalid(f"unknown option {quote(name)}", hint)
        return read_boolean(text)

    found = read_map(value, "=", read)
    return frozenset(known[name] for name, is_set in found.items() if is_set)


# Eviction

SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
)
"""Source: Kubernetes, pkg/kubelet/eviction/api/types.go, OpForSignal. `allocatableMemory.available`
is not an option: the kubelet derives it from `memory.available`, and so does podslice."""
_TIER_SIGNAL = "memory.available"


def read_thresholds(value: object) -> dict[str, Threshold]:
    """Return the thresholds of `memory.available<100Mi,nodefs.available<10%`, except 0% and 100%.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, parseThresholdStatement.
    """

    def read(signal: str, text: object) -> Threshold:
        _check_signal(signal)
        threshold = _read_threshold(text)
        if threshold.amount == 0:
            raise invalid("a threshold must be above zero", "leave the signal out to disable it")
        return threshold

    thresholds = read_map(_flat(value), "<", read)
    return {
        name: each for name, each in thresholds.items() if each.percent_milli not in (0, 100_000)
    }


def read_reclaims(value: object) -> dict[str, Threshold]:
    """Return the amounts of `memory.available=100Mi,nodefs.available=5%`.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, parseMinimumReclaims.
    """

    def read(signal: str, text: object) -> Threshold:
        if signal not in TIER_SIGNALS.values():
            _check_signal(signal)
        return _read_threshold(text)

    return read_map(_flat(value), "=", read)


def read_grace_periods(value: object) -> dict[str, int]:
    """Return the durations of `memory.available=1m30s` in microseconds.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, parseGracePeriods.
    """

    def read(signal: str, text: object) -> int:
        _check_signal(signal)
        return read_duration(text)

    return read_map(_flat(value), "=", read)


def read_tier_thresholds(value: object) -> dict[Qos, Threshold]:
    """Return the thresholds of `burstable=memory.available<10%`, or of a list, except 0% and 100%."""
    example = "burstable=memory.available<10%"
    if isinstance(value, list):
        value = ",".join(read_list(value, "thresholds", example=example))

    def read(name: str, text: object) -> Threshold | None:
        if name not in _TIERS:
            raise invalid(f"unknown tier {quote(name)}", f"write {' or '.join(_TIERS)}")
        found = read_thresholds(text)
        if found.keys() - {_TIER_SIGNAL} or not text:
            raise invalid(f"a tier has only {_TIER_SIGNAL}", f"write {example}, for example")
        return found.get(_TIER_SIGNAL)

    found = read_map(value, "=", read)
    return {_TIERS[name]: each for name, each in found.items() if each is not None}


def _check_signal(signal: str) -> None:
    if signal not in SIGNALS:
        right = nearest(signal, SIGNALS)
        hint = f"write {right}" if right else f"signals are {', '.join(SIGNALS)}"
        raise invalid(f"unknown eviction signal {quote(signal)}", hint)


def _read_threshold(text: object) -> Threshold:
    """Return an amount, or thousandths of a percent."""
    if not isinstance(text, str) or not text.endswith("%"):
        return Threshold(amount=read_amount(text))
    match = _PERCENT.fullmatch(text)
    milli = read_amount(match[1]) if match else -1
    if not 0 <= milli <= 100_000:
        raise invalid(f"{quote(text)} is not a percentage", "write 10%, for example")
    return Threshold(percent_milli=milli)


def _flat(value: object) -> object:
    """Return a table with dotted keys: TOML reads `memory.available = …` as nested tables."""
    return dict(_flatten(value)) if isinstance(value, dict) else value


def _flatten(
    table: Mapping[str, Any], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and depth < 3:
            yield from _flatten(value, f"{prefix}{key}.", depth + 1)
        else:
            yield f"{prefix}{key}", value


# Slices

_SLICE = ".slice"
_BELOW_ROOT = f"-kubepods-besteffort-pod{UID_MAX * '0'}"
"""The suffix of the longest name of a pod's slice."""
_CONTROL_GROUP_MAX = 4096 - 64 - 2 * 256
"""Characters of a control group, so that the path of a file in a container's scope fits the kernel.

Source: Linux, include/uapi/linux/limits.h, PATH_MAX and NAME_MAX.
"""


def read_cgroup(value: object) -> str:
    """Return the path of a slice's control group: `/system.slice`, `/custom/pods`, or an empty string.

    Source: Node Allocatable Resources, "absolute paths are required".
    """
    return "" if value == "" else _read_slice(value, "", "the name of its slice has")


def read_root(value: object) -> str:
    """Return a path as `read_cgroup`, with room for pods' slices below it; "" is the root, `/`."""
    whose = "the names of the pods' slices have"
    return "/" if value == "" else _read_slice(value, _BELOW_ROOT, whose)


def _read_slice(value: object, below: str, whose: str) -> str:
    if not is_text(value):
        raise invalid(f"must be a path, not {describe(value)}")
    path = str(value)
    if not path.startswith("/"):
        raise invalid(f"{quote(path)} is not an absolute path", f"write {quote('/' + path)}")
    stem = _stem(path)
    # Checked with the longest uid, so that no pod is refused for its name later.
    longest = f"{stem}{below}" if stem else below.lstrip("-")
    more = len(longest) + len(_SLICE) - UNIT_NAME_MAX
    if more > 0:
        message = f"{quote(path)} is too long: {whose} at most {UNIT_NAME_MAX} characters"
        raise invalid(message, f"shorten it by {more} characters")
    if len(control_group_of(UnitName(f"{longest}{_SLICE}"))) > _CONTROL_GROUP_MAX:
        raise invalid(f"{quote(path)} has too many levels", "write a path with fewer levels")
    if path.rstrip("/").endswith(_SLICE):
        name = UnitName(f"{stem}{_SLICE}")
        if not is_unit_name(name):
            raise invalid(f"{quote(name)} is not a valid slice name")
        right = control_group_of(name)
        if path.rstrip("/") != right:
            message = f"{quote(path.rstrip('/'))} is not where systemd puts {quote(name)}"
            raise invalid(message, f"write {quote(right)}")
    return path


def _stem(path: str) -> str:
    """Return the name of the slice without its suffix: `/custom/pods` → `custom-pods`."""
    components = [part for part in path.split("/") if part]
    if components and components[-1].endswith(_SLICE):
        return components[-1].removesuffix(_SLICE)
    return "-".join(map(_escape, components))


def _escape(component: str) -> str:
    try:
        return escape_component("" if component in (".", "..") else component)
    except InputError as error:
        message = f"{quote(component)} can't be part of a slice's name"
        raise invalid(message, error.problems[0].hint) from error


# CPUs of another machine

_PARTS = ("sockets", "numa", "cores", "threads")
_NUMBERS = ("cpu", "core", "socket", "numa", "uncore")
_REQUIRED = _NUMBERS[:2]
_FILE_BYTES_MAX = 2**20
_EXAMPLE = "write sockets=2,numa=2,cores=4,threads=2, or the path of a JSON file"
_CPU_EXAMPLE = 'write {"cpu": 0, "core": 0, "socket": 0, "numa": 0, "uncore": 0}, for example'


def read_topology(value: object) -> CpuTopology | None:
    """Return the CPUs of `sockets=2,numa=2,cores=4,threads=2`, or of a JSON file; None of "".

    `numa` counts the NUMA nodes of the machine, `cores` those of each socket; each is 1 by default.
    The file has a list of objects with the numbers of each CPU, which are unique in the machine.
    """
    if value == "":
        return None
    if isinstance(value, list):
        return _listed(value)
    if isinstance(value, dict) or (is_text(value) and "=" in str(value)):
        return _regular(value)
    if not is_text(value):
        raise invalid(f"must be a topology, not {describe(value)}", _EXAMPLE)
    path = Path(str(value))
    try:
        entries = json.loads(read_bytes(path, limit_bytes=_FILE_BYTES_MAX))
    except OSError as error:
        message = f"{quote(str(path))}: {(error.strerror or str(error)).lower()}"
        raise invalid(message, _EXAMPLE) from error
    except (ValueError, RecursionError) as error:
        raise invalid(f"{quote(str(path))} is not a JSON file", _CPU_EXAMPLE) from error
    return _listed(entries)


def _regular(value: object) -> CpuTopology:
    def read(name: str, text: object) -> int:
        if name not in _PARTS:
            raise invalid(f"{quote(name)} is not a part", f"write one of {', '.join(_PARTS)}")
        if not str(text).isdecimal() or not 0 < int(str(text)) <= CPUS_MAX:
            raise invalid(f"must be a whole number above 0, not {describe(text)}")
        return int(str(text))

    parts = dict.fromkeys(_PARTS, 1) | read_map(value, "=", read)
    if parts["sockets"] * parts["cores"] * parts["threads"] > CPUS_MAX:
        raise invalid(f"it has more than {CPUS_MAX} CPUs", _EXAMPLE)
    return regular_topology(**parts)


def _listed(entries: object) -> CpuTopology:
    if not isinstance(entries, list) or not 0 < len(entries) <= CPUS_MAX:
        raise invalid(f"must be a list of 1 to {CPUS_MAX} CPUs", _CPU_EXAMPLE)
    if problems := [each for place, entry in enumerate(entries) for each in _check(entry, place)]:
        raise InputError(problems)
    cpus = [Cpu(**entry) for entry in entries]
    if len({each.cpu for each in cpus}) < len(cpus):
        raise invalid("a CPU is listed twice", "list each CPU once")
    if divided := tuple(_divided_cores(cpus)):
        raise InputError(divided)
    return CpuTopology(cpus=tuple(sorted(cpus, key=lambda each: each.cpu)))


def _divided_cores(cpus: Iterable[Cpu]) -> Iterator[Problem]:
    """Yield a problem for each core whose CPUs are in different places."""
    places: dict[int, Cpu] = {}
    for each in cpus:
        first = places.setdefault(each.core, each)
        for name in _NUMBERS[2:]:
            if getattr(each, name) != getattr(first, name):
                message = (
                    f"the CPUs {first.cpu} and {each.cpu} of core {each.core} differ in {name}"
                )
                hint = "number cores uniquely in the machine, not in each socket"
                yield Problem(message=message, hint=hint)


def _check(entry: object, place: int) -> Iterator[Problem]:
    """Yield the problems of one CPU of a list."""
    if not isinstance(entry, dict) or not set(_REQUIRED) <= entry.keys() <= set(_NUMBERS):
        message = f"[{place}] must be an object with {' and '.join(_REQUIRED)}"
        yield Problem(message=message, hint=_CPU_EXAMPLE)
        return
    for name, number in entry.items():
        if type(number) is not int or not 0 <= number < CPUS_MAX:
            message = f"[{place}].{name} must be a number from 0 to {CPUS_MAX - 1}"
            yield Problem(message=f"{message}, not {describe(number)}", hint=_CPU_EXAMPLE)
