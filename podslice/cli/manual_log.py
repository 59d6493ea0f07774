"""Changes that a person makes with a verb: recorded for the agent, and logged to the journal."""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress

from podslice.errors import printable
from podslice.kernel.proc import read_login_uid
from podslice.model.event import Event, Kind
from podslice.model.node_state import Account, Caller, ManualChange
from podslice.model.unit import Manager, UnitName
from podslice.plan import Plan, SetProperties, StopUnit
from podslice.reconcile import manual_changes
from podslice.reconcile.report import (
    Outcome,
    PodResult,
    StepResult,
    describe_result,
    describe_wait,
    kind_of,
)
from podslice.store.store import Store
from podslice.systemd.journal import Journal

_PATIENCE_SEC = 1
"""How long a verb waits for a busy journal."""


class ManualLog:
    """Logs the changes of one verb, each with the user who called it."""

    def __init__(self, verb: str, store: Store, journal: Journal) -> None:
        self._verb = verb
        self._store = store
        self._journal = journal
        self._change: ManualChange | None = None
        caller = find_caller(os.environ)
        self._fields = {"VERB": verb, **caller.fields}
        by = printable(str(caller))
        self._by = f"podslice {verb} by {by}" if by else f"podslice {verb}"

    def report(
        self,
        kind: Kind,
        message: str,
        *,
        pod: str | None = None,
        unit: UnitName | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        """Log an event."""
        self._journal.log(
            Event(
                kind=kind,
                message=f"{message}; {self._by}",
                pod=pod,
                unit=unit,
                fields={**self._fields, **(fields or {})},
            )
        )

    def announce(self, *, pods: Collection[str] = (), units: Collection[UnitName] = ()) -> None:
        """Record what is about to change, so that an agent does not take it for drift.

        Raises:
            HostError: /run can't be written.
        """
        if pods or units:
            self._change = manual_changes.record(self._store, self._verb, pods=pods, units=units)

    def start(self, made: Plan, pods: Collection[str] = ()) -> None:
        """Announce the steps of a plan, and changes of further pods; log the terminating ones.

        Raises:
            HostError: /run can't be written.
        """
        steps = made.steps
        named = {*pods, *filter(None, (step.pod for step in steps))}
        self.announce(pods=sorted(named), units=[step.name for step in steps])
        for step in steps:
            if isinstance(step, StopUnit) and (text := describe_wait(step)):
                self.report(Kind.POD_TERMINATING, text, pod=step.pod, unit=step.name)

    def pod_step(self, result: PodResult) -> None:
        """Log a step on a file or a service, if it is an event of its own."""
        if result.outcome is Outcome.DONE and result.step.event is not None:
            kind, text = result.step.event
            self.report(kind, text, pod=result.step.pod, unit=UnitName(result.step.name))

    def step(self, result: StepResult) -> None:
        """Log a step, at once: later ones may fail."""
        step, text, pod = result.step, describe_result(result), result.step.pod
        if result.outcome is Outcome.FAILED:
            self.report(Kind.STEP_FAILED, text, pod=pod, unit=step.name)
        elif result.outcome is Outcome.NOT_TRIED:
            return
        elif kind := kind_of(result):
            self.report(kind, text, pod=pod, unit=step.name)
        elif isinstance(step, SetProperties) and not step.unit.owned:
            self.report(Kind.RESERVED_SET, text, unit=step.name)

    def close(self) -> None:
        """Record that the change is over, and send what is left."""
        if self._change is not None:
            manual_changes.finish(self._store, self._change)
        self._journal.close()


@contextmanager
def manual_log(verb: str, store: Store, manager: Manager) -> Iterator[ManualLog]:
    """Log the changes of a verb, until they are over."""
    log = ManualLog(verb, store, Journal(manager=manager, patience_sec=_PATIENCE_SEC))
    try:
        yield log
    finally:
        log.close()


_NAME_MAX = 256
"""Longer than any name of a user. Source: limits.h, LOGIN_NAME_MAX."""


def find_caller(environment: Mapping[str, str]) -> Caller:
    """Return the account of the login, and the one that sudo has left in the environment."""
    login, uid = None, read_login_uid()
    if uid is not None:
        login = Account(uid=uid, name="")
        with suppress(KeyError, OverflowError):
            login = Account(uid=uid, name=pwd.getpwuid(uid).pw_name)
    return Caller(login=login, sudo=_from_sudo(environment))


def _from_sudo(environment: Mapping[str, str]) -> Account | None:
    name, uid = environment.get("SUDO_USER", ""), environment.get("SUDO_UID", "")
    number = int(uid) if uid.isascii() and uid.isdecimal() and len(uid) <= len(str(2**32)) else None
    if not name and number is None:
        return None
    return Account(uid=number, name=name[:_NAME_MAX])
