"""Quadlets as lines. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from podslice.errors import printable
from podslice.quadlet.result import is_data

if TYPE_CHECKING:
    from podslice.quadlet.result import File, Quadlets


def quadlet_lines(quadlets: Quadlets, top: str) -> Iterator[str]:
    """Yield the files of a pod, each below its name; contents of Secrets are not among them.

    `top` is the directory of podslice's own files on the host.
    """
    for file in quadlets.files:
        path = f"{top}/{file.path}" if is_data(file.path) else file.path
        yield f"### {printable(path)} (mode {file.mode:04o})"
        yield from _content(file)
        yield ""


def _content(file: File) -> Iterator[str]:
    if file.is_secret:
        yield f"# {len(file.content)} bytes, which are written to a file only"
        return
    try:
        yield from file.text.removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        yield f"# {len(file.content)} bytes, which are not text"
