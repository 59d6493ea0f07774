"""Results of the verbs that change units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podslice.cli import configuration
from podslice.cli.output import emit
from podslice.cli.views import change_documents, documents
from podslice.cli.views.report_lines import report_lines

if TYPE_CHECKING:
    from podslice.cli.output import OutputFormat
    from podslice.model.config import Origin
    from podslice.reconcile.report import Report


def emit_report(report: Report, output: OutputFormat, origin: Origin | None = None) -> int:
    """Print a report with the source of its configuration, and return the exit code."""
    emit(
        output,
        document=lambda: documents.document(
            **(configuration.document(origin) if origin else {}), **change_documents.report(report)
        ),
        lines=lambda display: report_lines(report, display),
        names=lambda: [result.step.name for result in report.results],
    )
    return report.exit_code
