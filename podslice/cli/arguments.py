"""Arguments that several verbs take, and exit codes."""

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
        help="File, directory or - for stdin; may be repeated.",
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", metavar="NAME", help="Name space of pods that state none."),
]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="OutputFormat of the result.")]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[POD]...", help="Only these pods: NAME or NAMESPACE/NAME."),
]
PodName = Annotated[str, typer.Argument(metavar="POD", help="NAME or NAMESPACE/NAME.")]
ContainerName = Annotated[
    str | None,
    typer.Option(
        "--container",
        "-c",
        metavar="CONTAINER",
        help="Which of its containers; needed where there are several.",
    ),
]

Prune = Annotated[
    bool, typer.Option("--prune", help="Remove applied pods that the manifests do not have.")
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Limit memory even below what is in use; the kernel kills what has no room then.",
    ),
]


class Sort(StrEnum):
    """What rows are sorted by; the most first, but for names."""

    CPU = "cpu"
    MEMORY = "memory"
    THROTTLED = "throttled"
    PRESSURE = "pressure"
    NAME = "name"


def code_of(problems: Iterable[Problem]) -> int:
    """2 when a problem is an error."""
    return BAD_INPUT if any(found.severity is Severity.ERROR for found in problems) else DONE


def key_of(name: str, namespace: str | None) -> str:
    """`NAME` or `NAMESPACE/NAME` as the pod's key."""
    return name if "/" in name else f"{namespace or 'default'}/{name}"
