"""Results of the verbs that change units."""

from __future__ import annotations

from podslice.cli.adopted_services import PodServices, service_lines, services_document
from podslice.cli.host import configuration_document
from podslice.cli.output import OutputFormat, emit
from podslice.cli.started_pods import StartedPods
from podslice.cli.views import changes, documents
from podslice.cli.views.changes import quadlet_result_lines, quadlets_document, step_lines
from podslice.model.config import Origin
from podslice.reconcile.report import Report, summarize


def emit_report(
    report: Report,
    output: OutputFormat,
    origin: Origin | None = None,
    *,
    started: StartedPods | None = None,
    services: PodServices | None = None,
    flag: str = "",
) -> int:
    """Print a report with the source of its configuration, and return the exit code.

    `flag` is the option of a user's service manager, after a space.
    """
    before, after = (started.removals, started.results) if started else ((), ())
    placed = services.results if services else ()
    emit(
        output,
        document=lambda: documents.document(
            **(configuration_document(origin) if origin else {}),
            **{
                **changes.report_document(report),
                **quadlets_document((*before, *after)),
                **services_document(placed),
            },
        ),
        lines=lambda display: (
            *service_lines(placed, flag, display),
            *quadlet_result_lines(before, display),
            *step_lines(report, display),
            *quadlet_result_lines(after, display),
            summarize(report, [each.outcome for each in (*before, *after)]),
        ),
        names=lambda: [
            *(each.service.unit for each in placed),
            *(each.step.name for each in before),
            *(result.step.name for result in report.results),
            *(each.step.name for each in after),
        ],
    )
    codes = (each.exit_code for each in (report, started, services) if each)
    return max(codes, default=0)
