"""What a step of a feature has without a definition of its own."""

import pytest

from podslice.plan import Action, PodStep

STEP = PodStep(action=Action.WRITE, pod="default/web", name="web.service", why="its slice changed")


def test_it_is_described_by_its_name_and_reason():
    assert STEP.planned_subject == STEP.subject == "web.service (default/web): its slice changed"
    assert STEP.describe_rest("refused") == ("", None)


def test_it_is_not_an_event():
    assert STEP.event is None


@pytest.mark.parametrize("action", Action)
def test_only_a_stop_ends_something(action):
    assert PodStep(action=action, pod="a/b", name="c").is_end == (action is Action.STOP)
