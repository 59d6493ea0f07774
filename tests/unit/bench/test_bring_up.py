import pytest
import yaml

from podslice.inputs.manifest.load import load_pods
from podslice.model.config import Config
from podslice.model.node import Node
from podslice.model.pod import Qos
from podslice.model.unit import TransientUnit, UnitName
from podslice.policy.decide import decide
from tests.bench import bring_up_tables as tables
from tests.bench import inside, runc
from tests.bench.peers.plan_work import unit_lines
from tests.bench.peers.stages import Clock
from tests.bench.peers.work import read_work
from tests.bench.pods import make_manifests


def a_round(number, what, pods, wall, pid1=10.0):
    return {
        "round": number,
        "what": what,
        "pods": pods,
        "wall_ms": wall,
        "client_cpu_ms": 1.0,
        "pid1_cpu_ms": pid1,
        "bus_cpu_ms": 1.0,
        "disturbed": False,
    }


def some_rounds(*sizes):
    walls = {tables.FLOOR: 100.0, tables.APPLY: 70.0, tables.UNBATCHED: 140.0, "busctl": 400.0}
    return [
        a_round(number, what, pods, wall * number)
        for pods in sizes
        for number in (1, 2, 3)
        for what, wall in walls.items()
    ]


def test_ordinary_pods_of_every_class_with_names_of_their_own():
    loaded = load_pods(("-",), stdin=lambda: make_manifests(20).encode())
    assert not loaded.all_problems
    assert len({pod.uid for pod in loaded.pods}) == 20
    decisions = [decide(pod, Node(capacity={}), Config()) for pod in loaded.pods]
    assert not [problem for each in decisions for problem in each.problems]
    classes = [each.qos for each in decisions]
    assert [classes.count(qos) for qos in (Qos.GUARANTEED, Qos.BURSTABLE, Qos.BESTEFFORT)] == [
        *(4, 12, 4)
    ]


def test_one_pod_differs_and_nothing_else():
    before, after = (
        list(yaml.safe_load_all(make_manifests(10, changed=number))) for number in (None, 6)
    )
    assert [number for number in range(10) if before[number] != after[number]] == [6]


def test_the_work_is_read_as_it_was_written(tmp_path):
    unit = TransientUnit(
        name=UnitName("a-b.slice"),
        properties={
            "Description": "Pod x/y (Burstable)",
            "DefaultDependencies": False,
            "CPUAccounting": True,
            "MemoryMax": 2**63,
            "Wants": ("a.slice",),
        },
    )
    path = tmp_path / "work"
    path.write_text("\n".join([*unit_lines(unit), "wait", "unit\tc.slice", "wait"]))
    assert read_work(str(path)) == [
        [
            (
                "a-b.slice",
                [
                    ("Description", "s", "Pod x/y (Burstable)"),
                    ("DefaultDependencies", "b", False),
                    ("CPUAccounting", "b", True),
                    ("MemoryMax", "t", 2**63),
                    ("Wants", "as", ["a.slice"]),
                ],
            )
        ],
        [("c.slice", [])],
    ]


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
def test_the_first_difference_between_two_states(found, words):
    assert inside.first_difference({"units": {"a": {"x": "1", "y": "2"}}}, found) == words


def test_podslice_comes_first_then_the_floor_then_the_others():
    assert tables.names(some_rounds(100)) == [
        *(tables.APPLY, tables.UNBATCHED, tables.FLOOR, "busctl")
    ]


def test_ratios_are_formed_round_by_round():
    taken = some_rounds(500)
    assert tables.ratio(taken, tables.APPLY, 500, "wall").show(2) == "0.70 (0.70 to 0.70)"
    rows = {row[0]: row for row in tables.clients(taken, 500).rows}
    assert rows["busctl"][1:3] == ("800 (400 to 1200)", "4.00 (4.00 to 4.00)")


def test_the_aims_are_measured_at_500_and_at_100_pods():
    met = {aim.text: (aim.value, aim.is_met) for aim in tables.aims(some_rounds(100, 500, 1000))}
    assert met == {
        "wall time of the whole command, 500 pods, ratio to the C client": (0.7, True),
        "wall time of the whole command, 100 pods, ratio to the C client": (0.7, True),
        "the same without batches, 500 pods, ratio to the C client": (1.4, False),
        "PID 1's CPU time, 500 pods, ratio to the C client": (1.0, False),
    }


def test_a_quick_run_is_judged_by_what_it_has():
    aims = tables.aims(some_rounds(20))
    assert ["20 pods" in aim.text for aim in aims] == [True, True, True]


def test_the_parts_of_a_command_add_up_to_a_pod():
    taken = [{"pods": 100, "imports_ms": 50.0}, {"pods": 100, "imports_ms": 70.0}]
    (row,) = (row for row in tables.stages(taken).rows if row[0] == "imports")
    assert row == ("imports", "60", "600")


def test_time_goes_to_what_has_begun_last(monkeypatch):
    now = iter([0.0, 1.0, 3.0, 6.0, 10.0])
    clock = Clock(began=next(now))
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    clock.begin("outer")
    clock.begin("inner")
    clock.end()
    clock.end()
    assert clock.parts == {"rest": 1000.0, "outer": 2000.0 + 4000.0, "inner": 3000.0}


def test_a_container_has_the_limits_of_its_pod():
    work = (
        "unit\tkubepods.slice\nset\tMemoryMax\tt\t9\nwait\n"
        "unit\tkubepods-pod1_2.slice\nset\tDescription\ts\tPod 1\n"
        "set\tCPUWeight\tt\t50\nset\tCPUQuotaPerSecUSec\tt\t200000\nset\tMemoryMax\tt\t4096\n"
    )
    pods = runc.read_pods(work)
    properties = {"CPUWeight": 50, "CPUQuotaPerSecUSec": 200_000, "MemoryMax": 4096}
    assert pods == {"kubepods-pod1_2.slice": properties}
    linux = runc.make_config("kubepods-pod1_2.slice", "1_2", properties)["linux"]
    assert linux["cgroupsPath"] == "kubepods-pod1_2.slice:runc:1_2"
    assert linux["resources"] == {
        "cpu": {"shares": 512, "period": 100_000, "quota": 20_000},
        "memory": {"limit": 4096},
    }


def test_a_container_without_its_limit_is_an_error():
    groups = {
        "/sys/fs/cgroup/cpu/p.slice/runc-1.scope": {"cpu.shares": "2"},
        "/sys/fs/cgroup/memory/p.slice/runc-1.scope": {"memory.limit_in_bytes": "4096"},
    }
    runc.check_limits(groups, {"runc-1.scope": 4096})
    with pytest.raises(inside.WrongWork, match=r"runc-1\.scope is held to 4096, not 8192"):
        runc.check_limits(groups, {"runc-1.scope": 8192})
    with pytest.raises(inside.WrongWork, match=r"runc-2\.scope is held to None"):
        runc.check_limits(groups, {"runc-2.scope": 4096})
