"""More asked for is never less given; more kept back is never more left."""

from dataclasses import replace

import pytest

pytest.importorskip("hypothesis")

from hypothesis import assume, given
from hypothesis import strategies as st

from podslice.model.config import Threshold
from podslice.model.pod import Qos
from podslice.model.resources import MEMORY, Resources, total
from podslice.policy.allocatable import allocate
from podslice.policy.decide import decide
from podslice.policy.desire import desire
from podslice.policy.unit_properties import oom_score_adj
from tests.unit.properties.strategies import (
    COMPUTE,
    configs,
    nodes,
    pods,
    reservations,
    some,
    values,
    worlds,
)

OF_REQUEST = {"cpu": ("CPUWeight",), "memory": ("MemoryLow", "MemoryMin")}
OF_LIMIT = {"cpu": "CPUQuotaPerSecUSec", "memory": "MemoryMax"}


def raised(stated, part, name, by):
    more = {**getattr(stated, part), name: getattr(stated, part).get(name, 0) + by}
    return replace(stated, **{part: more})


@st.composite
def raises(draw, part):
    """A pod, the same with one amount raised, and which.

    A limit of 0 is none, so that any other is a lower one. A request that a limit implies, at its
    own level or from the pod level, is lowered by stating it; any other begins at 0.
    """
    pod = draw(pods(names=COMPUTE))
    name, by = draw(st.sampled_from(COMPUTE)), draw(st.sampled_from((1, 7, 1000, 10**9)))
    level = draw(st.integers(-1, len(pod.containers) - 1))
    stated = pod.resources if level < 0 else pod.containers[level].resources
    if part == "limits":
        assume(stated.limits.get(name))
    elif level < 0:
        assume(name in stated.requests)
    else:
        implied = name in stated.limits or name in pod.resources.limits
        assume(name in stated.requests or not implied)
    more = raised(stated, part, name, by)
    if level < 0:
        return pod, replace(pod, resources=more), name
    containers = list(pod.containers)
    containers[level] = replace(containers[level], resources=more)
    return pod, replace(pod, containers=tuple(containers)), name


@some
@given(raises("requests"), nodes, configs)
def test_a_higher_request_never_lowers_what_holds_it(raise_, node, config):
    pod, more, name = raise_
    one, other = decide(pod, node, config), decide(more, node, config)
    # a Guaranteed pod with a request above its limit, which is an error, is Burstable
    assume(one.qos is other.qos or other.is_valid)
    for before, after in ((one, other), *zip(one.containers, other.containers, strict=True)):
        old, new = values(before.properties), values(after.properties)
        for property_ in OF_REQUEST[name]:
            assert new.get(property_, 0) >= old.get(property_, 0)
    assert other.requests.get(name, 0) >= one.requests.get(name, 0)


@some
@given(raises("limits"), nodes, configs)
def test_a_higher_limit_never_lowers_what_holds_it(raise_, node, config):
    pod, more, name = raise_
    one, other = decide(pod, node, config), decide(more, node, config)
    for before, after in ((one, other), *zip(one.containers, other.containers, strict=True)):
        old, new = values(before.properties), values(after.properties)
        if OF_LIMIT[name] in new:
            assert new[OF_LIMIT[name]] >= old[OF_LIMIT[name]]
    assert other.limits[name] >= one.limits[name]


@some
@given(raises("requests"), worlds(names=COMPUTE), nodes, configs)
def test_a_higher_request_never_lowers_the_weight_of_the_burstable_tier(
    raise_, world, node, config
):
    pod, more, _ = raise_
    config = replace(config, admission=False)
    one, other = decide(pod, node, config), decide(more, node, config)
    assume(one.qos is other.qos)
    rest = [decide(each, node, config) for each in world]
    tiers = [
        {unit.name: unit.values["CPUWeight"] for unit in desired.units if unit.name.count("-") == 1}
        for desired in (
            desire([*rest, one], node, replace(config, cgroup_root="/")),
            desire([*rest, other], node, replace(config, cgroup_root="/")),
        )
    ]
    assert all(tiers[1][name] >= tiers[0][name] for name in tiers[0])


@some
@given(nodes, configs, reservations)
def test_more_kept_back_never_leaves_more(node, config, more):
    before = allocate(node, config)
    memory = config.eviction_hard.get("memory.available", Threshold(amount=0))
    for changed in (
        replace(config, kube_reserved=total((config.kube_reserved, more))),
        replace(config, system_reserved=total((config.system_reserved, more))),
        replace(
            config,
            eviction_hard={
                **config.eviction_hard,
                "memory.available": Threshold(amount=(memory.amount or 0) + more.get(MEMORY, 0)),
            },
        ),
        replace(config, ignore_eviction_threshold=False),
    ):
        after = allocate(node, changed)
        assert all(
            0 <= after.allocatable[name] <= before.allocatable[name] for name in node.capacity
        )
        assert all(0 <= after.enforced[name] <= before.enforced[name] for name in node.capacity)
        assert all(
            after.allocatable[name] <= after.enforced[name] <= after.capacity[name]
            for name in node.capacity
        )


@some
@given(pods(names=("memory",), pod_level=False), st.integers(1, 2**33))
def test_a_higher_memory_request_is_killed_later(pod, more):
    container = pod.containers[0]
    request = container.resources.requests.get(MEMORY, 0) + more * 1000
    richer = replace(container, resources=Resources(requests={MEMORY: request}))
    adjusted = [
        oom_score_adj(replace(pod, containers=(each,)), each, Qos.BURSTABLE, 2**34)
        for each in (container, richer)
    ]
    assert adjusted[1] <= adjusted[0]
