"""Names and helpers of the tests of plans."""

from podslice.model.unit import UnitName
from podslice.plan import Change
from tests.unit.builders import besteffort, burstable, guaranteed

CACHE = UnitName("run-podslice-pods-web-volumes-cache.mount")
MI = 2**20
ROOT = "kubepods.slice"
BURSTABLE = "kubepods-burstable.slice"
WEB = "kubepods-burstable-podweb.slice"

THREE = (guaranteed("database"), burstable("web", limits="cpu=1,memory=512Mi"), besteffort("batch"))


def names(plan, kind):
    return [step.name for step in plan.steps if isinstance(step, kind)]


def change(name, old, new):
    return Change(name=name, old=old, new=new)


def only(plan):
    assert len(plan.steps) == 1
    return plan.steps[0]
