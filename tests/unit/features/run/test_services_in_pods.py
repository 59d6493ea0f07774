"""`adopt` and `release` of services, and what `apply` and `delete` do with them."""

import asyncio
import json

import pytest

from podslice.errors import JobFailed
from podslice.systemd import bus, journal
from tests.cases.tables import cases
from tests.unit.builders import make_files
from tests.unit.cli.unit_files import WithUnitFiles

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: main
    resources: {requests: {cpu: 100m}, limits: {memory: 64Mi}}
  - name: nginx
    resources: {limits: {memory: 32Mi}}
"""
SLICE = "kubepods-burstable-podweb.default.slice"
GUARANTEED = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: main, resources: {limits: {cpu: 1, memory: 64Mi}}}
"""
OUTSIDE = "/system.slice/lg.service"
INSIDE = f"/kubepods.slice/kubepods-burstable.slice/{SLICE}/lg.service"
DROP_IN = """\
# Written by podslice adopt, and again by podslice apply when the pod changes.
# To remove it: podslice release lg.service
[X-Podslice]
Pod=default/web
Container=lg

[Unit]
Wants=podslice-apply.service
After=podslice-apply.service podslice-agent.service

[Service]
Slice=kubepods-burstable-podweb.default.slice
"""
EARLY = "it starts before podslice-apply.service, which makes the pod's slice when the host boots"
NOT_ADOPTED = "podslice adopt has not put it into a pod; see: systemctl cat"


@pytest.fixture
def directory(here):
    return here / "etc-False/systemd/system"


@pytest.fixture
def memory(directory, monkeypatch):
    client = WithUnitFiles(directory)
    client.provide("lg.service")
    client.set_tasks("lg.service", 1)
    client.provide_file("idle@a.service")
    monkeypatch.setattr(bus, "Bus", lambda *_, **__: client)
    return client


@pytest.fixture
def drop_in(directory):
    return directory / "lg.service.d/50-podslice.conf"


@pytest.fixture
def web(podslice, files, memory):
    files({"web.yaml": POD})
    assert podslice("apply", "-f", "web.yaml").code == 0


def group(memory, name="lg.service"):
    return asyncio.run(memory.group_of(name))


def test_a_service_gets_a_drop_in_and_is_not_restarted(podslice, web, memory, drop_in, journal):
    ended = podslice("adopt", "web", "lg")
    assert ended.code == 0
    assert drop_in.read_text() == DROP_IN
    indented = "".join(f"    {line}".rstrip() + "\n" for line in DROP_IN.splitlines())
    assert ended.out == (
        f"wrote {drop_in}: lg.service starts in {SLICE}, pod default/web, as container lg\n"
        + indented
        + "lg.service runs in /system.slice until it is restarted: systemctl restart lg.service\n"
    )
    assert group(memory) == OUTSIDE
    (event,) = [each for each in journal.all if each.kind.label == "service-adopted"]
    assert (event.pod, event.unit, event.fields["VERB"]) == ("default/web", "lg.service", "adopt")


def test_a_restart_moves_it(podslice, web, memory):
    ended = podslice("adopt", "web", "lg", "--restart")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "restarted lg.service")
    assert group(memory) == INSIDE
    memory.calls.clear()
    ended = podslice("adopt", "web", "lg.service", "--restart")
    assert "needs no change" in ended.out
    assert not {"restart", "reload"} & memory.calls.keys()


def test_a_failed_restart_is_an_error(podslice, web, memory, drop_in):
    memory.refuse("lg.service", JobFailed("lg.service: failed", result="failed"))
    ended = podslice("adopt", "web", "lg", "--restart", "-o", "json")
    (service,) = json.loads(ended.out)["services"]
    assert (ended.code, service["error"], service["restart_due"]) == (1, "lg.service: failed", True)
    assert drop_in.exists()


def test_a_container_of_the_manifest_gives_its_limits(podslice, web, memory, directory):
    memory.provide_file("nginx.service")
    assert podslice("adopt", "web", "nginx").code == 0
    assert podslice("adopt", "web", "idle@a", "-c", "main").code == 0
    texts = [
        (directory / f"{unit}.service.d/50-podslice.conf").read_text()
        for unit in ("nginx", "idle@a")
    ]
    assert ["MemoryMax=33554432" in text for text in texts] == [True, False]
    assert ["MemoryMax=67108864" in text for text in texts] == [False, True]
    assert "Container=main\n" in texts[1]


def test_a_score_that_would_rise_is_a_warning(podslice, web, memory, here):
    memory.set_further("lg.service", OOMScoreAdjust="-900")
    assert "OOMScoreAdjust" not in podslice("adopt", "web", "lg").err
    podslice("release", "lg")
    warned = podslice("adopt", "web", "lg", "-c", "nginx")
    assert "warning: lg.service has OOMScoreAdjust=-900, which becomes 999 in" in warned.err
    assert 'podslice.io/oom-score-adj.nginx: "-900"' in warned.err


def test_all_problems_are_reported_and_nothing_is_changed(podslice, web, memory, directory):
    for name in ("masked.service", "made.service", "early.service"):
        memory.provide_file(name)
    memory._files["masked.service"].load_state = "masked"
    memory._files["made.service"].transient = True
    memory.predecessors = frozenset({"early.service"})
    memory.triggers["tick.timer"] = ("lg.service",)
    memory.provide_file("tick.timer")
    foreign = directory / "idle@a.service.d/50-podslice.conf"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("[Service]\nSlice=x.slice\n")
    memory.calls.clear()
    names = (
        *("lg", "nope", "masked", "made", "early", "idle@a", "w@.service", "tick.timer"),
        *("a.slice", "a.scope", "user@1000", "a.mount"),
    )
    ended = podslice("adopt", "web", *names)
    assert (ended.code, ended.out) == (2, "")
    assert [line.split("; ")[0] for line in ended.err.splitlines()] == [
        "error: nope.service: there is no such unit",
        "error: masked.service: it is masked",
        "error: made.service: it has no unit file, and its settings end with it",
        f"error: idle@a.service: {foreign} exists, and podslice has not written it",
        "error: w@.service: it is a template",
        "error: tick.timer: a timer has no processes",
        "error: a.slice: a slice contains units",
        "error: a.scope: a scope ends with its processes, which its creator has started",
        "error: user@1000.service: it is the service manager of a user",
        "error: a.mount: not a service: 'a.mount'",
        f"error: early.service: {EARLY}",
    ]
    assert "adopt the service that it starts: lg.service" in ended.err
    assert [each.name for each in directory.iterdir()] == ["idle@a.service.d"]
    assert not {"reload", "restart"} & memory.calls.keys()


@cases
def test_arguments_that_do_not_fit(podslice, web, drop_in, arguments, message):
    ended = podslice("adopt", "web", *arguments)
    assert (ended.code, drop_in.exists()) == (2, False)
    assert message in ended.err


def test_a_container_is_one_service_of_one_pod(podslice, web, files, memory):
    files({"other.yaml": POD.replace("name: web", "name: other")})
    podslice("apply", "-f", "other.yaml")
    podslice("adopt", "web", "lg", "-c", "main")
    ended = podslice("adopt", "web", "idle@a", "-c", "main")
    assert (ended.code, "container main of the pod is lg.service" in ended.err) == (2, True)
    ended = podslice("adopt", "other", "lg")
    assert (ended.code, "it is in pod default/web; release it first" in ended.err) == (2, True)


def test_a_later_drop_in_with_a_slice_is_named(podslice, web, memory, drop_in):
    later = drop_in.with_name("90-own.conf")
    later.parent.mkdir(parents=True)
    later.write_text("[Service]\nSlice=own.slice\n")
    ended = podslice("adopt", "web", "lg")
    assert ended.code == 2
    assert f"{later} states Slice=own.slice, which takes precedence" in ended.err
    assert not drop_in.exists()
    later.unlink()
    assert podslice("adopt", "web", "lg").code == 0


def test_release_removes_the_drop_in(podslice, web, memory, drop_in, journal):
    podslice("adopt", "web", "lg", "--restart")
    ended = podslice("release", "lg")
    assert ended.code == 0
    assert ended.out == (
        f"removed {drop_in}: lg.service starts in system.slice\n"
        f"lg.service runs in {INSIDE.removesuffix('/lg.service')} until it is restarted: systemctl"
        " restart lg.service\n"
    )
    assert not drop_in.parent.exists()
    assert journal.all[-1].kind.label == "service-released"
    ended = podslice("release", "lg", "nope", "--restart")
    assert ended.code == 2
    assert ended.err.splitlines() == [
        f"error: lg.service: {NOT_ADOPTED} lg.service",
        f"error: nope.service: {NOT_ADOPTED} nope.service",
    ]


def test_release_with_a_restart(podslice, web, memory):
    podslice("adopt", "web", "lg", "--restart")
    ended = podslice("release", "lg.service", "--restart")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "restarted lg.service")
    assert group(memory) == OUTSIDE


def test_delete_refuses_while_a_service_runs_in_the_pod(podslice, web, memory, drop_in):
    podslice("adopt", "web", "lg", "--restart")
    for arguments in (["web"], ["--all"], ["-f", "web.yaml"]):
        ended = podslice("delete", *arguments)
        assert (ended.code, ended.out, drop_in.exists()) == (1, "", True)
        assert ended.err == (
            "error: lg.service runs in pod default/web; nothing was changed; to restart it outside"
            " of the pod: podslice delete default/web --restart; to stop it: podslice release"
            " lg.service && systemctl stop lg.service\n"
        )
    assert group(memory) == INSIDE


def test_delete_with_a_restart(podslice, web, memory, drop_in):
    podslice("adopt", "web", "lg", "--restart")
    ended = podslice("delete", "web", "--restart")
    assert ended.code == 0
    assert ended.out.splitlines()[:3] == [
        f"removed {drop_in}: lg.service starts in system.slice",
        "restarted lg.service",
        f"stopped {SLICE}: pod default/web is removed",
    ]
    assert group(memory) == OUTSIDE


def test_delete_releases_a_service_that_does_not_run_in_the_pod(podslice, web, memory, drop_in):
    podslice("adopt", "web", "lg", "idle@a")
    ended = podslice("delete", "--all", "-o", "json")
    assert ended.code == 0
    found = {each["unit"]: each["action"] for each in json.loads(ended.out)["services"]}
    assert found == {"lg.service": "removed", "idle@a.service": "removed"}
    assert not drop_in.exists()
    assert group(memory) == OUTSIDE


def test_delete_names_services_that_are_in_the_slice_by_other_means(podslice, web, memory):
    memory.provide("own.service", Slice=SLICE)
    memory.calls.clear()
    ended = podslice("delete", "web")
    assert ended.code == 0
    assert f"own.service has Slice={SLICE} from a file that podslice has not written" in ended.err
    # systemd would look for the file of the slice, and refuse to start the service
    assert memory.calls["reload"] == 1


def test_prune_refuses_as_delete_does(podslice, web, files, memory):
    podslice("adopt", "web", "lg", "--restart")
    files({"other.yaml": POD.replace("name: web", "name: other")})
    ended = podslice("apply", "-f", "other.yaml", "--prune")
    assert (ended.code, "lg.service runs in pod default/web" in ended.err) == (1, True)
    assert group(memory) == INSIDE


def test_apply_keeps_services_and_follows_a_change_of_the_class(
    podslice, web, files, memory, drop_in, journal
):
    podslice("adopt", "web", "lg", "--restart")
    assert podslice("apply", "-f", "web.yaml").out == "nothing to do\n"
    assert drop_in.read_text() == DROP_IN
    files({"web.yaml": GUARANTEED})
    refused = podslice("apply", "-f", "web.yaml")
    assert (refused.code, drop_in.read_text()) == (1, DROP_IN)
    memory.set_tasks("lg.service", 0)
    memory.provide_file("lg.service")
    ended = podslice("apply", "-f", "web.yaml")
    assert ended.code == 0
    moved = "kubepods-podweb.default.slice"
    assert f"wrote {drop_in}: lg.service starts in {moved}" in ended.out
    assert f"Slice={moved}\n" in drop_in.read_text()
    (*_, event) = [each for each in journal.all if each.kind.label == "service-adopted"]
    assert moved in event.message
    assert podslice("apply", "-f", "web.yaml").out == "nothing to do\n"


def test_plan_lists_the_drop_ins_that_apply_changes(podslice, web, files, memory, drop_in):
    podslice("adopt", "web", "lg")
    quiet = podslice("plan", "-f", "web.yaml")
    assert (quiet.code, quiet.out) == (0, "nothing to do\n")
    assert "services" not in json.loads(podslice("plan", "-f", "web.yaml", "-o", "json").out)
    files({"web.yaml": GUARANTEED})
    ended = podslice("plan", "-f", "web.yaml")
    moved = "kubepods-podweb.default.slice"
    line = f"would write {drop_in}: lg.service would start in {moved}, pod default/web\n"
    assert (ended.code, line in ended.out, drop_in.read_text()) == (3, True, DROP_IN)
    assert str(drop_in) in podslice("plan", "-f", "web.yaml", "-o", "name").out.splitlines()
    document = json.loads(podslice("plan", "-f", "web.yaml", "-o", "json").out)
    (service,) = document["services"]
    assert (service["unit"], service["action"]) == ("lg.service", "written")
    assert service["slice"] == moved
    podslice("apply", "-f", "web.yaml")
    assert drop_in.read_text() == service["text"]
    assert podslice("plan", "-f", "web.yaml").code == 0


def test_plan_lists_a_drop_in_alone(podslice, web, memory, drop_in):
    podslice("adopt", "web", "lg")
    drop_in.write_text(DROP_IN.replace("Wants=", "Requires="))
    ended = podslice("plan", "-f", "web.yaml")
    line = f"would write {drop_in}: lg.service would start in {SLICE}, pod default/web\n"
    assert (ended.code, ended.out) == (3, line)
    assert "drop-in-outdated" in podslice("status", "-o", "json").out


def test_plan_lists_the_drop_ins_that_apply_removes(podslice, web, files, memory, drop_in):
    podslice("adopt", "web", "lg")
    files({"other.yaml": POD.replace("name: web", "name: other")})
    assert str(drop_in) not in podslice("plan", "-f", "other.yaml").out
    ended = podslice("plan", "-f", "other.yaml", "--prune")
    assert f"would remove {drop_in}: pod default/web is removed\n" in ended.out
    document = json.loads(podslice("plan", "-f", "other.yaml", "--prune", "-o", "json").out)
    assert [(each["action"], each["text"]) for each in document["services"]] == [("removed", None)]
    podslice("apply", "-f", "other.yaml", "--prune")
    assert not drop_in.exists()


def test_apply_reports_that_a_restart_is_due(podslice, web, files, memory, drop_in):
    podslice("adopt", "web", "lg")
    files({"web.yaml": GUARANTEED})
    ended = podslice("apply", "-f", "web.yaml")
    assert (
        "lg.service runs in /system.slice until it is restarted: systemctl restart lg.service"
        in ended.out
    )


def test_limits_at_boot(podslice, web, here, files, memory):
    note = (
        "pod default/web is not applied at boot, so that its services start without limits; copy"
        f" its manifest to {here / 'manifests'}\n"
    )
    assert podslice("adopt", "web", "lg").err == note
    (here / "manifests").mkdir()
    (here / "manifests/web.yaml").write_text(POD)
    assert podslice("adopt", "web", "lg").err == (
        "pod default/web is not applied at boot, so that its services start without limits;"
        " systemctl enable podslice-agent.service\n"
    )


def containers(podslice):
    """Return the containers in `status`, with their units and states."""
    found = json.loads(podslice("status", "-o", "json").out)
    return found, {
        each["container"]: (each["name"], each["state"])
        for each in found["units"]
        if "container" in each
    }


def test_a_service_is_shown_as_a_container_of_its_pod(podslice, web, memory, monkeypatch):
    for name in ("read_events", "read_messages"):
        monkeypatch.setattr(journal, name, lambda _: ())
    podslice("adopt", "web", "lg", "idle@a", "--restart")
    found, shown = containers(podslice)
    # nothing was started in the containers of the manifest
    assert shown == {"lg": ("lg.service", "active"), "idle-a": ("idle@a.service", "not started")}
    assert (found["others"], found["strays"], found["healthy"]) == ([], [], True)
    for verb in (["status"], ["tree"], ["status", "web"]):
        lines = [line.split() for line in podslice(*verb).out.replace("│", "").splitlines()]
        assert any({"lg", "active"} <= {*line} for line in lines), verb
        assert not any({"other", "main", "nginx"} & {*line} for line in lines), verb

    memory.fail("lg.service")
    assert containers(podslice)[1]["lg"] == ("lg.service", "failed")


def test_a_service_is_the_container_that_it_was_adopted_as(podslice, web, memory):
    podslice("adopt", "web", "lg", "-c", "nginx", "--restart")
    memory.provide("podslice-podweb.default-main.service", Slice=SLICE)
    found, shown = containers(podslice)
    assert shown == {
        "main": ("podslice-podweb.default-main.service", "active"),
        "nginx": ("lg.service", "active"),
    }
    (unit,) = [each for each in found["units"] if each["name"] == "lg.service"]
    limits = {each["name"]: each["desired"] for each in unit["properties"]}
    assert limits["MemoryMax"] == 32 * 2**20


def test_containers_that_were_not_started_are_listed_beside_others(podslice, web, memory):
    podslice("adopt", "web", "lg", "--restart")
    memory.provide("podslice-podweb.default-main.service", Slice=SLICE)
    _, shown = containers(podslice)
    assert {name: state for name, (_, state) in shown.items()} == {
        "main": "active",
        "nginx": "not started",
        "lg": "active",
    }


def test_a_service_that_runs_elsewhere_is_a_problem(podslice, web, memory):
    podslice("adopt", "web", "lg")
    found, shown = containers(podslice)
    assert shown == {"lg": ("lg.service", "elsewhere")}
    (problem,) = found["problems"]
    assert (problem["kind"], problem["object"]) == ("processes-elsewhere", "default/web")
    assert problem["message"].endswith("runs in /system.slice, outside of the pod")
    assert problem["hint"] == "to start it in the pod: systemctl restart lg.service"


def test_top_shows_the_use_of_a_service(podslice, web, memory, here):
    podslice("adopt", "web", "lg", "--restart")
    group = here / f"cgroup{INSIDE}"
    make_files(here / "cgroup", {"cgroup.controllers": "cpu memory pids\n"})
    make_files(group.parent, {"memory.current": "8192\n", "pids.current": "1\n"})
    make_files(group, {"memory.current": "4096\n", "pids.current": "1\n"})
    (pod,) = json.loads(podslice("top", "--once", "--interval=100ms", "-o", "json").out)["pods"]
    (container,) = pod["containers"]
    assert (container["name"], container["unit"]) == ("lg", "lg.service")
