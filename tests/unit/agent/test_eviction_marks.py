from dataclasses import replace

import pytest

from podslice.errors import HostError
from podslice.model.event import Kind
from podslice.model.node_state import Eviction
from podslice.store.store import Store
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import make_context

MARK = Eviction(
    pod="default/web",
    uid="web",
    digest="d",
    signal="memory.available",
    message="short",
    at_usec=1,
)


@pytest.fixture
def context(tmp_path):
    return make_context(tmp_path, FakeSystemd())


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
