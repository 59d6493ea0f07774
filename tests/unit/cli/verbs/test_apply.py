"""`apply`."""

import asyncio
import json

from podslice.cli import session
from podslice.errors import Refused
from podslice.store import files as store_files
from podslice.store.store import Store
from podslice.systemd import bus
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import make_files, manifest
from tests.unit.cli.pods import PLAN_JSON, POD, STARTS, WEB, lines


def test_apply_reports_completed_steps(podslice, web, memory):
    did = [step.replace("start ", "started ", 1) for step in STARTS]
    assert podslice("apply", "-f", web) == (0, lines(*did, "4 done"), "")


def test_a_second_apply_does_nothing(podslice, web, memory):
    podslice("apply", "-f", web)
    memory.calls.clear()
    assert podslice("apply", "-f", web) == (0, "nothing to do\n", "")
    assert memory.calls == {"observe": 1, "caps": 1}


def test_apply_as_json(podslice, web, memory):
    memory.refuse("kubepods-burstable.slice", Refused("access denied"))
    ended = podslice("apply", "-f", web, "-o", "json")
    assert (ended.code, ended.err) == (1, "")
    document = json.loads(ended.out)
    assert [(step["unit"], step["outcome"], step["error"]) for step in document["steps"]] == [
        ("kubepods.slice", "done", ""),
        ("kubepods-besteffort.slice", "done", ""),
        ("kubepods-burstable.slice", "failed", "access denied"),
        (POD, "not tried", "a step on kubepods-burstable.slice failed"),
    ]
    assert document["skipped"] == document["refused"] == document["remaining"] == []
    planned = json.loads(PLAN_JSON)["steps"]
    assert [{**step, "outcome": 0, "error": 0} for step in planned] == [
        {**step, "outcome": 0, "error": 0} for step in document["steps"]
    ]


def test_apply_states_whether_it_changed_something(podslice, web, memory):
    """The first time as `plan` does; then nothing is left to change."""

    def changed(verb):
        return json.loads(podslice(verb, "-f", web, "-o", "json").out)["changed"]

    assert [changed(verb) for verb in ("plan", "apply", "plan", "apply")] == [
        True,
        True,
        False,
        False,
    ]


def test_an_apply_whose_first_step_fails_has_changed_nothing(podslice, web, memory):
    memory.refuse("kubepods.slice", Refused("access denied"))
    ended = podslice("apply", "-f", web, "-o", "json")
    assert (ended.code, json.loads(ended.out)["changed"]) == (1, False)


def test_apply_reports_failures_refusals_and_steps_not_tried(podslice, web, memory, files):
    files({"a.yaml": manifest("a", {"cpu": 9})})
    memory.refuse(POD, Refused("access denied"))
    ended = podslice("apply", "-f", web, "-f", "a.yaml")
    assert ended.code == 1
    assert ended.out.splitlines()[-3:] == [
        f"failed to {STARTS[3]}: access denied",
        "pod default/a refused: OutOfcpu: requests 9 of cpu, 8 is free (0 of 8 is requested)",
        "3 done, 1 failed, 1 refused",
    ]


class Forgetful(FakeSystemd):
    """Takes every change and keeps none; too old for MemoryMin."""

    def __init__(self):
        super().__init__(systemd_version=239)

    async def set_properties(self, name, properties):
        pass


def test_steps_without_effect_and_skipped_properties_are_reported(
    podslice, web, files, here, monkeypatch
):
    client = Forgetful()
    monkeypatch.setattr(bus, "Bus", lambda *_, **__: client)
    podslice("apply", "-f", web)
    files({"web.yaml": WEB.replace("500m", "250m")})
    ended = podslice(
        "apply", "-f", web, *("--set=memory-protection=min", "--set=qos-reserved=memory=100%")
    )
    assert ended.code == 1
    out = ended.out.splitlines()
    assert f"skipped MemoryMin of {POD}: systemd 239 does not support it; it requires 240" in out
    again = [line for line in out if line.startswith("did not converge, still pending: ")]
    assert again[-1].endswith(
        f"set CPUWeight=50 (was 75), MemoryLow=unset (was 256Mi) on {POD} (shop/web)"
    )
    assert out[-1] == f"{len(again)} done"


def test_nothing_is_sent_before_the_whole_input_is_known_to_be_valid(
    podslice, web, memory, files, here
):
    """Also with so many pods that the first could be started before the last is read."""
    many = "---\n".join(manifest(f"many-{number}") for number in range(200))
    files({"many.yaml": many, "z.yaml": manifest("z", {"cpu": "a lot"})})
    ended = podslice("apply", "-f", "many.yaml", "-f", web, "-f", "z.yaml")
    assert (ended.code, ended.out) == (2, "")
    assert not memory.calls
    assert not (here / "run-False").exists()


def test_apply_names_what_it_did(podslice, web, memory):
    assert podslice("apply", "-f", web, "-o", "name").out.splitlines()[-1] == POD


def test_apply_with_prune(podslice, web, memory, files):
    files({"batch.yaml": manifest("batch")})
    podslice("apply", "-f", web)
    out = podslice("apply", "-f", "batch.yaml", "--prune").out
    assert out.startswith(f"stopped {POD}: pod shop/web is removed\n")
    assert podslice("plan", "-f", "batch.yaml", "--prune").code == 0


def test_apply_needs_systemd(podslice, web, no_systemd, here):
    ended = podslice("apply", "-f", web)
    assert ended == (1, "", "error: unix:path=/run/dbus: no such file or directory\n")
    assert not (here / "run-False").exists()


def test_apply_for_the_user_keeps_its_own_records(podslice, web, memory, here):
    podslice("apply", "-f", web, "--user")
    assert [path.name for path in (here / "run-True/pods").iterdir()] == ["0a1b-2c.json"]
    assert not (here / "run-False").exists()


def test_the_order_of_the_files_does_not_matter(podslice, memory, files):
    """Two pods of which one fits: the same one whatever comes first."""
    files({name: manifest(name[0], {"cpu": 5}) for name in ("a.yaml", "b.yaml")})
    first = podslice("plan", "-f", "a.yaml", "-f", "b.yaml")
    assert podslice("plan", "-f", "b.yaml", "-f", "a.yaml") == first
    assert "pod default/b refused: OutOfcpu" in first.out


def test_the_grace_that_a_manifest_states_counts_for_prune(podslice, memory, files):
    files({"a.yaml": manifest("a", terminationGracePeriodSeconds=7), "b.yaml": manifest("b")})
    podslice("apply", "-f", "a.yaml")
    (name,) = [unit.name for unit in asyncio.run(memory.observe(["kubepods-*-pod*"]))]
    memory.set_tasks(name, 1)
    document = json.loads(podslice("plan", "-f", "b.yaml", "--prune", "-o", "json").out)
    assert document["steps"][0]["grace_period_sec"] == 7
    ended = podslice("apply", "-f", "b.yaml", "--prune")
    assert ended.err == "stopping 1 process of pod default/a, up to 7 s\n"


def test_remains_of_a_deleted_pod_are_reported(podslice, web, memory, here, monkeypatch):
    monkeypatch.setattr("podslice.reconcile.converge.REMOVAL_PATIENCE_SEC", 0)
    podslice("apply", "-f", web)
    group = f"kubepods.slice/kubepods-burstable.slice/{POD}"
    files = {f"{group}/by-hand/cgroup.procs": "", "cgroup.controllers": ""}
    make_files(here / "cgroup", files)
    why = f"its control group /{group} still exists, without processes"
    hint = "to retry: podslice delete -n shop web"
    ended = podslice("delete", "shop/web")
    assert (ended.code, ended.out.splitlines()[-2:]) == (
        1,
        [f"pod shop/web could not be removed: {why}; {hint}", "4 done, 1 stuck"],
    )
    document = json.loads(podslice("delete", "shop/web", "-o", "json").out)
    assert document["stuck"] == [{"pod": "shop/web", "why": why, "hint": hint}]


LESS = WEB.replace("limits: {cpu: 250m}", "limits: {cpu: 250m, memory: 1Gi}")


def test_memory_is_reclaimed_for_a_limit_below_usage(podslice, memory, files, monkeypatch):
    monkeypatch.setattr("podslice.reconcile.act.STALLED_SEC", 0)
    files({"web.yaml": LESS})
    podslice("apply", "-f", "web.yaml")
    memory.set_memory(POD, 900 * 2**20)
    files({"web.yaml": LESS.replace("1Gi", "128Mi")})
    change = f"MemoryMax=640Mi (was 1536Mi) on {POD} (shop/web)"
    out = podslice("plan", "-f", "web.yaml").out
    assert f"{change}; 900 MiB in use, reclaimed first through MemoryHigh\n" in out
    steps = json.loads(podslice("plan", "-f", "web.yaml", "-o", "json").out)["steps"]
    (step,) = [step for step in steps if step["unit"] == POD]
    assert (step["used_bytes"], step["reclaim_to_bytes"]) == (900 * 2**20, 640 * 2**20)
    ended = podslice("apply", "-f", "web.yaml")
    assert ended.code == 1
    assert "900 MiB are in use and can't be reclaimed, above the limit of 640 MiB" in ended.out
    memory.set_memory(POD, 640 * 2**20)
    assert "in use" not in podslice("plan", "-f", "web.yaml").out
    memory.set_memory(POD, 900 * 2**20)
    assert "in use" not in podslice("plan", "-f", "web.yaml", "--force").out
    assert podslice("apply", "-f", "web.yaml", "--force").code == 0


def test_a_lock_that_is_not_released_is_an_error(podslice, web, memory, here, monkeypatch):
    with Store(here / "run-False").lock():
        monkeypatch.setattr(store_files, "LOCK_WAIT_SEC", -1.0)
        monkeypatch.setattr(store_files, "_LOCK_TRIES", 1)
        monkeypatch.setattr(store_files, "LOCK_POLL_SEC", 0)
        ended = podslice("apply", "-f", web)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: another podslice process has held the lock for ")


def test_waiting_for_the_lock_is_noted(podslice, web, memory, here, monkeypatch):
    found = []
    monkeypatch.setattr(store_files, "_LOCK_TRIES", 1)
    monkeypatch.setattr(store_files, "LOCK_POLL_SEC", 0)
    other = Store(here / "run-False").lock()
    other.__enter__()

    def note(text):
        found.append(text)
        other.__exit__(None, None, None)

    monkeypatch.setattr(session, "note", note)
    assert podslice("apply", "-f", web).code == 0
    assert found == ["waiting for another podslice process to release the lock"]


def test_a_new_file_with_the_name_of_an_applied_pod_changes_nothing(memory, podslice, files):
    """podslice-apply.service applies a directory; both files are named, whichever sorts first."""
    files({"pods/b.yaml": manifest("web", {"memory": "8Mi"})})
    assert podslice("apply", "-f", "pods").code == 0
    files({"pods/a.yaml": manifest("web", {"memory": "1Mi"})})
    ended = podslice("apply", "-f", "pods")
    assert (ended.code, ended.out) == (2, "")
    assert (
        "pods/b.yaml: metadata.name: the name 'default/web' is already used by a pod in"
        in ended.err
    )
    assert "pods/a.yaml" in ended.err
    assert podslice("plan", "-f", "pods/b.yaml").code == 0


def test_without_files_the_manifest_directories_are_applied(podslice, here, memory):
    make_files(here / "manifests", {"web.yaml": WEB})
    planned = podslice("plan")
    assert planned.code == 3
    did = [step.replace("start ", "started ", 1) for step in STARTS]
    assert podslice("apply") == (0, lines(*did, "4 done"), "")


def test_without_files_a_directory_that_this_user_may_not_read_is_an_error(
    podslice, here, memory, monkeypatch
):
    make_files(here / "manifests", {"web.yaml": WEB})
    monkeypatch.setattr("podslice.cli.wanted._is_denied", lambda _: True)
    for verb in ("apply", "plan"):
        ended = podslice(verb)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err == (
            f"error: permission denied: the manifest directory {here}/manifests; run as root, or use"
            " --user\n"
        )


def test_without_files_applied_pods_are_set_again(podslice, here, web, memory):
    # the packages make an empty directory
    (here / "manifests").mkdir(parents=True)
    podslice("apply", "-f", web)
    asyncio.run(memory.set_properties(POD, {"CPUWeight": 7}))
    assert podslice("apply") == (
        0,
        lines(f"set CPUWeight=75 (was 7) on {POD} (shop/web)", "1 done"),
        "",
    )
    assert podslice("apply") == (0, "nothing to do\n", "")


def test_without_files_and_pods_reservations_are_applied_and_removed(podslice, here, memory):
    memory.provide("system.slice")
    reserve = ("--set=system-reserved=memory=1Gi", "--set=system-reserved-cgroup=/system.slice")
    enforced = (*reserve, "--set=enforce-node-allocatable=pods,system-reserved")
    assert "set MemoryMax=1Gi" in podslice("apply", *enforced).out
    assert "set MemoryMax=unset (was 1Gi; restores" in podslice("apply").out


def test_prune_without_manifests_names_the_directories(podslice, web, memory):
    podslice("apply", "-f", web)
    ended = podslice("apply", "--prune")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: the manifest directories: no pods found; --prune would")
