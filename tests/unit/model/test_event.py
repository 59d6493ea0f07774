"""The fields of an event in the journal."""

from podslice.model.event import Event, Kind
from podslice.model.unit import UnitName

STOPPED = Event(kind=Kind.AGENT_STOPPED, message="the agent stops")


def test_an_event_has_the_journals_own_fields():
    """Source: systemd.journal-fields(7); 6 is LOG_INFO of syslog(3)."""
    assert STOPPED.journal_fields == {
        "MESSAGE": "the agent stops",
        "MESSAGE_ID": "8ffbf07f2568e7e36534623997946680",
        "PRIORITY": "6",
        "PODSLICE_EVENT": "agent-stopped",
    }


def test_the_subject_and_further_values_are_fields_with_a_prefix():
    event = Event(
        kind=Kind.POD_OOM,
        message="out of memory",
        pod="default/web",
        unit=UnitName("kubepods-podweb.slice"),
        fields={"KILLS": "2"},
    )
    assert event.journal_fields == {
        "MESSAGE": "out of memory",
        "MESSAGE_ID": "b423e8b38df8111c0a35a954fc93a492",
        "PRIORITY": "4",
        "PODSLICE_EVENT": "pod-oom",
        "PODSLICE_POD": "default/web",
        "PODSLICE_UNIT": "kubepods-podweb.slice",
        "PODSLICE_KILLS": "2",
    }
