"""What `adopt` and `release` print and log about services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from podslice.cli.output import OutputFormat, emit
from podslice.cli.views import documents
from podslice.cli.views.service_lines import service_document, service_lines
from podslice.model.event import Kind
from podslice.processes.service_adoption import PlacedService, ServiceAction

if TYPE_CHECKING:
    from podslice.cli.manual_log import ManualLog
    from podslice.model.manager import Manager


def log_services(log: ManualLog, services: Sequence[PlacedService]) -> None:
    """Log the drop-ins that were written or removed."""
    for each in services:
        service = each.service
        if each.action is ServiceAction.WRITTEN:
            kind, did = Kind.SERVICE_ADOPTED, "wrote"
        elif each.action is ServiceAction.REMOVED:
            kind, did = Kind.SERVICE_RELEASED, "removed"
        else:
            continue
        text = f"{did} {each.path}: {service.unit} starts in {each.slice}"
        log.report(kind, text, pod=service.pod, unit=service.unit)


def emit_services(
    services: Sequence[PlacedService],
    manager: Manager,
    output: OutputFormat,
    *,
    with_text: bool = False,
) -> int:
    """Print services, `with_text` with their drop-ins, and return the exit code."""
    emit(
        output,
        document=lambda: documents.document(services=documents.listed(services, service_document)),
        lines=lambda display: service_lines(services, manager.flag, display, with_text=with_text),
        names=lambda: [each.service.unit for each in services],
    )
    return int(any(each.error for each in services))
