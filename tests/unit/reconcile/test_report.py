from dataclasses import replace

import pytest

from podslice.model.desired import Refusal
from podslice.model.node_state import StuckPod
from podslice.model.properties import MANAGED, PROPERTIES, format_value
from podslice.model.unit import INFINITY, Occupants, UnitKind
from podslice.plan import Change, Plan, SetHugepages, SetProperties, Skipped, StartUnit, StopUnit
from podslice.reconcile.report import (
    Outcome,
    Report,
    StepResult,
    count_steps,
    describe_refusal,
    describe_result,
    describe_skipped,
    describe_step,
    describe_stuck,
    describe_wait,
    format_change,
    summarize,
)
from tests.unit.builders import slice_unit

WEB = "kubepods-burstable-podweb.slice"
UNIT = slice_unit(WEB, pod="default/web")
START = StartUnit(
    unit=UNIT,
    changes=(
        Change(name="CPUWeight", old=None, new=24),
        Change(name="MemoryMax", old=None, new=2**29),
    ),
)
SET = SetProperties(
    unit=UNIT,
    changes=(Change(name="MemoryMax", old=2**28, new=2**29),),
    tightens=False,
)
STOP = StopUnit(name=WEB, why="pod default/web is removed", tasks=3)
STOP_POD = StopUnit(
    name=WEB,
    why="pod default/web is removed",
    tasks=5,
    pod="default/web",
    grace_sec=30,
    occupants=Occupants(
        processes=3,
        descriptions=(
            "container main: 2 processes (nginx, sh)",
            "libpod-1.scope: 1 process (sleep)",
        ),
    ),
)
SHRINK = SetProperties(
    unit=UNIT,
    changes=(Change(name="MemoryMax", old=2**30, new=2**29),),
    tightens=True,
    reclaim_bytes=2**29,
    used_bytes=700 * 2**20 - 5,
)
PAGES = SetHugepages(
    unit=UNIT,
    changes=(
        Change(name="hugetlb.1GB.max", old=INFINITY, new=0),
        Change(name="hugetlb.2MB.max", old=2**22, new=2**23),
        Change(name="hugetlb.64KB.max", old=None, new=2**16),
    ),
)
SET_PAGES = (
    "hugetlb.1GB.max=0 (was unset), hugetlb.2MB.max=8Mi (was 4Mi), hugetlb.64KB.max=64Ki"
    f" (was unset) on {WEB} (default/web)"
)
REFUSAL = Refusal(pod="default/web", reason="OutOfcpu", message="requests 9 of cpu, 8 is free")


def done(step, outcome=Outcome.DONE, error=""):
    return StepResult(step=step, outcome=outcome, error=error)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("MemoryMax", 2**29, "512Mi"),
        ("MemoryMax", 1001, "1001"),
        ("MemoryMax", INFINITY, "unset"),
        ("MemoryLow", INFINITY, "infinity"),
        ("MemoryLow", 0, "unset"),
        ("CPUWeight", 24, "24"),
        ("CPUWeight", None, "unset"),
        ("CPUQuotaPerSecUSec", 110_000, "11%"),
        ("CPUQuotaPerSecUSec", 1_500_000, "150%"),
        ("CPUQuotaPeriodUSec", 50_000, "50000us"),
        ("TasksMax", 4096, "4096"),
    ],
)
def test_values_read_as_people_write_them(name, value, text):
    assert format_value(name, value) == text


@pytest.mark.parametrize("name", MANAGED[UnitKind.SLICE])
def test_values_that_are_not_set_are_shown_as_unset(name):
    assert format_value(name, PROPERTIES[name].unset) == "unset"


def test_a_change_shows_the_old_value_if_any():
    change = Change(name="MemoryMax", old=2**28, new=2**29)
    assert format_change(change, with_old=True) == "MemoryMax=512Mi (was 256Mi)"
    assert format_change(change, with_old=False) == "MemoryMax=512Mi"


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (START, f"start {WEB} (default/web) with CPUWeight=24, MemoryMax=512Mi"),
        (StartUnit(unit=slice_unit(WEB), changes=()), f"start {WEB}"),
        (SET, f"set MemoryMax=512Mi (was 256Mi) on {WEB} (default/web)"),
        (STOP, f"stop {WEB} with its processes (3 tasks): pod default/web is removed"),
        (StopUnit(name=WEB, why="x", tasks=1), f"stop {WEB} with its processes (1 tasks): x"),
        (StopUnit(name=WEB, why="x"), f"stop {WEB}: x"),
        (
            STOP_POD,
            (
                f"stop {WEB} with container main: 2 processes (nginx, sh), libpod-1.scope: 1 process"
                " (sleep): pod default/web is removed"
            ),
        ),
        (
            SHRINK,
            (
                f"set MemoryMax=512Mi (was 1Gi) on {WEB} (default/web); 700 MiB in use,"
                " reclaimed first through MemoryHigh"
            ),
        ),
        (PAGES, f"set {SET_PAGES}"),
    ],
)
def test_steps_are_described(step, text):
    assert describe_step(step) == text


def test_a_value_that_becomes_unset_is_shown_so():
    step = SetProperties(
        unit=slice_unit(WEB),
        changes=(Change(name="TasksMax", old=5, new=INFINITY),),
        tightens=False,
    )
    assert describe_step(step) == f"set TasksMax=unset (was 5) on {WEB}"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (done(START), f"started {WEB} (default/web) with CPUWeight=24, MemoryMax=512Mi"),
        (done(SET), f"set MemoryMax=512Mi (was 256Mi) on {WEB} (default/web)"),
        (done(PAGES), f"set {SET_PAGES}"),
        (
            done(SHRINK),
            (
                f"set MemoryMax=512Mi (was 1Gi) on {WEB} (default/web); 700 MiB were in use,"
                " reclaimed through MemoryHigh"
            ),
        ),
        (
            done(SHRINK, Outcome.FAILED, "600Mi can't be reclaimed"),
            (
                f"failed to set MemoryMax=512Mi (was 1Gi) on {WEB} (default/web):"
                " 600Mi can't be reclaimed"
            ),
        ),
        (done(STOP), f"stopped {WEB} with its processes (3 tasks): pod default/web is removed"),
        (
            done(SET, Outcome.FAILED, "access denied"),
            f"failed to set MemoryMax=512Mi (was 256Mi) on {WEB} (default/web): access denied",
        ),
        (
            done(START, Outcome.NOT_TRIED, "a step on x failed"),
            f"not tried: {describe_step(START)}: a step on x failed",
        ),
    ],
)
def test_results_are_described_in_the_past_tense(result, text):
    assert describe_result(result) == text


def test_refusals_and_skipped_properties_are_described():
    assert describe_refusal(REFUSAL) == (
        "pod default/web refused: OutOfcpu: requests 9 of cpu, 8 is free"
    )
    assert describe_skipped(Skipped(unit=WEB, name="MemoryMin", why="too new")) == (
        f"skipped MemoryMin of {WEB}: too new"
    )
    assert describe_skipped(Skipped(unit=WEB, name="stop", why="not ours")) == (
        f"left {WEB} running: not ours"
    )
    assert describe_stuck(StuckPod(pod="default/web", why="a process is left", hint="see")) == (
        "pod default/web could not be removed: a process is left; see"
    )


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (STOP_POD, "stopping 3 processes of pod default/web, up to 30 s"),
        (
            replace(STOP_POD, occupants=Occupants(processes=1)),
            "stopping 1 process of pod default/web, up to 30 s",
        ),
        (
            replace(STOP_POD, occupants=Occupants()),
            "stopping 5 processes of pod default/web, up to 30 s",
        ),
        (replace(STOP_POD, grace_sec=0), "stopping 3 processes of pod default/web"),
        (replace(STOP_POD, tasks=0), ""),
        (STOP, ""),
        (SET, ""),
    ],
)
def test_waits_are_described_beforehand(step, text):
    assert describe_wait(step) == text


@pytest.mark.parametrize(
    ("report", "code", "text"),
    [
        (Report(), 0, "nothing to do"),
        (Report(results=(done(START), done(SET))), 0, "2 done"),
        (
            Report(results=(done(START), done(SET, Outcome.FAILED), done(SET, Outcome.NOT_TRIED))),
            1,
            "1 done, 1 failed, 1 not tried",
        ),
        (Report(refused=(REFUSAL,)), 1, "0 done, 1 refused"),
        (Report(results=(done(SET),), remaining=Plan(steps=(SET,))), 1, "1 done"),
        (
            Report(skipped=(Skipped(unit=WEB, name="MemoryMin", why=""),)),
            0,
            "nothing to do",
        ),
        (
            Report(results=(done(STOP),), stuck=(StuckPod(pod="default/web", why="", hint=""),)),
            1,
            "1 done, 1 stuck",
        ),
        (Report(stuck=(StuckPod(pod="default/web", why="", hint=""),)), 1, "0 done, 1 stuck"),
    ],
)
def test_exit_code_and_last_line(report, code, text):
    assert report.exit_code == code
    assert summarize(report) == text


def test_steps_are_counted():
    assert count_steps([START, SET, START, STOP]) == "1 to stop, 2 to start, 1 to set"
    assert count_steps([]) == "nothing to do"


STUCK = StuckPod(pod="default/web", why="", hint="")
MATCHED = frozenset({"default/web"})


@pytest.mark.parametrize(
    ("report", "is_change"),
    [
        (Report(), False),
        (Report(results=(done(START),)), True),
        (Report(results=(StepResult(step=START, outcome=Outcome.FAILED),)), False),
        (Report(matched=MATCHED), True),
        (Report(matched=MATCHED, stuck=(STUCK,)), False),
        (
            Report(
                results=(StepResult(step=STOP_POD, outcome=Outcome.NOT_TRIED),), matched=MATCHED
            ),
            False,
        ),
    ],
)
def test_a_change_is_a_step_or_a_removed_record(report, is_change):
    assert report.is_change is is_change
