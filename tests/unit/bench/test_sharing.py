import json
import time

import pytest

pytest.importorskip("podslice.features.simulate")

from podslice.inputs.manifest.load import load_pods
from podslice.model.config import Config
from podslice.model.node import Node
from podslice.policy.decide import decide
from tests.bench.guest import work
from tests.bench.result import to_json, to_markdown, to_text
from tests.bench.sharing import check, is_long_for
from tests.bench.sharing_bursts import BUSY, IDLE, OWN
from tests.bench.sharing_node import at_percent, track, warm_up
from tests.bench.sharing_pods import (
    CPU_MILLI,
    QUICK,
    SHARED,
    SPLIT,
    WAYS,
    Part,
    Pod,
    Scale,
    by_quotas,
    operations,
    pods_of,
)
from tests.bench.sharing_tables import both_ways, summarize, victims_of

NODE = Node(capacity={"cpu": 2000, "memory": 2**30 * 1000, "ephemeral-storage": 2**32 * 1000})
NAMES = {"CPUQuotaPerSecUSec": "cpu", "CPUQuotaPeriodUSec": "period", "MemoryMax": "memory"}


def properties_of(decided):
    return {NAMES[each.name]: each.value for each in decided.properties if each.name in NAMES}


def as_kernel(properties):
    """`cpu.max` and `memory.max` as systemd writes them."""
    quota, period = properties.get("cpu"), properties.get("period", 100_000)
    return {
        "cpu": f"{quota * period // 1_000_000 if quota else 'max'} {period}",
        "memory": str(properties.get("memory", "max")),
    }


@pytest.mark.parametrize("scale", [Scale(), QUICK], ids=["whole", "quick"])
def test_the_product_makes_of_the_manifests_what_is_looked_for_in_the_kernel(scale):
    pods = list(pods_of(scale))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [p.manifest() for p in pods]})
    loaded = load_pods(("-",), stdin=text.encode)
    assert not loaded.all_problems
    read = {pod.name: decide(pod, NODE, Config()) for pod in loaded.pods}
    assert len(read) == len(pods)
    for pod in pods:
        decision = read[pod.name]
        assert not decision.problems
        whole = as_kernel(properties_of(decision))
        for at, container in enumerate(decision.containers):
            own = as_kernel(properties_of(container))
            assert pod.in_kernel(at) == {
                **{f"container_{name}": value for name, value in own.items()},
                **{f"pod_{name}": value for name, value in whole.items()},
            }


def test_quotas_are_whole_percents():
    """Else systemd would round them, and the containers had more than the pod together."""
    for size in Scale().sizes:
        assert Pod(name="p", size=size, way=SPLIT).limit(0) % 10 == 0
        assert Pod(name="p", size=size, way=SPLIT).limit(0) * size == CPU_MILLI


@pytest.mark.parametrize(
    ("parts", "size", "split", "shared"),
    [
        pytest.param((Part(0, 1, 300),), 3, 600, 300, id="one thread has one CPU at most"),
        pytest.param((Part(0, 2, 300),), 3, 600, 200, id="two threads have the pod's budget"),
        pytest.param((Part(0, 4, 300),), 6, 1200, 200, id="more have no more"),
        pytest.param((Part(0, 1, 100), Part(1, 1, 100), Part(2, 1, 100)), 3, 200, 200, id="equal"),
        pytest.param(
            (Part(0, 1, 200), Part(1, 1, 40)), 3, 400, 40 / 0.75 + 160, id="the longest decides"
        ),
        pytest.param((Part(0, 1, 100, 100),), 6, 400, 200, id="a wait is hidden by the quota's"),
        pytest.param((Part(0, 1, 100, 900),), 6, 1000, 1000, id="who waits needs no CPU"),
    ],
)
def test_what_follows_from_the_quotas(parts, size, split, shared):
    assert by_quotas(parts, size) == pytest.approx({SPLIT: split, SHARED: shared})


def test_nothing_can_be_faster_than_there_are_containers():
    for size in (3, 6):
        for parts in operations(size).values():
            expected = by_quotas(parts, size)
            assert 1 <= expected[SPLIT] / expected[SHARED] <= size


def test_every_container_spins_beforehand_with_as_many_processes_as_ever():
    assert warm_up(Pod(name="p", size=6, way=SPLIT), 1) == [("p", 1, "spin 4 4 0")]
    assert warm_up(Pod(name="p", size=6, way=SPLIT), 5) == [("p", 5, "spin 1 1 0")]


def test_a_track_has_the_given_pauses_and_then_gaps():
    told = track([[("p", 0, "rest")], [("p", 1, "leak")]], [7], first_ms=3)
    assert told == {
        "first_ms": 3,
        "steps": [
            {"pause_ms": 7, "parts": [["p.0", "rest"]]},
            {"pause_ms": 150, "parts": [["p.1", "leak"]]},
        ],
    }


def step(ms, *used, throttled=0, pod=None):
    containers = [{"used_ms": each, "throttled": throttled} for each in used]
    whole = {"used_ms": sum(used) if pod is None else pod, "throttled": 0}
    return {"ms": ms, "containers": containers, "pod": whole}


@pytest.mark.parametrize(
    ("way", "found", "message"),
    [
        (SPLIT, step(1200, 305, throttled=9), None),
        (SHARED, step(300, 305), None),
        (SHARED, step(300, 250), "300 ms of work were 250"),
        (SHARED, step(300, 450), "300 ms of work were 450"),
        (SHARED, step(300, 305, throttled=1), "container 0 was held back"),
        (SPLIT, step(300, 305), "container 0 had more than its share"),
        (SHARED, step(300, 305, pod=900), "the pod had more than its budget"),
    ],
)
def test_other_work_than_expected_is_an_error(way, found, message):
    if message is None:
        check("work", (Part(0, 1, 300),), 6, way, found, is_exact=True)
        return
    with pytest.raises(RuntimeError, match=message):
        check("work", (Part(0, 1, 300),), 6, way, found, is_exact=True)


def test_only_upper_bounds_depend_on_other_work_of_the_host():
    check("work", (Part(0, 1, 300),), 6, SPLIT, step(300, 700), is_exact=False)
    with pytest.raises(RuntimeError, match="300 ms of work were 250"):
        check("work", (Part(0, 1, 300),), 6, SPLIT, step(300, 250), is_exact=False)
    with pytest.raises(RuntimeError, match="container 0 was held back"):
        check("work", (Part(0, 1, 300),), 6, SHARED, step(300, 305, throttled=1), is_exact=False)


def test_work_is_long_for_a_share_that_it_has_to_wait_for():
    assert is_long_for(Part(0, 1, 90), 6)
    assert not is_long_for(Part(0, 1, 90), 3)


def test_percentiles():
    numbers = list(range(1, 136))
    assert (at_percent(numbers, 50), at_percent(numbers, 99)) == (68, 134)
    assert at_percent([5], 99) == 5


def test_ratios_are_those_of_one_round():
    rows = [
        {"round": number, "way": way, "ms": ms}
        for number, way, ms in (
            (2, SPLIT, 40),
            (1, SPLIT, 10),
            (1, SHARED, 5),
            (2, SHARED, 10),
        )
    ]
    split, shared, ratio = both_ways(rows)
    assert (split.low, split.high, shared.middle) == (10, 40, 7.5)
    assert (ratio.low, ratio.middle, ratio.high) == (2, 3, 4)


def test_victims_and_the_limits_that_they_met():
    row = {"killed": [1, 0, 1], "own_limit_met": [0, 0, 1]}
    assert victims_of(row) == "the first sibling (pod's limit), the leak (its own limit)"


def rows_of(scale):
    """A whole run, in which sharing is twice as fast in everything."""
    for number in range(1, scale.rounds + 1):
        for way, ms in ((SPLIT, 200.0), (SHARED, 100.0)):
            same = {"round": number, "way": way, "disturbed": number == 1}
            for size in scale.sizes:
                for name in operations(size):
                    yield {**same, "part": "alone", "what": name, "containers": size, "ms": ms}
            of = {**same, "part": "turns", "containers": scale.sizes[0]}
            yield {**of, "what": "300 ms", "ms": ms, "count": 3}
            yield {**of, "what": "use", "percent": 6000 / ms, "operations": 600 / ms}
            of = {**same, "part": "full", "containers": scale.sizes[-1]}
            yield {**of, "what": "300 ms", "ms": ms}
            of = {**same, "part": "memory", "what": "siblings", "killed": [0, 0, 1]}
            yield {**of, "own_limit_met": [0, 0, 1], "leak_mib": 25}
        for way in (*WAYS, "weighed", "capped"):
            of = {"round": number, "part": "latency", "what": "small work", "way": way}
            yield {**of, "p50_ms": 2.0, "p99_ms": 20.0, "greedy_cpus": 1.4}
        times = {"p50_ms": 2.0, "p99_ms": 20.0, "longest_ms": 25.0}
        for way in (IDLE, BUSY, OWN):
            yield {"round": number, "part": "pinned", "what": "small work", "way": way, **times}
        for period in map(str, scale.periods_ms):
            for what in ("work", "sibling"):
                yield {"round": number, "part": "burst", "what": what, "way": period, **times}


def test_the_tables_have_every_operation_and_the_results_of_the_seed():
    scale = Scale(rounds=2)
    result = summarize("sharing", "Sharing", list(rows_of(scale)), scale)
    alone, turns, seed, *_ = result.tables
    assert len(alone.rows) == 2 * len(operations(6))
    assert {row[3] for row in alone.rows} == {"2.0 (2.0 to 2.0)"}
    assert turns.rows[1][1:] == ("30 (30 to 30)", "60 (60 to 60)", "0.50 (0.50 to 0.50)")
    assert ("mvn run", "50 s", "13.5 s", "3.7", "") in seed.rows
    assert ("operations", "", "", "1.4 to 3.7", "2.0 to 2.0") in seed.rows
    assert seed.rows[-1] == (
        "use of the node",
        "50 %",
        "70 %",
        "0.71",
        "0.50 (0.50 to 0.50): 30 % → 60 %",
    )
    by_title = {table.title: table.rows for table in result.tables}
    (siblings,) = (rows for title, rows in by_title.items() if "by quota period" in title)
    shown = ("2.0 (2.0 to 2.0)", "20.0 (20.0 to 20.0)", "25.0 (25.0 to 25.0)")
    assert siblings[2] == ("500", *shown, "125")
    assert result.disturbed == len([row for row in result.rounds if row.get("disturbed")])
    assert "use of the node" in to_text(result)
    assert "sharing-ratio.png" in to_markdown(result, "plots")
    json.dumps(to_json({}, [result]))


def test_the_guest_reads_counts(tmp_path):
    (tmp_path / "cpu.stat").write_text("usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n")
    assert work.read_stat(str(tmp_path)) == {"usage_usec": 1500, "nr_throttled": 0}
    (tmp_path / "cpu.stat").write_text("usage_usec 1500\nnr_periods 9\nnr_throttled 4\n")
    assert work.read_stat(str(tmp_path)) == {"usage_usec": 1500, "nr_throttled": 4}


def test_the_guest_spins_by_its_own_cpu_clock():
    begun = time.process_time_ns()
    work.spin(5_000_000)
    assert time.process_time_ns() - begun >= 5_000_000


def test_the_guest_ticks_as_often_as_requested():
    times = [int(usec) for usec in work.tick(4, 1000, 10).split()]
    assert len(times) == 4
    assert min(times) >= 10


def test_a_worker_divides_its_work_among_processes(allow_effects):
    """It forks what spins, and `end` leaves none of it."""
    worker = work.Worker()
    begun = time.monotonic_ns()
    assert worker.spin(2, 6, 0) >= begun
    assert len(worker.spinners) == 2
    worker.spin(1, 2, 2)
    assert len(worker.spinners) == 2
    worker.burn(1)
    assert worker.rest() == 0
    worker.end()
    assert not worker.others
