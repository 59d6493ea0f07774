"""Imports without optional dependencies and checks of the imported libraries."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast

_PYDANTIC = {"PYDANTIC_SKIP_VALIDATING_CORE_SCHEMAS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}


@contextmanager
def without(name: str) -> Iterator[None]:
    """Import libraries as if an optional dependency of theirs were not installed.

    Used for dependencies that podslice does not need and that cost more memory and time than the
    library itself.
    """
    is_hidden = name not in sys.modules
    if is_hidden:
        sys.modules[name] = cast("ModuleType", None)
    try:
        yield
    finally:
        if is_hidden:
            del sys.modules[name]


@contextmanager
def quick_models() -> Iterator[None]:
    """Define pydantic models without checks of their schemas and without plugins.

    pydantic 2.10 validates each schema that it creates, which is a tenth of a command's start, and
    all versions search the installed packages for plugins: 8 of 240 ms with pydantic 2.14.
    """
    before = {name: os.environ.get(name) for name in _PYDANTIC}
    os.environ.update(_PYDANTIC)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
