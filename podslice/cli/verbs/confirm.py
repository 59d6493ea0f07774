"""`podslice confirm`."""

from __future__ import annotations

from podslice.cli import coroutines, host, interrupts, session
from podslice.cli.arguments import DONE, FAILED
from podslice.cli.manual_log import manual_log
from podslice.cli.output import note, write
from podslice.kernel.proc import find_manager
from podslice.model.desired import PendingTrial, TrialState
from podslice.model.event import Kind
from podslice.model.unit import SYSTEM
from podslice.reconcile.report import describe_unconfirmed
from podslice.reconcile.rollback import confirm as let_stay
from podslice.reconcile.rollback import halt, recorded
from podslice.store.store import Store


def confirm() -> int:
    """Run `podslice confirm`.

    Examples:
        podslice apply --confirm 300
        podslice confirm
    """
    found = coroutines.run(_confirm())
    if found is None:
        note("there is nothing to confirm")
        return FAILED
    if found.state is TrialState.RETURNED:
        note("; ".join(describe_unconfirmed(found)))
        return FAILED
    write([_describe(found)])
    return DONE


def _describe(confirmed: PendingTrial) -> str:
    return f"confirmed the new values of {', '.join(sorted(confirmed.values.old))}"


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
            if found is not None and found.state is not TrialState.RETURNED:
                log.report(Kind.RESERVED_CONFIRMED, _describe(found))
            return found
