"""What the kernel has to have in each way, and what is made of the rounds."""

import pytest

from tests.bench.protection import (
    MIB,
    WAYS,
    Idle,
    Round,
    Usage,
    cost_table,
    expected,
    guard_table,
    idle_table,
)

NONE = {"workingset_refault_file": 0, "workingset_refault_anon": 0, "pgmajfault": 0}
CALM = {**NONE, "low": 0, "max": 0, "oom_kill": 0}


def usage(file=(), anon=(), **counters):
    return Usage(counters={**CALM, **counters}, passes={"file": list(file), "anon": list(anon)})


def a_round(way="nothing", *, swap=True, number=1, file_pages=512, hog_kills=0):
    return Round(
        number=number,
        way=way,
        swap=swap,
        quiet=usage([(9.0, 128), (0.06, 128), (0.08, 128)], [(9.0, 128), (0.005, 128)]),
        guard=usage(
            [(0.1, 128), (0.3, 128), (0.2, 128)],
            [(0.006, 128)],
            workingset_refault_file=file_pages,
            low=3,
        ),
        hog=usage([(0.1, 16), (0.1, 16)], [(0.1, 16), (0.1, 304)], oom_kill=hog_kills),
        pressed_sec=4.0,
        disturbed=False,
    )


def test_only_what_came_since_counts():
    before = usage([(1.0, 128)], pgmajfault=7, low=1)
    after = usage([(1.0, 128), (2.0, 128)], [(3.0, 128)], pgmajfault=9, low=1)
    found = after.since(before)
    assert found.counters == {**CALM, "pgmajfault": 2}
    assert found.ms("file") == [2000.0]
    assert found.ms("anon") == [3000.0]


def test_a_round_in_figures():
    one = a_round()
    assert one.refaults_mib("file") == 2.0
    assert one.median_ms("file") == pytest.approx(200.0)
    assert one.worst_ms("file") == pytest.approx(300.0)
    assert one.quiet_ms("file") == pytest.approx(70.0), "the first pass is none of them"
    assert one.hog.held_mib == 304
    assert one.read_mib_per_sec == 8.0


@pytest.mark.parametrize("way", WAYS)
def test_each_way_is_another_setting(way):
    root_max = 768 * MIB
    found = expected(way, "g", f"{root_max}")
    request = 320 * MIB
    protected = {
        "nothing": ("0", "0"),
        "MemoryLow": (f"{request}", "0"),
        "MemoryMin": ("0", f"{request}"),
        "qos-reserved": ("0", "0"),
    }[way]
    for group in ("kubepods.slice", "g"):
        assert (found[f"{group}/memory.low"], found[f"{group}/memory.min"]) == protected
    tier = found["kubepods.slice/kubepods-besteffort.slice/memory.max"]
    assert tier == (f"{(768 - 320) * MIB}" if way == "qos-reserved" else "max")


def test_tables_have_the_worst_pass_and_the_rounds_with_a_kill():
    rounds = [
        a_round(way, swap=swap, number=number, file_pages=256 * number, hog_kills=not swap)
        for number in (2, 1, 4)
        for way, swap in (("nothing", True), ("nothing", False))
    ]
    alone, nothing = guard_table(rounds, swap=True).rows
    assert alone[3:5] == ("70.0 (70.0 to 70.0)", "80.0")
    assert nothing[1:5] == ("2 (1 to 4)", "0 (0 to 0)", "200.0 (200.0 to 200.0)", "300.0")
    assert [row[-1] for row in cost_table(rounds).rows] == ["0 of 3", "3 of 3"]
    idle = Idle(way="qos-reserved", held_mib=336, killed=True, disturbed=True)
    assert idle_table([idle]).rows == (("qos-reserved", "336", "yes"),)
