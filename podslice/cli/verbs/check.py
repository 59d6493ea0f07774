"""`podslice check`."""

from __future__ import annotations

from typing import Annotated

import typer

from podslice.cli.arguments import DONE, Namespace, Output, code_of
from podslice.cli.manifests import all_problems, decide_all, load_all
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit
from podslice.cli.session import load_node
from podslice.cli.views import documents
from podslice.cli.views.problem_lines import count_problems, problem_line, problem_lines
from podslice.errors import InputError, bounded
from podslice.model.config import Config
from podslice.policy.allocatable import validate_node


@planning_options
def check(
    planning: Planning,
    filename: Annotated[
        list[str] | None,
        typer.Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="Check this file or directory, or - for stdin; may be repeated. Without it, check only the configuration.",
        ),
    ] = None,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
) -> int:
    """Check the configuration and manifests, and report all problems."""
    if not filename:
        return _check_configuration(planning.config, output)
    config, loaded = load_all(planning, filename, namespace)
    decisions = decide_all(loaded, load_node(config, lenient=True), config)
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
        lines=lambda _: [
            *problem_lines(problems),
            count_problems(problems, len(decisions)),
        ],
        names=lambda: [each.pod.key for each in decisions if each.is_valid],
    )
    return code_of(problems)


def _check_configuration(config: Config, output: OutputFormat) -> int:
    """Compare the configuration with this node.

    Raises:
        InputError: the reservations exceed its capacity.
    """
    host = load_node(config, lenient=True)
    problems = validate_node(host, config) if host.capacity else []
    if code_of(problems):
        raise InputError(problems)
    emit(
        output,
        document=lambda: documents.document(problems=documents.listed(problems, documents.problem)),
        lines=lambda _: [*map(problem_line, problems), "the configuration is valid"],
        names=list,
    )
    return DONE
