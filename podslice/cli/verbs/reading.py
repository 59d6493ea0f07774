"""Verbs that need no service manager: check, explain, render, node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from podslice.cli import configuration
from podslice.cli.arguments import DONE, Files, Names, Namespace, Output, code_of, key_of
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import Format, emit, note, write
from podslice.cli.session import all_problems, decide_all, load_all, load_node, recorded_pods
from podslice.cli.views import documents, tables
from podslice.errors import InputError, Problem, bounded
from podslice.model.config import Config
from podslice.model.desired import Desired, PodDecision
from podslice.model.node import Node
from podslice.model.pod import InitProgress
from podslice.policy.allocatable import allocate, validate_node
from podslice.policy.compare import compare_rules
from podslice.policy.desire import desire
from podslice.policy.volumes import unmounted
from podslice.reconcile.report import told_refusal
from podslice.systemd.unit_file import unit_files, write_unit_files


@planning_options
def check(
    planning: Planning,
    filename: Annotated[
        list[str] | None,
        typer.Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="File, directory or - for stdin; may be repeated. Without it, the configuration.",
        ),
    ] = None,
    namespace: Namespace = None,
    output: Output = Format.TABLE,
) -> int:
    """Read the configuration and manifests, and report everything that is wrong with them."""
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
            *tables.problem_lines(problems),
            tables.count_problems(problems, len(decisions)),
        ],
        names=lambda: [each.pod.key for each in decisions if each.is_valid],
    )
    return code_of(problems)


def _check_configuration(config: Config, output: Format) -> int:
    """Compare the configuration with this node.

    Raises:
        InputError: it does not fit.
    """
    host = load_node(config, lenient=True)
    problems = validate_node(host, config) if host.capacity else []
    if code_of(problems):
        raise InputError(problems)
    emit(
        output,
        document=lambda: documents.document(problems=documents.listed(problems, documents.problem)),
        lines=lambda _: [*map(tables.problem, problems), "the configuration is valid"],
        names=list,
    )
    return DONE


DiffRules = Annotated[
    bool, typer.Option("--diff-rules", help="Show where the two rule sets differ.")
]


@planning_options
def explain(
    planning: Planning,
    filename: Files,
    pod: Names = None,
    namespace: Namespace = None,
    output: Output = Format.TABLE,
    diff_rules: DiffRules = False,  # noqa: FBT002
) -> int:
    """Show what each pod counts as, and each setting with the field and formula that gave it."""
    config, loaded = load_all(planning, filename, namespace)
    node = load_node(config)
    decisions = decide_all(loaded, node, config)
    shown = named_pods(decisions, pod, namespace)
    if planning.user:
        shown = tuple(replace(each, volumes=tuple(map(unmounted, each.volumes))) for each in shown)
    if diff_rules:
        return _emit_differences(shown, node, config, output)
    valid = [each for each in decisions if each.is_valid]
    allocation = allocate(node, config)
    requested = desire(valid, node, config).requested
    for line in tables.problem_lines(loaded.problems):
        note(line)
    emit(
        output,
        document=lambda: documents.document(
            node=documents.node(allocation, requested),
            pods=documents.listed(shown, documents.pod),
            problems=documents.listed(bounded(loaded.problems), documents.problem),
        ),
        lines=lambda _: _separated(map(tables.explanation, shown)),
        names=lambda: [each.pod.key for each in shown],
    )
    return code_of(all_problems(loaded, shown))


def _emit_differences(
    shown: tuple[PodDecision, ...], node: Node, config: Config, output: Format
) -> int:
    found = [(each, compare_rules(each.pod, node, config)) for each in shown]
    emit(
        output,
        document=lambda: documents.document(
            pods=[documents.differences(each, differences) for each, differences in found]
        ),
        lines=lambda _: _separated(
            tables.differences_of_rules(each, differences) for each, differences in found
        ),
        names=lambda: [each.pod.key for each, differences in found if differences],
    )
    return DONE


@planning_options
def render(
    planning: Planning,
    filename: Files,
    namespace: Namespace = None,
    output: Output = Format.TABLE,
    output_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write unit files into this directory."),
    ] = None,
) -> int:
    """Show the units that the manifests ask for, or write them as unit files."""
    config, loaded = load_all(planning, filename, namespace)
    node = load_node(config)
    decisions = decide_all(loaded, node, config)
    problems = [*all_problems(loaded, decisions), *validate_node(node, config)]
    valid = [each for each in decisions if each.is_valid]
    # what holds in the end: a file can't know how far init containers have come
    over = {each.pod.uid: InitProgress(over=True) for each in valid}
    desired = desire(valid, node, config, progress=over, mounts=not planning.user)
    for line in tables.problem_lines(problems):
        note(line)
    for refusal in desired.refused:
        note(told_refusal(refusal))
    if output_dir is not None and not code_of(problems):
        write(write_unit_files(unit_files(desired), output_dir))
    elif output_dir is None:
        _emit_units(output, desired)
    return code_of(problems) or int(bool(desired.refused))


def _emit_units(output: Format, desired: Desired) -> None:
    emit(
        output,
        document=lambda: documents.document(units=documents.units(desired)),
        lines=lambda wide: tables.units(desired, wide=wide),
        names=lambda: [unit.name for unit in desired.lasting],
    )


@planning_options
def node(planning: Planning, context: typer.Context, output: Output = Format.TABLE) -> int:
    """Show what the node has, what is reserved, what is left, and what pods request of it."""
    if context.invoked_subcommand is not None:
        return DONE
    planning = configuration.tolerate(planning)
    config = planning.config
    host = load_node(config)
    allocation = allocate(host, config)
    requested = desire((), host, config, current=recorded_pods(planning)).requested
    problems = validate_node(host, config)
    for line in tables.problem_lines(problems):
        note(line)
    emit(
        output,
        document=lambda: (
            documents.node_status(allocation)
            if output is Format.YAML
            else documents.document(
                **configuration.document(planning.origin),
                **documents.node(allocation, requested),
            )
        ),
        lines=lambda _: tables.node(allocation, requested),
        names=lambda: sorted(allocation.capacity),
    )
    return code_of(problems)


def named_pods(
    decisions: tuple[PodDecision, ...], names: list[str] | None, namespace: str | None
) -> tuple[PodDecision, ...]:
    """The decisions for the named pods, or all.

    Raises:
        InputError: a name is not among them.
    """
    if not names:
        return decisions
    keys = [key_of(name, namespace) for name in names]
    known = {each.pod.key: each for each in decisions}
    unknown = [
        Problem(where=key, message="no such pod in the manifests", hint=_nearest(key, known))
        for key in keys
        if key not in known
    ]
    if unknown:
        raise InputError(unknown)
    return tuple(known[key] for key in keys)


def _nearest(key: str, known: Iterable[str]) -> str:
    near = get_close_matches(key, list(known), n=1)
    return f"did you mean {near[0]}?" if near else ""


def _separated(blocks: Iterable[Iterable[str]]) -> Iterator[str]:
    """Blocks of lines with an empty line between them."""
    for number, block in enumerate(blocks):
        if number:
            yield ""
        yield from block
