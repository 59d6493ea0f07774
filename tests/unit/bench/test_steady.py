from tests.bench import steady
from tests.bench import steady_tables as tables


def some_rounds(pods, *, writes=0):
    walls = {
        tables.APPLY: 500.0,
        tables.CHANGED: 600.0,
        tables.STATUS: 450.0,
        tables.IMPORTS_APPLY: 250.0,
        tables.IMPORTS_STATUS: 300.0,
        tables.LIST: 4.0,
        tables.READ: 80.0,
    }
    taken = [
        {
            "what": what,
            "pods": pods,
            "wall_ms": wall,
            "client_cpu_ms": 1.0,
            "pid1_cpu_ms": 1.0,
            "bus_cpu_ms": 1.0,
            "writes": writes,
            "units": pods,
            "list_ms": 2.0,
            "read_ms": 50.0,
        }
        for what, wall in walls.items()
    ]
    # the third time something else ran
    read = {"list_ms": [2.0, 4.0, 3.0], "observe_ms": [17.0, 19.0, 90.0], "units": pods}
    return [*taken, {"what": tables.READING, "pods": pods, **read}]


def test_a_job_or_a_file_counts_as_a_write():
    before = {"jobs": 7, "/run/a": 1, "/run/b": 1}
    assert steady.count_writes(before, dict(before)) == 0
    assert steady.count_writes(before, before | {"jobs": 9}) == 2
    assert steady.count_writes(before, before | {"/run/a": 2}) == 1
    assert steady.count_writes(before, {"jobs": 7, "/run/b": 1, "/run/c": 1}) == 2


def test_reading_is_shown_for_each_slice_besides_the_list():
    (row,) = tables.reading(some_rounds(500)).rows
    assert row[1:] == (
        "2.0 (2.0 to 2.0)",
        "3.0 (3.0 to 3.0)",
        "100 (100 to 100)",
        "30 (30 to 30)",
    )


def test_each_verb_is_compared_with_its_own_imports():
    aims = {
        aim.text.partition(",")[0]: (aim.value, aim.is_met) for aim in tables.aims(some_rounds(500))
    }
    assert aims["second apply"] == (2.0, True)
    assert aims["one pod changed"] == (2.4, False)
    assert aims["status"] == (1.5, True)
    assert aims["reading a slice beside the list"] == (30.0, True)


def test_a_single_write_in_any_round_is_one_too_many():
    taken = [*some_rounds(100, writes=1), *some_rounds(500)]
    (aim,) = (aim for aim in tables.aims(taken) if aim.text.startswith("writes"))
    assert (aim.value, aim.is_met) == (1, False)
