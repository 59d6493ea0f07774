"""`apply`."""

import json

from podslice.cli import session
from podslice.store import files as store_files
from podslice.store.store import Store
from podslice.systemd import bus
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import make_files, manifest
from tests.unit.cli.pods import POD, WEB


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
