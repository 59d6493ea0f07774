"""What podslice tells a real journal, what `events` makes of it, and the journal's own tools."""

import json

import pytest

from podslice.model.event import Kind
from tests.host import users
from tests.host.test_run import at_a_terminal

TELL = """\
from podslice.systemd.journal import Journal
from podslice.model.event import Event, Kind

journal = Journal()
for kind, pod, message in (
    (Kind.POD_APPLIED, "lab/told", "it is there"),
    (Kind.POD_OOM, "lab/other", "a line\\nand another " + "x" * 300_000),
    (Kind.POD_EVICTED, "lab/told", "memory.available is 90Mi"),
):
    journal.log(Event(kind=kind, pod=pod, unit="kubepods-podtold.slice", message=message))
journal.close()
"""
OUTSIDE = {"PYTHONPATH": "/src", "PYTHONDONTWRITEBYTECODE": "1"}
CATALOG = "/usr/lib/systemd/catalog/podslice.catalog"


def tell(machine, *prefix):
    machine.run(*prefix, "python3", "-c", TELL, env=OUTSIDE)
    machine.run("journalctl", "--sync")


@pytest.fixture
def told(machine):
    """A machine whose journal has three events, the latest ones."""
    tell(machine)
    return machine


def events(machine, *arguments):
    shown = machine.podslice("events", "-o", "json", *arguments).stdout
    return json.loads(shown)["events"]


def test_events_are_what_was_told(told):
    applied, oom, evicted = events(told, "--lines=3")
    assert [each["kind"] for each in (applied, oom, evicted)] == [
        "pod-applied",
        "pod-oom",
        "pod-evicted",
    ]
    assert oom["message"] == "a line\nand another " + "x" * 300_000
    assert (evicted["pod"], evicted["level"]) == ("lab/told", "warning")
    assert evicted["unit"] == "kubepods-podtold.slice"
    of_pod = events(told, "--lines=2", "-n", "lab", "told")
    assert [each["kind"] for each in of_pod] == ["pod-applied", "pod-evicted"]
    assert events(told, "--since", "2099-01-01") == []
    assert events(told, "--since=1h", "--lines=1") == [evicted]
    bad = told.podslice("events", "--since", "soonish", check=False)
    assert (bad.exit_code, bad.stderr.count("\n")) == (2, 1)


def test_nobody_else_can_make_up_events(told):
    before = events(told, "--lines=3")
    tell(told, "runuser", "-u", users.NAME, "--")
    assert events(told, "--lines=3") == before


def test_the_slice_itself_shows_what_befell_it(told):
    shown = told.run("journalctl", "-u", "kubepods-podtold.slice", "-n1", "-o", "cat").stdout
    assert shown == "memory.available is 90Mi\n"


def test_the_journal_explains_every_kind(told):
    told.run("cp", "/src/units/catalog/podslice.catalog", CATALOG)
    try:
        updated = told.run("journalctl", "--update-catalog")
        assert updated.stderr == ""
        listed = told.run("journalctl", "--list-catalog").stdout
        assert {line.split()[0] for line in listed.splitlines() if " podslice: " in line} == {
            kind.message_id for kind in Kind
        }
        explained = told.run("journalctl", "-x", "-n1", "PODSLICE_POD=lab/told").stdout
        assert "Subject: Pod lab/told was evicted\n" in explained
        assert "podslice readmit lab/told\n" in explained
    finally:
        told.run("rm", CATALOG)
        told.run("journalctl", "--update-catalog")


def test_followed_they_come_as_they_happen(namespace):
    tell(namespace)
    argv = ["python3", "-m", "podslice", "events", "--follow", "--lines=1"]
    # the last event of before says that it follows
    acts = [
        ["see", "pod-evicted"],
        ["run", "python3", "-c", TELL],
        ["see", "pod-applied"],
        ["see", "pod-evicted"],
    ]
    ended = at_a_terminal(namespace, argv, *acts, ["type", "\x03"])
    assert ended["exit_code"] == 0
    assert ended["screen"].startswith("TIME ")
    left = namespace.run("pgrep", "-x", "journalctl", check=False)
    assert left.stdout == ""


def test_a_reader_that_has_enough_ends_it(namespace):
    tell(namespace)
    # the reader has closed the pipe when the next events arrive
    reader = f"(head -n 2; exec </dev/null; exec python3 -c '{TELL}')"
    ended = namespace.run("sh", "-c", f"python3 -m podslice events -f | {reader}", env=OUTSIDE)
    assert ended.stdout.count("\n") == 2
    assert namespace.run("pgrep", "-x", "journalctl", check=False).stdout == ""
