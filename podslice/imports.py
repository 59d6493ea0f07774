"""Imports without what the imported can do without."""

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


@contextmanager
def quick_models() -> Iterator[None]:
    """Define pydantic models without what is of use while they are being written only.

    pydantic 2.10 checks each schema that it has made against a schema of schemas, and all versions
    look for plugins among everything that is installed: a tenth of a command's start.
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
