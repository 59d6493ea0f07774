"""`plan`."""

import json

from tests.unit.builders import manifest
from tests.unit.cli.pods import PLAN_JSON, POD, STARTS, WEB, lines


def test_plan_as_json(podslice, web, memory):
    assert podslice("plan", "-f", web, "-o", "json") == (3, PLAN_JSON, "")


def test_plan_lists_steps_that_apply_would_take(podslice, web, memory):
    would = [f"would {step}" for step in STARTS]
    assert podslice("plan", "-f", web) == (3, lines(*would, "4 to start"), "")
    assert set(memory.calls) == {"observe", "caps"}


def test_plan_names_its_units(podslice, web, memory):
    assert podslice("plan", "-f", web, "-o", "name").out == lines(
        "kubepods.slice", "kubepods-besteffort.slice", "kubepods-burstable.slice", POD
    )


def test_plan_without_systemd_is_for_an_empty_host(podslice, web, no_systemd):
    ended = podslice("plan", "-f", web, "-o", "json")
    assert (ended.code, ended.out) == (3, PLAN_JSON)
    assert ended.err == (
        "unix:path=/run/dbus: no such file or directory; planning for a host without units\n"
    )


def test_plan_of_what_is_there_is_empty(podslice, web, memory):
    podslice("apply", "-f", web)
    assert podslice("plan", "-f", web) == (0, "nothing to do\n", "")


def test_plan_shows_old_and_new_values(podslice, web, memory, files):
    podslice("apply", "-f", web)
    files({"web.yaml": WEB.replace("500m", "250m")})
    ended = podslice("plan", "-f", web)
    assert ended == (
        3,
        lines(
            "would set CPUWeight=50 (was 75) on kubepods-burstable.slice",
            f"would set CPUWeight=50 (was 75) on {POD} (shop/web)",
            "2 to set",
        ),
        "",
    )
    (first, _) = json.loads(podslice("plan", "-f", web, "-o", "json").out)["steps"]
    assert first == {
        "action": "set",
        "unit": "kubepods-burstable.slice",
        "properties": [
            {
                "name": "CPUWeight",
                "old": 75,
                "new": 50,
                "why": "requests.cpu of Burstable pods 500m → 512 shares → ×100/1024",
            }
        ],
    }


def test_plan_with_prune_lists_pods_to_stop(podslice, web, memory, files):
    podslice("apply", "-f", web)
    files({"batch.yaml": manifest("batch")})
    out = podslice("plan", "-f", "batch.yaml", "--prune").out
    assert out.startswith(f"would stop {POD}: pod shop/web is removed\n")
    assert podslice("plan", "-f", "batch.yaml").out.endswith("1 to start\n")
    document = json.loads(podslice("plan", "-f", "batch.yaml", "--prune", "-o", "json").out)
    assert document["steps"][0] == {
        "action": "stop",
        "unit": POD,
        "properties": [],
        "why": "pod shop/web is removed",
        "tasks": 0,
        "grace_period_sec": 30,
        "occupants": [],
    }


def test_plan_reports_pods_that_do_not_fit(podslice, memory, files):
    files({"a.yaml": manifest("a", {"cpu": 9})})
    message = "OutOfcpu: requests 9 of cpu, 8 is free (0 of 8 is requested)"
    ended = podslice("plan", "-f", "a.yaml")
    assert ended == (1, f"pod default/a refused: {message}\nnothing to do\n", "")
    document = json.loads(podslice("plan", "-f", "a.yaml", "-o", "json").out)
    assert document["refused"] == [
        {"pod": "default/a", "reason": "OutOfcpu", "message": message.partition(": ")[2]}
    ]
    assert podslice("plan", "-f", "a.yaml", "--admission=false").code == 3
    assert podslice("plan", "-f", "a.yaml", "--admission=false").code == 3


def test_plan_of_invalid_manifests_fails(podslice, web, memory, files):
    files({"a.yaml": manifest("a", {"cpu": 2}, {"cpu": 1})})
    ended = podslice("plan", "-f", web, "-f", "a.yaml", "--kube-reserved=cpu=9")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines() == [
        (
            "error: kube-reserved + system-reserved + eviction-hard: 9 of cpu is reserved,"
            " the node has 8; lower the reservations"
        ),
        (
            "error: a.yaml: spec.containers[0].resources.requests[cpu]: 2 is more than the limit"
            " of 1; a request is at most its limit"
        ),
    ]
    assert not memory.calls


def test_warnings_do_not_prevent_a_plan(podslice, memory, files):
    files({"a.yaml": manifest("a", {"cpu": "100m"}, {"cpu": "333m"})})
    ended = podslice("plan", "-f", "a.yaml")
    assert ended.code == 3
    assert ended.err.startswith("warning: a.yaml: ")
