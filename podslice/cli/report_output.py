"""Progress and results of the verbs that change units."""

from __future__ import annotations

from podslice.cli import configuration
from podslice.cli.output import OutputFormat, Progress, emit, note
from podslice.cli.views import documents
from podslice.cli.views.report_lines import report_lines
from podslice.model.config import Origin
from podslice.plan import Plan
from podslice.reconcile.report import Report, StepResult, describe_wait


class StepProgress:
    """Progress on stderr: what is waited for, and the number of completed steps."""

    def __init__(self) -> None:
        self._progress = Progress(0)

    def start(self, made: Plan) -> None:
        """Report the start of a plan."""
        self._progress = Progress(len(made.steps))
        for waiting in filter(None, map(describe_wait, made.steps)):
            note(waiting)

    def step(self, _: StepResult) -> None:
        """Count a completed step."""
        self._progress.step()


def emit_report(report: Report, output: OutputFormat, origin: Origin | None = None) -> int:
    """Print a report with the source of its configuration, and return the exit code."""
    emit(
        output,
        document=lambda: documents.document(
            **(configuration.document(origin) if origin else {}), **documents.report(report)
        ),
        lines=lambda _: report_lines(report),
        names=lambda: [result.step.name for result in report.results],
    )
    return report.exit_code
