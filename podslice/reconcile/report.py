"""The results of steps, their descriptions and events, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, assert_never

from podslice.model.desired import PendingTrial, Refusal, TrialState
from podslice.model.event import Kind
from podslice.model.node_state import StuckPod
from podslice.model.properties import PROPERTIES, format_value
from podslice.model.quantity import format_bytes, human_bytes
from podslice.model.unit import INFINITY, DesiredUnit
from podslice.plan import (
    Action,
    Change,
    Plan,
    PodStep,
    SetHugepages,
    SetProperties,
    Skipped,
    StartUnit,
    Step,
    StopUnit,
)


class Outcome(StrEnum):
    """The outcome of a step."""

    DONE = "done"
    FAILED = "failed"
    NOT_TRIED = "not tried"


class StepResult(NamedTuple):
    """A step and its outcome."""

    step: Step
    outcome: Outcome
    error: str = ""


class PodResult(NamedTuple):
    """A step on a file or a service, as it is once it was taken, and its outcome."""

    step: PodStep
    outcome: Outcome = Outcome.DONE
    error: str = ""
    """Why it has failed, or what has failed after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of an apply or a delete."""

    results: tuple[StepResult, ...] = ()
    before: tuple[PodResult, ...] = ()
    """Of steps on files and services before those on units."""
    after: tuple[PodResult, ...] = ()
    starts: tuple[PodStep, ...] = ()
    """The services to start once the lock is released."""
    skipped: tuple[Skipped, ...] = ()
    refused: tuple[Refusal, ...] = ()
    remaining: Plan = field(default_factory=Plan)
    """The plan of the assessment after complete success; normally empty."""
    stuck: tuple[StuckPod, ...] = ()
    """Stopped pods of which something remains."""
    matched: frozenset[str] = frozenset()
    """The pods, `namespace/name`, whose removal was requested."""

    @property
    def exit_code(self) -> int:
        """0 after complete success, 1 where a step failed or something was refused."""
        is_done = all(result.outcome is Outcome.DONE for result in self.results)
        is_done = is_done and not any(result.error for result in (*self.before, *self.after))
        blocked = any(skipped.blocks for skipped in self.skipped)
        left = self.refused or self.remaining or self.stuck
        return int(not is_done or blocked or bool(left))

    @property
    def is_complete(self) -> bool:
        """Whether there were steps, and all succeeded."""
        return bool(self.results) and self.count(Outcome.DONE) == len(self.results)

    @property
    def is_change(self) -> bool:
        """Whether a step succeeded, or the record or the eviction mark of a pod was removed."""
        failed = (each.step for each in self.results if each.outcome is not Outcome.DONE)
        left = {step.pod for step in failed if isinstance(step, StopUnit)}
        removed = self.matched - left - {each.pod for each in self.stuck}
        around = any(each.outcome is Outcome.DONE for each in (*self.before, *self.after))
        return bool(removed) or around or self.count(Outcome.DONE) > 0

    @property
    def released(self) -> frozenset[str]:
        """The pods whose files and services were changed before units were, all of them."""
        failed = {each.step.pod for each in self.before if each.outcome is not Outcome.DONE}
        return frozenset(each.step.pod for each in self.before) - failed

    def count(self, outcome: Outcome) -> int:
        """Return the number of steps on units with an outcome."""
        return sum(result.outcome is outcome for result in self.results)


def format_change(change: Change, *, with_old: bool) -> str:
    """Format a change: `MemoryMax=512Mi (was 256Mi)`; of a kernel file: `hugetlb.2MB.max=512Mi`."""
    if change.name in PROPERTIES:
        text = f"{PROPERTIES[change.name].key}={format_value(change.name, change.new)}"
        old = format_value(change.name, change.old)
    else:
        text = f"{change.name}={format_bytes(int(change.new))}"
        bytes_ = change.old if isinstance(change.old, int) else INFINITY
        old = "unset" if bytes_ == INFINITY else format_bytes(bytes_)
    back = "; restores the former value" if change.is_return else ""
    return f"{text} (was {old}{back})" if with_old else text


def describe_step(step: Step | PodStep) -> str:
    """Describe a step in the infinitive: `start X with A=1`."""
    if isinstance(step, PodStep):
        return f"{infinitive(step.action)} {step.planned_subject}"
    text = f"{step.action} {_describe_rest(step)}"
    if isinstance(step, SetProperties) and step.used_bytes is not None:
        return f"{text}; {human_bytes(step.used_bytes)} in use, reclaimed first through MemoryHigh"
    return text


def _describe_rest(step: Step) -> str:
    """Describe a step without its verb."""
    match step:
        case StartUnit():
            changes = ", ".join(format_change(change, with_old=False) for change in step.changes)
            return _named(step.unit) + (f" with {changes}" if changes else "")
        case SetProperties() | SetHugepages():
            changes = ", ".join(format_change(change, with_old=True) for change in step.changes)
            return f"{changes} on {_named(step.unit)}"
        case StopUnit():
            return f"{step.name}{_inside(step)}: {step.why}"
        case _:
            assert_never(step)


def _inside(step: StopUnit) -> str:
    """Describe the processes that stop with a unit."""
    if step.occupants.descriptions:
        return f" with {', '.join(step.occupants.descriptions)}"
    return f" with its processes ({step.tasks} tasks)" if step.tasks else ""


def describe_wait(step: Step) -> str:
    """Describe the wait for a pod to stop; empty where there is none."""
    if not isinstance(step, StopUnit) or step.pod is None or not step.tasks:
        return ""
    count = step.occupants.processes or step.tasks
    text = f"stopping {count} process{'' if count == 1 else 'es'} of pod {step.pod}"
    return f"{text}, up to {step.grace_sec} s" if step.grace_sec else text


def _named(unit: DesiredUnit) -> str:
    """Name a unit and its pod: `kubepods-pod12.slice (default/web)`."""
    return f"{unit.name} ({unit.pod})" if unit.pod else unit.name


def infinitive(action: Action) -> str:
    """Return the verb of an action."""
    return action.replace("-", " ")


_PAST = {
    Action.START: "started",
    Action.SET: "set",
    Action.STOP: "stopped",
    Action.WRITE: "wrote",
    Action.REMOVE: "removed",
    Action.REMOVE_VOLUME: "removed volume",
    Action.REMOVE_NETWORK: "removed network",
}


def describe_result(result: StepResult | PodResult) -> str:
    """Describe the outcome of a step in the past tense."""
    step = result.step
    rest = step.subject if isinstance(step, PodStep) else _describe_rest(step)
    verb = infinitive(step.action)
    match result.outcome:
        case Outcome.DONE:
            text = f"{_PAST[step.action]} {rest}"
            if isinstance(step, SetProperties) and step.used_bytes is not None:
                return f"{text}; {human_bytes(step.used_bytes)} were in use, reclaimed through MemoryHigh"
            return text
        case Outcome.FAILED:
            return f"failed to {verb} {rest}: {result.error}"
        case Outcome.NOT_TRIED:
            return f"not tried: {verb} {rest}: {result.error}"
        case _:
            assert_never(result.outcome)


def describe_refusal(refusal: Refusal) -> str:
    """Describe why a pod was not admitted."""
    return f"pod {refusal.pod} refused: {refusal.reason}: {refusal.message}"


def describe_skipped(skipped: Skipped) -> str:
    """Describe what was left out of a plan."""
    if skipped.name == "stop":
        return f"left {skipped.unit} running: {skipped.why}"
    if skipped.name == "start":
        return f"could not enforce the reservation of {skipped.unit}: {skipped.why}"
    return f"skipped {skipped.name} of {skipped.unit}: {skipped.why}"


def describe_stuck(stuck: StuckPod) -> str:
    """Describe what remains of a stopped pod."""
    return f"pod {stuck.pod} could not be removed: {stuck.why}; {stuck.hint}"


def describe_unconfirmed(pending: PendingTrial) -> tuple[str, str]:
    """Describe the state of unconfirmed values, and the remedy."""
    named = ", ".join(sorted(pending.values.old))
    keep = "to keep the new ones: podslice confirm"
    match pending.state:
        case TrialState.ARMED:
            return f"the old values of {named} are restored in {pending.remaining_sec} s", keep
        case TrialState.RETURNED:
            return (
                f"the new values of {named} were not confirmed: the old ones are restored",
                "to set the new ones again: podslice apply",
            )
        case TrialState.STOPPED:
            message = (
                f"the new values of {named} are not confirmed, and the timer that restores the old"
                " ones was stopped"
            )
            return message, keep
        case _:
            assert_never(pending.state)


def summarize(report: Report) -> str:
    """Summarize a report: counts of steps by outcome, refused and stuck pods."""
    around = [each for each in (*report.before, *report.after) if each.step.is_counted]
    outcomes = [each.outcome for each in report.results] + [each.outcome for each in around]
    if not outcomes and not report.refused and not report.stuck:
        return "nothing to do"
    counts = [(outcomes.count(outcome), outcome.value) for outcome in Outcome]
    counts += [(len(report.refused), "refused"), (len(report.stuck), "stuck")]
    return ", ".join(f"{count} {what}" for count, what in counts if count or what == "done")


def count_steps(steps: Iterable[Step]) -> str:
    """Count the steps of a plan by action: `3 to start, 1 to set`."""
    counts = Counter(step.action for step in steps)
    order = (Action.STOP, Action.START, Action.SET)
    text = ", ".join(f"{counts[action]} to {action}" for action in order if counts[action])
    return text or "nothing to do"


_KINDS = {
    Action.START: Kind.POD_APPLIED,
    Action.SET: Kind.POD_CHANGED,
    Action.STOP: Kind.POD_REMOVED,
}


def kind_of(result: StepResult) -> Kind | None:
    """Return the kind of event of a completed step on a pod's slice; None for other units."""
    is_slice = result.step.name.endswith(".slice")
    return _KINDS[result.step.action] if is_slice and result.step.pod is not None else None
