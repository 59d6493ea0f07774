"""Options and arguments that several verbs share, and exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated

import typer

from podslice.cli.completion import (
    complete_containers,
    complete_namespaces,
    complete_pods,
    complete_units,
)
from podslice.cli.output import OutputFormat, ReportFormat
from podslice.errors import InputError, Problem, Severity
from podslice.model.grammar import check_label

DONE, FAILED, BAD_INPUT, DIFFERENCES = 0, 1, 2, 3
"""Exit codes."""


def files_option(text: str) -> object:
    """Return `-f FILE` with this help."""
    return typer.Option("--filename", "-f", metavar="FILE", help=text)


Files = Annotated[list[str], files_option("File or directory with manifests; - for stdin.")]
FilesOrDefault = Annotated[
    list[str] | None,
    files_option("By default the manifest directories; - is stdin."),
]


def check_namespace(name: str | None) -> str | None:
    """Return the value of `--namespace`.

    Raises:
        InputError: it is not a valid name.
    """
    problem = None if name is None else check_label(name, "namespace")
    if problem is not None:
        raise InputError(problem.within("--namespace"))
    return name


def _namespace_option(text: str) -> object:
    return typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        callback=check_namespace,
        help=text,
        autocompletion=complete_namespaces,
    )


Namespace = Annotated[str | None, _namespace_option("Namespace of pods without one.")]
OnlyNamespace = Annotated[str | None, _namespace_option("Only pods of this namespace.")]
FORMATS = "table, wide, json, yaml or name."
Output = Annotated[
    OutputFormat, typer.Option("--output", "-o", metavar="FORMAT", help=FORMATS, show_default=False)
]
TextOrJson = Annotated[
    ReportFormat,
    typer.Option("--output", "-o", metavar="FORMAT", help="text or json.", show_default=False),
]


def pod_argument(text: str, metavar: str = "POD") -> object:
    """Return the argument for pods with this help."""
    return typer.Argument(metavar=metavar, help=text, autocompletion=complete_pods)


Names = Annotated[list[str] | None, pod_argument("Only these pods, as NAME or NAMESPACE/NAME.")]
PodName = Annotated[str, pod_argument("The pod, as NAME or NAMESPACE/NAME.")]
Units = Annotated[
    list[str],
    typer.Argument(
        metavar="UNIT",
        help="Services; nginx is nginx.service.",
        autocompletion=complete_units,
    ),
]
OnlyProblems = Annotated[bool, typer.Option("--problems", help="Only what has problems.")]


def container_option(text: str) -> object:
    """Return `-c CONTAINER` with this help."""
    return typer.Option(
        "--container", "-c", metavar="NAME", help=text, autocompletion=complete_containers
    )


ContainerName = Annotated[str | None, container_option("Container; required if there are several.")]
Prune = Annotated[bool, typer.Option("--prune", help="Remove pods that are in no manifest.")]
Force = Annotated[bool, typer.Option("--force", help="Also set limits below the memory in use.")]
RestartService = Annotated[bool, typer.Option("--restart", help="Restart services that move.")]


def number(least: int, most: int | None = None) -> Callable[[str | int], int]:
    """Return the parser of an option whose value is a number in this range.

    typer has one, too, but its message differs between its versions.
    """

    def parse(given: str | int) -> int:  # some versions of typer pass the default, a number
        text = str(given)
        if not text.removeprefix("-").isdecimal():
            raise typer.BadParameter(f"{text!r} is not a number")
        if int(text) < least:
            raise typer.BadParameter(f"the minimum is {least}")
        if most is not None and int(text) > most:
            raise typer.BadParameter(f"the maximum is {most}")
        return int(text)

    return parse


def since_option(what: str) -> object:
    """Return `--since TIME`, for what is shown."""
    text = f"Only later {what}: 2h, '2026-01-31 12:00'."
    return typer.Option("--since", metavar="TIME", help=text)


def lines_option(what: str) -> object:
    """Return `--lines NUMBER`, for what is shown."""
    return typer.Option(
        "--lines", "--tail", metavar="NUMBER", parser=number(0), help=f"At most this many {what}."
    )


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
