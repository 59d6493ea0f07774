"""`podslice check`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from podslice.cli.arguments import Namespace, Output, code_of, files_option
from podslice.cli.host import load_node
from podslice.cli.manifests import all_problems, decide_all, load_all
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit
from podslice.cli.report import Problems, document
from podslice.cli.views.problem_lines import count_problems, problem_line, problem_lines
from podslice.errors import InputError, invalid
from podslice.policy.allocatable import validate_node


@dataclass(frozen=True, kw_only=True)
class CheckedPod:
    """A pod of a manifest."""

    namespace: str
    name: str
    valid: bool


@dataclass(frozen=True, kw_only=True)
class ManifestsReport:
    """The problems of manifests."""

    pods: tuple[CheckedPod, ...]
    problems: Problems

    @property
    def names(self) -> list[str]:
        """Return the valid pods."""
        return [f"{each.namespace}/{each.name}" for each in self.pods if each.valid]

    def lines(self) -> Iterator[str]:
        """Yield the problems, and their number."""
        yield from problem_lines(self.problems)
        yield count_problems(self.problems, len(self.pods))


@dataclass(frozen=True, kw_only=True)
class ConfigurationReport:
    """The problems of the configuration."""

    valid: bool
    effective: dict[str, Any] | None
    """The options that are set, by their keys; None if they are invalid."""
    problems: Problems
    names: ClassVar[tuple[str, ...]] = ()

    def lines(self) -> Iterator[str]:
        """Yield the problems, which are warnings."""
        yield from map(problem_line, self.problems)
        yield "the configuration is valid"


Report = ManifestsReport | ConfigurationReport


@planning_options
def check(
    planning: Planning,
    filename: Annotated[
        list[str] | None,
        files_option(
            "Check this file or directory, or - for stdin; may be repeated. Without it, check only the configuration."
        ),
    ] = None,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
    place: Annotated[
        Path | None,
        typer.Option(
            "--as",
            metavar="PATH",
            help="Where the file of --config will be.",
        ),
    ] = None,
) -> int:
    """Run `podslice check`.

    Examples:
        podslice check -f manifests/
        podslice check --config new.toml --as /etc/podslice/podslice.toml
    """
    if place is not None and planning.config_file is None:
        raise invalid("there is no file to check", "add --config FILE", where="--as")
    planning = replace(planning, place=place)
    try:
        report = _check_manifests(planning, filename, namespace) if filename else _check(planning)
    except InputError as error:
        # a document lists the problems of an error, too
        if output not in (OutputFormat.JSON, OutputFormat.YAML):
            raise
        report = (
            ManifestsReport(pods=(), problems=error.problems)
            if filename
            else ConfigurationReport(valid=False, effective=None, problems=error.problems)
        )
    emit(
        output,
        document=lambda: document(report),
        lines=lambda _: report.lines(),
        names=lambda: report.names,
    )
    return code_of(report.problems)


def _check_manifests(
    planning: Planning, filename: list[str], namespace: str | None
) -> ManifestsReport:
    """Check manifests with the configuration.

    Raises:
        InputError: the configuration is invalid, or there are too many problems.
    """
    config, loaded = load_all(planning, filename, namespace)
    decisions = decide_all(
        loaded, load_node(config, lenient=True, manager=planning.manager), config
    )
    pods = (
        CheckedPod(namespace=each.pod.namespace, name=each.pod.name, valid=each.is_valid)
        for each in decisions
    )
    return ManifestsReport(pods=tuple(pods), problems=tuple(all_problems(loaded, decisions)))


def _check(planning: Planning) -> ConfigurationReport:
    """Check the configuration, and compare it with this node.

    Raises:
        InputError: it is invalid, or the reservations exceed the node's capacity.
    """
    config = planning.config
    host = load_node(config, lenient=True)
    problems = validate_node(host, config) if host.capacity else []
    if code_of(problems):
        raise InputError(problems)
    effective = {**(planning.origin.options or {}), **planning.flags}
    return ConfigurationReport(
        valid=True, effective=dict(sorted(effective.items())), problems=tuple(problems)
    )
