"""The values of settings about the agent and systemd-oomd; see `values`."""

from __future__ import annotations

import ipaddress
import re
from pathlib import PurePosixPath

from podslice.inputs.options.values import WrongValue, is_text, read_duration, read_list, wrong
from podslice.inputs.readers import Wrong
from podslice.inputs.scalars import describe, shown
from podslice.model.pod import Qos

SYNC_MIN_USEC, SYNC_MAX_USEC = 100_000, 3_600_000_000
_TIERS = {"burstable": Qos.BURSTABLE, "besteffort": Qos.BESTEFFORT}
_PERCENT = re.compile(r"([0-9]{1,3})%", re.ASCII)
# `127.0.0.1:9469`, `[::1]:9469`, `localhost:9469`
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:]+)):([0-9]{1,5})", re.ASCII)
_PORT_MAX = 65_535


def read_tiers(value: object) -> frozenset[Qos]:
    """`burstable,besteffort`; nothing for none."""
    stated = read_list(value, "tiers", example="besteffort")
    mistakes = [
        (name, Wrong(f"{shown(name)} is no tier", f"tiers are {' and '.join(_TIERS)}"))
        for name in stated
        if name not in _TIERS
    ]
    if mistakes:
        raise WrongValue(mistakes)
    return frozenset(_TIERS[name] for name in stated)


def read_pressure_limit(value: object) -> int | None:
    """`60%`, whole; nothing leaves it to oomd.conf(5), as 0% would."""
    if value == "":
        return None
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 1 <= int(match[1]) <= 100:
        raise wrong(f"has to be a percentage, is {describe(value)}", "write 1% to 100%")
    return int(match[1])


def read_directories(value: object) -> tuple[str, ...]:
    """`/etc/podslice/manifests,/srv/manifests`, or a list of them; nothing for none."""
    stated = read_list(value, "directories", example="/etc/podslice/manifests")
    mistakes = [
        (path, Wrong(f"{shown(path)} is not an absolute path", "write /etc/podslice/manifests"))
        for path in stated
        if not path.startswith("/") or "\0" in path
    ]
    if mistakes:
        raise WrongValue(mistakes)
    return tuple(dict.fromkeys(str(PurePosixPath(path)) for path in stated))


def read_listen(value: object) -> str:
    """`127.0.0.1:9469`; only addresses that are the host's own, nothing for none."""
    if value == "":
        return ""
    match = _ADDRESS.fullmatch(str(value)) if is_text(value) else None
    if match is None or not 1 <= int(match[3]) <= _PORT_MAX:
        raise wrong(f"has to be HOST:PORT, is {describe(value)}", "write 127.0.0.1:9469")
    if not _is_loopback(match[2], match[1]):
        raise wrong(
            f"{shown(match[0])} can be reached from outside, where anybody could read everything",
            f"write 127.0.0.1:{match[3]}, and put a proxy that asks who it is in front of it",
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
    """A duration such as `1m`, in microseconds."""
    usec = read_duration(value)
    if not SYNC_MIN_USEC <= usec <= SYNC_MAX_USEC:
        raise wrong(f"{shown(str(value))} is not possible", "write 100ms to 1h")
    return usec
