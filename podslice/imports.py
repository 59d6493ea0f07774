"""Imports without what the imported can do without."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast


@contextmanager
def without(name: str) -> Iterator[None]:
    """Import as if a library were not installed, which what is imported takes only if it is.

    Some take a library that nothing here uses, and that costs more memory and time than they do.
    """
    is_hidden = name not in sys.modules
    if is_hidden:
        sys.modules[name] = cast("ModuleType", None)
    try:
        yield
    finally:
        if is_hidden:
            del sys.modules[name]
