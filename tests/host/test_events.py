"""Events of podslice in a real journal, in the output of `events`, and in the journal's own tools."""

import json

import pytest

from podslice.model.event import Kind
from tests.host import users
from tests.host.test_run import at_a_terminal

pytestmark = pytest.mark.namespace

LOG_EVENTS = """\
from podslice.systemd.journal import Journal
from podslice.model.event import Event, Kind

journal = Journal()
for kind, pod, message in (
    (Kind.POD_APPLIED, "lab/logged", "it is there"),
    (Kind.POD_OOM, "lab/other", "a line\\nand another " + "x" * 300_000),
    (Kind.POD_EVICTED, "lab/logged", "memory.available is 90Mi"),
):
    journal.log(Event(kind=kind, pod=pod, unit="kubepods-podlogged.slice", message=message))
journal.close()
"""
OUTSIDE = {"PYTHONPATH": "/src", "PYTHONDONTWRITEBYTECODE": "1"}
CATALOG = "/usr/lib/systemd/catalog/podslice.catalog"


def log_events(machine, *prefix):
    machine.run(*prefix, "python3", "-c", LOG_EVENTS, env=OUTSIDE)
    machine.run("journalctl", "--sync")


@pytest.fixture
def logged(machine):
    """A machine whose journal has three events, the latest ones."""
    log_events(machine)
    return machine


def events(machine, *arguments):
    shown = machine.podslice("events", "-o", "json", *arguments).stdout
    return json.loads(shown)["events"]


def test_events_are_those_that_were_logged(logged):
    applied, oom, evicted = events(logged, "--lines=3")
    assert [each["kind"] for each in (applied, oom, evicted)] == [
        "pod-applied",
        "pod-oom",
        "pod-evicted",
    ]
    assert oom["message"] == "a line\nand another " + "x" * 300_000
    assert (evicted["pod"], evicted["level"]) == ("lab/logged", "warning")
    assert evicted["unit"] == "kubepods-podlogged.slice"
    of_pod = events(logged, "--lines=2", "-n", "lab", "logged")
    assert [each["kind"] for each in of_pod] == ["pod-applied", "pod-evicted"]
    assert events(logged, "--since", "2099-01-01") == []
    assert events(logged, "--since=1h", "--lines=1") == [evicted]
    bad = logged.podslice("events", "--since", "soonish", check=False)
    assert (bad.exit_code, bad.stderr.count("\n")) == (2, 1)


def test_another_user_cannot_forge_events(logged):
    before = events(logged, "--lines=3")
    log_events(logged, "runuser", "-u", users.NAME, "--")
    assert events(logged, "--lines=3") == before


def test_the_log_of_the_slice_has_its_events(logged):
    shown = logged.run("journalctl", "-u", "kubepods-podlogged.slice", "-n1", "-o", "cat").stdout
    assert shown == "memory.available is 90Mi\n"


def test_the_journal_explains_every_kind(logged):
    logged.run("cp", "/src/units/catalog/podslice.catalog", CATALOG)
    try:
        updated = logged.run("journalctl", "--update-catalog")
        assert updated.stderr == ""
        listed = logged.run("journalctl", "--list-catalog").stdout
        assert {line.split()[0] for line in listed.splitlines() if " podslice: " in line} == {
            kind.message_id for kind in Kind
        }
        explained = logged.run("journalctl", "-x", "-n1", "PODSLICE_POD=lab/logged").stdout
        assert "Subject: Pod lab/logged was evicted\n" in explained
        assert "podslice readmit lab/logged\n" in explained
    finally:
        logged.run("rm", CATALOG)
        logged.run("journalctl", "--update-catalog")


def test_follow_prints_events_as_they_happen(namespace):
    log_events(namespace)
    argv = ["python3", "-m", "podslice", "events", "--follow", "--lines=1"]
    # the last earlier event shows that it follows
    acts = [
        ["see", "memory.available is"],
        ["run", "python3", "-c", LOG_EVENTS],
        ["see", "it is there"],
        ["see", "memory.available is"],
    ]
    ended = at_a_terminal(namespace, argv, *acts, ["type", "\x03"])
    assert ended["exit_code"] == 0
    assert ended["screen"].startswith("TIME ")
    left = namespace.run("pgrep", "-x", "journalctl", check=False)
    assert left.stdout == ""


def test_a_reader_that_closes_the_pipe_ends_it(namespace):
    log_events(namespace)
    # the reader has closed the pipe when the next events arrive
    reader = f"(head -n 2; exec </dev/null; exec python3 -c '{LOG_EVENTS}')"
    ended = namespace.run("sh", "-c", f"python3 -m podslice events -f | {reader}", env=OUTSIDE)
    assert ended.stdout.count("\n") == 2
    assert namespace.run("pgrep", "-x", "journalctl", check=False).stdout == ""
