"""Values of the options of the agent, of its manifests, of tiers and of systemd-oomd; see `values`."""

from __future__ import annotations

import ipaddress
import re
from pathlib import PurePosixPath

from podslice.errors import InputError, Problem, invalid, quote
from podslice.inputs.options.values import (
    choose,
    is_text,
    read_duration,
    read_list,
    read_map,
    read_thresholds,
)
from podslice.inputs.scalars import describe
from podslice.model.config import Threshold, Validate
from podslice.model.pod import Qos

SYNC_MIN_USEC, SYNC_MAX_USEC = 100_000, 3_600_000_000
_TIERS = {"burstable": Qos.BURSTABLE, "besteffort": Qos.BESTEFFORT}
_TIER_SIGNAL = "memory.available"
_PERCENT = re.compile(r"([0-9]{1,3})%", re.ASCII)
# `127.0.0.1:9469`, `[::1]:9469`, `localhost:9469`
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:]+)):([0-9]{1,5})", re.ASCII)
_PORT_MAX = 65_535


def read_validate(value: object) -> Validate:
    """Return what an unknown field is; true is `strict` and false is `ignore`, as for kubectl.

    Source: kubectl, "--validate='strict': Must be one of: strict (or true), warn, ignore (or false)".
    """
    if value in (True, "true"):
        return Validate.STRICT
    if value in (False, "false"):
        return Validate.IGNORE
    return choose(Validate)(value)


def read_tiers(value: object) -> frozenset[Qos]:
    """Return the tiers of `burstable,besteffort`, or of an empty string."""
    stated = read_list(value, "tiers", example="besteffort")
    hint = f"write {' or '.join(_TIERS)}"
    problems = [
        Problem(keys=(name,), message=f"unknown tier {quote(name)}", hint=hint)
        for name in stated
        if name not in _TIERS
    ]
    if problems:
        raise InputError(problems)
    return frozenset(_TIERS[name] for name in stated)


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

    found: dict[str, Threshold | None] = read_map(value, "=", read)
    return {_TIERS[name]: each for name, each in found.items() if each is not None}


def read_pressure_limit(value: object) -> int | None:
    """Return the whole percentage of `60%`; None of an empty string leaves it to oomd.conf(5)."""
    if value == "":
        return None
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 1 <= int(match[1]) <= 100:
        raise invalid(f"must be a percentage, not {describe(value)}", "write 1% to 100%")
    return int(match[1])


def read_directories(value: object) -> tuple[str, ...]:
    """Return the directories of `/etc/podslice/manifests,/srv/manifests`, or of a list."""
    stated = read_list(value, "directories", example="/etc/podslice/manifests")
    hint = "write /etc/podslice/manifests, for example"
    problems = [
        Problem(keys=(path,), message=f"{quote(path)} is not an absolute path", hint=hint)
        for path in stated
        if not path.startswith("/") or "\0" in path
    ]
    if problems:
        raise InputError(problems)
    return tuple(dict.fromkeys(str(PurePosixPath(path)) for path in stated))


def read_directory(value: object) -> str:
    """Return the absolute path of a directory, or an empty string."""
    if value == "":
        return ""
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        hint = "write /var/lib/podslice/usage, for example"
        raise invalid(f"must be an absolute path, not {describe(value)}", hint)
    return str(PurePosixPath(value))


def read_listen(value: object) -> str:
    """Return a loopback address such as `127.0.0.1:9469`, or an empty string."""
    if value == "":
        return ""
    match = _ADDRESS.fullmatch(str(value)) if is_text(value) else None
    if match is None or not 1 <= int(match[3]) <= _PORT_MAX:
        raise invalid(f"must be HOST:PORT, not {describe(value)}", "write 127.0.0.1:9469")
    if not _is_loopback(match[2], match[1]):
        raise invalid(
            f"{quote(match[0])} is not a loopback address: other hosts could connect",
            f"write 127.0.0.1:{match[3]}, behind a proxy that authenticates clients",
        )
    return match[0]


def _is_loopback(host: str | None, in_brackets: str | None) -> bool:
    try:
        if in_brackets is not None:
            return ipaddress.IPv6Address(in_brackets).is_loopback
        return host == "localhost" or ipaddress.IPv4Address(host or "").is_loopback
    except ValueError:
        return False


def read_sync_period(value: object) -> int:
    """Return a duration such as `1m` in microseconds."""
    usec = read_duration(value)
    if not SYNC_MIN_USEC <= usec <= SYNC_MAX_USEC:
        raise invalid(f"{quote(str(value))} is out of range", "write 100ms to 1h")
    return usec
