"""What the benchmarks of clients of systemd compute from their rounds."""

import pytest

from tests.bench import bring_up, inside, steady
from tests.bench.result import spread


def some_rounds(*sizes):
    walls = {"podslice apply": 70.0, "podslice, no batches": 140.0, "C, libsystemd": 100.0}
    return [
        {"round": number, "what": what, "pods": pods, "wall_ms": wall * number, "pid1_cpu_ms": 10.0}
        for pods in sizes
        for number in (1, 2, 3)
        for what, wall in walls.items()
    ]


def test_the_aims_of_bring_up_are_measured_at_500_and_at_100_pods():
    aims = {aim.text: (aim.value, aim.is_met) for aim in bring_up.make_aims(some_rounds(100, 500))}
    assert aims == {
        "wall time of the whole command, 500 pods, ratio to the C client": (0.7, True),
        "wall time of the whole command, 100 pods, ratio to the C client": (0.7, True),
        "the same without batches, 500 pods, ratio to the C client": (1.4, False),
        "PID 1's CPU time, 500 pods, ratio to the C client": (1.0, False),
    }


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"units": {"a": {"x": "1", "y": "2"}}}, None),
        ({"units": {"a": {"x": "1", "y": "3"}}}, "units: a: y is '3', not '2'"),
        ({"units": {"a": {"x": "1"}}}, "units: a: y is None, not '2'"),
        ({"units": {}}, "units: a: None, not {'x': '1', 'y': '2'}"),
        ({"units": {"a": {"x": "1", "y": "2"}, "b": {}}}, "units: b: {}, not None"),
    ],
)
def test_a_client_that_leaves_another_state_has_not_done_the_work(found, words):
    assert inside.first_difference({"units": {"a": {"x": "1", "y": "2"}}}, found) == words


def test_a_job_or_a_file_counts_as_a_write():
    before = {"jobs": 7, "/run/a": 1, "/run/b": 1}
    assert steady.count_writes(before, dict(before)) == 0
    assert steady.count_writes(before, before | {"jobs": 9}) == 2
    assert steady.count_writes(before, before | {"/run/a": 2}) == 1
    assert steady.count_writes(before, {"jobs": 7, "/run/b": 1, "/run/c": 1}) == 2


def test_reading_is_the_median_time_for_each_slice_beside_the_list():
    times = {"list_ms": [2.0, 4.0, 3.0], "observe_ms": [17.0, 19.0, 90.0], "units": 500}
    taken = [{"what": steady.READING, "pods": 500, **times}]
    assert spread(steady.reading_usec(taken, 500)).middle == 30.0
