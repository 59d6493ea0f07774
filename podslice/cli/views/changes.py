"""Plans and reports as lines and JSON. Pure: values in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from podslice.cli.report import (
    ConfigurationEntry,
    Document,
    Setting,
    configuration_entry,
    document,
    part,
)
from podslice.cli.views.layout import fold, fold_with_head
from podslice.cli.views.style import Display, Role
from podslice.errors import Severity
from podslice.model.config import Origin
from podslice.model.desired import Refusal, ReservedValues
from podslice.model.node_state import Foreign, StuckPod
from podslice.model.unit import UnitName
from podslice.plan import Action, Plan, PodStep, SetProperties, Skipped, Step, StopUnit
from podslice.reconcile.report import (
    Outcome,
    PodResult,
    Report,
    count_steps,
    describe_refusal,
    describe_result,
    describe_skipped,
    describe_step,
    describe_stuck,
    infinitive,
    summarize,
)


@dataclass(frozen=True, kw_only=True)
class ChangeEntry:
    """A change of a property of a unit, or of one of the kernel's files."""

    name: str
    old: Setting | None
    new: Setting
    why: str
    is_return: bool = False
    """Whether it restores the value before podslice set it."""


@dataclass(frozen=True, kw_only=True)
class StepEntry:
    """A step that starts a unit or sets properties, with its outcome once it was taken."""

    action: Action
    unit: UnitName
    properties: tuple[ChangeEntry, ...]
    used_bytes: int | None = None
    reclaim_to_bytes: int | None = None
    """The limit to which the unit's memory is reclaimed first, since it uses more."""
    outcome: Outcome | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class StopEntry:
    """A step that stops a unit with its processes, with its outcome once it was taken."""

    action: Action
    unit: UnitName
    properties: tuple[ChangeEntry, ...]
    why: str
    tasks: int
    grace_period_sec: int | None
    occupants: tuple[str, ...]
    outcome: Outcome | None = None
    error: str | None = None


AnyStepEntry = StepEntry | StopEntry


@dataclass(frozen=True, kw_only=True)
class SkippedEntry:
    """A property, a start or a stop that was left out."""

    unit: UnitName
    name: str
    why: str


@dataclass(frozen=True, kw_only=True)
class ForeignEntry:
    """Why the root slice belongs to a kubelet, so that podslice changes nothing."""

    reason: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class HeldEntry:
    """A value that podslice has set outside its root, with the previous one."""

    name: str
    before: Setting | None
    set: Setting | None


@dataclass(frozen=True, kw_only=True)
class ReservedSliceEntry:
    """The values that podslice has set of a slice outside its root."""

    unit: UnitName
    properties: tuple[HeldEntry, ...]


@dataclass(frozen=True, kw_only=True)
class PlanReport:
    """What apply would do: steps in their order. Features add lists of files and services."""

    changed: bool
    steps: tuple[AnyStepEntry, ...]
    skipped: tuple[SkippedEntry, ...]
    refused: tuple[Refusal, ...]
    foreign: ForeignEntry | None = None
    reserved_slices: tuple[ReservedSliceEntry, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ChangesReport:
    """What apply or delete has done. Features add lists of files and services."""

    configuration: ConfigurationEntry | None = None
    changed: bool
    steps: tuple[AnyStepEntry, ...]
    skipped: tuple[SkippedEntry, ...]
    refused: tuple[Refusal, ...]
    remaining: tuple[AnyStepEntry, ...]
    stuck: tuple[StuckPod, ...]


def step_entry(
    taken: Step, outcome: Outcome | None = None, error: str | None = None
) -> AnyStepEntry:
    """Return a step of a plan, with its outcome if it was taken."""
    if isinstance(taken, StopUnit):
        return StopEntry(
            action=taken.action,
            unit=taken.name,
            properties=(),
            why=taken.why,
            tasks=taken.tasks,
            grace_period_sec=taken.grace_sec,
            occupants=taken.occupants.descriptions,
            outcome=outcome,
            error=error,
        )
    changed = (
        ChangeEntry(
            name=each.name, old=each.old, new=each.new, why=each.why, is_return=each.is_return
        )
        for each in taken.changes
    )
    reclaimed = taken if isinstance(taken, SetProperties) else None
    return StepEntry(
        action=taken.action,
        unit=taken.name,
        properties=tuple(changed),
        used_bytes=reclaimed.used_bytes if reclaimed else None,
        reclaim_to_bytes=reclaimed.reclaim_bytes if reclaimed else None,
        outcome=outcome,
        error=error,
    )


def _skipped_entries(skipped: Iterable[Skipped]) -> tuple[SkippedEntry, ...]:
    return tuple(SkippedEntry(unit=each.unit, name=each.name, why=each.why) for each in skipped)


def foreign_entry(found: Foreign | None) -> ForeignEntry | None:
    """Return why the root slice belongs to a kubelet; None if it does not."""
    return None if found is None else ForeignEntry(reason=found.reason, fix=found.way_out)


def reserved_entries(held: ReservedValues) -> tuple[ReservedSliceEntry, ...]:
    """Return the values that podslice has set outside its root."""
    return tuple(
        ReservedSliceEntry(
            unit=unit,
            properties=tuple(
                HeldEntry(name=name, before=each.before, set=each.ours[-1])
                for name, each in sorted(values.items())
            ),
        )
        for unit, values in sorted(held.units.items())
    )


def plan_document(
    made: Plan,
    around: Sequence[PodStep] = (),
    *,
    foreign: Foreign | None = None,
    held: ReservedValues | None = None,
) -> Document:
    """Return a plan, with the steps of features in lists by their kind."""
    report = PlanReport(
        changed=bool(made or around),
        steps=tuple(map(step_entry, made.steps)),
        skipped=_skipped_entries(made.skipped),
        refused=tuple(made.refused),
        foreign=foreign_entry(foreign),
        reserved_slices=reserved_entries(held) if held else (),
    )
    return document(report, **_sections((each.section, each.entry()) for each in around))


def changes_document(done: Report, origin: Origin | None) -> Document:
    """Return the report of an apply or a delete, with the steps of features in lists by their kind."""
    report = ChangesReport(
        configuration=configuration_entry(origin) if origin else None,
        changed=done.is_change,
        steps=tuple(step_entry(*each) for each in done.results),
        skipped=_skipped_entries(done.skipped),
        refused=tuple(done.refused),
        remaining=tuple(map(step_entry, done.remaining.steps)),
        stuck=done.stuck,
    )
    around = (
        (each.step.section, each.step.result(each.outcome, each.error))
        for each in (*done.before, *done.after)
    )
    return document(report, **_sections(around))


def _sections(found: Iterable[tuple[str, object]]) -> Document:
    """Return lists of entries by their keys."""
    sections: dict[str, list[Document]] = {}
    for key, entry in found:
        sections.setdefault(key, []).append(part(entry))
    return dict(sorted(sections.items()))


_ACTION_ROLES = {Action.START: Role.GOOD, Action.STOP: Role.ERROR}


def plan_lines(made: Plan, display: Display, around: Sequence[PodStep] = ()) -> Iterator[str]:
    """Yield what apply would do, one line for each step, and the number of steps on units."""
    for step in (*made.steps, *around):
        is_end = isinstance(step, PodStep) and step.is_end
        role = Role.ERROR if is_end else _ACTION_ROLES.get(step.action, Role.WARNING)
        text, head = f"would {describe_step(step)}", f"would {infinitive(step.action)}"
        yield from fold_with_head(text, head, role, display)
    for text in map(describe_skipped, made.skipped):
        yield from _painted(text, Role.WARNING, display)
    for text in map(describe_refusal, made.refused):
        yield from _painted(text, Role.ERROR, display)
    if made or not around:
        yield count_steps(made.steps)


def report_lines(report: Report, display: Display) -> Iterator[str]:
    """Yield what was done, one line for each step, what was not, and a summary."""
    yield from pod_lines(services_first(report.before), display)
    for result in report.results:
        role = _OUTCOME_ROLES.get(result.outcome)
        yield from _painted(describe_result(result), role, display)
    for text in map(describe_skipped, report.skipped):
        yield from _painted(text, Role.WARNING, display)
    for text in (*map(describe_refusal, report.refused), *map(describe_stuck, report.stuck)):
        yield from _painted(text, Role.ERROR, display)
    for step in report.remaining.steps:
        text = f"did not converge, still pending: {describe_step(step)}"
        yield from _painted(text, Role.WARNING, display)
    yield from pod_lines(report.after, display)
    yield summarize(report)


_OUTCOME_ROLES = {Outcome.FAILED: Role.ERROR, Outcome.NOT_TRIED: Role.WARNING}
_SEVERITY_ROLES = {Severity.ERROR: Role.ERROR, Severity.WARNING: Role.WARNING}


def pod_lines(results: Iterable[PodResult], display: Display) -> Iterator[str]:
    """Yield what was done to files and services, and what is left to do."""
    for each in results:
        yield from _painted(describe_result(each), _OUTCOME_ROLES.get(each.outcome), display)
        yield from rest_lines(*each.step.describe_rest(each.error), display)


def rest_lines(text: str, severity: Severity | None, display: Display) -> Iterator[str]:
    """Yield what is left to do after a step; nothing if the text is empty."""
    role = None if severity is None else _SEVERITY_ROLES[severity]
    return _painted(text, role, display) if text else iter(())


def _painted(text: str, role: Role | None, display: Display) -> Iterator[str]:
    return fold(text, display, hanging="    ", role=role)


def services_first(results: Iterable[PodResult]) -> list[PodResult]:
    """Return the results of steps before those on units, as they are shown."""
    return sorted(results, key=lambda each: each.step.is_counted)
