"""The progress of a plan on stderr: one line that is redrawn on a terminal, or one now and then."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import NamedTuple

from podslice.cli import interrupts
from podslice.cli.manual_log import ManualLog
from podslice.cli.output import OutputFormat, emit, note, redraw, wipe
from podslice.cli.views import changes
from podslice.model.config import Origin
from podslice.model.desired import Refusal
from podslice.model.event import Kind
from podslice.model.node_state import StuckPod
from podslice.plan import Plan, StopUnit
from podslice.reconcile.assess import Assessment
from podslice.reconcile.converge import Progress
from podslice.reconcile.report import (
    Outcome,
    PodResult,
    Report,
    StepResult,
    describe_refusal,
    describe_stuck,
    describe_wait,
)

FIRST_SEC = 0.5
"""Shorter work shows no progress."""
REDRAW_SEC = 0.2
INTERVAL_SEC = 10.0
"""The time between two lines where nothing is redrawn."""
_NOTED_MAX = 10
"""Terminating pods that are reported one by one."""


class StepProgress:
    """Counts the steps of a plan, and reports them while `shown`.

    Nothing is drawn at a step itself, so that many steps take no longer.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Begin without a plan; `now` is a monotonic clock."""
        self._now = now
        self._began = now()
        self._done = 0
        self._total = 0
        self._terminating: dict[str, int] = {}

    def start(self, made: Plan) -> None:
        """Begin a plan, and report what it waits for."""
        interrupts.describe_with(self.describe_interruption)
        self._began, self._total = self._now(), len(made.steps)
        waits = [(step, text) for step in made.steps if (text := describe_wait(step))]
        self._terminating = {
            step.pod: step.grace_sec or 0
            for step, _ in waits
            if isinstance(step, StopUnit) and step.pod is not None
        }
        for _, text in waits[:_NOTED_MAX]:
            note(text)
        if len(waits) > _NOTED_MAX:
            note(f"… and {len(waits) - _NOTED_MAX} more pods")

    def step(self, result: StepResult) -> None:
        """Count a step."""
        self._done += result.outcome is Outcome.DONE
        if isinstance(result.step, StopUnit):
            self._terminating.pop(result.step.pod or "", None)

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Report progress in the background; wipe it at the end."""
        ticker = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            ticker.cancel()
            with suppress(asyncio.CancelledError):
                await ticker
            wipe()

    def line(self, width: int | None = None) -> str:
        """Return the present state; empty without steps."""
        if not self._total:
            return ""
        elapsed_sec = int(self._now() - self._began)
        waiting = [
            Waiting(pod=pod, elapsed_sec=elapsed_sec, grace_sec=grace_sec)
            for pod, grace_sec in self._terminating.items()
        ]
        return progress_line(self._done, max(self._total, self._done), waiting, width=width)

    def describe_interruption(self) -> str:
        """Describe what was done, what was not, and how to continue."""
        if not self._total:
            return interrupts.NOTHING
        return f"{self.line()}; to continue, run the same command again"

    async def _tick(self) -> None:
        if not is_redrawn():
            while True:
                await asyncio.sleep(INTERVAL_SEC)
                if text := self.line():
                    note(text)
        await asyncio.sleep(FIRST_SEC)
        while True:
            # the last column stays free: a full line would wrap on some terminals
            redraw(self.line(_width() - 1))
            await asyncio.sleep(REDRAW_SEC)


async def follow(
    found: AsyncGenerator[Progress, None], log: ManualLog, *, pods: Collection[str] = ()
) -> Report:
    """Log and show an apply or a delete, and return its report.

    `pods` are further pods that it changes.
    """
    shown, report = StepProgress(), Report()
    async with shown.shown(), aclosing(found):
        async for each in found:
            match each:
                case Plan():
                    log.start(each, pods)
                    shown.start(each)
                case StepResult():
                    log.step(each)
                    shown.step(each)
                case PodResult():
                    log.pod_step(each)
                case Refusal():
                    log.report(Kind.POD_REFUSED, describe_refusal(each), pod=each.pod)
                case StuckPod():
                    log.report(Kind.POD_STUCK, describe_stuck(each), pod=each.pod)
                case Report():
                    report = each
                case Assessment():
                    continue  # nothing was changed yet
    return report


def is_redrawn() -> bool:
    """Return whether stderr is a terminal that can redraw a line."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _width() -> int:
    """Return the columns of the terminal; 80 if unknown, as on a serial console."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


_NAMED_MAX = 5
"""Terminating pods that are named where the width is not limited."""


class Waiting(NamedTuple):
    """A pod that is terminating."""

    pod: str
    """`namespace/name`."""
    elapsed_sec: int
    grace_sec: int


def progress_line(
    done: int, total: int, waiting: Sequence[Waiting], *, width: int | None = None
) -> str:
    """Format the number of completed steps, and as many terminating pods as fit.

    The pods with the least time left come first.
    """
    text = f"{done} of {total} steps done"
    if not waiting:
        return text[:width]
    text += "; terminating: "
    ranked = sorted(waiting, key=lambda each: (each.grace_sec - each.elapsed_sec, each.pod))
    parts = [f"{each.pod} ({each.elapsed_sec} of {each.grace_sec} s)" for each in ranked]
    most = min(len(parts), _NAMED_MAX) if width is None else len(parts)
    for shown in range(most, 0, -1):
        left = len(parts) - shown
        line = text + ", ".join(parts[:shown]) + (f" and {left} more" if left else "")
        if width is None or len(line) <= width:
            return line
    return f"{text}{len(parts)} pod{'' if len(parts) == 1 else 's'}"[:width]


def emit_report(report: Report, output: OutputFormat, origin: Origin | None = None) -> int:
    """Print a report with the source of its configuration, and return the exit code."""
    emit(
        output,
        document=lambda: changes.changes_document(report, origin),
        lines=lambda display: changes.report_lines(report, display),
        names=lambda: [
            *(each.step.name for each in changes.services_first(report.before)),
            *(each.step.name for each in report.results),
            *(each.step.name for each in report.after),
        ],
    )
    return report.exit_code
