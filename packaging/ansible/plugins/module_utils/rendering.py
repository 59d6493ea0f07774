# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Values as YAML, as TOML, and as systemd's unit files have them.

A host need not have a YAML library for the Python of its modules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*|[0-9]+(?:m|[KMGTPE]i?|k)|[0-9]+(?:\.[0-9]+)?%")
"""Strings that are the same with and without quotes: names, paths, quantities, percentages."""
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n", "none"}
_NOT_PRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_yaml(value: object, comments: Mapping[str, str] | None = None) -> str:
    """Return a value as YAML; `comments` are put after the keys of the outermost mapping."""
    if not isinstance(value, (dict, list)) or not value:
        return f"{_scalar(value)}\n"
    return "".join(f"{line}\n" for line in _block(value, comments or {}))


def _block(value: Any, comments: Mapping[str, str]) -> Iterator[str]:  # noqa: ANN401
    """Yield the lines of a mapping or a list that is not empty."""
    if isinstance(value, dict):
        for key, item in value.items():
            head = f"{_scalar(key)}:"
            comment = f"  # {comments[key]}" if key in comments else ""
            if isinstance(item, (dict, list)) and item:
                yield head + comment
                yield from (f"  {line}" for line in _block(item, {}))
            else:
                yield f"{head} {_scalar(item)}{comment}"
        return
    for item in value:
        if isinstance(item, (dict, list)) and item:
            first, *others = _block(item, {})
            yield f"- {first}"
            yield from (f"  {line}" for line in others)
        else:
            yield f"- {_scalar(item)}"


def _scalar(value: object) -> str:
    """Return a value on one line."""
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return value if is_plain else quote(value)
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if isinstance(value, (dict, list)):
        return "{}" if isinstance(value, dict) else "[]"
    return quote(str(value))


def quote(text: str) -> str:
    """Return a string in double quotes, with the escapes that JSON, YAML and TOML share."""
    return _NOT_PRINTABLE.sub(
        lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False)
    )


def to_toml(settings: Mapping[str, object]) -> str:
    """Return options as TOML, one on each line, in the order of their names."""
    return "".join(f"{_key(name)} = {_toml(settings[name])}\n" for name in sorted(settings))


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else quote(name)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        parts = ", ".join(f"{_key(str(name))} = {_toml(item)}" for name, item in value.items())
        return f"{{ {parts} }}" if parts else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value) if isinstance(value, (bool, int, float)) else quote(str(value))


_BYTES = (
    *("MemoryMin", "MemoryLow", "MemoryHigh", "MemoryMax", "MemorySwapMax", "MemoryZSwapMax"),
)
_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_WHOLE_SHARE = 2**32 - 1
_UNSET = {"MemoryMin": 0, "MemoryLow": 0}
"""What a property has that was never set; `infinity` for the others."""
_KEYS = {"CPUQuotaPerSecUSec": "CPUQuota", "CPUQuotaPeriodUSec": "CPUQuotaPeriodSec"}
"""Properties whose key in a unit file differs from their name on the bus."""


def key_of(name: str) -> str:
    """Return the key of a property in a unit file."""
    return _KEYS.get(name, name)


def format_value(name: str, value: object) -> object:
    """Return the value of a property as a unit file has it, `512Mi` or `150%`, or `unset`."""
    if value in ("", _UNSET.get(name, "infinity")):
        return "unset"
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    is_bytes = name in _BYTES or name.startswith("hugetlb.")
    return _format_bytes(value) if is_bytes else _FORMATS.get(name, int)(value)


def _format_bytes(number: int) -> str | int:
    """Return bytes with the largest exact suffix."""
    power = 0
    while number and number % 1024 == 0 and power < len(_SUFFIXES) - 1:
        number //= 1024
        power += 1
    return f"{number}{_SUFFIXES[power]}" if power else number


def _format_hundredths(hundredths: int) -> str:
    whole, rest = divmod(hundredths, 100)
    return f"{whole}.{rest:02}%" if rest else f"{whole}%"


def _format_share(value: int) -> str:
    return _format_hundredths((value * 10_000 + _WHOLE_SHARE // 2) // _WHOLE_SHARE)


_FORMATS: dict[str, Callable[[int], object]] = {
    "CPUQuotaPerSecUSec": lambda value: _format_hundredths(value // 100),
    "CPUQuotaPeriodUSec": lambda value: f"{value}us",
    "ManagedOOMMemoryPressureLimit": _format_share,
}
"""How values of properties are shown that are neither plain numbers nor bytes."""
