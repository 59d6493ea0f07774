from podslice.agent.drift import CONTESTED_PAUSE_SEC, CONTESTED_SEC, CONTESTED_TIMES, Drift
from podslice.model.event import Kind
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import Clock, make_context

WEB = "kubepods-burstable-podweb.slice"


def test_a_contested_unit_is_reported_once_until_it_is_settled(tmp_path):
    context, clock = make_context(tmp_path, FakeSystemd()), Clock()
    drift = Drift(context, clock)

    def repair(times, pause_sec):
        for _ in range(times):
            clock.advance(pause_sec)
            drift.count_repair(WEB)
        return len(context.events.journal.of(Kind.DRIFT_CONTESTED))

    assert repair(CONTESTED_TIMES - 1, 0.1) == 0
    assert repair(1, 0.1) == 1
    assert drift.repairs.is_pausing(WEB)
    assert repair(10, CONTESTED_PAUSE_SEC) == 1
    assert drift.repairs.is_pausing(WEB)
    assert repair(CONTESTED_TIMES, CONTESTED_SEC) == 1
    assert not drift.repairs.is_pausing(WEB)
    assert repair(CONTESTED_TIMES, 0.1) == 2
    assert context.counters.drift_repaired == 2 * CONTESTED_TIMES + CONTESTED_TIMES + 10
