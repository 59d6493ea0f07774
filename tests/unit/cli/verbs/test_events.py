"""`events`: the query to the journal and the output. journalctl is a script here."""

import json
import os
import signal
from datetime import datetime

import pytest

from podslice.cli.interrupts import Interrupted
from podslice.model.event import Kind
from podslice.systemd import journal as module
from podslice.systemd.journal import Query, parse_entry
from tests.unit.builders import USER

EVICTED = {
    "__REALTIME_TIMESTAMP": "1795302032135760",
    "MESSAGE": "pod default/web is evicted: memory.available is 90Mi",
    "PRIORITY": "4",
    "PODSLICE_EVENT": "pod-evicted",
    "PODSLICE_POD": "default/web",
    "PODSLICE_UNIT": "kubepods-podweb.slice",
    "PODSLICE_SIGNAL": "memory.available",
    "_UID": "0",
}
EXCEEDED = {
    "__REALTIME_TIMESTAMP": "1795302033000000",
    "MESSAGE": "memory 1.2Gi of \x1b[31m1Gi\n",
    "PODSLICE_EVENT": "reservation-exceeded",
    "PODSLICE_UNIT": "system.slice",
}
NEWER = {
    "__REALTIME_TIMESTAMP": "1795302034000000",
    "MESSAGE": [104, 105, 255],
    "PODSLICE_EVENT": "of-a-newer-podslice",
    "PODSLICE_POD": ["shop/a", "shop/b"],
}
TIMES = [
    f"{datetime.fromtimestamp(second).astimezone():%m-%d %H:%M:%S}"
    for second in (1795302032, 1795302033, 1795302034)
]


@pytest.fixture
def journalctl(allow_effects, tmp_path, monkeypatch):
    """A journalctl that prints these entries, and writes its arguments to the file `asked`."""
    files = tmp_path / "journal" / "0123"
    files.mkdir(parents=True)
    (files / "system.journal").touch()
    monkeypatch.setattr(module, "JOURNAL_DIRECTORIES", (tmp_path / "journal",))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def make(*entries, code=0, stderr="", rejects=""):
        (tmp_path / "entries").write_text("".join(f"{json.dumps(each)}\n" for each in entries))
        script = tmp_path / "journalctl"
        script.write_text(
            f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {tmp_path}/entries\n'
            f"case \"$*\" in *'{rejects}'*) printf '%s' '{stderr}' >&2; exit {code};; esac\n"
        )
        script.chmod(0o755)
        return tmp_path / "asked"

    return make


def test_events_are_a_table_oldest_first(podslice, journalctl):
    journalctl(EVICTED, EXCEEDED, NEWER)
    ended = podslice("events")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "TIME            POD           MESSAGE",
        f"{TIMES[0]}  default/web   {EVICTED['MESSAGE']}",
        rf"{TIMES[1]}  system.slice  memory 1.2Gi of \x1b[31m1Gi\n",
        rf"{TIMES[2]}  shop/a        hi\xff",
    ]


def test_wide_there_are_level_unit_and_zone(podslice, journalctl):
    journalctl(EVICTED)
    head, row = podslice("events", "-o", "wide").out.splitlines()
    assert head.split() == ["TIME", "LEVEL", "KIND", "POD", "UNIT", "MESSAGE"]
    when, *rest = row.split()
    assert datetime.fromisoformat(when).timestamp() == 1795302032.135
    assert rest[:4] == ["warning", "pod-evicted", "default/web", "kubepods-podweb.slice"]


def test_events_as_json(podslice, journalctl):
    journalctl(EVICTED, EXCEEDED)
    document = json.loads(podslice("events", "-o", "json").out)
    assert document["version"] == 1
    assert document["events"][0] == {
        "time_usec": 1795302032135760,
        "kind": "pod-evicted",
        "level": "warning",
        "pod": "default/web",
        "unit": "kubepods-podweb.slice",
        "message": EVICTED["MESSAGE"],
        "fields": {"signal": "memory.available"},
    }
    assert document["events"][1]["pod"] is None


def test_the_names_are_those_of_pods(podslice, journalctl):
    journalctl(EVICTED, EXCEEDED, NEWER)
    assert podslice("events", "-o", "name").out == "default/web\nshop/a\n"


def applied(minute, value="100%", **more):
    """The event of an applied pod, at this minute."""
    unit = "kubepods-burstable-podweb.default.slice"
    return {
        "__REALTIME_TIMESTAMP": str((1795302032 + 60 * minute) * 1_000_000),
        "MESSAGE": f"started {unit} (default/web) with CPUQuota={value}",
        "PODSLICE_EVENT": "pod-applied",
        "PODSLICE_POD": "default/web",
        "PODSLICE_UNIT": unit,
        **more,
    }


def test_a_line_is_about_the_pod_and_fits_the_terminal(podslice, journalctl, monkeypatch):
    journalctl(applied(0))
    _, row = podslice("events").out.splitlines()
    assert row == f"{TIMES[0]}  default/web  started with CPUQuota=100%"


def test_the_same_event_is_one_line(podslice, journalctl):
    other = applied(1, PODSLICE_POD="default/db")
    journalctl(applied(0), other, applied(1, "200%"), applied(3, "300%"))
    rows = podslice("events").out.splitlines()[1:]
    assert [row.split("  ")[-1].strip() for row in rows] == [
        other["MESSAGE"],
        "started with CPUQuota=300% (3 times in 3 min)",
    ]
    last = json.loads(podslice("events", "-o", "json").out)["events"][-1]
    assert (last["count"], last["time_usec"] - last["first_time_usec"]) == (3, 180_000_000)
    assert podslice("events", "-o", "name").out == "default/db\ndefault/web\n"


def test_the_latest_fifty_are_shown(podslice, journalctl):
    pods = [f"default/web-{n}" for n in range(60)]
    events = [applied(n, PODSLICE_POD=pod) for n, pod in enumerate(pods)]
    asked = journalctl(*events, *(applied(60 + n, PODSLICE_POD=pods[-1]) for n in range(60)))
    note = "these are the latest 50 events; to show all: podslice events --all\n"
    assert podslice("events", "-o", "name").out.splitlines() == pods[10:]
    assert podslice("events").err == note
    assert "--lines=2000" in asked.read_text()
    assert podslice("events", "--tail", "7", "-o", "name").out.splitlines() == pods[-7:]
    assert podslice("events", "--tail", "0", "-o", "name").out == ""
    for options in (["--all"], ["--since", "1h"]):
        ended = podslice("events", *options)
        assert (len(ended.out.splitlines()), ended.err) == (61, "")
        assert "--lines" not in asked.read_text()
    journalctl(*events[:50])
    assert podslice("events").err == ""


def test_a_misspelled_pod_is_an_error_with_the_nearest_name(podslice, journalctl, web, memory):
    podslice("apply", "-f", web)
    journalctl()
    ended = podslice("events", "-n", "shop", "wbe")
    hint = "no such pod, and no events about it; did you mean shop/web?"
    assert ended == (2, "", f"error: shop/wbe: {hint}\n")
    assert podslice("events", "-n", "shop", "web").code == 0
    journalctl(EVICTED)
    assert podslice("events", "default/web").code == 0


def test_without_events_the_source_of_events_is_named(podslice, journalctl):
    journalctl()
    assert podslice("events") == (
        0,
        "no events; podslice-agent.service logs them, and verbs that change something\n",
        "",
    )
    assert json.loads(podslice("events", "-o", "json").out)["events"] == []


def test_followed_each_is_printed_by_itself(podslice, journalctl):
    asked = journalctl(EVICTED, EXCEEDED)
    lines = podslice("events", "-f").out.splitlines()
    assert lines[0].split() == ["TIME", "POD", "MESSAGE"]
    assert lines[1] == f"{TIMES[0]}  default/web           {EVICTED['MESSAGE']}"
    assert "--lines=10 --follow" in asked.read_text()
    documents = [
        json.loads(line) for line in podslice("events", "-f", "-o", "json").out.split("\n")[:-1]
    ]
    assert [(each["version"], each["events"][0]["kind"]) for each in documents] == [
        (1, "pod-evicted"),
        (1, "reservation-exceeded"),
    ]
    assert podslice("events", "-f", "-o", "yaml").out.count("---\nversion: 1\n") == 2
    assert podslice("events", "-f", "-o", "name").out == "default/web\n"
    wide = podslice("events", "-f", "-o", "wide").out.splitlines()
    assert [line.index("of") for line in wide[2:]] == [143]
    assert wide[2].endswith(r"memory 1.2Gi of \x1b[31m1Gi\n")


def test_an_interruption_ends_following_without_an_error(podslice, journalctl, monkeypatch):
    def interrupted(number):
        def read(*_, **__):
            yield parse_entry(json.dumps(EVICTED).encode())
            raise Interrupted(number)

        return read

    monkeypatch.setattr(module, "read_events", interrupted(signal.SIGINT))
    ended = podslice("events", "--follow", "-o", "name")
    assert ended == (0, "default/web\n\n", "")
    monkeypatch.setattr(module, "read_events", interrupted(signal.SIGTERM))
    with pytest.raises(Interrupted):
        podslice("events", "--follow")


def test_following_ends_when_the_reader_closes_the_pipe(journalctl):
    """The events end at once, not at the next event."""
    asked = journalctl(EVICTED)
    # as journalctl --follow does: one event, then none
    script = asked.with_name("journalctl")
    script.write_text(f"#!/bin/sh\ncat {asked.with_name('entries')}\nexec sleep 1000\n")
    reader, writer = os.pipe()
    entries = module.read_events(Query(follow=True), reader=writer)
    assert next(entries).kind == "pod-evicted"
    os.close(reader)
    assert list(entries) == []
    os.close(writer)


def test_the_last_line_needs_no_end(journalctl):
    journalctl(EVICTED)
    entries = journalctl().with_name("entries")
    entries.write_text(json.dumps(EVICTED))
    assert [entry.kind for entry in module.read_events(Query())] == ["pod-evicted"]


def arguments(**more):
    return Query(**more).arguments


def test_only_messages_of_root_are_events_of_root():
    """All users may write to the journal."""
    asked = arguments()
    assert asked[:4] == ["--quiet", "--all", "--no-pager", "--output=json"]
    assert asked[4] == "_UID=0"
    assert asked[5:] == [f"MESSAGE_ID={kind.message_id}" for kind in Kind]
    assert f"_UID={USER.uid}" in arguments(manager=USER)


def test_pods_may_be_named(podslice, journalctl):
    asked = journalctl()
    podslice("events", "web", "shop/db", "-n", "prod")
    assert asked.read_text().endswith(" PODSLICE_POD=prod/web PODSLICE_POD=shop/db\n")


@pytest.mark.parametrize(
    ("since", "asked"),
    [
        ("2h", "--since=-2h"),
        ("1h30m", "--since=-1h30m"),
        ("10 min", "--since=-10 min"),
        ("-2h", "--since=-2h"),
        ("2h ago", "--since=2h ago"),
        ("yesterday", "--since=yesterday"),
        ("2026-01-31 12:00", "--since=2026-01-31 12:00"),
        ("12:00", "--since=12:00"),
        ("@1795302032", "--since=@1795302032"),
    ],
)
def test_a_span_of_time_means_since_then(since, asked):
    assert asked in arguments(since=since)


def test_lines_and_since_apply_when_following_too():
    assert {"--lines=3", "--follow"} <= {*arguments(lines=3, follow=True)}
    assert not [each for each in arguments(follow=True) if each.startswith("--lines")]


@pytest.mark.parametrize("stderr", ["Failed to parse timestamp: soon", "in another language"])
def test_an_invalid_time_is_bad_input(podslice, journalctl, stderr):
    journalctl(code=1, stderr=stderr, rejects="--since")
    ended = podslice("events", "--since", "soon")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: --since: 'soon' is not a time; write 2h, yesterday, or ")


@pytest.mark.parametrize("since", [(), ("--since=1h",)])
@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        ("timestamp, permission: Input/output error", "journal: timestamp, permission: Input/"),
        ("", "cannot read the journal: journalctl failed"),
    ],
)
def test_a_journal_that_can_not_be_read_is_an_error(podslice, journalctl, stderr, message, since):
    journalctl(code=1, stderr=stderr)
    ended = podslice("events", "--user", *since)
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert message in ended.err


def test_a_user_without_a_readable_journal_is_denied(podslice, journalctl, tmp_path):
    journalctl(code=1, stderr="in another language")
    (tmp_path / "journal/0123/system.journal").unlink()
    ended = podslice("events", "--user")
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "permission to read the journal denied" in ended.err


@pytest.mark.parametrize(
    ("uid", "message"),
    [(0, "this host keeps no journal"), (1000, "run as root, or join the group systemd-journal")],
)
def test_a_journal_that_is_not_there_is_not_taken_for_an_empty_one(
    podslice, journalctl, tmp_path, monkeypatch, uid, message
):
    journalctl(EVICTED)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    (tmp_path / "journal/0123/system.journal").unlink()
    ended = podslice("events")
    assert (ended.code, ended.out) == (1, "")
    assert message in ended.err
    # one's own may be in another file
    assert podslice("events", "--user", "-o", "name").out == "default/web\n"


def test_a_missing_journalctl_is_an_error(podslice, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = podslice("events")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: journalctl is not installed")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("exec tr '\\0' x < /dev/zero", "journalctl: a line of its output is longer than"),
        ("exec tr '\\0' x < /dev/zero >&2", "journalctl: its output is longer than"),
        ("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1", "cannot read the journal: xxx"),
    ],
    ids=["a line", "messages", "the reason"],
)
def test_a_journalctl_that_prints_without_end(podslice, journalctl, tmp_path, lines, message):
    journalctl()
    (tmp_path / "journalctl").write_text(f"#!/bin/sh\n{lines}\n")
    ended = podslice("events", "--user")
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert message in ended.err
    assert len(ended.err) < 1000
