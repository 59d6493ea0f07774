"""The state that the parts of the agent share: problems, marks, counters, and what is published."""

import os
import time
from dataclasses import replace

import pytest

from podslice.agent.context import Counters, Histogram, Operation
from podslice.errors import HostError, Problem
from podslice.model.event import Kind
from podslice.model.node_state import Condition, Eviction
from podslice.reconcile.assess import living_agent
from podslice.store.store import Store
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import make_context

WRONG = Problem(where="a.yaml", message="wrong")


@pytest.fixture
def context(tmp_path):
    return make_context(tmp_path, FakeSystemd())


def published(context):
    return living_agent(context.world.store)


def test_conditions_and_problems_are_published(context):
    context.status.set_conditions(frozenset({Condition.PID, Condition.DISK}))
    context.status.set_problems("manifests", [WRONG])
    state = published(context)
    assert (state.pid, state.conditions) == (os.getpid(), (Condition.DISK, Condition.PID))
    assert state.problems == (WRONG,)


def test_a_removed_file_is_written_again(context):
    context.status.set_conditions(frozenset({Condition.DISK}))
    context.world.store.agent.save(None)
    context.publish()
    assert published(context).conditions == (Condition.DISK,)


def test_a_failed_write_is_retried(context, tmp_path):
    place = tmp_path / "run"
    place.write_text("a file in the place of the directory")
    context.status.set_conditions(frozenset({Condition.DISK}))
    assert published(context) is None
    place.unlink()
    context.publish()
    assert published(context).conditions == (Condition.DISK,)


def test_an_unchanged_state_is_not_written(context, tmp_path):
    context.publish()
    before = (tmp_path / "run/agent.json").stat().st_mtime_ns
    time.sleep(0.01)
    context.status.set_problems("manifests", [])
    assert (tmp_path / "run/agent.json").stat().st_mtime_ns == before


def test_withdrawing_removes_the_state(context):
    context.publish()
    context.withdraw()
    assert published(context) is None


# Problems.


def test_a_failure_is_reported_once_and_so_is_its_end(context):
    context.status.fail("reconcile", "no bus")
    context.status.fail("reconcile", "no bus")
    context.status.recover("reconcile")
    context.status.recover("reconcile")
    assert [event.kind for event in context.events.journal.all] == [
        Kind.AGENT_FAILED,
        Kind.AGENT_NOTED,
    ]
    assert context.events.journal.all[1].message == "reconcile: recovered"
    context.status.fail("reconcile", "no bus")
    assert len(context.events.journal.of(Kind.AGENT_FAILED)) == 2


def test_another_failure_is_reported(context):
    context.status.fail("reconcile", "no bus")
    context.status.fail("reconcile", "no space")
    assert context.events.journal.texts(Kind.AGENT_FAILED) == ["no bus", "no space"]
    assert [each.message for each in context.status.problems] == ["no space"]


def test_a_note_is_not_repeated_after_a_recovery(context):
    context.events.note("the kernel does not report memory pressure")
    context.status.fail("reconcile", "no bus")
    context.status.recover("reconcile")
    context.events.note("the kernel does not report memory pressure")
    assert context.events.journal.texts(Kind.AGENT_NOTED) == [
        "the kernel does not report memory pressure",
        "reconcile: recovered",
    ]


def test_problems_of_manifests_are_not_failures_of_the_agent(context):
    context.status.set_problems("manifests", [WRONG])
    context.status.set_problems("pods", [replace(WRONG, where="b.yaml")])
    assert context.status.failures == ()
    context.status.fail("configuration", "a typing error")
    assert [each.message for each in context.status.failures] == ["a typing error"]
    assert [each.where for each in context.status.manifest_problems] == [WRONG.where, "b.yaml"]
    assert len(context.status.problems) == 3


# Marks of evicted pods.

MARK = Eviction(
    pod="default/web",
    uid="web",
    digest="d",
    signal="memory.available",
    message="short",
    at_usec=1,
)


@pytest.fixture
def full(context, monkeypatch):
    """Make writing marks fail while this list is not empty."""
    reasons = [True]

    def mark_evicted(self, mark, write=Store.mark_evicted):
        if reasons:
            # as in the store, the name of the temporary file differs each time
            raise HostError(f"{mark.uid}.new: No space left on device")
        write(self, mark)

    monkeypatch.setattr(Store, "mark_evicted", mark_evicted)
    return reasons


def test_a_mark_is_written(context):
    context.marks.write(MARK)
    assert context.world.store.load().evicted == (MARK,)
    assert not context.events.journal.all


@pytest.mark.usefixtures("full")
def test_unwritten_marks_are_in_force_and_reported_once(context):
    other = replace(MARK, pod="default/db", uid="db")
    for mark in (MARK, other) * 3:
        context.marks.write(mark)
    assert context.marks.unwritten == {"web": MARK, "db": other}
    first, second = context.events.journal.texts(Kind.AGENT_FAILED)
    assert "default/web" in first
    assert "default/db, default/web" in second


def test_unwritten_marks_are_written_later(context, full):
    context.marks.write(MARK)
    full.clear()
    context.marks.write(MARK)
    assert not context.marks.unwritten
    assert context.world.store.load().evicted == (MARK,)
    assert context.status.failures == ()


# Counters.


@pytest.mark.parametrize(
    ("seconds", "counts"),
    [(0.0, [1, 0, 0]), (1.0, [1, 0, 0]), (1.5, [0, 1, 0]), (2.0, [0, 1, 0]), (9.0, [0, 0, 1])],
)
def test_a_bound_is_inclusive(seconds, counts):
    """Source: Prometheus, "Histograms and summaries": `le` is inclusive."""
    histogram = Histogram((2.0, 1.0))
    histogram.observe(seconds)
    assert histogram.counts == counts
    assert histogram.sum_sec == seconds


def test_counters_are_not_shared():
    Counters().evictions["pid.available"] += 1
    assert not Counters().evictions
    assert Counters().operations[Operation.CREATE] is not Counters().operations[Operation.CREATE]
