"""Properties of pods in their init phase."""

import pytest

from podslice.model.config import Config, Rules
from podslice.model.pod import ContainerKind, InitProgress
from podslice.model.resources import Resources
from tests.unit.policy.desired_worlds import BESTEFFORT, GI, GUARANTEED, PLAIN, desire_all
from tests.unit.policy.worlds import container, pod

INIT = container(Resources(limits={"cpu": 100, "memory": 2 * GI}), kind=ContainerKind.INIT)
WAITING = pod(
    container(BESTEFFORT), INIT, resources=Resources(limits={"cpu": 1000, "memory": GI}), uid="u-1"
)


def slice_values(desired):
    units = {unit.name: unit.values for unit in desired.units}
    (decision,) = desired.pods
    return units[decision.slice]


@pytest.mark.parametrize(
    ("progress", "binds"),
    [
        (None, False),
        ({}, False),
        ({"another": InitProgress(over=True)}, False),
        ({"u-1": InitProgress(done=frozenset({"other"}))}, False),
        ({"u-1": InitProgress(done=frozenset({INIT.name}))}, True),
        ({"u-1": InitProgress(over=True)}, True),
    ],
)
def test_a_pod_s_own_limits_bind_once_its_init_containers_have_finished(progress, binds):
    desired = desire_all(PLAIN, [WAITING], progress=progress)
    assert ("MemoryMax" in slice_values(desired)) == binds
    assert ("CPUQuotaPerSecUSec" in slice_values(desired)) == binds
    assert desired.initializing == (frozenset() if binds else {"default/pod"})


def test_by_the_rules_of_kubernetes_they_bind_from_the_start():
    desired = desire_all(Config(eviction_hard={}, rules=Rules.KUBERNETES), [WAITING])
    assert slice_values(desired)["MemoryMax"] == GI // 1000
    assert desired.initializing == frozenset()


def test_a_pod_without_limits_of_its_own_has_a_phase_that_changes_nothing():
    each = pod(container(GUARANTEED), INIT, uid="u-1")
    over = {"u-1": InitProgress(over=True)}
    during, after = desire_all(PLAIN, [each]), desire_all(PLAIN, [each], progress=over)
    assert during.units == after.units
    assert during.initializing == {"default/pod"}


def test_what_is_refused_has_no_phase():
    big = pod(container(Resources(requests={"cpu": 9000})), INIT)
    assert desire_all(PLAIN, [big]).initializing == frozenset()
