"""`top` at a terminal and without one, on a real systemd."""

import json
import re

import pytest

from tests.host import agent, test_run, users
from tests.host.scenario import BIG, apply
from tests.host.test_run import exits_with
from tests.lab import fixtures

BUSY = """\
apiVersion: v1
kind: Pod
metadata: {name: busy, uid: busy}
spec:
  containers:
  - {name: main, resources: {limits: {cpu: 100m, memory: 64Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: idle, uid: idle}
spec:
  containers:
  - {name: main, resources: {limits: {cpu: 100m, memory: 64Mi}}}
"""
TOP = ["python3", "-m", "podslice", "top", "--interval", "300ms"]
RUN = ("run", "busy", "-c", "main", "--detach", "--")
ENTERED = "\x1b[?1049h\x1b[?7l\x1b[?25l"
LEFT = "\x1b[?25h\x1b[?7h\x1b[?1049l"
UP, DOWN, END, PAGE_UP, ESCAPE = "\x1b[A", "\x1b[B", "\x1b[F", "\x1b[5~", "\x1b"


def with_busy(machine):
    machine.put("/tmp/busy.yaml", BUSY)
    apply(machine, "-f", "/tmp/busy.yaml", *BIG)
    machine.podslice(*RUN, "sh", "-c", "while :; do :; done")
    return machine


@pytest.fixture
def busy(clean_machine):
    """A machine with two pods, of which one uses all that it may."""
    yield with_busy(clean_machine)
    clean_machine.podslice("delete", "--all", "--grace-period=0")


@pytest.fixture
def fast_busy(namespace):
    """The same, where processes start fast."""
    for machine in fixtures.keep_clean(namespace):
        yield with_busy(machine)
        machine.podslice("delete", "--all", "--grace-period=0")


def at_a_terminal(machine, *acts, TERM="xterm"):  # noqa: N803 (as the environment has it)
    return test_run.at_a_terminal(machine, TOP, *acts, TERM=TERM)


def as_json(machine, *arguments):
    return json.loads(machine.podslice("top", "-o", "json", *arguments).stdout)


def test_a_snapshot_has_the_use_between_two_measurements(busy):
    seen = as_json(busy, "--interval=1s")
    one, other = seen["pods"]
    assert (one["pod"], other["pod"]) == ("default/busy", "default/idle")
    # how much, here and below, depends on what else the host runs
    assert one["throttled_percent"] > 0
    assert one["memory_limit_bytes"] == 64 * 2**20
    assert one["tasks"] == 1
    (container,) = one["containers"]
    assert container["unit"] == "podslice-podbusy-main.service"
    assert other["containers"] == []
    assert seen["node"]["cpu_milli"] > 0
    groups = {group["unit"]: group for group in seen["groups"]}
    assert groups["kubepods.slice"]["tasks"] == 1
    if busy.kind == "vm":  # elsewhere not everything is counted
        agent.until(lambda: has_the_use(as_json(busy, "--interval=1s")), what="the use of the pods")


def has_the_use(seen):
    """Return whether a snapshot has the use of the CPU.

    The kernel charges a halt of the emulated machine to the process, between two reads or before
    both, and throttles it for longer afterwards: not each snapshot has it.
    """
    one, other = seen["pods"]
    (container,) = one["containers"]
    assert other["cpu_milli"] == 0
    is_equal = container["cpu_milli"] == pytest.approx(one["cpu_milli"], rel=0.5, abs=40)
    # 100 by its quota
    return 0 < one["cpu_milli"] <= 300 and is_equal and one["cpu_pressure_percent"] > 1


def test_without_a_terminal_it_prints_once(fast_busy):
    lines = fast_busy.podslice("top", "--interval=200ms").stdout.splitlines()
    assert lines[0].startswith("cpu ")
    titles = "NAME CPU / LIMIT MEM / LIMIT MEM% THROTTLED TASKS PRESSURE"
    assert lines[3].split() == titles.split()
    assert lines[4].split()[0] == "node"
    assert lines[-2].split()[0] == "default/busy"
    wide = fast_busy.podslice("top", "--interval=200ms", "-o", "wide", "--sort=name").stdout
    assert "\n  main " in wide
    names = fast_busy.podslice("top", "--interval=200ms", "-o", "name").stdout
    assert names == "default/busy\ndefault/idle\n"


def test_at_a_terminal_it_runs_until_it_is_stopped(fast_busy):
    acts = [
        ["resize", 24, 100],
        ["see", ENTERED],
        ["see", "2 pods by cpu, every 0.3 s"],
        ["see", "default/busy"],
        ["see", "default/idle"],
        ["type", "n"],
        ["see", "2 pods by name"],
        ["type", "w"],
        ["see", "\x1b[K  main "],
        ["type", "m"],
        ["see", "by memory"],
        ["resize", 8, 50],
        ["see", " rows  q quit"],
        ["resize", 40, 120],
        ["see", "w containers"],
        ["type", "xyz"],
        ["type", "q"],
    ]
    ended = at_a_terminal(fast_busy, *acts)
    assert ended["exit_code"] == 0
    assert ended["screen"].endswith(LEFT)
    sizes = {len(frame) for frame in frames(ended["screen"]) if " rows  q quit" in frame[-1]}
    assert 8 in sizes


def frames(screen):
    """The screens in the order in which they were drawn, as lines without styles."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen)
    ends = re.compile(r"\r\n\x1b\[J|\x1b\[\?")
    drawn = [ends.split(part)[0].removeprefix("\x1b[K") for part in plain.split("\x1b[H")[1:]]
    return [frame.split("\r\n\x1b[K") for frame in drawn]


CROWD = "---\n".join(
    f"""\
apiVersion: v1
kind: Pod
metadata: {{name: frontend-web-server-{number:02}-of-the-large-shop, namespace: production}}
spec: {{containers: [{{name: main}}]}}
"""
    for number in range(63)
)


def test_keys_scroll_filter_and_open_pods(namespace):
    namespace.put("/tmp/crowd.yaml", CROWD)
    apply(namespace, "-f", "/tmp/crowd.yaml", *BIG)
    acts = [
        ["resize", 24, 80],
        ["see", "63 pods by cpu"],
        ["type", "n"],
        ["see", "63 pods by name"],
        ["see", "1-18 of 68 rows"],
        ["type", END],
        ["see", "51-68 of 68 rows"],
        ["type", PAGE_UP + PAGE_UP],
        ["see", "34-51 of 68 rows"],
        ["type", "/er-4"],
        ["see", "filter: er-4"],
        ["see", "/er-4▏"],
        ["type", "\r"],
        ["see", "? help"],
        ["type", DOWN + DOWN + UP + "\r"],
        ["see", "loading"],
        ["see", "pod production/frontend-web-server-41-of-the-large-shop"],
        ["see", "CONTAINERS"],
        ["see", "Esc back"],
        ["type", END],
        ["see", "EVENTS"],
        ["type", ESCAPE],
        ["see", "10 of 63 pods"],
        ["type", ESCAPE],
        ["see", " 63 pods by name"],
        ["type", "?"],
        ["see", "Keys"],
        ["type", "x"],
        *(
            act
            for size in ([20, 60], [30, 120], [50, 200])
            for act in (["resize", *size], ["see", " 63 pods by name"], ["see", "q quit"])
        ),
        ["type", "q"],
    ]
    ended = at_a_terminal(namespace, *acts)
    assert ended["exit_code"] == 0
    assert ended["screen"].endswith(LEFT)
    drawn = frames(ended["screen"])
    assert max(len(line) for frame in drawn[-3:] for line in frame) <= 200
    listed = next(frame for frame in drawn if frame[-1].startswith("1-18 of 68 rows"))
    assert len(listed) == 24
    assert max(map(len, listed)) <= 80
    pods = [line.split()[0] for line in listed if "-shop " in line]
    assert len(set(pods)) == len(pods) == 13


@pytest.mark.parametrize(
    ("signal", "code", "line"),
    [(2, 0, ""), (15, 143, "terminated: nothing was changed\n"), (1, 129, "")],
)
def test_a_signal_ends_it_and_restores_the_screen(fast_busy, signal, code, line):
    ended = at_a_terminal(fast_busy, ["see", "pods by"], ["signal", signal])
    assert ended["exit_code"] == code
    assert ended["screen"].endswith(f"{LEFT}{line}")


def test_a_shell_may_stop_it_and_its_terminal_is_restored(fast_busy):
    top = " ".join(TOP)
    acts = [
        ["type", "stty -g > /tmp/before\n"],
        ["see", "shop> "],
        ["type", f"{top}\n"],
        ["see", "pods by"],
        ["type", "\x1a"],
        ["see", LEFT],
        ["see", "Stopped"],
        ["see", "shop> "],
        ["type", "stty -g > /tmp/stopped\n"],
        ["see", "shop> "],
        ["type", "fg\n"],
        ["see", ENTERED],
        ["see", "pods by"],
        ["type", "\x03"],
        ["see", LEFT],
        *exits_with(0),
        ["type", "stty -g > /tmp/after\n"],
        ["see", "shop> "],
    ]
    test_run.in_a_shell(fast_busy, *acts, TERM="xterm")
    before, stopped, after = (
        fast_busy.get(f"/tmp/{name}") for name in ("before", "stopped", "after")
    )
    assert before == stopped == after


def test_a_dumb_terminal_gets_a_snapshot(fast_busy):
    ended = at_a_terminal(fast_busy, TERM="dumb")
    assert ended["exit_code"] == 0
    assert "\x1b" not in ended["screen"]
    assert "default/busy" in ended["screen"]


def test_any_user_may_run_it(fast_busy):
    ended = users.podslice(fast_busy, "top", "--interval=100ms", "-o", "name")
    assert ended.stdout == "default/busy\ndefault/idle\n"
