import os
import time

import pytest

from podslice.errors import Problem
from podslice.model.node_state import Condition
from podslice.reconcile.assess import living_agent
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
