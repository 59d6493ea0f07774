"""`podslice readmit`."""

from __future__ import annotations

from typing import Annotated

from podslice.cli import interrupts
from podslice.cli.arguments import DONE, FAILED, Namespace, pod_argument
from podslice.cli.extensions import pods_run_by_features
from podslice.cli.host import open_store, tolerate
from podslice.cli.manual_log import manual_log
from podslice.cli.options import Planning, configured
from podslice.cli.output import note, write
from podslice.cli.pods import key_of
from podslice.cli.views.problem_lines import problem_line
from podslice.errors import Problem
from podslice.model.event import Kind
from podslice.reconcile.assess import living_agent
from podslice.reconcile.assess import readmit as readmit_pods


@configured
def readmit(
    planning: Planning,
    pod: Annotated[list[str], pod_argument("Evicted pods, as NAME or NAMESPACE/NAME.", "POD")],
    namespace: Namespace = None,
) -> int:
    """Run `podslice readmit`.

    A pod whose manifest has changed since its eviction needs no readmission.

    Examples:
        podslice readmit web
        podslice readmit -n shop web db
    """
    keys = {key_of(name, namespace) for name in pod}
    store = open_store(tolerate(planning))
    interrupts.begin("pods may have been readmitted; see: podslice status")
    with manual_log("readmit", store, planning.manager) as log:
        log.announce(pods=sorted(keys & {mark.pod for mark in store.load().evicted}))
        marks = readmit_pods(store, keys)
        for mark in marks:
            log.report(Kind.POD_READMITTED, f"pod {mark.pod} is readmitted", pod=mark.pod)
    runs = living_agent(store) is not None
    started = pods_run_by_features((mark.pod for mark in marks), planning.manager)
    for mark in marks:
        start = " --start" if mark.pod in started else ""
        command = f"podslice apply{planning.manager.flag}{start} -f FILE"
        after = f"to start it again: {command}"
        if runs:
            after = (
                "the agent starts it again if a manifest directory has it, otherwise run:"
                f" {command}"
            )
        write([f"pod {mark.pod} is readmitted; {after}"])
    missing = keys - {mark.pod for mark in marks}
    for key in sorted(missing):
        hint = "for evicted pods see: podslice status"
        note(problem_line(Problem(message=f"pod {key} was not evicted", hint=hint)))
    return FAILED if missing else DONE
