"""Imports without optional dependencies and checks of the imported libraries."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, cast

_PYDANTIC = {"PYDANTIC_SKIP_VALIDATING_CORE_SCHEMAS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}
_HASHES = (
    *("_md5", "_sha1", "_sha3", "_blake2"),
    *(("_sha2",) if sys.version_info >= (3, 12) else ("_sha256", "_sha512")),
)
"""Modules of the standard library with the functions of hashlib."""


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


def never_import(name: str) -> None:
    """Have a library seem not to be installed from now on, unless it is imported already."""
    sys.modules.setdefault(name, cast("ModuleType", None))


def never_import_openssl() -> None:
    """Have asyncio do without TLS, and hashlib and hmac use Python's own functions.

    OpenSSL takes 5 MiB and several milliseconds, and podslice has no encrypted connections. Some
    distributions build Python without its own hash functions: then OpenSSL's are used.
    """
    never_import("ssl")
    own = (name in sys.builtin_module_names or importlib.util.find_spec(name) for name in _HASHES)
    if all(own):
        never_import("_hashlib")


@contextmanager
def modules_of(package: str) -> Iterator[None]:
    """Import modules of a package without executing the package itself.

    Used for packages that import all of their modules, with more memory and time than those needed.
    """
    spec = None if package in sys.modules else importlib.util.find_spec(package)
    if spec is not None:
        sys.modules[package] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        if spec is not None:
            del sys.modules[package]


@contextmanager
def quick_models() -> Iterator[None]:
    """Define pydantic models without checks of their schemas and without plugins.

    pydantic 2.10 validates each schema that it creates, which is a tenth of a command's start. All
    versions import the functions that search for plugins, which take 10 ms and 2 MiB, and search
    the installed packages, which takes 8 ms.
    """
    before = {name: os.environ.get(name) for name in _PYDANTIC}
    os.environ.update(_PYDANTIC)
    try:
        with _no_installed_packages():
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _no_installed_packages() -> Iterator[None]:
    """Provide importlib.metadata as if nothing were installed; its other functions are the real ones.

    The module itself is imported only if one of those is used.
    """
    name = "importlib.metadata"
    if name in sys.modules:
        yield
        return
    substitute = ModuleType(name)

    def find(attribute: str) -> Any:  # noqa: ANN401 (any function of the module)
        if attribute.startswith("__"):  # asked by the import system
            raise AttributeError(attribute)
        sys.modules.pop(name)
        return getattr(importlib.import_module(name), attribute)

    vars(substitute).update(entry_points=_nothing, distributions=_nothing, __getattr__=find)
    sys.modules[name] = substitute
    try:
        yield
    finally:
        if sys.modules.get(name) is substitute:
            del sys.modules[name]


def _nothing(**_: object) -> tuple[()]:
    return ()
