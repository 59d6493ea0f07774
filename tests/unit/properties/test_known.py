"""What is known from before saves work, and changes no result."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st

from podslice.model.unit import Caps, Observed, ObservedUnit
from podslice.plan import NO_MATCHES, make, make_plan
from podslice.policy.desire import desire
from tests.unit import builders
from tests.unit.properties.strategies import configs, nodes, some, worlds
from tests.unit.properties.strategies import pods as pods_of

CHANGES = ("nothing", "limit", "usage", "state", "gone", "new object", "container")
VERSIONS = st.sampled_from((252, 257))


def observe(desired, version):
    """Return the observation of what is desired: slices, and the first container of each pod."""
    scopes = {unit.pod: unit.name for unit in desired.units if unit.kind == "scope"}
    units = {
        unit.name: ObservedUnit(
            name=unit.name,
            properties={**unit.values, "Slice": unit.parent},
            control_group=unit.control_group,
            description=unit.description,
            memory_bytes=2**24,
        )
        for unit in desired.units
        if unit.kind == "slice" or scopes.get(unit.pod) == unit.name
    }
    return Observed(caps=Caps(systemd_version=version), units=units)


def changed(observed, name, change):
    """Return the observation after a change of one unit."""
    units = dict(observed.units)
    unit = units[name]
    if change == "limit":
        units[name] = replace(unit, properties={**unit.properties, "MemoryMax": 2**20})
    elif change == "usage":
        units[name] = replace(unit, memory_bytes=2**40, tasks=5)
    elif change == "state":
        units[name] = replace(unit, active_state="failed")
    elif change == "gone":
        del units[name]
    elif change == "new object":
        units[name] = replace(unit)
    elif change == "container":
        units[name] = replace(unit, properties={**unit.properties, "Slice": "other.slice"})
    return replace(observed, units=units)


def change_pod(draw, pods):
    """Return the pods after one of them was changed, added or removed."""
    what = draw(st.sampled_from(("nothing", "change", "add", "remove")))
    rest, last = pods[:-1], pods[-1:]
    if what == "add":
        return (*pods, draw(pods_of(f"new{len(pods)}")))
    if what == "change":
        return (*rest, *(replace(pod, resources=draw(pods_of("x")).resources) for pod in last))
    return rest if what == "remove" else pods


@some
@given(worlds(max_pods=3), nodes, configs, st.data())
def test_a_plan_with_what_is_known_is_the_same(pods, node, config, data):
    config = replace(config, admission=False)
    known, matches, force = (), NO_MATCHES, False
    observed = Observed(caps=Caps(systemd_version=257))
    for _ in range(4):
        desired = desire((), node, config, current=pods, known=known)
        assert desired == desire((), node, config, current=pods)
        plan = make_plan(desired, observed, force=force, known=matches)
        assert plan == make_plan(desired, observed, force=force)
        known, matches = desired.pods, plan.matches
        if data.draw(st.booleans()):
            observed = observe(desired, data.draw(VERSIONS))
        for name in sorted(observed.units):
            observed = changed(observed, name, data.draw(st.sampled_from(CHANGES)))
        pods = change_pod(data.draw, pods)
        force = data.draw(st.booleans())


def test_only_what_has_changed_is_compared(monkeypatch):
    node, config = builders.node(), builders.config()
    pods = tuple(builders.pod(f"pod-{number}", "cpu=1m") for number in range(20))
    desired = desire((), node, config, current=pods)
    observed = observe(desired, 257)
    matches = make_plan(desired, observed).matches
    compared = []
    feasible = make.feasible
    monkeypatch.setattr(
        make, "feasible", lambda name, *rest: compared.append(name) or feasible(name, *rest)
    )
    one = desired.pods[7].slice
    plan = make_plan(desired, changed(observed, one, "limit"), known=matches)
    assert [step.name for step in plan.steps] == [one]
    nodes_own = {unit.name for unit in desired.units if unit.pod is None}
    assert set(compared) == {one} | nodes_own
