# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The manifests that a module is given, and the directory that keeps them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from .podslice import Document, Failure
from .rendering import to_yaml

SYSTEM_DIRECTORY = "/etc/podslice/manifests"
USER_DIRECTORY = "podslice/manifests"
HEADER = "# Written by Ansible (podslice.host.pods), which overwrites changes.\n"
STDIN = "stdin"
"""How podslice names what a module passes to it."""


@dataclass(frozen=True)
class Source:
    """Manifests: a text, or a file or a directory of the host."""

    text: str | None = None
    path: str | None = None

    @property
    def arguments(self) -> list[str]:
        """Return the options that pass it to podslice."""
        return [f"--filename={self.path or '-'}"]


def read_source(
    definition: object, path: str | None, namespace: str | None = None
) -> Source | None:
    """Return the manifests of the options; None without any.

    Objects of a definition get the namespace, unless they have one.

    Raises:
        Failure: the definition is neither a mapping, a list of mappings nor a text, or too deep.
    """
    if path is not None:
        return Source(path=path)
    if definition is None:
        return None
    if isinstance(definition, str):
        text = definition if definition.endswith("\n") else f"{definition}\n"
        return Source(text=text)
    objects = definition if isinstance(definition, list) else [definition]
    if not objects or not all(isinstance(each, dict) for each in objects):
        raise Failure("definition must be a mapping, a list of mappings, or a text")
    try:
        if namespace is not None:
            objects = [_with_namespace(each, namespace) for each in objects]
        return Source(text=HEADER + "---\n".join(map(to_yaml, objects)))
    except RecursionError as error:
        raise Failure("definition is nested too deeply: podslice reads 64 levels") from error


def _with_namespace(value: Any, namespace: str) -> Any:  # noqa: ANN401
    """Return an object with a namespace; in a list its items have it."""
    if not isinstance(value, dict):
        return value
    items, metadata = value.get("items"), value.get("metadata")
    if isinstance(items, list):
        return {**value, "items": [_with_namespace(item, namespace) for item in items]}
    if isinstance(metadata, dict) and not metadata.get("namespace"):
        return {**value, "metadata": {**metadata, "namespace": namespace}}
    return value


def default_directory(*, is_user: bool) -> str:
    """Return the directory of manifests that boot and agent apply."""
    if not is_user:
        return SYSTEM_DIRECTORY
    config = os.environ.get("XDG_CONFIG_HOME", "")
    if not config.startswith("/"):
        config = os.path.expanduser("~/.config")
    return os.path.join(config, USER_DIRECTORY)


def key_of(pod: Document) -> str:
    """Return `namespace/name`."""
    return f"{pod['namespace']}/{pod['name']}"


def as_definition(failure: Failure, source: Source) -> Failure:
    """Return a failure whose problems are in the definition instead of in standard input."""
    if source.path is not None:
        return failure
    message = re.sub(rf"(?m)(^|: |- ){STDIN}\b", r"\1definition", failure.message)
    return Failure(message, **failure.facts)
