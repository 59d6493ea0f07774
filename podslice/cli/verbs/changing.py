"""Verbs that plan and change: plan, apply, delete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer

from podslice.cli import configuration
from podslice.cli.arguments import (
    DIFFERENCES,
    DONE,
    FAILED,
    Files,
    Names,
    Namespace,
    Output,
    code_of,
    key_of,
)
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import Format, Progress, emit, note
from podslice.cli.session import (
    decide_all,
    in_world,
    load_all,
    load_manifests,
    load_node,
    on_wait,
    valid_only,
)
from podslice.cli.views import conditions, documents, tables
from podslice.errors import InputError, Problem
from podslice.model.config import Origin, Source
from podslice.model.desired import PodDecision
from podslice.model.pod import Pod
from podslice.plan import Plan
from podslice.policy.allocatable import validate_node
from podslice.reconcile.assess import assess
from podslice.reconcile.converge import apply as make_it_so
from podslice.reconcile.converge import delete as remove
from podslice.reconcile.report import (
    Report,
    StepResult,
    describe,
    in_steps,
    summary,
    told,
    told_lingering,
    told_refusal,
    told_skipped,
    waits,
)
from podslice.reconcile.world import Asked, World

CONFIRM_MAX_SEC = 86_400
"""A day; who is not back by then has forgotten about it."""
GRACE_MAX_SEC = 10**6
"""More than eleven days; beyond it a number is a mistake."""

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


Confirm = Annotated[
    int | None,
    typer.Option(
        "--confirm",
        metavar="SECONDS",
        min=1,
        max=CONFIRM_MAX_SEC,
        help="Return the old values of reserved slices after that, unless podslice confirm is run.",
    ),
]


@planning_options
def plan(
    planning: Planning,
    filename: Files,
    namespace: Namespace = None,
    output: Output = Format.TABLE,
    prune: Prune = False,  # noqa: FBT002
    force: Force = False,  # noqa: FBT002
) -> int:
    """Show what apply would do: each unit and property, old and new, and why."""
    candidates = _load_valid(planning, filename, namespace)
    state = in_world(
        planning,
        lambda world: assess(replace(world, asked=Asked()), candidates, prune=prune, force=force),
        offline=True,
    )
    made = state.plan
    emit(
        output,
        document=lambda: documents.document(
            **documents.plan(made),
            **conditions.foreign(state.foreign),
            **conditions.reserved(state.held),
        ),
        lines=lambda _: _plan_lines(made),
        names=lambda: [step.name for step in made.steps],
    )
    if state.foreign:
        note(f"apply would be refused: {state.foreign}")
    if made.refused or made.is_blocked or state.foreign:
        return FAILED
    return DIFFERENCES if made else DONE


@planning_options
def apply(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    filename: Files,
    namespace: Namespace = None,
    output: Output = Format.TABLE,
    prune: Prune = False,  # noqa: FBT002
    force: Force = False,  # noqa: FBT002
    confirm: Confirm = None,
) -> int:
    """Make it so: create and change slices until systemd holds what the manifests ask for."""
    if confirm is not None and planning.user:
        message = "a user's manager has no reserved slices, and nothing to confirm"
        raise InputError(Problem(where="--confirm", message=message, hint="leave it out"))
    candidates = _load_valid(planning, filename, namespace)
    if prune and not candidates:
        raise InputError(
            Problem(
                where=", ".join(filename),
                message="there is no pod in it, and --prune would remove every pod",
                hint="if that is what you want: podslice delete --all",
            )
        )

    async def work(world: World) -> Report:
        with world.store.lock(on_wait):
            progress = _Watch()
            return await make_it_so(
                replace(world, asked=Asked(confirm_sec=confirm)),
                candidates,
                prune=prune,
                force=force,
                on_plan=progress.start,
                on_result=progress.step,
            )

    return emit_report(in_world(planning, work), output)


@planning_options
def delete(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    pod: Names = None,
    filename: Annotated[
        list[str] | None,
        typer.Option("--filename", "-f", metavar="FILE", help="The pods of these manifests."),
    ] = None,
    namespace: Namespace = None,
    every: Annotated[bool, typer.Option("--all", help="Every applied pod.")] = False,  # noqa: FBT002
    grace_period: Annotated[
        int | None,
        typer.Option(
            "--grace-period",
            metavar="SECONDS",
            min=0,
            max=GRACE_MAX_SEC,
            help="How long processes have to end before they are killed, whatever their pods state.",
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """Stop what runs in pods, and remove their slices; the tiers relax."""
    planning = configuration.tolerate(planning)
    if planning.origin.source is Source.DEFAULT:
        note(
            "pods are only stopped: units that stay keep their values until the next podslice apply"
        )
    keys = {key_of(name, namespace) for name in pod or ()}
    if filename:
        loaded = load_manifests(filename, namespace)
        if code_of(loaded.problems):
            raise InputError(loaded.problems)
        keys |= {each.key for each in loaded.pods}
    if not keys and not every:
        raise InputError(
            Problem(
                where="", message="no pod is named", hint="name pods, or write -f FILE or --all"
            )
        )

    found: set[str] = set()

    def is_named(pod: Pod) -> bool:
        if every or pod.key in keys:
            found.add(pod.key)
            return True
        return False

    async def work(world: World) -> Report:
        with world.store.lock(on_wait):
            progress = _Watch()
            return await remove(
                world,
                is_named,
                grace_sec=grace_period,
                on_plan=progress.start,
                on_result=progress.step,
            )

    code = emit_report(in_world(planning, work), output, planning.origin)
    for key in sorted(keys - found):
        missing = Problem(
            where="", message=f"pod {key} is not applied", hint="see: podslice status"
        )
        note(tables.problem(missing))
        code = FAILED
    return code


class _Watch:
    """Says what is waited for, and counts steps, on stderr while they are taken."""

    def __init__(self) -> None:
        self._progress = Progress(0)

    def start(self, made: Plan) -> None:
        """The plan is known."""
        self._progress = Progress(len(made.steps))
        for waiting in filter(None, map(waits, made.steps)):
            note(waiting)

    def step(self, _: StepResult) -> None:
        """A step has ended."""
        self._progress.step()


def _load_valid(
    planning: Planning, filename: list[str], namespace: str | None
) -> tuple[PodDecision, ...]:
    """The candidates, if nothing at all is wrong with the input."""
    config, loaded = load_all(planning, filename, namespace)
    node = load_node(config)
    decisions = decide_all(loaded, node, config)
    problems = validate_node(node, config)
    if decisions and not config.cgroups_per_qos:
        problems.append(
            Problem(
                where="cgroups-per-qos",
                message="without it there are no slices to put pods in",
                hint="leave it at true",
            )
        )
    return valid_only(loaded, decisions, problems)


def emit_report(report: Report, output: Format, origin: Origin | None = None) -> int:
    """Print what was done, and where its configuration came from; return the exit code."""
    emit(
        output,
        document=lambda: documents.document(
            **(configuration.document(origin) if origin else {}), **documents.report(report)
        ),
        lines=lambda _: _report_lines(report),
        names=lambda: [result.step.name for result in report.results],
    )
    return report.exit_code


def _report_lines(report: Report) -> Iterator[str]:
    yield from map(told, report.results)
    yield from map(told_skipped, report.skipped)
    yield from map(told_refusal, report.refused)
    yield from map(told_lingering, report.lingering)
    for step in report.remaining.steps:
        yield f"still to do, though every step was taken: {describe(step)}"
    yield summary(report)


def _plan_lines(made: Plan) -> Iterator[str]:
    for step in made.steps:
        yield f"would {describe(step)}"
    yield from map(told_skipped, made.skipped)
    yield from map(told_refusal, made.refused)
    yield in_steps(made.steps)
