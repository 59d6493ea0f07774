"""`podslice __evict`, run by the service that compares a volume's size with its limit."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from podslice.cli.extensions import extensions
from podslice.cli.manual_log import manual_log
from podslice.cli.options import Planning, configured
from podslice.cli.output import OutputFormat
from podslice.cli.progress import emit_report, follow
from podslice.cli.session import in_world, locked
from podslice.model.event import Kind
from podslice.model.node_state import SIZE_LIMIT, Eviction
from podslice.model.pod import Pod
from podslice.model.resources import MEMORY, format_amount
from podslice.policy.eviction import HARD_GRACE_SEC
from podslice.reconcile.assess import Request
from podslice.reconcile.converge import apply
from podslice.reconcile.extension import PodRequest
from podslice.reconcile.report import Report
from podslice.reconcile.world import LiveWorld
from podslice.store.store import Store


@configured
def evict(
    planning: Planning,
    pod: Annotated[str, typer.Argument(metavar="POD")],
    volume: Annotated[str, typer.Argument(metavar="VOLUME")],
    limit: Annotated[int, typer.Argument(metavar="BYTES")],
) -> int:
    """Evict a pod with a volume that is larger than the limit of the volume."""

    async def work(world: LiveWorld) -> Report:
        store = world.store
        with locked(store), manual_log("evict", store, world.manager) as log:
            records = store.load()
            found = next((each for each in records.pods if each.key == pod), None)
            if found is None:
                return Report()
            mark = _mark(found, store, volume, limit)
            # the mark first: an agent must not start the pod again
            store.mark_evicted(mark)
            log.report(
                Kind.POD_EVICTED,
                f"pod {pod} is evicted: {mark.message}; grace period {HARD_GRACE_SEC} s",
                pod=pod,
                fields={
                    "SIGNAL": SIZE_LIMIT,
                    "POD_UID": found.uid,
                    "GRACE_SEC": str(HARD_GRACE_SEC),
                },
            )
            request = PodRequest(grace_sec=HARD_GRACE_SEC)
            applying = apply(
                world, Request(grace_sec=HARD_GRACE_SEC), extensions=extensions(world, request)
            )
            return await follow(applying, log, pods=(pod,))

    report = in_world(planning, work)
    return emit_report(report, OutputFormat.TABLE, planning.origin)


def _mark(pod: Pod, store: Store, volume: str, limit_bytes: int) -> Eviction:
    stated = format_amount(MEMORY, limit_bytes * 1000)
    return Eviction(
        pod=pod.key,
        uid=pod.uid,
        digest=store.digest(pod),
        signal=SIZE_LIMIT,
        message=f'Usage of EmptyDir volume "{volume}" exceeds the limit "{stated}"',
        at_usec=time.time_ns() // 1000,
    )
