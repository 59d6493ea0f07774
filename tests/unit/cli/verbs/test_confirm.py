"""`apply --confirm`, `confirm`, and the output of the other verbs before it."""

import asyncio
import json

import pytest

from podslice.model.unit import INFINITY, TransientUnit
from tests.unit.builders import manifest

SLICE = "podruntime.slice"
MI = 2**20
RESERVE = (
    "--set=kube-reserved=cpu=500m,memory=64Mi",
    f"--set=kube-reserved-cgroup=/{SLICE}",
    "--set=enforce-node-allocatable=pods,kube-reserved",
)
APPLY = ("apply", "-f", "web.yaml", *RESERVE)


@pytest.fixture(autouse=True)
def reserved(memory, files, tmp_path, monkeypatch):
    """A manifest, a slice to reserve for, and a systemctl that is never run."""
    files({"web.yaml": manifest("web", requests={"cpu": "1"})})
    memory.provide(SLICE)
    path = tmp_path / "bin/systemctl"
    path.parent.mkdir()
    path.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(path.parent))


def has(memory, **values):
    (unit,) = asyncio.run(memory.observe([SLICE]))
    return {name: unit.properties[name] for name in values} == values


def let_return(memory):
    """The timer has elapsed."""
    asyncio.run(memory.set_properties(SLICE, {"CPUWeight": INFINITY, "MemoryMax": INFINITY}))
    asyncio.run(memory.stop("podslice-rollback.timer"))


def test_apply_reports_the_rollback_and_confirm_cancels_it(podslice, memory):
    ended = podslice(*APPLY, "--confirm=60")
    assert ended.code == 0
    assert ended.err == (
        f"the old values of {SLICE} are restored in 60 s; to keep the new ones: podslice confirm\n"
    )
    assert podslice("confirm") == (0, f"confirmed the new values of {SLICE}\n", "")
    assert has(memory, MemoryMax=64 * MI)
    assert podslice("confirm") == (1, "", "there is nothing to confirm\n")


def test_confirm_as_json(podslice, memory):
    podslice(*APPLY, "--confirm=60")
    for code, confirmed in ((0, [SLICE]), (1, [])):
        ended = podslice("confirm", "-o", "json")
        assert (ended.code, json.loads(ended.out)["confirmed"]) == (code, confirmed)


def test_what_is_not_confirmed_is_in_status(podslice, memory):
    podslice(*APPLY, "--confirm=60")
    ended = podslice("status", *RESERVE)
    assert ended.code == 0
    assert f"the old values of {SLICE} are restored in " in ended.err
    document = json.loads(podslice("status", "-o", "json", *RESERVE).out)["unconfirmed"]
    assert (document["state"], 0 < document["remaining_sec"] <= 60) == ("armed", True)
    assert document["units"] == [
        {
            "unit": SLICE,
            "properties": [
                {"name": "CPUWeight", "old": "infinity", "new": 50},
                {"name": "MemoryMax", "old": "infinity", "new": 64 * MI},
            ],
        }
    ]
    podslice("confirm")
    assert "unconfirmed" not in json.loads(podslice("status", "-o", "json", *RESERVE).out)


def test_restored_values_are_reported(podslice, memory):
    podslice(*APPLY, "--confirm=60")
    let_return(memory)
    found = (
        f"the new values of {SLICE} were not confirmed: the old ones are restored; to set the new"
        " ones again: podslice apply\n"
    )
    assert podslice("confirm") == (1, "", found)
    status = podslice("status", *RESERVE)
    message, _, hint = found.strip().partition("; ")
    assert (status.code, status.err) == (3, "")
    assert [f"node: {message}", f"  → {hint}"] == status.out.splitlines()[-4:-2]
    assert f"would set CPUWeight=50 (was unset), MemoryMax=64Mi (was unset) on {SLICE}" in (
        podslice("plan", "-f", "web.yaml", *RESERVE).out
    )
    assert podslice("delete", "web", *RESERVE).code == 0
    assert has(memory, MemoryMax=INFINITY)
    assert podslice(*APPLY).code == 0
    assert has(memory, MemoryMax=64 * MI)
    assert podslice("status", *RESERVE) == (0, podslice("status", *RESERVE).out, "")


def test_a_stopped_timer_is_reported(podslice, memory):
    podslice(*APPLY, "--confirm=60")
    asyncio.run(memory.stop("podslice-rollback.timer"))
    ended = podslice("status", *RESERVE)
    assert (ended.code, ended.err) == (3, "")
    assert ended.out.splitlines()[-4:-2] == [
        (
            f"node: the new values of {SLICE} are not confirmed, and the timer that restores the old"
            " ones was stopped"
        ),
        "  → to keep the new ones: podslice confirm",
    ]
    assert podslice("confirm").code == 0


def test_a_user_manager_has_nothing_to_confirm(podslice, memory):
    ended = podslice(*APPLY, "--confirm=60", "--user")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "error: --confirm: a user manager has no reserved slices to confirm; omit it\n"
    )


@pytest.mark.parametrize("seconds", ["0", "86401", "soon"])
def test_the_time_to_confirm_in_is_checked(podslice, seconds):
    ended = podslice(*APPLY, f"--confirm={seconds}")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: invalid value for '--confirm': ")


def test_values_outside_the_root_are_in_plan_and_status_until_they_have_returned(podslice, memory):
    podslice(*APPLY)
    before = [
        {"name": "CPUWeight", "before": "infinity", "set": 50},
        {"name": "MemoryMax", "before": "infinity", "set": 64 * MI},
    ]
    for verb in (("status",), ("plan", "-f", "web.yaml")):
        document = json.loads(podslice(*verb, "-o", "json", *RESERVE).out)
        assert document["reserved_slices"] == [{"unit": SLICE, "properties": before}]
    line = f"{SLICE}: podslice has set CPUWeight=50 (previously: unset), MemoryMax=64Mi (previously: unset)"
    assert line in podslice("status", *RESERVE).out.splitlines()
    status = podslice("status")
    assert status.code == 3
    assert f"{SLICE}: MemoryMax is 64Mi, should be unset" in status.out.splitlines()
    plan = podslice("plan", "-o", "json", "-f", "web.yaml")
    (step,) = [each for each in json.loads(plan.out)["steps"] if each["unit"] == SLICE]
    assert (plan.code, {each["is_return"] for each in step["properties"]}) == (3, {True})
    assert podslice("apply", "-f", "web.yaml").code == 0
    assert has(memory, CPUWeight=INFINITY, MemoryMax=INFINITY)
    assert "reserved_slices" not in json.loads(podslice("status", "-o", "json").out)


def test_externally_changed_values_are_kept_and_reported(podslice, memory):
    podslice(*APPLY)
    asyncio.run(memory.set_properties(SLICE, {"MemoryMax": 32 * MI}))
    assert f"skipped MemoryMax of {SLICE}: podslice set it to" in podslice("status").err
    assert f"skipped MemoryMax of {SLICE}: podslice set it to" in (
        podslice("apply", "-f", "web.yaml").out
    )
    assert has(memory, CPUWeight=INFINITY, MemoryMax=32 * MI)
    assert podslice("status").err == ""


def test_values_are_given_back_without_configuration_or_pods(podslice, memory):
    assert podslice("__restore_reserved") == (0, "", "")
    podslice(*APPLY)
    ended = podslice("__restore_reserved")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("set CPUWeight=unset (was 50; restores the former value)")
    assert has(memory, CPUWeight=INFINITY, MemoryMax=INFINITY)
    assert podslice("__restore_reserved") == (0, "", "")


def test_values_of_a_damaged_record_are_not_given_back_in_silence(podslice, memory, here):
    podslice(*APPLY)
    (here / "run-False/reserved.json").write_text("[]")
    ended = podslice("__restore_reserved")
    assert (ended.code, ended.out) == (1, "")
    assert "reserved.json is damaged" in ended.err
    assert has(memory, MemoryMax=64 * MI)


def test_nothing_is_confirmed_beside_a_kubelet(podslice, memory):
    podslice(*APPLY, "--confirm=60")
    name = "kubepods-podx.slice"
    unit = TransientUnit(name=name, properties={"Description": f"libcontainer container {name}"})
    asyncio.run(memory.start(unit))
    for verb in ("confirm", "__restore_reserved"):
        ended = podslice(verb)
        assert (ended.code, ended.out) == (1, "")
        assert "kubepods.slice belongs to a kubelet" in ended.err
    asyncio.run(memory.stop(name))
    assert podslice("confirm").code == 0
