"""Units of pods that match are known to the next plan, and only they."""

from dataclasses import replace

import pytest

from podslice.model.unit import Caps, DesiredUnit, UnitKind, UnitName
from podslice.plan import NO_MATCHES, Matches, make_plan
from tests.unit.builders import desired, observed, scope_unit, seen, slice_unit
from tests.unit.plan.plans import BURSTABLE, CACHE, WEB, change, only

POD = "default/web"
SCOPE = "podslice-podweb-main.scope"

UNIT = slice_unit(WEB, pod=POD, CPUWeight=7)
CONTAINER = scope_unit(SCOPE, WEB, pod=POD, CPUWeight=7)
OTHER = slice_unit(WEB, pod=POD, CPUWeight=9)
TIER = slice_unit(BURSTABLE, CPUWeight=7)
RESERVED = slice_unit("system.slice", owned=False, CPUWeight=7)
NEWER = slice_unit(WEB, pod=POD, MemoryMin=5)
VOLUME = DesiredUnit(
    name=CACHE,
    kind=UnitKind.MOUNT,
    parent=UnitName(WEB),
    control_group="",
    description="Volume cache of pod default/web",
    properties=(),
    pod=POD,
    structure={"Options": "size=64Ki"},
)

SEEN = seen(WEB, values={"CPUWeight": 7})
DRIFTED = seen(WEB, values={"CPUWeight": 8})
RUNNING = seen(SCOPE, values={"CPUWeight": 7})
ELSEWHERE = seen(SCOPE, values={"CPUWeight": 8, "Slice": "user.slice"})
MOUNTED = replace(seen(CACHE), properties={"Options": "size=64k", "Slice": WEB})

MATCHES = Matches(caps=Caps(systemd_version=257), pairs={UNIT.name: (UNIT, SEEN)})
FORCED = replace(MATCHES, force=True)


@pytest.mark.parametrize(
    ("matches", "version", "force", "holds"),
    [
        (MATCHES, 257, False, True),
        (MATCHES, 257, True, False),
        (MATCHES, 252, False, False),
        (FORCED, 257, True, True),
        (FORCED, 257, False, False),
    ],
)
def test_matches_hold_for_the_same_systemd_and_the_same_option(matches, version, force, holds):
    expected = matches if holds else NO_MATCHES
    assert matches.under(Caps(systemd_version=version), force=force) is expected


@pytest.mark.parametrize(
    ("unit", "there", "expected"),
    [
        (UNIT, SEEN, True),
        (replace(UNIT), replace(SEEN), True),
        (OTHER, SEEN, False),
        (UNIT, DRIFTED, False),
        (UNIT, replace(SEEN, hugepages={2 << 20: 0}), False),
        (UNIT, None, False),
        (TIER, SEEN, False),
    ],
    ids=["same", "equal", "other desired", "other observed", "pages", "not there", "other name"],
)
def test_a_match_is_of_equal_units(unit, there, expected):
    assert MATCHES.has(unit, there) is expected


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("unit", "there", "version", "matches"),
    [
        (UNIT, SEEN, 257, True),
        (UNIT, DRIFTED, 257, False),
        (UNIT, None, 257, False),
        (CONTAINER, RUNNING, 257, True),
        (CONTAINER, None, 257, False),  # it may start
        (CONTAINER, ELSEWHERE, 257, True),
        (NEWER, seen(WEB), 239, False),  # reported by each plan
        (TIER, seen(BURSTABLE, values={"CPUWeight": 7}), 257, False),
        (RESERVED, seen("system.slice", values={"CPUWeight": 7}), 257, False),
        (VOLUME, MOUNTED, 257, False),
    ],
    ids=[
        *("slice", "drifted slice", "no slice", "container", "no container", "container elsewhere"),
        *("property left out", "tier", "reserved slice", "volume"),
    ],
)
def test_units_of_pods_without_steps_match(unit, there, version, matches, force):
    """A tier, a reserved slice and a volume depend on other units; what is left out is reported."""
    there_now = observed(*([there] if there else []), version=version)
    found = make_plan(desired(unit), there_now, force=force).matches
    assert (found.caps, found.force) == (there_now.caps, force)
    assert found.has(unit, there) is matches
    assert list(found.pairs) == [unit.name] * matches


@pytest.mark.parametrize(("known", "force"), [(MATCHES, False), (FORCED, True)])
def test_known_units_are_not_compared_again(known, force):
    """Values that differ show it: the pair is planted."""
    planted = replace(known, pairs={UNIT.name: (UNIT, DRIFTED)})
    plan = make_plan(desired(UNIT), observed(DRIFTED), force=force, known=planted)
    assert not plan
    assert plan.matches == planted


@pytest.mark.parametrize(
    ("unit", "there", "force", "version", "values"),
    [
        (OTHER, DRIFTED, False, 257, (8, 9)),
        (UNIT, seen(WEB, values={"CPUWeight": 6}), False, 257, (6, 7)),
        (UNIT, DRIFTED, True, 257, (8, 7)),
        (UNIT, DRIFTED, False, 252, (8, 7)),
    ],
    ids=["desired", "observed", "option", "systemd"],
)
def test_units_are_compared_again_after_a_change(unit, there, force, version, values):
    planted = replace(MATCHES, pairs={UNIT.name: (UNIT, DRIFTED)})
    plan = make_plan(desired(unit), observed(there, version=version), force=force, known=planted)
    assert only(plan).changes == (change("CPUWeight", *values),)
    assert not plan.matches.pairs
