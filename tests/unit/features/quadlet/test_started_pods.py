"""`apply --start`, `plan --start` and `delete`, with a systemd that has podman's generator."""

import asyncio
import errno
import json
import sys
from pathlib import Path

import pytest

from podslice.errors import CallTimeout, JobFailed, Refused
from podslice.features.quadlet import files as quadlet_files
from podslice.features.quadlet import services as quadlet_services
from podslice.features.quadlet import verbs as quadlets
from podslice.kernel.programs import NoAnswerError
from podslice.model.container_exit import ContainerExit
from podslice.model.event import Kind
from tests.cases.tables import cases
from tests.unit.builders import manifest
from tests.unit.cli.podman import APP, FILES, LOG, POD, SLICE, WEB, active


@pytest.fixture
def directory(quadlet_directory):
    return quadlet_directory


@pytest.fixture
def memory(podman_memory):
    return podman_memory


@pytest.fixture
def web(files):
    files({"web.yaml": WEB})
    return "web.yaml"


def at_boot(here, path):
    """What is printed about the start at boot, of a manifest elsewhere."""
    return (
        f"the pods do not start at boot; to change that: copy {path} to {here}/manifests;"
        " systemctl enable podslice-apply.service\n"
    )


def summary(result):
    return result.out.splitlines()[-1]


def test_a_pod_is_planned_started_and_left_alone(podslice, web, memory, directory, here, journal):
    planned = podslice("plan", "-f", web, "--start")
    assert planned.code == 3
    lines = planned.out.splitlines()
    assert f"would write {directory}/web.pod (default/web)" in lines
    assert lines[-4:-1] == [f"would start {each} (default/web)" for each in (POD, APP, LOG)]
    assert not directory.exists()
    ended = podslice("apply", "-f", web, "--start")
    assert ended.code == 0
    assert ended.err == f"{at_boot(here, web)}waiting for the services of default/web\n"
    lines = ended.out.splitlines()
    assert f"wrote {directory}/web.pod (default/web)" in lines
    assert lines[-4:] == [*(f"started {each} (default/web)" for each in (POD, APP, LOG)), "11 done"]
    assert active(memory) == sorted([POD, APP, LOG])
    started = [(each.unit, each.pod) for each in journal.of(Kind.CONTAINER_STARTED)]
    assert started == [(APP, "default/web"), (LOG, "default/web")]
    assert sorted(each.name for each in directory.iterdir()) == FILES
    assert podslice("plan", "-f", web, "--start") == (0, "nothing to do\n", "")
    memory.calls.clear()
    assert podslice("apply", "-f", web, "--start") == (0, "nothing to do\n", at_boot(here, web))
    assert not memory.calls.keys() & {"reload", "stop", "start_existing"}
    assert memory.calls["reload"] == 0


def test_a_container_that_has_ended_is_not_one_that_was_never_started(podslice, web, memory):
    """Its service is inactive, and loaded while that of the pod refers to it."""
    assert podslice("apply", "-f", web, "--start").code == 0
    last = ContainerExit(result="success", exit_code=0, started_usec=5, ended_usec=8)
    memory.end(APP, last)
    memory._units[LOG].is_inactive = True
    result = podslice("status", "-o", "json")
    units = {each.get("container"): each for each in json.loads(result.out)["units"]}
    app, log = units["app"], units["log"]
    assert (result.code, app["name"], app["state"]) == (0, APP, "exited")
    assert (app["last_exit"]["exit_code"], app["last_exit"]["ended_usec"]) == (0, 8)
    assert (log["state"], log["last_exit"]) == ("not started", None)
    assert "app not started" not in podslice("status").out


OWN = """\
apiVersion: v1
kind: Pod
metadata: {name: web, uid: u1}
spec:
  containers:
  - {name: app, image: app, resources: {limits: {cpu: 2, memory: 1Gi}}}
  - {name: log, image: log, resources: {limits: {cpu: 500m, memory: 1Gi}}}
"""
STATIC = ("--set=cpu-manager-policy=static", "--set=reserved-cpus=0")


def test_a_container_starts_with_its_own_cpus(podslice, files, memory, directory):
    """The shared CPUs are not in a file, which would outlive their changes."""
    memory.slice = "kubepods-podu1.slice"
    files({"web.yaml": OWN})

    def stated(name):
        lines = (directory / name).read_text().splitlines()
        return [each for each in lines if each.startswith("Allowed")]

    assert podslice("apply", "-f", "web.yaml", "--start", *STATIC).code == 0
    assert stated("web_app.container") == ["AllowedCPUs=1-2"]
    assert stated("web_log.container") == []
    lines = podslice("plan", "-f", "web.yaml", "--start").out.splitlines()
    path = directory / "web_app.container"
    assert [each for each in lines if "would write" in each] == [
        f"would write {path} (default/web)"
    ]


@pytest.mark.parametrize("unit", ["podslice-apply.service", "podslice-agent.service"])
def test_what_is_missing_for_a_start_at_boot(podslice, web, memory, here, monkeypatch, unit):
    manifests = here / "manifests"
    manifests.mkdir(parents=True)
    (manifests / "web.yaml").write_text(WEB)
    only_enable = "the pods do not start at boot; to change that: systemctl enable podslice-apply"
    install = ("render", "--format", "quadlet", "--install")
    for source in (manifests, manifests / "web.yaml"):
        assert podslice(*install, "-f", str(source)).err == f"{only_enable}.service\n"
    link = here / f"etc-False/systemd/system/multi-user.target.wants/{unit}"
    link.parent.mkdir(parents=True)
    link.symlink_to("/usr/lib/systemd/system")
    assert podslice(*install, "-f", str(manifests)).err == ""
    with Path(web).open(encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        ended = podslice(*install, "-f", "-")
    copy = f"copy standard input to {manifests}"
    assert ended.err == f"the pods do not start at boot; to change that: {copy}\n"


def test_what_is_missing_for_a_start_of_a_users_pods(podslice, web, memory, here):
    assert podslice("render", "-f", web, "--format", "quadlet", "--install", "--user").err == (
        "the pods do not start with the user's service manager; to change that: copy web.yaml to"
        f" {here}/manifests; systemctl --user enable podslice-agent.service\n"
    )


def test_without_start_only_slices_are_made(podslice, web, memory, directory):
    assert podslice("apply", "-f", web).code == 0
    assert not directory.exists()
    assert active(memory) == []


def test_init_containers_are_started_by_systemd(podslice, web, memory, files, here):
    init = """spec:
  resources: {limits: {memory: 1Gi}}
  initContainers: [{name: prepare, image: app}]"""
    files({"web.yaml": WEB.replace("spec:", init)})
    assert "podslice run default/web -c prepare" in podslice("apply", "-f", web).err
    podslice("delete", "web")
    ended = podslice("apply", "-f", web, "--start")
    assert ended.err == f"{at_boot(here, web)}waiting for the services of default/web\n"
    assert "started podslice-podu1-prepare.service (default/web)" in ended.out.splitlines()


def test_what_has_changed_is_started_again(podslice, web, memory, files):
    podslice("apply", "-f", web, "--start")
    files({"web.yaml": WEB.replace("image: log", "image: log:2")})
    ended = podslice("apply", "-f", web, "--start")
    assert ended.out.splitlines() == [
        f"stopped {LOG} (default/web): its files change",
        f"wrote {memory.directory}/web_log.container (default/web)",
        f"started {LOG} (default/web)",
        "3 done",
    ]


def test_json_has_the_steps_with_their_outcomes(podslice, web, memory, directory):
    podslice("apply", "-f", web)
    plan = json.loads(podslice("plan", "-f", web, "--start", "-o", "json").out)
    report = json.loads(podslice("apply", "-f", web, "--start", "-o", "json").out)
    assert (plan["changed"], report["changed"]) == (True, True)
    planned, done = plan["quadlets"], report["quadlets"]
    assert [{**each, "outcome": "done", "error": ""} for each in planned] == done
    assert done[0] == {
        "action": "write",
        "pod": "default/web",
        "name": f"{directory}/web.pod",
        "why": "",
        "outcome": "done",
        "error": "",
    }
    names = podslice("delete", "web", "-o", "name").out.splitlines()
    assert names[0] == POD
    assert SLICE in names


def test_nothing_changes_before_the_whole_input_is_valid(podslice, web, memory, directory, files):
    podslice("apply", "-f", web, "--start")
    memory.calls.clear()
    files(
        {
            "a.yaml": WEB.replace("name: web, uid: u1", "name: a").replace(
                "spec:", "spec:\n  setHostnameAsFQDN: true"
            )
        }
    )
    files({"b.yaml": manifest("b", {"cpu": "a lot"})})
    command = ("apply", "-f", "a.yaml", "-f", "b.yaml", "--start", "--prune")
    ended = podslice(*command)
    assert (ended.code, ended.out) == (2, "")
    assert "a.yaml: spec.setHostnameAsFQDN: cannot be kept" in ended.err
    assert "b.yaml: spec.containers[0]" in ended.err
    (directory / "a.pod").write_text("[Pod]\n")
    ended = podslice("apply", "-f", "a.yaml", "--start", "--prune", "--ignore", "setHostnameAsFQDN")
    assert (ended.code, ended.out) == (2, "")
    assert f"{directory}/a.pod: the file exists and is not generated by podslice" in ended.err
    assert active(memory) == sorted([POD, APP, LOG])
    assert not memory.calls.keys() & {"start", "start_batch", "stop", "stop_batch", "reload"}


def test_prune_stops_and_removes_what_is_not_wanted(
    podslice, web, memory, directory, files, commands
):
    podslice("apply", "-f", web, "--start")
    files({"other.yaml": manifest("other")})
    assert f"would stop {POD}" in podslice("plan", "-f", "other.yaml", "--prune").out
    ended = podslice("apply", "-f", "other.yaml", "--prune")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0] == f"stopped {POD} (default/web): the pod is removed"
    assert lines.index("removed volume emptyDir-web_data (default/web)") < lines.index(
        f"stopped {SLICE}: pod default/web is removed"
    )
    assert list(directory.iterdir()) == []
    assert active(memory) == []
    assert ("/usr/bin/podman", "volume", "rm", "--force", "emptyDir-web_data") in commands


def test_delete_stops_and_removes(podslice, web, memory, directory):
    podslice("apply", "-f", web, "--start")
    assert podslice("delete", "web").code == 0
    assert (active(memory), list(directory.iterdir())) == ([], [])
    assert podslice("delete", "web").code == 1


def test_delete_removes_quadlets_of_a_pod_that_is_not_applied(
    podslice, web, memory, directory, files
):
    """As after a reboot: files outlive records."""
    podslice("render", "-f", web, "--format", "quadlet", "--install")
    assert podslice("delete", "other").code == 1
    ended = podslice("delete", "web")
    assert (ended.code, summary(ended)) == (0, "5 done")
    podslice("render", "-f", web, "--format", "quadlet", "--install")
    podslice("delete", "--all")
    assert list(directory.iterdir()) == []
    files({"web.yaml": WEB.replace("name: web,", "name: web-0,")})
    podslice("render", "-f", web, "--format", "quadlet", "--install")
    assert podslice("delete", "deployment/web").code == 0
    assert list(directory.iterdir()) == []


def test_a_pod_whose_service_does_not_stop_keeps_its_files(podslice, web, memory, directory):
    podslice("apply", "-f", web, "--start")
    memory.refuse(POD, Refused("access denied"))
    ended = podslice("delete", "web")
    assert ended.code == 1
    assert f"failed to stop {POD} (default/web): the pod is removed: access denied" in ended.out
    assert sorted(each.name for each in directory.iterdir()) == FILES


def test_delete_kills_what_runs_after_the_grace_period(podslice, web, memory):
    """But not podman, which would leave its own container of the pod."""
    podslice("apply", "-f", web, "--start")
    memory.make_stubborn(APP)
    assert podslice("delete", "web", "--grace-period", "0").code == 0
    assert (APP, 9) in memory.signals
    assert POD not in {name for name, _ in memory.signals}
    assert active(memory) == []


@pytest.mark.parametrize("failures", [0, 1])
def test_what_podman_has_left_of_a_pod_is_removed(podslice, web, memory, monkeypatch, failures):
    """At the first attempt podman fails on a container whose helper was killed."""
    removals = []

    async def run(*argv):
        if argv[1] == "pod":
            removals.append(argv[2:])
            if len(removals) <= failures:
                raise NoAnswerError("conmon exited prematurely")

    monkeypatch.setattr(quadlet_services, "PODMAN", sys.executable)
    podslice("apply", "-f", web, "--start")
    monkeypatch.setattr(quadlet_services, "run_patiently", run)
    assert podslice("delete", "web").code == 0
    assert removals == [("rm", "--force", "--ignore", "--time=0", "web")] * (failures + 1)


def test_podman_removes_several_pods_at_once(podslice, files, memory, directory, monkeypatch):
    both = asyncio.Barrier(2)

    async def run(*argv):
        if argv[1] == "pod":
            async with asyncio.timeout(10):
                await both.wait()

    monkeypatch.setattr(quadlet_services, "PODMAN", sys.executable)
    files({"pods.yaml": f"{WEB}---\n{WEB.replace('web, uid: u1', 'app, uid: u2')}"})
    assert podslice("apply", "-f", "pods.yaml", "--start").code == 0
    monkeypatch.setattr(quadlet_services, "run_patiently", run)
    ended = podslice("delete", "web", "app")
    assert ended.code == 0
    removed = [line.split()[1] for line in ended.out.splitlines() if ".pod " in line]
    assert removed == [f"{directory}/app.pod", f"{directory}/web.pod"]


def test_a_pod_that_podman_keeps_is_reported_and_keeps_its_file(
    podslice, web, memory, directory, monkeypatch
):
    async def fail(*argv):
        if argv[1] == "pod":
            raise NoAnswerError("no answer in 60 s")

    monkeypatch.setattr(quadlet_services, "PODMAN", sys.executable)
    podslice("apply", "-f", web, "--start")
    monkeypatch.setattr(quadlet_services, "run_patiently", fail)
    ended = podslice("delete", "web")
    assert ended.code == 1
    remedy = "podman: no answer in 60 s; to remove the pod: podman pod rm --force web"
    assert f"failed to remove {directory}/web.pod (default/web): {remedy}" in ended.out
    assert [each.name for each in directory.iterdir()] == ["web.pod"]


def test_an_empty_directory_that_podman_keeps_is_reported(podslice, web, memory, monkeypatch):
    async def fail(*_):
        raise NoAnswerError("volume is in use")

    podslice("apply", "-f", web, "--start")
    monkeypatch.setattr(quadlet_services, "run_patiently", fail)
    ended = podslice("delete", "web")
    assert ended.code == 1
    assert (
        "failed to remove volume emptyDir-web_data (default/web): podman: volume is in use; to remove it:"
        " podman volume rm emptyDir-web_data" in ended.out
    )


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            JobFailed("systemd's job failed", result="failed"),
            "systemd's job failed; its last message: no such image",
        ),
        (
            JobFailed("systemd's job failed", result="dependency"),
            "a service that it requires did not start",
        ),
        (CallTimeout("no reply"), "not active after 600 s; it is still starting"),
        (Refused("access denied"), "access denied"),
    ],
)
def test_services_that_do_not_start_are_reported(podslice, web, memory, error, message):
    memory.refuse(APP, error)
    ended = podslice("apply", "-f", web, "--start")
    assert ended.code == 1
    assert f"failed to start {APP} (default/web): {message}" in ended.out.splitlines()
    assert f"started {LOG} (default/web)" in ended.out.splitlines()
    assert summary(ended) == "10 done, 1 failed"


def test_what_fails_again_and_again_is_not_waited_for(podslice, web, memory, monkeypatch):
    monkeypatch.setattr(quadlet_services, "_LOOK_SEC", 0.001)
    memory.restarts = {POD: 3, LOG: 0}
    ended = podslice("apply", "-f", web, "--start")
    assert ended.code == 1
    lines = ended.out.splitlines()
    why = "it has failed 3 times, and systemd continues to restart it"
    assert f"failed to start {POD} (default/web): {why}; its last message: no such image" in lines
    assert f"started {APP} (default/web)" in lines
    why = "a service that it requires did not start"
    assert f"failed to start {LOG} (default/web): {why}" in lines


@cases
def test_what_a_start_waits_for_is_printed(podslice, web, memory, monkeypatch, starting, what):
    monkeypatch.setattr(quadlet_services, "_NOTE_SEC", 0.5)
    start, list_units, asked = memory.start_existing, memory.list_units, asyncio.Event()

    async def list_starting(patterns):
        if patterns == ("*.service",):
            asked.set()
        return await list_units(patterns)

    async def start_slowly(name, **options):
        for each in starting:
            memory.provide(each)
            memory._units[each].is_starting = True
        await asked.wait()
        await start(name, **options)

    monkeypatch.setattr(memory, "list_units", list_starting)
    monkeypatch.setattr(memory, "start_existing", start_slowly)
    ended = podslice("apply", "-f", web, "--start")
    assert ended.err.splitlines()[-1] == f"after 0.5 s still waiting for {what}"


def test_a_failed_look_at_a_service_is_repeated(podslice, web, memory, monkeypatch):
    observe, failures = memory.observe, [Refused("busy")]

    async def fail_once(patterns):
        if patterns == [POD] and failures:
            raise failures.pop()
        return await observe(patterns)

    monkeypatch.setattr(quadlet_services, "_LOOK_SEC", 0.001)
    monkeypatch.setattr(memory, "observe", fail_once)
    memory.restarts = {POD: 4}
    ended = podslice("apply", "-f", web, "--start")
    assert f"failed to start {POD} (default/web): it has failed 4 times" in ended.out
    assert failures == []


def test_a_failure_without_a_message(podslice, web, memory, monkeypatch):
    async def fail(*_):
        raise NoAnswerError("no journal")

    monkeypatch.setattr(quadlet_services, "run", fail)
    memory.refuse(APP, JobFailed("systemd's job failed", result="failed"))
    ended = podslice("apply", "-f", web, "--start")
    assert f"failed to start {APP} (default/web): systemd's job failed" in ended.out.splitlines()


def test_a_user_without_access_to_the_journal_sees_who_has_it(podslice, web, memory, monkeypatch):
    async def print_nothing(*_):
        return ""

    monkeypatch.setattr(quadlet_services, "run", print_nothing)
    monkeypatch.setattr(quadlet_services, "has_access", lambda: False)
    memory.refuse(APP, JobFailed("systemd's job failed", result="failed"))
    ended = podslice("apply", "-f", web, "--start")
    why = "systemd's job failed; only root and members of the group systemd-journal may read its"
    assert f"failed to start {APP} (default/web): {why} messages" in ended.out.splitlines()


@pytest.mark.usefixtures("allow_effects")
def test_a_file_that_the_generator_refuses_is_reported(
    podslice, web, memory, monkeypatch, tmp_path
):
    script = tmp_path / "generator"
    script.write_text(
        "#!/bin/sh\n"
        "echo 'Loading source unit file /x/web_app.container' >&2\n"
        "echo 'converting \"web_app.container\": unsupported key' >&2\n"
        "echo 'converting \"web_log.container\": other' >&2\n"
        "exit 1\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr(quadlet_services, "_GENERATORS", str(script))
    memory.refused_files.add("web_app.container")
    ended = podslice("apply", "-f", web, "--start")
    assert ended.code == 1
    why = 'podman\'s generator: converting "web_app.container": unsupported key'
    assert f"failed to start {APP} (default/web): {why}" in ended.out.splitlines()
    script.unlink()
    ended = podslice("apply", "-f", web, "--start")
    assert f"generator {script}: No such file or directory; install podman" in ended.out


def test_a_pod_that_is_refused_is_not_started(podslice, web, memory, directory, files):
    text = WEB.replace("image: app\n", "image: app\n    resources: {requests: {cpu: 9}}\n")
    files({"web.yaml": text})
    for verb in ("plan", "apply"):
        ended = podslice(verb, "-f", web, "--start")
        assert ended.code == 1
        assert "pod default/web refused: OutOfcpu" in ended.out
    assert not directory.exists()


def test_a_pod_whose_slice_is_not_made_is_not_started(podslice, web, memory, directory):
    memory.refuse(SLICE, Refused("access denied"))
    assert podslice("apply", "-f", web, "--start").code == 1
    assert not directory.exists()


def test_a_directory_that_cannot_be_written(podslice, web, memory, directory):
    directory.parent.mkdir(parents=True)
    directory.write_text("not a directory")
    ended = podslice("apply", "-f", web, "--start")
    assert ended.code == 1
    assert f"error: {directory}" in ended.err


DATA = """
apiVersion: v1
kind: Pod
metadata: {name: data, uid: u2}
spec:
  containers: [{name: app, image: app, volumeMounts: [{name: it, mountPath: /it}]}]
  volumes: [{name: it, configMap: {name: it}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: it}
data: {nginx.container: "[Container]"}
"""


def test_data_is_not_below_the_directory_of_the_generator(podslice, files, memory, directory, here):
    files({"data.yaml": DATA})
    volumes = here / "lib-False/podslice/volumes"
    assert podslice("apply", "-f", "data.yaml", "--start").code == 0
    assert sorted(each.name for each in directory.rglob("*")) == ["data.pod", "data_app.container"]
    assert (volumes / "default_data/it/nginx.container").read_text() == "[Container]"
    mount = f"\nVolume={volumes}/default_data/it:/it:ro,z\n"
    assert mount in (directory / "data_app.container").read_text()
    assert podslice("plan", "-f", "data.yaml", "--start").out == "nothing to do\n"
    ended = podslice("delete", "data")
    assert ended.code == 0
    assert f"removed {volumes}/default_data (default/data)" in ended.out.splitlines()
    assert list(volumes.iterdir()) == []


def test_data_without_units_is_deleted(podslice, files, memory, directory, here):
    files({"data.yaml": DATA})
    podslice("render", "-f", "data.yaml", "--format", "quadlet", "--install")
    for each in directory.iterdir():
        each.unlink()
    assert podslice("delete", "data").code == 0
    assert list((here / "lib-False/podslice/volumes").iterdir()) == []
    assert podslice("delete", "data").code == 1


def test_a_link_among_the_data_concerns_its_pod_only(
    podslice, files, memory, directory, here, tmp_path
):
    files({"data.yaml": DATA, "web.yaml": WEB})
    place = here / "lib-False/podslice/volumes/default_data"
    place.parent.mkdir(parents=True)
    target = tmp_path / "target"
    target.mkdir()
    place.symlink_to(target)
    problem = f"{place}: is a link, not a directory; podslice did not create it: move it elsewhere,"
    both = ("-f", "data.yaml", "-f", "web.yaml", "--start")
    planned = podslice("plan", *both)
    assert planned.code == 1
    assert f"error: {problem}" in planned.err
    assert "data.pod" not in planned.out
    ended = podslice("apply", *both)
    assert ended.code == 1
    assert f"failed to write {place} (default/data): is a link, not a directory;" in ended.out
    assert active(memory) == sorted([POD, APP, LOG])
    assert sorted(each.name for each in directory.iterdir()) == FILES
    report = json.loads(podslice("apply", *both, "-o", "json").out)
    (failed,) = [each for each in report["quadlets"] if each["outcome"] != "done"]
    assert (failed["pod"], failed["name"]) == ("default/data", str(place))
    assert list(target.iterdir()) == []
    place.unlink()
    assert podslice("apply", *both).code == 0


def test_data_that_cannot_be_written_concerns_its_pod_only(
    podslice, files, memory, directory, here, monkeypatch
):
    """As on a full disk."""

    replace_file = quadlet_files.replace_file

    def fail(path, *arguments, **options):
        if path == "nginx.container":
            raise OSError(errno.ENOSPC, "No space left on device", "x")
        replace_file(path, *arguments, **options)

    files({"data.yaml": DATA, "web.yaml": WEB})
    monkeypatch.setattr(quadlet_files, "replace_file", fail)
    ended = podslice("apply", "-f", "data.yaml", "-f", "web.yaml", "--start")
    assert ended.code == 1
    volume = here / "lib-False/podslice/volumes/default_data/it"
    text = f"failed to write {volume}/nginx.container (default/data): {volume}: No space left on"
    assert text in ended.out
    assert active(memory) == sorted([POD, APP, LOG])


def test_ignore_is_for_quadlets(podslice, web, memory):
    for verb in ("plan", "apply"):
        ended = podslice(verb, "-f", web, "--ignore", "setHostnameAsFQDN")
        assert (ended.code, ended.out) == (2, "")
        assert "--ignore: is for quadlets only; add --start" in ended.err


def test_a_plan_without_systemd(podslice, web, no_systemd, monkeypatch):
    monkeypatch.setattr(quadlets, "_version_of", lambda _: (257, 0))
    ended = podslice("plan", "-f", web, "--start")
    assert ended.code == 3
    assert f"would start {POD} (default/web)" in ended.out
