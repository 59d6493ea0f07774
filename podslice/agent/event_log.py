"""Reports events to the journal."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.model.event import Event, Kind
from podslice.model.unit import UnitName
from podslice.systemd.journal import Journal


class EventLog:
    """The journal, with each note reported once."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._notes: set[str] = set()

    @property
    def counts(self) -> Mapping[Kind, int]:
        """Return the number of events reported so far, by kind."""
        return self.journal.counts

    def report(
        self,
        kind: Kind,
        message: str,
        *,
        pod: str | None = None,
        unit: UnitName | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        """Report an event."""
        event = Event(kind=kind, message=message, pod=pod, unit=unit, fields=fields or {})
        self.journal.log(event)

    def note(self, message: str) -> None:
        """Report something worth knowing, once."""
        if message not in self._notes:
            self._notes.add(message)
            self.report(Kind.AGENT_NOTED, message)
