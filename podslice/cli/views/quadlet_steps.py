"""Steps on the files and services of pods with quadlets, as lines and JSON. Pure: values in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podslice.cli.views.documents import Document
from podslice.cli.views.layout import fold
from podslice.cli.views.style import Display, Role
from podslice.processes.quadlet_services import QuadletResult
from podslice.quadlet.transition import QuadletAction, QuadletStep
from podslice.reconcile.report import Outcome

_VERBS = {
    QuadletAction.STOP: ("stop", "stopped"),
    QuadletAction.WRITE: ("write", "wrote"),
    QuadletAction.REMOVE: ("remove", "removed"),
    QuadletAction.REMOVE_VOLUME: ("remove volume", "removed volume"),
    QuadletAction.START: ("start", "started"),
}
"""The infinitive, and the past tense."""
_ROLES = {QuadletAction.START: Role.GOOD, QuadletAction.STOP: Role.ERROR}


def plan_lines(steps: Sequence[tuple[QuadletStep, str]], display: Display) -> Iterator[str]:
    """Yield what `apply` would do; each step is followed by the path of its file."""
    for step, path in steps:
        verb, _ = _VERBS[step.action]
        head = f"would {verb}"
        first, *others = fold(f"{head} {_subject(step, path)}", display, hanging="    ")
        yield display.paint(head, _ROLES.get(step.action, Role.WARNING)) + first[len(head) :]
        yield from others


def result_lines(results: Sequence[QuadletResult], display: Display) -> Iterator[str]:
    """Yield what was done, one line for each step."""
    for each in results:
        verb, past = _VERBS[each.step.action]
        subject = _subject(each.step, each.path)
        is_done = each.outcome is Outcome.DONE
        text = f"{past} {subject}" if is_done else f"failed to {verb} {subject}: {each.error}"
        for line in fold(text, display, hanging="    "):
            yield display.paint(line, None if is_done else Role.ERROR)


def step_document(step: QuadletStep, path: str) -> Document:
    """Return a step: a unit or a volume by its name, a file by its path."""
    return {
        "action": step.action.value,
        "pod": step.pod,
        "name": path or step.name,
        "why": step.why,
    }


def result_document(result: QuadletResult) -> Document:
    """Return a step with its outcome."""
    return {
        **step_document(result.step, result.path),
        "outcome": result.outcome.value,
        "error": result.error,
    }


def _subject(step: QuadletStep, path: str) -> str:
    why = f": {step.why}" if step.why else ""
    return f"{path or step.name} ({step.pod}){why}"
