"""Every table on a real terminal: at 60, 80, 120 and 200 columns, with 3 and 30 pods."""

import asyncio
import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
import threading
from itertools import takewhile

import pytest

from podslice.cli import overview
from podslice.cli.app import run
from podslice.cli.views.text_width import width_of
from podslice.systemd import journal
from podslice.systemd.journal import Entry
from tests.unit.builders import manifest

WIDTHS = (60, 80, 120, 200)
_END = "\x03"
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def pods(count):
    """Manifests of pods whose long names differ before a common end."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [
                json.loads(
                    manifest(
                        f"frontend-web-server-{n:02}-of-the-shop", {"cpu": "10m", "memory": "1Mi"}
                    )
                )
                for n in range(count)
            ],
        }
    )


@pytest.fixture
def at_terminal(here, monkeypatch):
    """Run a verb whose standard output is a terminal of this width; return its lines."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def call(width, *arguments):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, width, 0, 0))
        data = bytearray()
        reader = threading.Thread(target=_read_to_end, args=(master, data), daemon=True)
        reader.start()
        with monkeypatch.context() as patched, os.fdopen(slave, "w", encoding="utf-8") as terminal:
            patched.setattr(sys, "stdout", terminal)
            code = run(list(arguments))
            terminal.write(_END)
            terminal.flush()
            reader.join()
        os.close(master)
        assert code in (0, 3)
        return data.decode().removesuffix(_END).replace("\r\n", "\n").splitlines()

    return call


def _read_to_end(terminal, data):
    """Read while the other side is open: a kernel may drop what is unread when it is closed."""
    while not data.endswith(_END.encode()):
        data += os.read(terminal, 1 << 16)


@pytest.fixture(params=[3, 30])
def crowd(request, podslice, files, memory, monkeypatch):
    """A machine with this number of pods, and an event for each."""
    files({"pods.json": pods(request.param)})
    assert podslice("apply", "-f", "pods.json").code == 0
    events = [
        Entry(
            time_usec=1_795_302_032_000_000,
            kind="pod-refused",
            level="warning",
            pod=f"default/frontend-web-server-{n:02}-of-the-shop",
            unit=None,
            message="OutOfmemory: requested 100Gi, capacity 32Gi, allocatable 31.9Gi, in use 12Gi",
            fields={},
        )
        for n in range(request.param)
    ]
    monkeypatch.setattr(journal, "read_events", lambda *_, **__: iter(events))
    return request.param


TABLES = (
    ("status",),
    ("status", "frontend-web-server-01-of-the-shop"),
    ("tree",),
    ("top", "--once", "--interval=100ms"),
    ("events",),
    ("node",),
    ("plan", "-f", "pods.json", "--cpu-weight-mapping=kubelet"),
    ("render", "-f", "pods.json"),
)


def check_widths(at_terminal, podslice, arguments):
    """No table is wider than its terminal, and in a pipe it is complete."""
    for width in WIDTHS:
        lines = [STYLE.sub("", line) for line in at_terminal(width, *arguments)]
        found = [line for line in lines if width_of(line) > width]
        assert not found, (arguments, width)
    piped = podslice(*arguments).out
    assert "\x1b" not in piped
    assert arguments[0] == "plan" or "…" not in piped


def test_no_table_is_wider_than_its_terminal(at_terminal, podslice, crowd):
    for arguments in TABLES:
        check_widths(at_terminal, podslice, arguments)


@pytest.mark.parametrize(
    ("arguments", "title"),
    [
        (["status"], "NAME"),
        (["tree"], "NAME"),
        (["events", "--all"], "POD"),
    ],
)
def test_no_two_pods_look_the_same(at_terminal, crowd, arguments, title):
    check_pods(at_terminal, crowd, arguments, title)


def check_pods(at_terminal, crowd, arguments, title):
    """Whatever the width, the shortened names of pods are different."""
    for width in WIDTHS:
        lines = [STYLE.sub("", line) for line in at_terminal(width, *arguments)]
        head = next(line for line in lines if title in line.split())
        begin = head.index(title)
        end = re.compile(r"  +\S").search(head, begin).end() - 1
        rows = takewhile(bool, lines[lines.index(head) + 1 :])
        names = [line[begin:end].strip() for line in rows]
        of_pods = [name for name in names if re.search(r"\d", name)]
        assert len(set(of_pods)) == len(of_pods) == crowd


def test_followed_events_fit_and_their_pods_look_different(at_terminal, crowd):
    for width in WIDTHS:
        lines = [STYLE.sub("", line) for line in at_terminal(width, "events", "--follow")]
        assert max(map(width_of, lines)) <= width
        dated = [line for line in lines if re.match(r"\d\d-\d\d ", line)]
        assert len(dated) == crowd
        # before the second pod, there is no difference to keep
        assert len({line[: width - 24] for line in dated[1:]}) == crowd - 1


def test_a_terminal_has_colors_and_a_pipe_has_none(at_terminal, podslice, crowd, monkeypatch):
    assert any("\x1b[32mactive\x1b[0m" in line for line in at_terminal(80, "status"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any("\x1b" in line for line in at_terminal(80, "status"))
    assert "\x1b[32mactive\x1b[0m" in podslice("status", "--color=always").out
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not any("\x1b" in line for line in at_terminal(80, "status"))
    monkeypatch.setenv("TERM", "xterm")
    assert not any("\x1b" in line for line in at_terminal(80, "status", "--color=never"))


def test_wide_output_is_complete_also_on_a_terminal(at_terminal, podslice, crowd, monkeypatch):
    monkeypatch.setattr(overview.time, "time_ns", lambda: 2_000_000_000 * 10**9)
    lines = [STYLE.sub("", line) for line in at_terminal(60, "status", "-o", "wide")]
    assert lines == podslice("status", "-o", "wide").out.splitlines()


def test_columns_overrides_the_width_of_the_terminal(at_terminal, crowd, monkeypatch):
    narrow = at_terminal(60, "node")
    monkeypatch.setenv("COLUMNS", "60")
    assert at_terminal(200, "node") == narrow
    monkeypatch.setenv("COLUMNS", "wide")
    assert at_terminal(60, "node") == narrow


def test_status_names_the_columns_that_do_not_fit(at_terminal, podslice, crowd):
    lines = [STYLE.sub("", line) for line in at_terminal(80, "status")]
    text = "hidden at this width: QOS, WEIGHT, CPU TIME, TASKS; shown with -o wide"
    assert lines.count(text) == 1
    assert not any("hidden" in line for line in at_terminal(200, "status"))
    assert "hidden" not in podslice("status").out


def test_a_state_is_not_cut_off_beside_long_names(at_terminal, crowd):
    for width in WIDTHS:
        lines = at_terminal(width, "status")
        assert sum("not started" in line for line in lines) == crowd


def test_status_hides_no_value_that_differs(at_terminal, podslice, memory, crowd):
    names = podslice("status", "-o", "name").out.split()
    (slice_,) = (name for name in names if "-01-" in name or "_01_" in name)
    asyncio.run(memory.set_properties(slice_, {"CPUWeight": 7, "MemoryLow": 9 * 2**30}))
    for width in (40, *WIDTHS):
        lines = [STYLE.sub("", line) for line in at_terminal(width, "status")]
        assert {"WEIGHT", "LOW"} <= set(lines[0].split()), width
        assert any(" 7!" in line and "!" in line.replace(" 7!", "") for line in lines)


def test_explain_breaks_lines_between_words(at_terminal, podslice, crowd):
    whole = podslice("explain", "-f", "pods.json").out
    for width in (40, *WIDTHS):
        lines = at_terminal(width, "explain", "-f", "pods.json")
        assert " ".join(whole.split()) == " ".join(" ".join(lines).split())
        found = [line for line in lines if width_of(line) > width and len(line.split()) > 2]
        assert found == []
