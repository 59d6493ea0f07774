"""`podslice readmit`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from podslice.cli import interrupts
from podslice.cli.arguments import DONE, FAILED, Namespace, Output, pod_argument
from podslice.cli.extensions import pods_run_by_features
from podslice.cli.host import open_store, tolerate
from podslice.cli.manual_log import manual_log
from podslice.cli.options import Planning, configured
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.pods import keys_named
from podslice.cli.report import document
from podslice.cli.views.problem_lines import problem_line
from podslice.errors import Problem
from podslice.model.event import Kind
from podslice.reconcile.assess import living_agent
from podslice.reconcile.assess import readmit as readmit_pods


@dataclass(frozen=True, kw_only=True)
class ReadmittedPod:
    """A pod that may run again."""

    pod: str
    """`namespace/name`."""
    command: str
    """The command that starts it."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The pods that may run again."""

    agent_runs: bool
    """Whether an agent starts the pods again that a manifest directory has."""
    readmitted: tuple[ReadmittedPod, ...]
    not_evicted: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yield what starts each pod again."""
        agent = "the agent starts it again if a manifest directory has it, otherwise run"
        after = agent if self.agent_runs else "to start it again"
        for each in self.readmitted:
            yield f"pod {each.pod} is readmitted; {after}: {each.command}"


@configured
def readmit(
    planning: Planning,
    pod: Annotated[list[str], pod_argument("Evicted pods, as NAME or NAMESPACE/NAME.", "POD")],
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
) -> int:
    """Run `podslice readmit`.

    A pod whose manifest has changed since its eviction needs no readmission.

    Examples:
        podslice readmit web
        podslice readmit -n shop web db
    """
    store = open_store(tolerate(planning))
    evicted = {mark.pod for mark in store.load().evicted}
    keys = {*keys_named(pod, namespace, evicted)}
    interrupts.begin("pods may have been readmitted; see: podslice status")
    with manual_log("readmit", store, planning.manager) as log:
        log.announce(pods=sorted(keys & evicted))
        marks = readmit_pods(store, keys)
        for mark in marks:
            log.report(Kind.POD_READMITTED, f"pod {mark.pod} is readmitted", pod=mark.pod)
    started = pods_run_by_features((mark.pod for mark in marks), planning.manager)
    apply = f"podslice apply{planning.manager.flag}"
    report = Report(
        agent_runs=living_agent(store) is not None,
        readmitted=tuple(
            ReadmittedPod(
                pod=mark.pod, command=f"{apply}{' --start' if mark.pod in started else ''} -f FILE"
            )
            for mark in marks
        ),
        not_evicted=tuple(sorted(keys - {mark.pod for mark in marks})),
    )
    emit(
        output,
        document=lambda: document(report),
        lines=lambda _: report.lines(),
        names=lambda: [each.pod for each in report.readmitted],
    )
    for key in report.not_evicted:
        hint = "for evicted pods see: podslice status"
        note(problem_line(Problem(message=f"pod {key} was not evicted", hint=hint)))
    return FAILED if report.not_evicted else DONE
