"""Results of the verbs that change units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from podslice.cli import configuration
from podslice.cli.adopted_services import PodServices, service_document, service_lines
from podslice.cli.output import OutputFormat, emit
from podslice.cli.started_pods import StartedPods
from podslice.cli.views import change_documents, documents
from podslice.cli.views.quadlet_steps import result_document, result_lines
from podslice.cli.views.report_lines import report_lines, step_lines
from podslice.cli.views.style import Display
from podslice.model.config import Origin
from podslice.processes.quadlet_services import QuadletResult
from podslice.processes.service_adoption import PlacedService
from podslice.reconcile.report import Outcome, Report, summarize


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
            **(configuration.document(origin) if origin else {}),
            **{
                **change_documents.report(report),
                **_document((*before, *after)),
                **_services_document(placed),
            },
        ),
        lines=lambda display: chain(
            _service_lines(placed, flag, display), _lines(report, before, after, display)
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


def _lines(
    report: Report,
    before: Sequence[QuadletResult],
    after: Sequence[QuadletResult],
    display: Display,
) -> Iterator[str]:
    """Yield the lines of a report, between those of the services that were removed and started."""
    if not before and not after:
        yield from report_lines(report, display)
        return

    yield from result_lines(before, display)
    yield from step_lines(report, display)
    yield from result_lines(after, display)
    yield summarize(report, [each.outcome for each in (*before, *after)])


def _service_lines(services: Sequence[PlacedService], flag: str, display: Display) -> Iterator[str]:
    if services:
        yield from service_lines(services, flag, display)


def _services_document(services: Sequence[PlacedService]) -> documents.Document:
    """Return the part of the document on adopted services, where there are some."""
    if not services:
        return {}

    return {"changed": True, "services": documents.listed(services, service_document)}


def _document(results: Sequence[QuadletResult]) -> documents.Document:
    """Return the part of the document on quadlets, where there are some."""
    if not results:
        return {}

    is_change = any(each.outcome is Outcome.DONE for each in results)
    changed = {"changed": True} if is_change else {}
    return {**changed, "quadlets": documents.listed(results, result_document)}
