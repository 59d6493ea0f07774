"""Parts of a plan: those without some units, only its stops, and the stops that take time."""

from podslice.model.desired import Refusal
from podslice.model.unit import UnitName
from podslice.plan import Plan, Skipped, StartUnit, StopUnit
from tests.cases.tables import cases
from tests.unit.builders import slice_unit
from tests.unit.plan.plans import BURSTABLE, ROOT, WEB

REFUSED = (Refusal(pod="default/web", reason="a reason", message="a message"),)
START = StartUnit(unit=slice_unit(BURSTABLE), changes=())
STOP = StopUnit(name=UnitName(WEB), why="no reason")
SKIPPED = Skipped(unit=UnitName(ROOT), name="MemoryMin", why="of a reason")
BLOCKING = Skipped(unit=UnitName(WEB), name="MemoryMax", why="of a reason", blocks=True)
PLAN = Plan(steps=(STOP, START), skipped=(SKIPPED, BLOCKING), refused=REFUSED)


def test_without_some_units_the_rest_and_the_refusals_remain():
    assert PLAN.without({UnitName(WEB)}) == Plan(
        steps=(START,), skipped=(SKIPPED,), refused=REFUSED
    )
    assert PLAN.without(()) == PLAN


def test_only_stops_and_refusals():
    assert PLAN.only_stops() == Plan(steps=(STOP,), refused=REFUSED)


def test_a_plan_is_blocked_by_what_the_operator_must_decide():
    assert PLAN.is_blocked
    assert not PLAN.without({UnitName(WEB)}).is_blocked
    assert not Plan().is_blocked


@cases
def test_a_stop_takes_time_if_it_has_processes_with_a_grace_period(
    grace_sec, tasks, signals, expected
):
    stop = StopUnit(
        name=UnitName(WEB), why="no reason", tasks=tasks, grace_sec=grace_sec, signals=signals
    )
    assert stop.takes_time is expected
