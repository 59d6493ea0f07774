from dataclasses import replace

import pytest

from podslice.errors import Problem
from podslice.model.event import Kind
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import make_context

WRONG = Problem(where="a.yaml", message="wrong")


@pytest.fixture
def context(tmp_path):
    return make_context(tmp_path, FakeSystemd())


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
