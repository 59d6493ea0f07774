"""Arguments that several verbs share, and exit codes."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import typer

from podslice.cli.output import OutputFormat
from podslice.errors import Problem, Severity

DONE, FAILED, BAD_INPUT, DIFFERENCES = 0, 1, 2, 3
"""Exit codes."""

Files = Annotated[
    list[str],
    typer.Option(
        "--filename",
        "-f",
        metavar="FILE",
        help="Read this file or directory, or - for stdin; may be repeated.",
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of pods without one."),
]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[POD]...", help="Only these pods, as NAME or NAMESPACE/NAME."),
]
PodName = Annotated[str, typer.Argument(metavar="POD", help="The pod, as NAME or NAMESPACE/NAME.")]
ContainerName = Annotated[
    str | None,
    typer.Option(
        "--container",
        "-c",
        metavar="CONTAINER",
        help="Container of the pod; required if it has several.",
    ),
]

Prune = Annotated[
    bool, typer.Option("--prune", help="Remove applied pods that are not in the manifests.")
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Set memory limits even below current usage; the kernel may OOM-kill processes.",
    ),
]


class Sort(StrEnum):
    """Columns to sort by: names ascending, numbers descending."""

    CPU = "cpu"
    MEMORY = "memory"
    THROTTLED = "throttled"
    PRESSURE = "pressure"
    NAME = "name"


def code_of(problems: Iterable[Problem]) -> int:
    """Return the exit code of problems: 2 if one is an error."""
    return BAD_INPUT if any(found.severity is Severity.ERROR for found in problems) else DONE


def key_of(name: str, namespace: str | None) -> str:
    """Return `NAME` or `NAMESPACE/NAME` as the key of a pod."""
    return name if "/" in name else f"{namespace or 'default'}/{name}"
