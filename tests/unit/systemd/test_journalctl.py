"""The last messages of units. journalctl is a script here."""

import json
import os

import pytest

from podslice.errors import HostError
from podslice.systemd import journal as module
from podslice.systemd.journal import LogQuery, read_messages
from tests.unit.builders import USER

QUERY = LogQuery(units=["a.service"], containers=["0123"], lines=5, format="json")


@pytest.fixture
def journalctl(allow_effects, tmp_path, monkeypatch):
    """A journalctl with these shell commands, which writes its arguments to a file."""
    files = tmp_path / "journal/0123"
    files.mkdir(parents=True)
    (files / "system.journal").touch()
    monkeypatch.setattr(module, "JOURNAL_DIRECTORIES", (tmp_path / "journal",))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def make(script):
        program = tmp_path / "journalctl"
        program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n{script}\n')
        program.chmod(0o755)
        return tmp_path / "asked"

    return make


def test_messages_have_their_time_and_text(journalctl, tmp_path):
    entries = [
        {"__REALTIME_TIMESTAMP": "1795302032135760", "MESSAGE": "one\x85line"},
        {"__REALTIME_TIMESTAMP": "1795302032135760", "MESSAGE": "x", "PODMAN_EVENT": "init"},
        {"__REALTIME_TIMESTAMP": "1795302032135760", "MESSAGE": "of podman\n"},
        {"__REALTIME_TIMESTAMP": "1795302032135761", "MESSAGE": [104, 105, 255]},
    ]
    (tmp_path / "entries").write_text("".join(f"{json.dumps(each)}\n" for each in entries))
    asked = journalctl(f"cat {tmp_path}/entries")
    assert [(each.time_usec, each.message) for each in read_messages(QUERY)] == [
        (1795302032135760, "one\x85line"),
        (1795302032135760, "of podman"),
        (1795302032135761, "hi\\xff"),
    ]
    assert asked.read_text().split() == [
        *("--quiet", "--all", "--lines=5", "--output=json", "_SYSTEMD_UNIT=a.service", "+"),
        *("_PID=1", "UNIT=a.service", "+", "_UID=0", "CONTAINER_ID_FULL=0123"),
    ]


def test_a_container_may_have_no_messages(journalctl):
    journalctl("true")
    assert read_messages(QUERY) == ()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo broken >&2; exit 1", "cannot read the journal: broken"),
        ("exit 1", "cannot read the journal: journalctl failed"),
        ("echo text", "journalctl printed a line that is not an entry: b'text'"),
    ],
)
def test_a_journal_that_cannot_be_read_is_an_error(journalctl, script, reason):
    journalctl(script)
    with pytest.raises(HostError) as found:
        read_messages(QUERY)
    assert str(found.value) == reason


def test_rights_are_checked_before(journalctl, tmp_path):
    asked = journalctl("true")
    (tmp_path / "journal/0123/system.journal").unlink()
    for query in (QUERY, LogQuery(units=["a.service"], manager=USER)):
        with pytest.raises(HostError, match="journal"):
            read_messages(query)
    assert not asked.exists()
