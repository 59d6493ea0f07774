"""What weights predict, and what is made of the rounds."""

from dataclasses import replace

import pytest

pytest.importorskip("podslice.features.simulate")

from podslice.model.config import WeightMapping
from podslice.model.pod import Qos
from tests.bench import weights
from tests.bench.contention import (
    MAPPINGS,
    Case,
    Pod,
    Round,
    Share,
    check,
    config_text,
    decided,
    make_pods,
    predict,
    requests_of,
)
from tests.bench.result import to_markdown, to_text

POD_A, POD_B = "kube/tier/a", "kube/tier/b"


def test_a_share_is_the_weight_among_its_neighbours_times_the_share_above():
    found = predict(
        {"kube": 150, "system": 50, "kube/tier": 30, "kube/whole": 10, POD_A: 1, POD_B: 3},
        [POD_A, POD_B, "kube/whole", "system"],
    )
    assert found == {
        "kube": 0.75,
        "system": 0.25,
        "kube/tier": pytest.approx(0.5625),
        "kube/whole": pytest.approx(0.1875),
        POD_A: pytest.approx(0.140625),
        POD_B: pytest.approx(0.421875),
    }


def test_who_wants_nothing_takes_nothing_from_the_others():
    found = predict({"kube": 100, "idle": 900, "kube/tier": 5, POD_A: 2, POD_B: 98}, [POD_A])
    assert found == {"kube": 1, "kube/tier": 1, POD_A: 1}


@pytest.mark.parametrize("count", [2, 5, 10, 20])
def test_pods_ask_for_all_that_is_not_reserved(count):
    pods = make_pods(count)
    assert len(pods) == count
    assert sum(pod.cpu_milli for pod in pods) == 1500
    assert {pod.qos for pod in pods} >= {Qos.GUARANTEED, Qos.BURSTABLE}
    assert all(bool(pod.cpu_milli) == (pod.qos is not Qos.BESTEFFORT) for pod in pods)


def test_the_manifests_say_what_the_pods_are():
    pods = make_pods(5)
    desired = decided(pods, WeightMapping.SYSTEMD, Case(pods=5))
    assert {each.pod.name: each.qos for each in desired.pods} == {p.name: p.qos for p in pods}
    assert not any("CPUQuotaPerSecUSec" in unit.values for unit in desired.units)
    values = {unit.name: unit.values for unit in desired.units}
    assert values["kubepods.slice"]["CPUWeight"] == 150
    assert values["system.slice"]["CPUWeight"] == 50


def test_requests_are_shares_of_the_machine():
    pods = [
        Pod(name="a", qos=Qos.BURSTABLE, cpu_milli=500),
        Pod(name="b", qos=Qos.BESTEFFORT, cpu_milli=0),
    ]
    groups = {"a": POD_A, "b": POD_B}
    assert requests_of(pods, groups, Case(pods=2)) == {POD_A: 25.0, "system.slice": 25.0}
    assert requests_of(pods, groups, Case(pods=2, reserved=False)) == {POD_A: 25.0}


def test_nothing_is_reserved_where_nothing_is_to_be():
    text = config_text(WeightMapping.OCI, Case(pods=2, reserved=False))
    assert text == 'cpu-weight-mapping = "oci"\ncpu-cfs-quota = false\n'
    assert 'system-reserved = "cpu=500m"' in config_text(WeightMapping.OCI, Case(pods=2))


def in_kernel(desired, **changed):
    groups = {
        unit.control_group[1:]: {"weight": unit.values["CPUWeight"], "max": "max"}
        for unit in desired.units
        if unit.name.endswith(".slice")
    }
    groups["kubepods.slice"].update(changed)
    return {"cpus": 2, "groups": groups}


@pytest.mark.parametrize("changed", [{"weight": 149}, {"max": "50000"}])
def test_another_setting_in_the_kernel_is_refused(changed):
    case = Case(pods=5)
    desired = decided(make_pods(5), WeightMapping.SYSTEMD, case)
    check(in_kernel(desired), desired, case)
    with pytest.raises(RuntimeError, match=r"kubepods\.slice should have cpu\.weight 150"):
        check(in_kernel(desired, **changed), desired, case)


def test_a_machine_with_other_processors_is_refused():
    case = Case(pods=5)
    desired = decided(make_pods(5), WeightMapping.SYSTEMD, case)
    with pytest.raises(RuntimeError, match="4 processors instead of 2"):
        check({**in_kernel(desired), "cpus": 4}, desired, case)


def a_round(mapping=WeightMapping.SYSTEMD, number=1, off=1.0, pods=5):
    shares = {
        "system.slice": Share(weight=50, predicted=25.0, measured=25.0, requested=25.0),
        "all pods": Share(weight=150, predicted=75.0, measured=75.0),
        "pod-0 Guaranteed 800m": Share(
            weight=79, predicted=40.0, measured=40.0 - off, requested=40.0
        ),
        "pod-1 Burstable 50m": Share(weight=4, predicted=2.0, measured=2.2, requested=2.5),
    }
    return Round(
        number=number,
        case=Case(pods=pods),
        mapping=mapping,
        shares=shares,
        others_percent=0.3,
        disturbed=False,
    )


def test_the_worst_of_a_round():
    one = a_round(off=1.0)
    assert max(one.off_points) == 1.0
    assert one.shortfall_points == 1.0
    assert one.received_percent == pytest.approx(88.0)


def test_one_share_in_one_round_misses_the_aim():
    good = [a_round(mapping, number) for mapping in MAPPINGS for number in (1, 2)]
    aim = weights.make_aim(good)
    assert (aim.value, aim.is_met) == (1.0, True)
    aim = weights.make_aim([*good, a_round(off=5.5)])
    assert (aim.value, aim.is_met) == (5.5, False)


def test_tables_have_every_mapping_and_case_in_order():
    rounds = [
        replace(a_round(mapping, number, off=number, pods=pods), number=number)
        for pods in (10, 5)
        for number in (1, 2, 3)
        for mapping in reversed(MAPPINGS)
    ]
    result = weights.make_result(rounds)
    summary, system, detail = result.tables
    assert [row[0] for row in summary.rows] == [
        f"{mapping}, {pods}" for pods in (5, 10) for mapping in ("systemd", "kubelet", "oci")
    ]
    assert summary.rows[0][1:] == ("3.00", "0.10", "2.0", "88 %")
    assert system.rows[0][1] == "150 : 50"
    (guaranteed,) = [row for row in detail.rows if row[0] == "pod-0 Guaranteed 800m"]
    assert guaranteed[1:4] == ("40.0", "40.0", "38.0 (37.0 to 39.0)")
    assert len(result.rounds) == 18
    assert to_text(result)
    assert to_markdown(result, "plots")
    assert {len(points) for points in result.plots[1].series.values()} == {3}
