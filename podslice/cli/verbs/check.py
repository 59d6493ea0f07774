"""`podslice check`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from podslice.cli.arguments import DONE, Namespace, Output, code_of, files_option
from podslice.cli.host import load_node
from podslice.cli.manifests import all_problems, decide_all, load_all
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit
from podslice.cli.views import documents
from podslice.cli.views.problem_lines import count_problems, problem_line, problem_lines
from podslice.errors import InputError, bounded, invalid
from podslice.policy.allocatable import validate_node


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
    if not filename:
        return _listed(
            output, {"valid": False, "effective": None}, lambda: _check(planning, output)
        )
    return _listed(
        output, {"pods": []}, lambda: _check_manifests(planning, filename, namespace, output)
    )


def _listed(output: OutputFormat, rest: documents.Document, work: Callable[[], int]) -> int:
    """Check, and list the problems of an error in the document, which programs read.

    Raises:
        InputError: there are errors, and the output is not a document.
    """
    try:
        return work()
    except InputError as error:
        if output not in (OutputFormat.JSON, OutputFormat.YAML):
            raise
        problems = documents.listed(bounded(error.problems), documents.problem)
    emit(
        output,
        document=lambda: documents.document(**rest, problems=problems),
        lines=lambda _: (),
        names=list,
    )
    return InputError.exit_code


def _check_manifests(
    planning: Planning, filename: list[str], namespace: str | None, output: OutputFormat
) -> int:
    """Check manifests with the configuration.

    Raises:
        InputError: the configuration is invalid, or there are too many problems.
    """
    config, loaded = load_all(planning, filename, namespace)
    decisions = decide_all(
        loaded, load_node(config, lenient=True, manager=planning.manager), config
    )
    problems = all_problems(loaded, decisions)
    emit(
        output,
        document=lambda: documents.document(
            pods=[
                {"namespace": each.pod.namespace, "name": each.pod.name, "valid": each.is_valid}
                for each in decisions
            ],
            problems=documents.listed(bounded(problems), documents.problem),
        ),
        lines=lambda _: [*problem_lines(problems), count_problems(problems, len(decisions))],
        names=lambda: [each.pod.key for each in decisions if each.is_valid],
    )
    return code_of(problems)


def _check(planning: Planning, output: OutputFormat) -> int:
    """Check the configuration, and compare it with this node.

    Raises:
        InputError: it is invalid, or the reservations exceed the node's capacity.
    """
    config = planning.config
    host = load_node(config, lenient=True)
    problems = validate_node(host, config) if host.capacity else []
    if code_of(problems):
        raise InputError(problems)
    effective = {**(planning.origin.options or {}), **planning.flags, **planning.settings}
    emit(
        output,
        document=lambda: documents.document(
            valid=True,
            effective=dict(sorted(effective.items())),
            problems=documents.listed(problems, documents.problem),
        ),
        lines=lambda _: [*map(problem_line, problems), "the configuration is valid"],
        names=list,
    )
    return DONE
