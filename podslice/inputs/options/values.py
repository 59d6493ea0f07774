"""Values of options, in the syntax of the kubelet's flags or as TOML tables.

Every reader takes the value from a flag or a file and returns that of a `Config` field. It raises
`InputError` with all problems; their `keys` are the entries of the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Any, TypeVar

from podslice.errors import InputError, Problem, invalid, quote
from podslice.inputs.readers import nearest, read_amount, read_exact
from podslice.inputs.scalars import Boolean, Number, Odd, describe
from podslice.model.config import TIER_SIGNALS, Enforce, SwapBehavior, Threshold
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

RESERVABLE = (CPU, MEMORY, EPHEMERAL_STORAGE, PIDS)
"""Source: Kubernetes, cmd/kubelet/app/server.go, parseResourceList."""

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

Reader = Callable[[object], Any]
E = TypeVar("E", bound=StrEnum)
N = TypeVar("N")

# `memory.available<100Mi`, `cpu=500m`
_ENTRY = re.compile(r"\s*([^=<>]*?)\s*([=<>]=?)\s*(.*?)\s*", re.DOTALL)
_PERCENT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)%", re.ASCII)
_FACTOR = re.compile(r"([01])(?:\.([0-9]{1,3}))?", re.ASCII)
_USEC = {
    "us": 1,
    "µs": 1,
    "μs": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
}
# `1m30s`, `1.5h`, and a part of these
_DURATION_PART = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,6}))?(us|µs|μs|ms|s|m|h)", re.ASCII)
_DURATION = re.compile(f"(?:{_DURATION_PART.pattern}){{1,8}}", re.ASCII)
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


def read_accounting(value: object) -> bool | None:
    """Return the boolean of `true` or `false`; None of an empty string: as this host does."""
    return None if value == "" else read_boolean(value)


def choose(kinds: type[E]) -> Callable[[object], E]:
    """Return a reader of the names of an enumeration."""
    names = ", ".join(kinds)

    def read(value: object) -> E:
        if isinstance(value, str) and value in list(kinds):
            return kinds(value)
        right = nearest(str(value), {str(kind): kind for kind in kinds})
        raise invalid(
            f"must be one of {names}, not {describe(value)}", f"write {right}" if right else ""
        )

    return read


def read_factor(value: object) -> int | None:
    """Return the thousandths of `0.9`; None of an empty string.

    Source: Kubernetes, pkg/kubelet/apis/config/validation/validation.go, memoryThrottlingFactor:
    above 0, and at most 1.
    """
    text = str(value)
    if text == "":
        return None
    found = _FACTOR.fullmatch(text)
    milli = int(found[1] + (found[2] or "").ljust(3, "0")) if found else 0
    if not 0 < milli <= 1000:
        raise invalid(f"must be a number above 0 and at most 1, not {describe(value)}", "write 0.9")
    return milli


def read_swap_behavior(value: object) -> SwapBehavior | None:
    """Return the behavior; None of an empty string: the default of the rules.

    Source: Kubernetes, pkg/kubelet/types/constants.go, SwapBehavior.
    """
    return None if value == "" else choose(SwapBehavior)(value)


def read_driver(value: object) -> None:
    """Accept only `systemd`."""
    if value != "systemd":
        raise invalid(
            f"must be systemd, not {describe(value)}",
            "podslice supports only the systemd driver",
        )


def read_period(value: object) -> int:
    """Return the period of CPU quotas, such as `100ms`, in microseconds."""
    if not isinstance(value, str) or isinstance(value, Number | Boolean | Odd):
        raise invalid(f"must be a duration, not {describe(value)}", "write 100ms, for example")
    return int(PROPERTIES[CPU_QUOTA_PERIOD].read(value))


def read_reservation(value: object) -> ExactAmounts:
    """Return the exact amounts of `cpu=500m,memory=5Mi`: they are rounded only after they are added.

    Source: Kubernetes, pkg/kubelet/cm/node_container_manager_linux.go,
    getNodeAllocatableAbsoluteImpl, which subtracts quantities.
    """
    return _read_amounts(value, lambda name: name in RESERVABLE, RESERVABLE, read_exact)


def read_capacity(value: object) -> Amounts:
    """Return the amounts of `cpu=8,memory=32Gi,hugepages-2Mi=1Gi`."""
    names = (*RESERVABLE, "hugepages-<size>")
    return _read_amounts(
        value, lambda name: name in RESERVABLE or is_hugepages(name), names, read_amount
    )


def read_enforce(value: object) -> frozenset[Enforce]:
    """Return the set of `pods,kube-reserved`; it is empty for an empty string or `none`.

    Source: Kubernetes, validation.go, EnforceNodeAllocatable.
    """
    stated = read_list(value, "names", example="pods,kube-reserved")
    known = {str(kind): kind for kind in Enforce}
    hint = f"write {', '.join(known)} or none"
    problems = [
        Problem(keys=(name,), message=f"{quote(name)} can't be enforced", hint=hint)
        for name in stated
        if name not in known and name != "none"
    ]
    if "none" in stated and len(set(stated)) > 1:
        message = "'none' excludes other names"
        problems.append(Problem(keys=("none",), message=message, hint="write only 'none'"))
    if problems:
        raise InputError(problems)
    return frozenset(known[name] for name in stated if name != "none")


def read_list(value: object, what: str, *, example: str) -> list[str]:
    """Return the parts of `a, b` or of a list of strings, without empty ones."""
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, list):
        for part in parts:
            if not isinstance(part, str):
                raise invalid(f"every entry must be a string, not {describe(part)}")
    else:
        raise invalid(f"must be a list of {what}, not {describe(value)}", f"write '{example}'")
    return [part.strip() for part in parts if part.strip()]


def read_percents(value: object) -> dict[str, int]:
    """Return the percentages of `memory=50%`.

    Source: Kubernetes, pkg/kubelet/cm/qos_container_manager_linux.go and ParseQOSReserved: only
    memory, 0% to 100%, whole numbers.
    """

    def read(name: str, text: object) -> int:
        if name != MEMORY:
            raise invalid(f"{quote(name)} can't be reserved", "write memory")
        match = _PERCENT.fullmatch(text) if isinstance(text, str) else None
        if match is None or "." in match[1] or int(match[1]) > 100:
            raise invalid(f"must be a percentage, not {describe(text)}", "write 0% to 100%")
        return int(match[1])

    return read_map(value, "=", read)


def read_thresholds(value: object) -> dict[str, Threshold]:
    """Return the thresholds of `memory.available<100Mi,nodefs.available<10%`, except 0% and 100%.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, parseThresholdStatement.
    """
    thresholds: dict[str, Threshold | None] = read_map(_flat(value), "<", _read_threshold)
    return {name: threshold for name, threshold in thresholds.items() if threshold is not None}


def read_reclaims(value: object) -> dict[str, Threshold]:
    """Return the amounts of `memory.available=100Mi,nodefs.available=5%`.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, parseMinimumReclaims.
    """

    def read(signal: str, text: object) -> Threshold:
        if signal not in TIER_SIGNALS.values():
            _check_signal(signal)
        if isinstance(text, str) and text.endswith("%"):
            return Threshold(percent_milli=_read_percent(text))
        return Threshold(amount=read_amount(text))

    return read_map(_flat(value), "=", read)


def read_grace_periods(value: object) -> dict[str, int]:
    """Return the durations of `memory.available=1m30s` in microseconds.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, parseGracePeriods.
    """

    def read(signal: str, text: object) -> int:
        _check_signal(signal)
        return read_duration(text)

    return read_map(_flat(value), "=", read)


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
        raise invalid(
            f"must be a whole number above 0, not {describe(value)}", "write -1 for no limit"
        )
    return int(text)


def _flat(value: object) -> object:
    """Return a table with dotted keys: TOML reads `memory.available = …` as nested tables."""
    return dict(_flatten(value)) if isinstance(value, dict) else value


def _check_signal(signal: str) -> None:
    if signal not in SIGNALS:
        right = nearest(signal, dict.fromkeys(SIGNALS))
        hint = f"write {right}" if right else f"signals are {', '.join(SIGNALS)}"
        raise invalid(f"unknown eviction signal {quote(signal)}", hint)


def _read_percent(text: str) -> int:
    """Return thousandths of a percent."""
    match = _PERCENT.fullmatch(text)
    milli = read_amount(match[1]) if match else -1
    if not 0 <= milli <= 100_000:
        raise invalid(f"{quote(text)} is not a percentage", "write 10%, for example")
    return milli


def _read_threshold(signal: str, text: object) -> Threshold | None:
    _check_signal(signal)
    if isinstance(text, str) and text.endswith("%"):
        milli = _read_percent(text)
        return Threshold(percent_milli=milli) if 0 < milli < 100_000 else None
    amount = read_amount(text)
    if amount == 0:
        raise invalid("a threshold must be above zero", "leave the signal out to disable it")
    return Threshold(amount=amount)


def _read_amounts(
    value: object,
    known: Callable[[str], bool],
    names: tuple[str, ...],
    read_one: Callable[[object], N],
) -> dict[str, N]:
    def read(name: str, text: object) -> N:
        if not known(name):
            raise invalid(
                f"{quote(name)} is not supported here", f"write one of {', '.join(names)}"
            )
        return read_one(text)

    return read_map(value, "=", read)


def read_map(value: object, operator: str, read: Callable[[str, object], Any]) -> dict[str, Any]:
    """Read every entry of a table, or of a string such as `cpu=1,memory=1Gi`."""
    result: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, text in _entries(value, operator, problems):
        try:
            value_read = read(name, text)
        except InputError as error:
            problems += [replace(each, keys=(name,)) for each in error.problems]
        else:
            if name in result:
                message = f"duplicate key {quote(name)}"
                problems.append(Problem(keys=(name,), message=message, hint="remove one"))
            result[name] = value_read
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


def _flatten(table: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and depth < 3:
            yield from _flatten(value, f"{prefix}{key}.", depth + 1)
        else:
            yield f"{prefix}{key}", value


def is_text(value: object) -> bool:
    """Return whether a value is a string; a number in a file is not a string."""
    return isinstance(value, str) and not isinstance(value, Number)
