"""The init phase, where a row in tests/cases/phase.toml cannot say it: a phase that is over."""

import pytest

from podslice.model.pod import ContainerKind, InitProgress
from podslice.policy.desire import finish
from tests.unit.builders import container, pod


def with_init(*names):
    inits = [container(name, kind=ContainerKind.INIT) for name in names]
    return pod("web", containers=(*inits, container()))


@pytest.mark.parametrize(("over", "expect"), [(True, True), (False, False)])
def test_a_phase_that_is_over_stays_over(over, expect):
    """A later manifest may add init containers; one of them is started by hand and ends."""
    before = InitProgress(done=frozenset({"first"}), over=over)
    after = finish(with_init("first", "added", "other"), before, "added")
    assert after == InitProgress(done=frozenset({"first", "added"}), over=expect)


def test_the_last_init_container_ends_the_phase():
    before = InitProgress(done=frozenset({"first"}))
    assert finish(with_init("first", "last"), before, "last").over
