"""`podslice __restore_reserved`, run by the packages on removal."""

from __future__ import annotations

from podslice.cli import coroutines, host, interrupts, session
from podslice.cli.output import write
from podslice.errors import HostError
from podslice.kernel.proc import find_manager
from podslice.reconcile.report import Report, describe_result, describe_skipped
from podslice.reconcile.rollback import recorded, restore_all
from podslice.store.store import Store


def restore_reserved() -> int:
    """Restore the values of slices outside the root, before podslice is removed from the host."""
    report = coroutines.run(_restore_reserved())
    write([*map(describe_result, report.results), *map(describe_skipped, report.skipped)])
    return report.exit_code


async def _restore_reserved() -> Report:
    store = Store(host.runtime_directory(find_manager()))
    if store.reserved() is None:
        raise HostError(
            f"{store.reserved_path} is damaged: the values that podslice has set on other slices are"
            " unknown; to restore those of a slice: systemctl revert SLICE"
        )
    if not recorded(store):
        return Report()
    async with session.open_recorded_world(store) as world:
        with session.locked(store):
            interrupts.begin("some values may have been restored; run it again")
            return await restore_all(world)
