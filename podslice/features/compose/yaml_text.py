"""Plain values → lines of YAML, with comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from podslice.inputs.scalars import read_plain

Path = tuple[str | int, ...]
"""The keys and indices that lead to a value."""

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*|[0-9]+(?:m|k|[MGTPE]|[KMGTPE]i)", re.ASCII)
"""Words, and quantities with a suffix."""
_LETTERS = frozenset("yYnN")
"""Words that YAML 1.1 reads as booleans, besides those that `read_plain` knows."""


def format_yaml(
    value: Mapping[str, object], comments: Mapping[Path, str] | None = None, path: Path = ()
) -> Iterator[str]:
    """Yield the lines of a mapping of mappings, lists of mappings, strings and whole numbers."""
    comments = comments or {}
    for key, below in value.items():
        here = (*path, key)
        comment = f"  # {comments[here]}" if here in comments else ""
        if isinstance(below, Mapping) and below:
            yield f"{_scalar(key)}:{comment}"
            yield from (f"  {line}" for line in format_yaml(below, comments, here))
        elif below and isinstance(below, Sequence) and not isinstance(below, str):
            yield f"{_scalar(key)}:{comment}"
            yield from _list(below, comments, here)
        else:
            yield f"{_scalar(key)}: {_scalar(below)}{comment}"


def _list(entries: Sequence[object], comments: Mapping[Path, str], path: Path) -> Iterator[str]:
    for index, entry in enumerate(entries):
        if isinstance(entry, Mapping):
            first, *others = format_yaml(entry, comments, (*path, index))
            yield f"- {first}"
            yield from (f"  {line}" for line in others)
        else:
            yield f"- {_scalar(entry)}"


def _scalar(value: object) -> str:
    """Return a scalar, in quotes unless every reader of YAML takes it for the same string."""
    if not isinstance(value, str):
        return json.dumps(value)
    is_plain = _PLAIN.fullmatch(value) and value not in _LETTERS and type(read_plain(value)) is str
    return value if is_plain else json.dumps(value)
