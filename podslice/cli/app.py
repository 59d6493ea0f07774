"""The verbs: one short function each. What they share is in `session`, `options` and `output`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Optional

import typer

from podslice import __version__
from podslice.cli import documents, text
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import Format, Progress, emit, note, write
from podslice.cli.session import (
    all_problems,
    decide_all,
    in_world,
    load_manifests,
    load_node,
    valid_only,
)
from podslice.errors import InputError, PodsliceError, Problem, Severity
from podslice.model.desired import Desired, PodDecision
from podslice.model.pod import Pod
from podslice.plan import Plan
from podslice.policy.allocatable import allocate, validate_node
from podslice.policy.desire import desire
from podslice.report import Report, in_steps, summary, told, told_refusal, told_skipped
from podslice.unitfile import unit_files, write_unit_files

DONE, FAILED, BAD_INPUT, DIFFERENCES = 0, 1, 2, 3
"""Exit codes."""

app = typer.Typer(
    name="podslice",
    help="Kubernetes' node resource model on any systemd host: a slice for every pod.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Files = Annotated[
    list[str],
    typer.Option("--filename", "-f", help="File, directory or - for stdin; may be repeated."),
]
Namespace = Annotated[
    Optional[str],  # noqa: UP007, UP045 - typer reads it at run time
    typer.Option("--namespace", "-n", metavar="NAME", help="Name space of pods that state none."),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="Format of the result.")]
Names = Annotated[
    Optional[list[str]],  # noqa: UP007, UP045
    typer.Argument(metavar="[POD]...", help="Only these pods: NAME or NAMESPACE/NAME."),
]


def run(arguments: list[str] | None = None) -> int:
    """Run a verb and return the exit code; errors are worded on stderr."""
    try:
        code = app(arguments, standalone_mode=False)
    except InputError as error:
        for problem in error.problems:
            note(text.problem(problem))
        return error.exit_code
    except PodsliceError as error:
        note(f"error: {error}")
        return error.exit_code
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:
        note("interrupted")
        return 130
    return code if isinstance(code, int) else DONE


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,  # noqa: FBT002
) -> None:
    """Give groups of processes a budget: pods, QoS tiers and reserved slices as systemd slices."""
    if version:
        write([f"podslice {__version__}"])
        raise typer.Exit


@app.command()
@planning_options
def check(
    planning: Planning,
    filename: Files,
    namespace: Namespace = None,
    output: Output = Format.TABLE,
) -> int:
    """Read manifests and tell everything that is wrong with them."""
    config = planning.load_config()
    loaded = load_manifests(filename, namespace)
    decisions = decide_all(loaded, load_node(config, lenient=True), config)
    problems = all_problems(loaded, decisions)
    emit(
        output,
        document=lambda: documents.document(
            pods=[
                {"namespace": each.pod.namespace, "name": each.pod.name, "valid": each.is_valid}
                for each in decisions
            ],
            problems=[documents.problem(found) for found in problems],
        ),
        lines=lambda _: [
            *map(text.problem, problems),
            text.count_problems(problems, len(decisions)),
        ],
        names=lambda: [each.pod.key for each in decisions if each.is_valid],
    )
    return _code_of(problems)


@app.command()
@planning_options
def explain(
    planning: Planning,
    filename: Files,
    pod: Names = None,
    namespace: Namespace = None,
    output: Output = Format.TABLE,
) -> int:
    """Show what each pod counts as, and each setting with the field and formula that gave it."""
    config = planning.load_config()
    node = load_node(config)
    loaded = load_manifests(filename, namespace)
    decisions = decide_all(loaded, node, config)
    shown = _named(decisions, pod, namespace)
    valid = [each for each in decisions if each.is_valid]
    allocation = allocate(node, config)
    requested = desire(valid, node, config).requested
    for found in loaded.problems:
        note(text.problem(found))
    emit(
        output,
        document=lambda: documents.document(
            node=documents.node(allocation, requested),
            pods=documents.listed(shown, documents.pod),
            problems=documents.listed(loaded.problems, documents.problem),
        ),
        lines=lambda _: _separated(map(text.explanation, shown)),
        names=lambda: [each.pod.key for each in shown],
    )
    return _code_of(all_problems(loaded, shown))


@app.command()
@planning_options
def render(
    planning: Planning,
    filename: Files,
    namespace: Namespace = None,
    output: Output = Format.TABLE,
    output_dir: Annotated[
        Optional[Path],  # noqa: UP007, UP045
        typer.Option(metavar="DIR", help="Write unit files into this directory."),
    ] = None,
) -> int:
    """Show the units that the manifests ask for, or write them as unit files."""
    config = planning.load_config()
    node = load_node(config)
    loaded = load_manifests(filename, namespace)
    decisions = decide_all(loaded, node, config)
    problems = [*all_problems(loaded, decisions), *validate_node(node, config)]
    desired = desire([each for each in decisions if each.is_valid], node, config)
    for found in problems:
        note(text.problem(found))
    for refusal in desired.refused:
        note(told_refusal(refusal))
    if output_dir is not None and not _code_of(problems):
        write(write_unit_files(unit_files(desired), output_dir))
    elif output_dir is None:
        _emit_units(output, desired)
    return _code_of(problems) or int(bool(desired.refused))


def _emit_units(output: Format, desired: Desired) -> None:
    emit(
        output,
        document=lambda: documents.document(units=documents.units(desired)),
        lines=lambda wide: text.units(desired, wide=wide),
        names=lambda: [unit.name for unit in desired.units],
    )


@app.command()
@planning_options
def node(planning: Planning, output: Output = Format.TABLE) -> int:
    """Show what the node has, what is reserved, what is left, and what pods request of it."""
    config = planning.load_config()
    host = load_node(config)
    allocation = allocate(host, config)
    requested = desire(
        (), host, config, current=planning.recorded_pods(note)
    ).requested
    problems = validate_node(host, config)
    for found in problems:
        note(text.problem(found))
    emit(
        output,
        document=lambda: (
            documents.node_status(allocation)
            if output is Format.YAML
            else documents.document(**documents.node(allocation, requested))
        ),
        lines=lambda _: text.node(allocation, requested),
        names=lambda: sorted(allocation.capacity),
    )
    return _code_of(problems)


Prune = Annotated[
    bool, typer.Option("--prune", help="Remove applied pods that the manifests do not have.")
]


@app.command()
@planning_options
def plan(
    planning: Planning,
    filename: Files,
    namespace: Namespace = None,
    output: Output = Format.TABLE,
    prune: Prune = False,  # noqa: FBT002
) -> int:
    """Show what apply would do: each unit and property, old and new, and why."""
    from podslice.reconcile import look

    candidates = _load_valid(planning, filename, namespace)
    state = in_world(planning, lambda world: look(world, candidates, prune=prune), offline=True)
    made = state.plan
    emit(
        output,
        document=lambda: documents.document(**documents.plan(made)),
        lines=lambda _: _plan_lines(made),
        names=lambda: [step.name for step in made.steps],
    )
    if made.refused:
        return FAILED
    return DIFFERENCES if made else DONE


@app.command()
@planning_options
def apply(
    planning: Planning,
    filename: Files,
    namespace: Namespace = None,
    output: Output = Format.TABLE,
    prune: Prune = False,  # noqa: FBT002
) -> int:
    """Make it so: create and change slices until systemd holds what the manifests ask for."""
    from podslice.reconcile import World, apply as make_it_so

    candidates = _load_valid(planning, filename, namespace)

    async def work(world: World) -> Report:
        with world.store.lock(_on_wait):
            progress = _Watch()
            return await make_it_so(
                world,
                candidates,
                prune=prune,
                on_plan=progress.start,
                on_result=progress.step,
            )

    return _emit_report(in_world(planning, work), output)


@app.command()
@planning_options
def delete(
    planning: Planning,
    pod: Names = None,
    filename: Annotated[
        Optional[list[str]],  # noqa: UP007, UP045
        typer.Option("--filename", "-f", help="The pods of these manifests."),
    ] = None,
    namespace: Namespace = None,
    every: Annotated[bool, typer.Option("--all", help="Every applied pod.")] = False,  # noqa: FBT002
    output: Output = Format.TABLE,
) -> int:
    """Stop what runs in pods, and remove their slices; the tiers relax."""
    from podslice.reconcile import State, World, look
    from podslice.reconcile import delete as remove

    keys = {_key(name, namespace) for name in pod or ()}
    if filename:
        keys |= {each.key for each in load_manifests(filename, namespace).pods}
    if not keys and not every:
        raise InputError(
            Problem(where="", message="no pod is named", hint="name pods, or write -f FILE or --all")
        )

    async def work(world: World) -> tuple[Report, State]:
        with world.store.lock(_on_wait):
            before = await look(world)
            progress = _Watch()
            report = await remove(
                world,
                lambda pod: every or pod.key in keys,
                on_plan=progress.start,
                on_result=progress.step,
            )
            return report, before

    report, before = in_world(planning, work)
    code = _emit_report(report, output)
    for key in sorted(keys - {each.key for each in before.current}):
        note(f"error: pod {key} is not applied; see: podslice status")
        code = FAILED
    return code


@app.command()
@planning_options
def status(planning: Planning, output: Output = Format.TABLE) -> int:
    """Show desired values, systemd's, the kernel's, and live usage; exit 3 when they differ."""
    return _show_status(planning, output, as_tree=False)


@app.command()
@planning_options
def tree(planning: Planning, output: Output = Format.TABLE) -> int:
    """Show the slices as a tree, with what each may use and what it uses."""
    return _show_status(planning, output, as_tree=True)


def _show_status(planning: Planning, output: Format, *, as_tree: bool) -> int:
    from podslice.reconcile import look
    from podslice.status import unit_statuses

    async def work(world: World) -> tuple[State, tuple[UnitStatus, ...]]:
        state = await look(world)
        return state, unit_statuses(state.desired, state.observed, world.cgroups)

    state, units = in_world(planning, work)
    lines = text.tree if as_tree else text.status
    emit(
        output,
        document=lambda: documents.document(**documents.status(state, units)),
        lines=lambda wide: lines(units, wide=wide) if units else ["no pods"],
        names=lambda: [unit.name for unit in units],
    )
    for name in state.orphans:
        note(f"{name} is no pod's: it was not made by podslice, or its pod is unknown")
    if as_tree:
        return DONE
    return DIFFERENCES if state.plan or state.broken_records else DONE


class _Watch:
    """Counts steps on stderr while they are taken."""

    def __init__(self) -> None:
        self._progress = Progress(0)

    def start(self, made: Plan) -> None:
        """The plan is known."""
        self._progress = Progress(len(made.steps))

    def step(self, _: StepResult) -> None:
        """A step has ended."""
        self._progress.step()


def _on_wait() -> None:
    note("another podslice is at work; waiting for it")


def _load_valid(
    planning: Planning, filename: list[str], namespace: str | None
) -> tuple[PodDecision, ...]:
    """The candidates, if nothing at all is wrong with the input."""
    config = planning.load_config()
    node = load_node(config)
    loaded = load_manifests(filename, namespace)
    decisions = decide_all(loaded, node, config)
    return valid_only(loaded, decisions, validate_node(node, config))


def _emit_report(report: Report, output: Format) -> int:
    emit(
        output,
        document=lambda: documents.document(**documents.report(report)),
        lines=lambda _: _report_lines(report),
        names=lambda: [result.step.name for result in report.results],
    )
    return report.exit_code


def _report_lines(report: Report) -> Iterator[str]:
    yield from map(told, report.results)
    yield from map(told_skipped, report.skipped)
    yield from map(told_refusal, report.refused)
    for step in report.remaining.steps:
        yield f"still to do, though every step was taken: {describe(step)}"
    yield summary(report)


def _plan_lines(made: Plan) -> Iterator[str]:
    for step in made.steps:
        yield f"would {describe(step)}"
    yield from map(told_skipped, made.skipped)
    yield from map(told_refusal, made.refused)
    yield in_steps(made.steps)


def _code_of(problems: Iterable[Problem]) -> int:
    return BAD_INPUT if any(found.severity is Severity.ERROR for found in problems) else DONE


def _key(name: str, namespace: str | None) -> str:
    """`NAME` or `NAMESPACE/NAME` as the pod's key."""
    return name if "/" in name else f"{namespace or 'default'}/{name}"


def _named(
    decisions: tuple[PodDecision, ...], names: list[str] | None, namespace: str | None
) -> tuple[PodDecision, ...]:
    """The decisions for the named pods, or all.

    Raises:
        InputError: a name is not among them.
    """
    if not names:
        return decisions
    keys = [_key(name, namespace) for name in names]
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
