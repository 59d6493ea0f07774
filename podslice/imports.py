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

_SKIP_CHECKS = "PYDANTIC_SKIP_VALIDATING_CORE_SCHEMAS"
_TIME_ZONES = "PYTHONTZPATH"
_TIME_ZONE_DIRECTORIES = "/usr/share/zoneinfo"
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


def allow_openssl() -> None:
    """Undo `never_import_openssl`, in a process with encrypted connections."""
    for name in ("ssl", "_hashlib"):
        if name in sys.modules and cast("object", sys.modules[name]) is None:
            del sys.modules[name]


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


def never_search_packages() -> None:
    """Provide importlib.metadata as if no package were installed, unless it is imported already.

    pydantic searches the installed packages for plugins when it builds its first validator, which
    takes 18 ms and 2 MiB. Other functions are those of the real module, imported when one is used.
    """
    name = "importlib.metadata"
    substitute = ModuleType(name)

    def find(attribute: str) -> Any:  # noqa: ANN401 (any function of the module)
        if attribute.startswith("__"):  # asked by the import system
            raise AttributeError(attribute)
        sys.modules.pop(name, None)
        return getattr(importlib.import_module(name), attribute)

    vars(substitute).update(entry_points=_nothing, distributions=_nothing, __getattr__=find)
    sys.modules.setdefault(name, substitute)


def _nothing(**_: object) -> tuple[()]:
    return ()


@contextmanager
def quick_models() -> Iterator[None]:
    """Define pydantic models without checks of their schemas.

    pydantic 2.10 validates each schema that it creates, which is a tenth of a command's start. It
    imports zoneinfo, which reads all of Python's build configuration to look for the time zones,
    unless the environment states where they are.
    """
    with _environment(_SKIP_CHECKS, "1"), _environment(_TIME_ZONES, _TIME_ZONE_DIRECTORIES):
        yield


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Set a variable for a time, unless it is set already."""
    is_set = name in os.environ
    os.environ.setdefault(name, value)
    try:
        yield
    finally:
        if not is_set:
            del os.environ[name]
