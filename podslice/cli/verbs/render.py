"""`podslice render`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podslice.cli import interrupts
from podslice.cli.arguments import Files, Namespace, Output, code_of
from podslice.cli.manifests import all_problems, decide_all, load_all
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note, write
from podslice.cli.session import load_node
from podslice.cli.views import documents, pod_documents, tables
from podslice.cli.views.problem_lines import problem_lines
from podslice.model.desired import Desired
from podslice.model.pod import InitProgress
from podslice.policy.allocatable import validate_node
from podslice.policy.desire import desire
from podslice.reconcile.report import describe_refusal
from podslice.systemd.unit_file import unit_files, write_unit_files


@planning_options
def render(
    planning: Planning,
    filename: Files,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
    output_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write unit files to this directory."),
    ] = None,
) -> int:
    """Show the desired units, or write them as unit files."""
    config, loaded = load_all(planning, filename, namespace)
    node = load_node(config)
    decisions = decide_all(loaded, node, config)
    problems = [*all_problems(loaded, decisions), *validate_node(node, config)]
    valid = [each for each in decisions if each.is_valid]
    # the final values: a file cannot represent the progress of init containers
    over = {each.pod.uid: InitProgress(over=True) for each in valid}
    desired = desire(valid, node, config, progress=over, mounts=not planning.manager.is_user)
    for line in problem_lines(problems):
        note(line)
    for refusal in desired.refused:
        note(describe_refusal(refusal))
    if output_dir is not None and not code_of(problems):
        interrupts.begin(f"not all files are in {output_dir}")
        write(write_unit_files(unit_files(desired), output_dir))
    elif output_dir is None:
        _emit_units(output, desired)
    return code_of(problems) or int(bool(desired.refused))


def _emit_units(output: OutputFormat, desired: Desired) -> None:
    emit(
        output,
        document=lambda: documents.document(units=pod_documents.units(desired)),
        lines=lambda display: tables.units(desired, display),
        names=lambda: [unit.name for unit in desired.lasting],
    )
