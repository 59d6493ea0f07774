"""Progress on stderr: what is drawn, and when."""

import asyncio
import io
import os
import sys

import pytest

from podslice.cli import output, progress
from podslice.cli.progress import StepProgress, Waiting, progress_line
from podslice.model.unit import Occupants, UnitName
from podslice.plan import Plan, StopUnit
from podslice.reconcile.report import Outcome, StepResult


def waiting(pod, elapsed_sec, grace_sec):
    return Waiting(pod=pod, elapsed_sec=elapsed_sec, grace_sec=grace_sec)


PODS = [waiting("default/db", 5, 300), waiting("default/web", 5, 30), waiting("shop/app", 5, 60)]


@pytest.mark.parametrize(
    ("pods", "width", "line"),
    [
        ([], None, "3 of 9 steps done"),
        ([], 10, "3 of 9 ste"),
        (PODS[:1], None, "3 of 9 steps done; terminating: default/db (5 of 300 s)"),
        (
            PODS,
            None,
            (
                "3 of 9 steps done; terminating: default/web (5 of 30 s), shop/app (5 of 60 s),"
                " default/db (5 of 300 s)"
            ),
        ),
        (PODS, 70, "3 of 9 steps done; terminating: default/web (5 of 30 s) and 2 more"),
        (PODS, 60, "3 of 9 steps done; terminating: 3 pods"),
        (PODS, 20, "3 of 9 steps done; t"),
        (
            PODS * 3,
            None,
            (
                "3 of 9 steps done; terminating: default/web (5 of 30 s), default/web (5 of 30 s),"
                " default/web (5 of 30 s), shop/app (5 of 60 s), shop/app (5 of 60 s) and 4 more"
            ),
        ),
    ],
)
def test_the_line_fits(pods, width, line):
    assert progress_line(3, 9, pods, width=width) == line


class Terminal(io.StringIO):
    """A terminal of unknown width."""

    def isatty(self):
        return True


class Pipe(io.StringIO):
    """Not a terminal."""


def stop(number, tasks=1):
    return StopUnit(
        name=UnitName(f"kubepods-pod{number}.slice"),
        why="it was deleted",
        tasks=tasks,
        pod=f"default/{number}",
        grace_sec=30,
        occupants=Occupants(processes=tasks),
    )


@pytest.fixture
def clock(monkeypatch):
    """Ticks follow each other at once; the clock is advanced by hand."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "FIRST_SEC", 0)
    monkeypatch.setattr(progress, "REDRAW_SEC", 0)
    monkeypatch.setattr(progress, "INTERVAL_SEC", 0)
    return [0.0]


async def turns(count=3):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_on_a_terminal_one_line_is_redrawn_and_wiped(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    shown = StepProgress(now=lambda: clock[0])
    shown.start(Plan(steps=(stop(1), stop(2, tasks=0))))
    async with shown.shown():
        await turns()
        clock[0] = 7.9
        shown.step(StepResult(step=stop(2, tasks=0), outcome=Outcome.DONE))
        await turns()
        output.note("a note")
        await turns()
        shown.step(StepResult(step=stop(1), outcome=Outcome.DONE))
        await turns()
    head, *frames = sys.stderr.getvalue().split("\r")
    assert head == "stopping 1 process of pod default/1, up to 30 s\n"
    lines = list(dict.fromkeys(frame.removesuffix("\033[K") for frame in frames))
    assert lines == [
        "0 of 2 steps done; terminating: default/1 (0 of 30 s)",
        "1 of 2 steps done; terminating: default/1 (7 of 30 s)",
        "\033[Ka note\n",
        "2 of 2 steps done",
        "",
    ]


async def test_in_a_pipe_there_is_a_line_now_and_then(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Pipe())
    shown = StepProgress(now=lambda: clock[0])
    async with shown.shown():
        await turns()
        assert sys.stderr.getvalue() == ""  # there are no steps yet
        shown.start(Plan(steps=(stop(1),)))
        clock[0] = 10.0
        await turns()
    lines = sys.stderr.getvalue().splitlines()
    assert lines[0] == "stopping 1 process of pod default/1, up to 30 s"
    assert set(lines[1:]) == {"0 of 1 steps done; terminating: default/1 (10 of 30 s)"}


async def test_short_work_draws_nothing(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    shown = StepProgress()
    async with shown.shown():
        shown.start(Plan(steps=(stop(1, tasks=0),)))
        await turns()
    assert sys.stderr.getvalue() == ""


def test_many_waits_are_noted_in_few_lines(capsys):
    StepProgress().start(Plan(steps=tuple(map(stop, range(100)))))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[-1] == "… and 90 more pods"


@pytest.mark.parametrize(("term", "expect"), [("xterm", True), ("dumb", False), (None, False)])
def test_terminals_that_cannot_redraw_get_lines(monkeypatch, term, expect):
    monkeypatch.setattr(sys, "stderr", Terminal())
    if term is None:
        monkeypatch.delenv("TERM", raising=False)
    else:
        monkeypatch.setenv("TERM", term)
    assert progress.is_redrawn() is expect


def test_the_line_has_the_width_of_the_terminal(clock, monkeypatch):
    class Sized(Terminal):
        def fileno(self):
            return 2

    monkeypatch.setattr(sys, "stderr", Sized())
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((50, 24)))
    shown = StepProgress(now=lambda: clock[0])
    shown.start(Plan(steps=(stop(1),)))

    async def draw():
        async with shown.shown():
            await turns()

    asyncio.run(draw())
    assert "\r0 of 1 steps done; terminating: 1 pod\033[K" in sys.stderr.getvalue()
