"""The verbs that plan and change: plan, apply, delete."""

import asyncio
import json

import pytest

from podslice.cli import session
from podslice.errors import Refused
from podslice.store import Store
from podslice.store import lock as store_lock
from podslice.systemd import bus
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import make_files, manifest

WEB = """\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, uid: 0a1b-2c}
spec:
  containers:
  - name: app
    resources:
      requests: {cpu: 500m, memory: 256Mi}
      limits: {cpu: "1", memory: 512Mi}
  - name: log
    resources:
      limits: {cpu: 250m}
"""

PLAN_JSON = """\
{
  "version": 1,
  "steps": [
    {
      "action": "start",
      "unit": "kubepods.slice",
      "properties": [
        {
          "name": "CPUWeight",
          "old": null,
          "new": 800,
          "why": "capacity - kube-reserved - system-reserved, cpu → 8192 shares → ×100/1024"
        },
        {
          "name": "MemoryLow",
          "old": null,
          "new": 268435456,
          "why": "the sum over all pods' slices"
        },
        {
          "name": "MemoryMax",
          "old": null,
          "new": 34359738368,
          "why": "capacity - kube-reserved - system-reserved, memory"
        }
      ]
    },
    {
      "action": "start",
      "unit": "kubepods-besteffort.slice",
      "properties": [
        {
          "name": "CPUWeight",
          "old": null,
          "new": 1,
          "why": "the BestEffort tier → 2 shares → ×100/1024 = 0, clamped to 1: systemd accepts 1 to 10000"
        }
      ]
    },
    {
      "action": "start",
      "unit": "kubepods-burstable.slice",
      "properties": [
        {
          "name": "CPUWeight",
          "old": null,
          "new": 75,
          "why": "requests.cpu of Burstable pods 750m → 768 shares → ×100/1024"
        },
        {
          "name": "MemoryLow",
          "old": null,
          "new": 268435456,
          "why": "the sum over Burstable pods' slices"
        }
      ]
    },
    {
      "action": "start",
      "unit": "kubepods-burstable-pod0a1b_2c.slice",
      "properties": [
        {
          "name": "CPUQuotaPerSecUSec",
          "old": null,
          "new": 1250000,
          "why": "limits.cpu 1 + 250m = 1250m → 1250000 µs per second"
        },
        {
          "name": "CPUWeight",
          "old": null,
          "new": 75,
          "why": "requests.cpu 500m + 250m (limit) = 750m → 768 shares → ×100/1024"
        },
        {
          "name": "MemoryLow",
          "old": null,
          "new": 268435456,
          "why": "requests.memory 256Mi"
        }
      ]
    }
  ],
  "skipped": [],
  "refused": []
}
"""

STARTS = """\
start kubepods.slice with CPUWeight=800, MemoryLow=256Mi, MemoryMax=32Gi
start kubepods-besteffort.slice with CPUWeight=1
start kubepods-burstable.slice with CPUWeight=75, MemoryLow=256Mi
start kubepods-burstable-pod0a1b_2c.slice (shop/web) with CPUQuota=125%, CPUWeight=75, MemoryLow=256Mi
""".splitlines()

POD = "kubepods-burstable-pod0a1b_2c.slice"


@pytest.fixture
def web(files):
    """The manifest of one pod with two containers."""
    files({"web.yaml": WEB})
    return "web.yaml"


def lines(*parts):
    return "".join(f"{line}\n" for line in parts)


# plan


def test_plan_as_json(podslice, web, memory):
    assert podslice("plan", "-f", web, "-o", "json") == (3, PLAN_JSON, "")


def test_plan_speaks_in_the_conditional(podslice, web, memory):
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


def test_plan_tells_old_and_new(podslice, web, memory, files):
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


def test_plan_with_prune_tells_what_would_stop(podslice, web, memory, files):
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


def test_plan_tells_who_does_not_fit(podslice, memory, files):
    files({"a.yaml": manifest("a", {"cpu": 9})})
    said = "OutOfcpu: requests 9 of cpu, 8 is free (0 of 8 is requested)"
    ended = podslice("plan", "-f", "a.yaml")
    assert ended == (1, f"pod default/a refused: {said}\nnothing to do\n", "")
    document = json.loads(podslice("plan", "-f", "a.yaml", "-o", "json").out)
    assert document["refused"] == [
        {"pod": "default/a", "reason": "OutOfcpu", "message": said.partition(": ")[2]}
    ]
    assert podslice("plan", "-f", "a.yaml", "--no-admission").code == 3
    assert podslice("plan", "-f", "a.yaml", "--admission=false").code == 3


def test_plan_of_mistakes_is_none(podslice, web, memory, files):
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


def test_warnings_do_not_hold_up(podslice, memory, files):
    files({"a.yaml": manifest("a", {"cpu": "100m"}, {"cpu": "333m"})})
    ended = podslice("plan", "-f", "a.yaml")
    assert ended.code == 3
    assert ended.err.startswith("warning: a.yaml: ")


# apply


def test_apply_speaks_in_the_past(podslice, web, memory):
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


def test_apply_tells_failures_refusals_and_the_rest(podslice, web, memory, files):
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


def test_what_does_not_hold_and_what_was_left_out_is_told(podslice, web, files, here, monkeypatch):
    client = Forgetful()
    monkeypatch.setattr(bus, "Bus", lambda *_, **__: client)
    podslice("apply", "-f", web)
    files({"web.yaml": WEB.replace("500m", "250m")})
    ended = podslice("apply", "-f", web, "--memory-protection=min", "--qos-reserved=memory=100%")
    assert ended.code == 1
    out = ended.out.splitlines()
    assert f"skipped MemoryMin of {POD}: systemd 239 does not support it; it requires 240" in out
    again = [line for line in out if line.startswith("did not converge, still pending: ")]
    assert again[-1].endswith(
        f"set CPUWeight=50 (was 75), MemoryLow=unset (was 256Mi) on {POD} (shop/web)"
    )
    assert out[-1] == f"{len(again)} done"


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


# delete


def test_delete_tells_what_it_stopped(podslice, web, memory):
    podslice("apply", "-f", web)
    assert podslice("delete", "shop/web") == (
        0,
        lines(
            f"stopped {POD}: pod shop/web is removed",
            "stopped kubepods-besteffort.slice: no pods remain",
            "stopped kubepods-burstable.slice: no pods remain",
            "stopped kubepods.slice: no pods remain",
            "4 done",
        ),
        "",
    )


@pytest.mark.parametrize(
    "arguments", [["web", "-n", "shop"], ["-f", "web.yaml"], ["--all"], ["shop/web", "--all"]]
)
def test_pods_are_named_in_several_ways(podslice, web, memory, arguments, here):
    podslice("apply", "-f", web)
    assert podslice("delete", *arguments).code == 0
    assert podslice("status").out == "no pods\n"
    assert not (here / "run-False").exists()


def test_delete_of_what_is_not_applied(podslice, web, memory):
    podslice("apply", "-f", web)
    assert podslice("delete", "nope", "shop/web", "\x1b[31m") == (
        1,
        stopped_everything(),
        (
            "error: pod default/\\x1b[31m is not applied; see: podslice status\n"
            "error: pod default/nope is not applied; see: podslice status\n"
        ),
    )


def stopped_everything():
    tiers = ("kubepods-besteffort.slice", "kubepods-burstable.slice", "kubepods.slice")
    return lines(
        f"stopped {POD}: pod shop/web is removed",
        *(f"stopped {name}: no pods remain" for name in tiers),
        "4 done",
    )


def test_delete_of_nothing_in_particular(podslice, memory):
    said = "error: no pod specified; specify pods, -f FILE or --all\n"
    assert podslice("delete") == (2, "", said)
    assert not memory.calls


def test_delete_all_of_nothing(podslice, memory):
    assert podslice("delete", "--all") == (0, "nothing to do\n", "")


def test_delete_tells_what_runs_in_it(podslice, web, memory):
    podslice("apply", "-f", web)
    memory.set_tasks(POD, 2)
    assert f"stopped {POD} with its processes (2 tasks)" in podslice("delete", "--all").out


@pytest.mark.parametrize(
    ("arguments", "sec"),
    [((), ", up to 30 s"), (("--grace-period", "5"), ", up to 5 s"), (("--grace-period=0",), "")],
)
def test_what_is_waited_for_is_told_before(podslice, web, memory, arguments, sec):
    podslice("apply", "-f", web)
    memory.set_tasks(POD, 2)
    ended = podslice("delete", "shop/web", *arguments)
    assert (ended.code, ended.err) == (0, f"stopping 2 processes of pod shop/web{sec}\n")


def test_the_grace_that_a_manifest_states_counts_for_prune(podslice, memory, files):
    files({"a.yaml": manifest("a", terminationGracePeriodSeconds=7), "b.yaml": manifest("b")})
    podslice("apply", "-f", "a.yaml")
    (name,) = [unit.name for unit in asyncio.run(memory.observe(["kubepods-*-pod*"]))]
    memory.set_tasks(name, 1)
    document = json.loads(podslice("plan", "-f", "b.yaml", "--prune", "-o", "json").out)
    assert document["steps"][0]["grace_period_sec"] == 7
    ended = podslice("apply", "-f", "b.yaml", "--prune")
    assert ended.err == "stopping 1 process of pod default/a, up to 7 s\n"


@pytest.mark.parametrize("seconds", ["-1", "x", "1.5", "10000000"])
def test_a_grace_period_is_a_number_of_seconds(podslice, web, memory, seconds):
    ended = podslice("delete", "--all", f"--grace-period={seconds}")
    assert (ended.code, ended.out) == (2, "")
    assert "--grace-period" in ended.err
    assert not memory.calls


def test_a_pod_of_which_something_is_left_is_told(podslice, web, memory, here, monkeypatch):
    monkeypatch.setattr("podslice.reconcile.converge.REMOVAL_PATIENCE_SEC", 0)
    podslice("apply", "-f", web)
    group = f"kubepods.slice/kubepods-burstable.slice/{POD}"
    files = {f"{group}/by-hand/cgroup.procs": "", "cgroup.controllers": ""}
    make_files(here / "cgroup", files)
    why = (
        f"its control group /{group} still exists, without processes; to retry:"
        " podslice delete -n shop web"
    )
    ended = podslice("delete", "shop/web")
    assert (ended.code, ended.out.splitlines()[-2:]) == (
        1,
        [f"pod shop/web could not be removed: {why}", "4 done, 1 stuck"],
    )
    document = json.loads(podslice("delete", "shop/web", "-o", "json").out)
    assert document["stuck"] == [{"pod": "shop/web", "why": why}]


# Less memory than is in use


LESS = WEB.replace("limits: {cpu: 250m}", "limits: {cpu: 250m, memory: 1Gi}")


def test_less_than_is_in_use_is_told_and_reclaimed(podslice, memory, files, monkeypatch):
    monkeypatch.setattr("podslice.reconcile.act.STALLED_SEC", 0)
    files({"web.yaml": LESS})
    podslice("apply", "-f", "web.yaml")
    memory.set_memory(POD, 900 * 2**20)
    files({"web.yaml": LESS.replace("1Gi", "128Mi")})
    change = f"MemoryMax=640Mi (was 1536Mi) on {POD} (shop/web)"
    out = podslice("plan", "-f", "web.yaml").out
    assert f"{change}; 900Mi in use, reclaimed first through MemoryHigh\n" in out
    steps = json.loads(podslice("plan", "-f", "web.yaml", "-o", "json").out)["steps"]
    (step,) = [step for step in steps if step["unit"] == POD]
    assert (step["used_bytes"], step["reclaim_to_bytes"]) == (900 * 2**20, 640 * 2**20)
    ended = podslice("apply", "-f", "web.yaml")
    assert ended.code == 1
    assert "900Mi are in use and can't be reclaimed, above the limit of 640Mi" in ended.out
    memory.set_memory(POD, 640 * 2**20)
    assert "in use" not in podslice("plan", "-f", "web.yaml").out
    memory.set_memory(POD, 900 * 2**20)
    assert "in use" not in podslice("plan", "-f", "web.yaml", "--force").out
    assert podslice("apply", "-f", "web.yaml", "--force").code == 0


# While another is at work


def test_who_can_not_get_the_lock_is_told(podslice, web, memory, here, monkeypatch):
    with Store(here / "run-False").lock():
        monkeypatch.setattr(store_lock, "WAIT_SEC", -1.0)
        monkeypatch.setattr(store_lock, "_TRIES", 1)
        monkeypatch.setattr(store_lock, "_POLL_SEC", 0)
        ended = podslice("apply", "-f", web)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: another podslice process has held the lock for ")


def test_who_waits_for_another_is_told(podslice, web, memory, here, monkeypatch):
    told = []
    monkeypatch.setattr(store_lock, "_TRIES", 1)
    monkeypatch.setattr(store_lock, "_POLL_SEC", 0)
    other = Store(here / "run-False").lock()
    other.__enter__()

    def note(text):
        told.append(text)
        other.__exit__(None, None, None)

    monkeypatch.setattr(session, "note", note)
    assert podslice("apply", "-f", web).code == 0
    assert told == ["waiting for another podslice process to release the lock"]


def test_delete_of_a_file_that_cannot_be_read_deletes_nothing(podslice, web, memory):
    podslice("apply", "-f", web)
    ended = podslice("delete", "-f", web, "-f", "gone.yaml")
    assert ended == (2, "", "error: gone.yaml: no such file or directory\n")
    assert POD in [unit.name for unit in asyncio.run(memory.observe(["kubepods*"]))]


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
