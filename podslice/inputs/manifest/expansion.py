"""References to variables in commands, arguments and variables: `$(NAME)`.

Source: Kubernetes, third_party/forked/golang/expansion/expand.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


class Expanded(NamedTuple):
    """A text after expansion."""

    text: str
    is_secret: bool = False
    """Whether a Secret's value is in it."""


def expand(text: str, known: Mapping[str, Expanded]) -> Expanded:
    """Replace `$(NAME)` of known variables; `$$` is a dollar sign, and the rest remains."""
    is_secret = False

    def replace(match: re.Match[str]) -> str:
        nonlocal is_secret
        name = match[1]
        if name is None:
            return "$"
        if name not in known:
            return match[0]
        is_secret = is_secret or known[name].is_secret
        return known[name].text

    expanded = _REFERENCE.sub(replace, text)
    return Expanded(text=expanded, is_secret=is_secret)
