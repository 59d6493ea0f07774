"""`podslice confirm`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from podslice.cli import coroutines, host, interrupts, session
from podslice.cli.arguments import DONE, FAILED, TextOrJson
from podslice.cli.manual_log import manual_log
from podslice.cli.output import ReportFormat, note, write, write_json
from podslice.cli.report import document
from podslice.kernel.proc import find_manager
from podslice.model.desired import PendingTrial, TrialState
from podslice.model.event import Kind
from podslice.model.unit import SYSTEM, UnitName
from podslice.reconcile.report import describe_unconfirmed
from podslice.reconcile.rollback import confirm as let_stay
from podslice.reconcile.rollback import halt, recorded
from podslice.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Report:
    """The slices whose new values are kept."""

    confirmed: tuple[UnitName, ...]

    def lines(self) -> Iterator[str]:
        """Yield one sentence; none if nothing is confirmed."""
        if self.confirmed:
            yield f"confirmed the new values of {', '.join(self.confirmed)}"


def confirm(output: TextOrJson = ReportFormat.TEXT) -> int:
    """Run `podslice confirm`.

    Examples:
        podslice apply --confirm 300
        podslice confirm
    """
    found = coroutines.run(_confirm())
    if found is None:
        note("there is nothing to confirm")
    elif found.state is TrialState.RETURNED:
        note("; ".join(describe_unconfirmed(found)))
    report = _report(found)
    if output is ReportFormat.JSON:
        write_json(document(report))
    else:
        write(report.lines())
    return DONE if report.confirmed else FAILED


def _report(found: PendingTrial | None) -> Report:
    if found is None or found.state is TrialState.RETURNED:
        return Report(confirmed=())
    return Report(confirmed=tuple(sorted(found.values.old)))


async def _confirm() -> PendingTrial | None:
    store = Store(host.runtime_directory(find_manager()))
    if recorded(store).unconfirmed is None:
        return None
    async with session.open_recorded_world(store) as world:
        client = world.client
        await world.claim(world.client)
        interrupts.begin("the values may have been confirmed; see: podslice status")
        # before taking the lock, whose holder may take longer than the timer
        await halt(client)
        with session.locked(store), manual_log("confirm", store, SYSTEM) as log:
            found = await let_stay(store, client)
            for line in _report(found).lines():
                log.report(Kind.RESERVED_CONFIRMED, line)
            return found
