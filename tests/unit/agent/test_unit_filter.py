from dataclasses import replace

import pytest

from podslice.agent.daemon import UnitFilter
from podslice.model.unit import UnitName
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import make_context, reassess

ROOT = UnitName("kubepods.slice")


@pytest.mark.parametrize(
    ("name", "concerns"),
    [
        ("kubepods.slice", True),
        ("kubepods-burstable-podweb.slice", True),
        ("podslice-podweb-main.scope", True),
        ("run-podslice-volumes-web-cache.mount", True),
        ("system.slice", False),
        ("cron.service", False),
    ],
)
def test_units_of_pods_concern_the_agent(name, concerns):
    assert (UnitName(name) in UnitFilter(ROOT)) is concerns


async def test_the_root_and_reserved_slices_follow_the_assessment(tmp_path):
    assessment = await reassess(make_context(tmp_path, FakeSystemd()))
    units = UnitFilter(UnitName("before.slice"))
    reserved = replace(assessment.desired.units[0], name=UnitName("system.slice"), owned=False)
    desired = replace(assessment.desired, units=(*assessment.desired.units, reserved))
    units.update(replace(assessment, desired=desired))
    assert "system.slice" in units
    assert ROOT in units
    assert "before.slice" not in units
