"""The values of settings: the syntax of the kubelet's flags, or the same as a TOML table.

Every reader takes what a flag or a file states and returns the value of a `Config` field. It raises
`WrongValue` with everything that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, TypeVar

from podslice.inputs.fields import nearest
from podslice.inputs.readers import Wrong, read_amount, read_exact
from podslice.inputs.scalars import Number, describe, shown
from podslice.model.config import Enforce, Threshold
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
is left out: the kubelet derives it from `memory.available`, and so does podslice."""

Reader = Callable[[object], Any]
E = TypeVar("E", bound=StrEnum)
N = TypeVar("N")

# `<100Mi` as it stands behind a signal; kubelet takes no other operator
_ENTRY = re.compile(r"\s*([^=<>]*?)\s*([=<>]=?)\s*(.*?)\s*", re.DOTALL)
_PERCENT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)%", re.ASCII)
_PERIOD = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(us|µs|μs|ms|s)", re.ASCII)
_USEC = {
    "us": 1,
    "µs": 1,
    "μs": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
}
# `1m30s`, `1.5h`, and one part of it
_DURATION_PART = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,6}))?(us|µs|μs|ms|s|m|h)", re.ASCII)
_DURATION = re.compile(f"(?:{_DURATION_PART.pattern}){{1,8}}", re.ASCII)
_PERIOD_MIN_USEC, _PERIOD_MAX_USEC = 1_000, 1_000_000
_TRUE = ("true", "1", "t", "yes", "on")
_FALSE = ("false", "0", "f", "no", "off")


class WrongValue(ValueError):
    """What is wrong with a value: for each mistake the part it is in, and the mistake."""

    def __init__(self, mistakes: list[tuple[str, Wrong]]) -> None:
        self.mistakes = mistakes
        super().__init__("; ".join(mistake.message for _, mistake in mistakes))


def read_boolean(value: object) -> bool:
    """`true` or `false`."""
    if isinstance(value, bool):
        return value
    text = value.lower() if isinstance(value, str) else ""
    if text in (*_TRUE, *_FALSE):
        return text in _TRUE
    raise wrong(f"has to be true or false, is {describe(value)}")


def read_accounting(value: object) -> bool | None:
    """Read `true` or `false`; nothing is for what this host does."""
    return None if value == "" else read_boolean(value)


def choose(kinds: type[E]) -> Callable[[object], E]:
    """A reader of one of the names of an enumeration."""
    names = ", ".join(kinds)

    def read(value: object) -> E:
        if isinstance(value, str) and value in list(kinds):
            return kinds(value)
        right = nearest(str(value), {str(kind): kind for kind in kinds})
        raise wrong(
            f"has to be one of {names}, is {describe(value)}", f"write {right}" if right else ""
        )

    return read


def read_driver(value: object) -> None:
    """Only `systemd`."""
    if value != "systemd":
        raise wrong(
            f"has to be systemd, is {describe(value)}",
            "podslice asks systemd for everything and never writes a control group itself",
        )


def read_period(value: object) -> int:
    """A duration such as `100ms`, in microseconds.

    Source: Kubernetes, pkg/kubelet/apis/config/validation/validation.go, cpuCFSQuotaPeriod: 1 ms
    to 1 s.
    """
    match = _PERIOD.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise wrong(f"has to be a duration, is {describe(value)}", "write 100ms, for example")
    number, _, decimals = match[1].partition(".")
    scaled = int(number + decimals) * _USEC[match[2]]
    usec, rest = divmod(scaled, int(10 ** len(decimals)))
    if rest or not _PERIOD_MIN_USEC <= usec <= _PERIOD_MAX_USEC:
        raise wrong(f"{shown(match[0])} is not possible", "write 1ms to 1s, in whole microseconds")
    return usec


def read_reservation(value: object) -> ExactAmounts:
    """Read `cpu=500m,memory=5Mi`, exactly: reservations are added up before they are rounded.

    Source: Kubernetes, pkg/kubelet/cm/node_container_manager_linux.go,
    getNodeAllocatableAbsoluteImpl, which subtracts quantities.
    """
    return _read_amounts(value, lambda name: name in RESERVABLE, RESERVABLE, read_exact)


def read_capacity(value: object) -> Amounts:
    """`cpu=8,memory=32Gi,hugepages-2Mi=1Gi`."""
    names = (*RESERVABLE, "hugepages-<size>")
    return _read_amounts(
        value, lambda name: name in RESERVABLE or is_hugepages(name), names, read_amount
    )


def read_enforce(value: object) -> frozenset[Enforce]:
    """`pods,kube-reserved`; nothing or `none` for nothing.

    Source: Kubernetes, validation.go, EnforceNodeAllocatable.
    """
    stated = read_list(value, "names", example="pods,kube-reserved")
    known = {str(kind): kind for kind in Enforce}
    mistakes = [
        (name, Wrong(f"{shown(name)} can't be enforced", f"it takes {', '.join(known)} and none"))
        for name in stated
        if name not in known and name != "none"
    ]
    if "none" in stated and len(set(stated)) > 1:
        mistakes.append(("none", Wrong("'none' stands with others", "state 'none' alone")))
    if mistakes:
        raise WrongValue(mistakes)
    return frozenset(known[name] for name in stated if name != "none")


def read_list(value: object, what: str, *, example: str) -> list[str]:
    """`a, b` or a list of texts, without what is empty."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise wrong(f"has to be a list of {what}, is {describe(value)}", f"write '{example}'")
    return [part.strip() for part in parts if part.strip()]


def read_percents(value: object) -> dict[str, int]:
    """`memory=50%`.

    Source: Kubernetes, pkg/kubelet/cm/qos_container_manager_linux.go and ParseQOSReserved: only
    memory, 0% to 100%, whole numbers.
    """

    def read(name: str, text: object) -> int:
        if name != MEMORY:
            raise Wrong(f"{shown(name)} can't be reserved", "only memory can")
        match = _PERCENT.fullmatch(text) if isinstance(text, str) else None
        if match is None or "." in match[1] or int(match[1]) > 100:
            raise Wrong(f"has to be a percentage, is {describe(text)}", "write 0% to 100%")
        return int(match[1])

    return _read_map(value, "=", read)


def read_thresholds(value: object) -> dict[str, Threshold]:
    """`memory.available<100Mi,nodefs.available<10%`; 0% and 100% switch a signal off.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, parseThresholdStatement.
    """
    thresholds: dict[str, Threshold | None] = _read_map(_flat(value), "<", _read_threshold)
    return {name: threshold for name, threshold in thresholds.items() if threshold is not None}


def read_reclaims(value: object) -> dict[str, Threshold]:
    """`memory.available=100Mi,nodefs.available=5%`; 0 asks for nothing.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, parseMinimumReclaims.
    """

    def read(signal: str, text: object) -> Threshold:
        _check_signal(signal)
        if isinstance(text, str) and text.endswith("%"):
            return Threshold(percent_milli=_read_percent(text))
        return Threshold(amount=read_amount(text))

    return _read_map(_flat(value), "=", read)


def read_grace_periods(value: object) -> dict[str, int]:
    """`memory.available=1m30s`, in microseconds.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, parseGracePeriods.
    """

    def read(signal: str, text: object) -> int:
        _check_signal(signal)
        return _read_usec(text)

    return _read_map(_flat(value), "=", read)


def read_duration(value: object) -> int:
    """A duration such as `5m`, in microseconds."""
    try:
        return _read_usec(value)
    except Wrong as error:
        raise WrongValue([("", error)]) from error


def read_seconds(value: object) -> int:
    """A whole number of seconds, as the kubelet's flag takes it."""
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch("[0-9]{1,9}", text, re.ASCII):
        raise wrong(f"has to be a whole number of seconds, is {describe(value)}")
    return int(text)


def _read_usec(text: object) -> int:
    """A duration in Go's notation, as `1h`, `1m30s` or `1.5s`.

    Source: Go, time.ParseDuration.
    """
    stated = text if isinstance(text, str) else ""
    if not _DURATION.fullmatch(stated):
        raise Wrong(f"has to be a duration, is {describe(text)}", "write 30s or 1m30s, for example")
    usec = 0
    for number, decimals, unit in _DURATION_PART.findall(stated):
        usec += int(number + decimals) * _USEC[unit] // int(10 ** len(decimals))
    return usec


def _flat(value: object) -> object:
    """TOML reads `memory.available = …` as a table in a table."""
    return dict(_flatten(value)) if isinstance(value, dict) else value


def _check_signal(signal: str) -> None:
    if signal not in SIGNALS:
        right = nearest(signal, dict.fromkeys(SIGNALS))
        hint = f"write {right}" if right else f"signals are {', '.join(SIGNALS)}"
        raise Wrong(f"{shown(signal)} is no eviction signal", hint)


def _read_percent(text: str) -> int:
    """Thousandths of a percent."""
    match = _PERCENT.fullmatch(text)
    milli = read_amount(match[1]) if match else -1
    if not 0 <= milli <= 100_000:
        raise Wrong(f"{shown(text)} is not a percentage", "write 10%, for example")
    return milli


def _read_threshold(signal: str, text: object) -> Threshold | None:
    _check_signal(signal)
    if isinstance(text, str) and text.endswith("%"):
        milli = _read_percent(text)
        return Threshold(percent_milli=milli) if 0 < milli < 100_000 else None
    amount = read_amount(text)
    if amount == 0:
        raise Wrong("a threshold has to be above zero", "leave the signal out to switch it off")
    return Threshold(amount=amount)


def _read_amounts(
    value: object,
    known: Callable[[str], bool],
    names: tuple[str, ...],
    read_one: Callable[[object], N],
) -> dict[str, N]:
    def read(name: str, text: object) -> N:
        if not known(name):
            raise Wrong(
                f"{shown(name)} is no resource that it takes", f"it takes {', '.join(names)}"
            )
        return read_one(text)

    return _read_map(value, "=", read)


def _read_map(value: object, operator: str, read: Callable[[str, object], Any]) -> dict[str, Any]:
    """Read every entry of a table or of a text such as `cpu=1,memory=1Gi`."""
    result: dict[str, Any] = {}
    mistakes: list[tuple[str, Wrong]] = []
    for name, text in _entries(value, operator, mistakes):
        try:
            value_read = read(name, text)
        except Wrong as error:
            mistakes.append((name, error))
        else:
            if name in result:
                mistakes.append((name, Wrong(f"{shown(name)} stands twice", "remove one")))
            result[name] = value_read
    if mistakes:
        raise WrongValue(mistakes)
    return result


def _entries(
    value: object, operator: str, mistakes: list[tuple[str, Wrong]]
) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from value.items()
        return
    if not is_text(value):
        raise wrong(f"has to be a text or a table, is {describe(value)}", f"write 'a{operator}b,…'")
    for entry in str(value).split(",") if str(value).strip() else ():
        match = _ENTRY.fullmatch(entry)
        if match is None or match[2] != operator or not match[1] or not match[3]:
            what = f"{shown(entry.strip())} is not of the form name{operator}value"
            mistakes.append(("", Wrong(what, f"the operator is '{operator}'")))
        else:
            yield match[1], match[3]


def _flatten(table: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and depth < 3:
            yield from _flatten(value, f"{prefix}{key}.", depth + 1)
        else:
            yield f"{prefix}{key}", value


def is_text(value: object) -> bool:
    """Whether a value is a text; the number of a file is none."""
    return isinstance(value, str) and not isinstance(value, Number)


def wrong(message: str, hint: str = "") -> WrongValue:
    """What to raise for a value that is wrong as a whole."""
    return WrongValue([("", Wrong(message, hint))])
