import asyncio
import os
import time
from dataclasses import replace

import pytest

from podslice.agent import board as module
from podslice.errors import HostError, Problem
from podslice.model.event import Kind
from podslice.model.node_state import Condition, Eviction
from podslice.reconcile.readmission import living_agent
from podslice.store import Store
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.agents import make_board

MARK = Eviction(
    pod="default/web",
    uid="web",
    digest="d",
    signal="memory.available",
    message="short",
    at_usec=1,
)
WRONG = Problem(where="a.yaml", message="wrong")


@pytest.fixture
def board(tmp_path):
    return make_board(tmp_path, FakeSystemd())


@pytest.fixture
def full(board, monkeypatch):
    """No mark can be written while there is anything in this list."""
    reasons = [True]

    def mark_evicted(self, mark, write=Store.mark_evicted):
        if reasons:
            # as the real one: the file has another name each time
            raise HostError(f"{mark.uid}.new: No space left on device")
        write(self, mark)

    monkeypatch.setattr(Store, "mark_evicted", mark_evicted)
    return reasons


def events(board):
    return board.journal.all


def left(board):
    return living_agent(board.world.store)


# What it lets others know.


def test_others_see_conditions_and_problems(board):
    board.set_conditions(frozenset({Condition.PID, Condition.DISK}))
    board.set_problems("manifests", [WRONG])
    state = left(board)
    assert (state.pid, state.conditions) == (os.getpid(), (Condition.DISK, Condition.PID))
    assert state.problems == (WRONG,)


def test_what_somebody_took_away_is_written_again(board):
    board.set_conditions(frozenset({Condition.DISK}))
    board.world.store.drop_agent()
    board.publish()
    assert left(board).conditions == (Condition.DISK,)


def test_what_could_not_be_written_is_tried_again(board, tmp_path):
    place = tmp_path / "run"
    place.write_text("a file in the place of the directory")
    board.set_conditions(frozenset({Condition.DISK}))
    assert left(board) is None
    place.unlink()
    board.publish()
    assert left(board).conditions == (Condition.DISK,)


def test_what_does_not_change_is_not_written(board, tmp_path):
    board.publish()
    before = (tmp_path / "run/agent.json").stat().st_mtime_ns
    time.sleep(0.01)
    board.set_problems("manifests", [])
    assert (tmp_path / "run/agent.json").stat().st_mtime_ns == before


def test_it_leaves_nothing_behind(board):
    board.publish()
    board.leave()
    assert left(board) is None


# Failures.


def test_a_failure_is_told_once_and_so_is_its_end(board):
    board.fail("reconcile", "no bus")
    board.fail("reconcile", "no bus")
    board.recover("reconcile")
    board.recover("reconcile")
    assert [event.kind for event in events(board)] == [Kind.AGENT_FAILED, Kind.AGENT_NOTED]
    assert events(board)[1].message == "reconcile works again"
    board.fail("reconcile", "no bus")
    assert len(board.journal.of(Kind.AGENT_FAILED)) == 2


def test_another_failure_is_told(board):
    board.fail("reconcile", "no bus")
    board.fail("reconcile", "no space")
    assert board.journal.texts(Kind.AGENT_FAILED) == ["no bus", "no space"]
    assert [each.message for each in board.problems] == ["no space"]


def test_a_note_is_not_repeated_because_something_else_works_again(board):
    board.note("no pressure is told")
    board.fail("reconcile", "no bus")
    board.recover("reconcile")
    board.note("no pressure is told")
    assert board.journal.texts(Kind.AGENT_NOTED).count("no pressure is told") == 1


def test_manifests_are_no_failures_of_the_agent(board):
    board.set_problems("manifests", [WRONG])
    board.set_problems("pods", [replace(WRONG, where="b.yaml")])
    assert board.failures == ()
    board.fail("configuration", "a typing error")
    assert board.failures == ("a typing error",)
    assert len(board.problems) == 3


# Marks.


def test_a_mark_is_written(board):
    board.mark(MARK)
    assert board.world.store.load().evicted == (MARK,)
    assert not events(board)


@pytest.mark.usefixtures("full")
def test_marks_that_cannot_be_written_hold_and_are_told_once(board):
    other = replace(MARK, pod="default/db", uid="db")
    for mark in (MARK, other) * 3:
        board.mark(mark)
    assert board.unwritten == {"web": MARK, "db": other}
    first, second = board.journal.texts(Kind.AGENT_FAILED)
    assert "default/web" in first
    assert "default/db, default/web" in second


def test_marks_are_written_once_there_is_room(board, full):
    board.mark(MARK)
    full.clear()
    board.mark(MARK)
    assert not board.unwritten
    assert board.world.store.load().evicted == (MARK,)
    assert board.failures == ()


# The lock.


async def test_waiting_for_the_lock_holds_nobody_up(board):
    other, turns = Store(board.world.store.root), []

    async def take():
        async with board.locked():
            turns.append("ours")

    with other.lock():
        waiting = asyncio.create_task(take())
        for _ in range(5):
            await asyncio.sleep(0.005)
            turns.append("loop")
    await waiting
    assert turns == ["loop"] * 5 + ["ours"]
    with other.lock():
        pass  # it was given back


async def test_it_says_who_to_look_for_when_the_lock_is_not_given_back(board, monkeypatch):
    monkeypatch.setattr(module, "LOCK_PATIENCE_SEC", 0.05)
    with Store(board.world.store.root).lock(), pytest.raises(HostError, match="fuser -v"):
        async with board.locked():
            pass
