"""What `__containers` could not do: for `podslice status`, and as events in the journal."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from podslice.cli.output import note
from podslice.cli.views.problem_lines import problem_line
from podslice.errors import InputError, PodsliceError, Problem, Severity, printable
from podslice.model.event import Event, Kind
from podslice.model.node_state import ContainerFailure
from podslice.model.unit import UnitName
from podslice.quadlet.transition import QuadletAction
from podslice.reconcile.report import Outcome
from podslice.store.container_failures import ContainerFailures
from podslice.systemd.journal import Journal
from podslice.systemd.journal_access import reading_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from podslice.model.manager import Manager
    from podslice.processes.quadlet_services import QuadletResult
    from podslice.store import Store

_PATIENCE_SEC = 1
"""How long to wait for a busy journal."""
_NOT_UPDATED = "its containers are not updated"
_NONE_UPDATED = "the containers of pods are not updated"


class ContainerLog:
    """Records the failures of one run, and logs those that the run before did not have."""

    def __init__(self, store: Store, manager: Manager) -> None:
        self._record = ContainerFailures(store.root)
        self._manager = manager
        self._found: list[ContainerFailure] = []
        self._recorded: tuple[ContainerFailure, ...] | None = None
        self._known = set(self._record.load())

    @property
    def _flag(self) -> str:
        return "--user " if self._manager.is_user else ""

    @property
    def _retry(self) -> str:
        return f"to try again: systemctl {self._flag}restart podslice-agent.service"

    def add_problem(
        self, problem: Problem, *, pod: str | None = None, consequence: str = _NOT_UPDATED
    ) -> None:
        """Add an error in a manifest or in a pod's files; a warning is only printed."""
        if problem.severity is not Severity.ERROR:
            note(problem_line(problem))
            return
        message = f"{consequence}: {printable(problem.message)}"
        hint = printable(problem.hint) or "the agent updates them after a correction"
        self._add(ContainerFailure(where=problem.where, message=message, hint=hint, pod=pod))

    def add_error(self, error: PodsliceError, source: str = "") -> None:
        """Add an error that concerns a manifest, or all pods."""
        consequence = _NOT_UPDATED if source else _NONE_UPDATED
        if isinstance(error, InputError):
            for each in error.problems:
                self.add_problem(each, consequence=consequence)
            return
        message = f"{consequence}: {printable(str(error))}"
        self._add(ContainerFailure(where=source, message=message, hint=self._retry))

    def _add(self, failure: ContainerFailure) -> None:
        note(f"{failure}; {failure.hint}")
        self._found.append(failure)

    def add_results(self, results: Iterable[QuadletResult]) -> None:
        """Add the steps that have failed, and log the containers that were started."""
        results = tuple(results)
        self._log(_start_event(each, each.started) for each in results if each.started)
        for each in results:
            if each.outcome is Outcome.DONE:
                continue
            step, is_start = each.step, each.step.action is QuadletAction.START
            name = UnitName(step.name)
            journal = f"to see its output: {reading_command(name, self._manager)}"
            failure = ContainerFailure(
                message=f"failed to {step.action.value} {each.path or step.name}: {each.error}",
                hint=journal if is_start else self._retry,
                pod=step.pod,
                unit=name if is_start else None,
            )
            self._found.append(failure)

    @contextmanager
    def published(self) -> Iterator[None]:
        """Write the record at the end, also after an error, and log the failures that are new.

        The caller holds the lock. What a later run has recorded in between remains.

        Raises:
            HostError: it can't be written.
        """
        try:
            yield
        except PodsliceError as error:
            self.add_error(error)
            raise
        finally:
            self._publish()

    def _publish(self) -> None:
        if self._recorded is not None and self._record.load() != self._recorded:
            return
        self._recorded = tuple(dict.fromkeys(self._found))
        self._record.save(self._recorded)
        new = [each for each in self._recorded if each not in self._known]
        self._log(
            Event(kind=Kind.STEP_FAILED, message=str(each), pod=each.pod, unit=each.unit)
            for each in new
        )
        self._known.update(self._recorded)

    def _log(self, events: Iterable[Event]) -> None:
        events = tuple(events)
        if not events:
            return
        with closing(Journal(manager=self._manager, patience_sec=_PATIENCE_SEC)) as journal:
            for each in events:
                journal.log(each)


def _start_event(result: QuadletResult, unit: UnitName) -> Event:
    text = f"started {unit} of pod {result.step.pod}"
    return Event(kind=Kind.CONTAINER_STARTED, message=text, pod=result.step.pod, unit=unit)
