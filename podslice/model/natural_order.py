"""The order in which people expect names with numbers."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"([0-9]+)")


NaturalKey = tuple[tuple[str | int, ...], str]


def natural_key(name: str) -> NaturalKey:
    """Return the key by which names are sorted: `shop-6` precedes `shop-54`.

    Names that differ only in leading zeros have a fixed order, too.
    """
    # texts and numbers alternate, so that only equal types are compared
    parts = enumerate(_NUMBER.split(name))
    return tuple(int(part) if index % 2 else part for index, part in parts), name
