"""`__containers`, which the agent has systemd start."""

import errno
from types import SimpleNamespace

import pytest

from podslice.cli import wanted
from podslice.errors import HostError, Refused, warning
from podslice.features.quadlet import containers
from podslice.features.quadlet import verbs as quadlets
from podslice.features.quadlet.status import ContainerFailures
from podslice.model.event import Kind
from podslice.model.node_state import Eviction
from podslice.model.unit import SYSTEM
from podslice.store.store import Store
from tests.unit.builders import make_files
from tests.unit.cli.podman import APP, FILES, LOG, POD, WEB, active

WITH_DATA = """
apiVersion: v1
kind: Pod
metadata: {name: other, uid: u2}
spec:
  containers: [{name: app, image: app, volumeMounts: [{name: it, mountPath: /it}]}]
  volumes: [{name: it, configMap: {name: it}}]
"""
CONFIG_MAP = """---
apiVersion: v1
kind: ConfigMap
metadata: {name: it}
data: {a: b}
"""
REPLICAS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  template: {spec: {setHostnameAsFQDN: true, containers: [{name: app, image: app}]}}
"""
OTHER = WEB.replace("name: web, uid: u1", "name: other, uid: u2")


class Machine:
    """A machine whose agent has applied the pods of its manifests."""

    def __init__(self, here, podslice, memory, directory):
        self.podslice, self.memory, self.directory = podslice, memory, directory
        self.manifests = here / "manifests"
        self.store = Store(here / "run-False")
        self.owners, self.modes = {}, {}

    def put(self, name, text):
        make_files(self.manifests, {f"{name}.yaml": text})

    def applied(self):
        """Apply all manifests, and record where the pods are from."""
        for path in sorted(self.manifests.iterdir()):
            self.podslice("apply", "-f", str(path))
            self.record(path.stem)

    def record(self, name):
        """Record where an applied pod is from."""
        (pod,) = (each for each in self.store.load().pods if each.name == name)
        self.store.save(pod, str(self.manifests / f"{name}.yaml"))

    def evict(self):
        (pod,) = self.store.load().pods
        mark = Eviction(
            pod=pod.key, uid=pod.uid, digest="", signal="memory.available", message="", at_usec=1
        )
        self.store.mark_evicted(mark)

    def run(self):
        ended = self.podslice("__containers")
        return ended.code, ended.out.splitlines(), ended.err

    def read(self, path, **limits):
        content, status = self.read_really(path, **limits)
        mode = self.modes.get(path, status.st_mode & ~0o022)
        return content, SimpleNamespace(st_uid=self.owners.get(path, 0), st_mode=mode)


@pytest.fixture
def machine(here, podslice, podman_memory, quadlet_directory, monkeypatch):
    found = Machine(here, podslice, podman_memory, quadlet_directory)
    found.read_really = containers.read_with_status
    monkeypatch.setattr(containers, "read_with_status", found.read)
    monkeypatch.setattr(wanted, "manifest_directories", lambda *_: (str(here / "manifests"),))
    found.put("web", WEB)
    found.applied()
    return found


def test_containers_start_with_their_own_cpus(machine, files):
    static = {"config.toml": 'cpu-manager-policy = "static"\nreserved-cpus = "0"\n'}
    files(static)
    limits = "resources: {limits: {cpu: 1, memory: 1Gi}}"
    text = WEB.replace("    image: app\n", f"    image: app\n    {limits}\n")
    machine.put("web", text.replace("image: log}", f"image: log, {limits}}}"))
    machine.podslice("apply", "-f", str(machine.manifests / "web.yaml"), "--config=config.toml")
    machine.record("web")
    assert machine.podslice("__containers", "--config=config.toml").code == 0
    for name, cpu in (("app", 1), ("log", 2)):
        assert f"\nAllowedCPUs={cpu}\n" in (machine.directory / f"web_{name}.container").read_text()


def test_pods_are_started_and_left_alone(machine):
    code, lines, _ = machine.run()
    assert code == 0
    assert lines[-3:] == [f"started {each} (default/web)" for each in (POD, APP, LOG)]
    assert "\n[X-Podslice]\nKeptByAgent=yes\n" in (machine.directory / "web.pod").read_text()
    assert machine.run() == (0, [], "")


def test_a_changed_manifest_takes_effect(machine):
    machine.run()
    machine.put("web", WEB.replace("image: log", "image: log:2"))
    assert machine.run() == (
        0,
        [
            f"stopped {LOG} (default/web): its files change",
            f"wrote {machine.directory}/web_log.container (default/web)",
            f"started {LOG} (default/web)",
        ],
        "",
    )


def test_a_pod_that_is_no_longer_applied_is_removed(machine):
    machine.run()
    machine.store.remove("u1")
    code, lines, _ = machine.run()
    assert (code, lines[0]) == (0, f"stopped {POD} (default/web): the pod is removed")
    assert (active(machine.memory), list(machine.directory.iterdir())) == ([], [])


def test_an_evicted_pod_is_stopped_until_it_is_readmitted(machine):
    machine.run()
    machine.evict()
    machine.run()
    assert (active(machine.memory), list(machine.directory.iterdir())) == ([], [])
    assert machine.run() == (0, [], "")
    machine.podslice("readmit", "web")
    machine.run()
    assert active(machine.memory) == sorted([POD, APP, LOG])


def test_pods_that_were_started_by_hand_are_left_alone(machine, files):
    machine.store.remove("u1")
    files({"web.yaml": WEB})
    machine.podslice("apply", "-f", "web.yaml", "--start")
    machine.store.remove("u1")  # as after a reboot
    assert machine.run() == (0, [], "")
    assert sorted(each.name for each in machine.directory.iterdir()) == FILES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            WEB.replace("spec:", "spec:\n  setHostnameAsFQDN: true"),
            "spec.setHostnameAsFQDN: its containers are not",
        ),
        (WEB.replace("image: log", "image: [log]"), "spec.containers[1].image"),
        (REPLICAS, "spec.template.spec.setHostnameAsFQDN: its containers are not"),
    ],
)
def test_a_file_with_an_error_leaves_its_pods_as_they_are(machine, text, message):
    machine.run()
    machine.put("web", text)
    code, lines, err = machine.run()
    assert (code, lines) == (0, [])
    assert f"{machine.manifests}/web.yaml: " in err
    assert err.count(message) == 1
    assert active(machine.memory) == sorted([POD, APP, LOG])


@pytest.mark.parametrize(("owner", "mode"), [(1000, 0o600), (0, 0o660), (0, 0o602)])
def test_containers_of_a_manifest_that_others_can_write_are_not_started(machine, owner, mode):
    """A container may have all rights of root, which members of podslice-admin have not."""
    path = str(machine.manifests / "web.yaml")
    machine.owners[path], machine.modes[path] = owner, mode
    code, lines, err = machine.run()
    assert (code, lines) == (0, [])
    assert f"{path}: its containers are not updated: users other than 0 can write it" in err
    assert not machine.directory.exists()


def test_a_link_to_a_manifest_is_not_followed(machine, tmp_path):
    path = machine.manifests / "web.yaml"
    path.rename(tmp_path / "web.yaml")
    path.symlink_to(tmp_path / "web.yaml")
    assert (
        f"{path}: its containers are not updated: is a link, not a regular file" in machine.run()[2]
    )
    assert not machine.directory.exists()


def test_a_removed_manifest_is_not_a_failure_while_the_agent_stops_its_pod(machine):
    machine.run()
    (machine.manifests / "web.yaml").unlink()
    assert machine.run() == (0, [], "")
    assert active(machine.memory) == sorted([POD, APP, LOG])


def test_a_manifest_that_cannot_be_read_is_reported(machine):
    def fail(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    machine.read_really = fail
    path = machine.manifests / "web.yaml"
    assert f"{path}: its containers are not updated: Permission denied" in machine.run()[2]


def test_a_manifest_beyond_the_limits_is_reported(machine):
    machine.put("web", WEB + "---\n" * 100_000)
    code, lines, err = machine.run()
    assert (code, lines) == (0, [])
    path = machine.manifests / "web.yaml"
    assert err.startswith(f"{path}: its containers are not updated: there are more than 20,000")


def test_a_unit_of_another_program_is_reported_and_concerns_its_pod_only(machine):
    machine.put("other", OTHER)
    machine.applied()
    machine.directory.mkdir(parents=True)
    (machine.directory / "web.pod").write_text("[Pod]\n")
    code, lines, err = machine.run()
    assert "web.pod: its containers are not updated: the file exists and is not generated" in err
    assert "started other-pod.service (default/other)" in lines
    assert code == 0


def test_a_link_among_the_data_is_reported_and_concerns_its_pod_only(machine, here):
    machine.put("other", f"{WITH_DATA}{CONFIG_MAP}")
    machine.applied()
    place = here / "lib-False/podslice/volumes/default_other"
    place.parent.mkdir(parents=True)
    place.symlink_to(here)
    ((pod, _, text),) = failures(machine)
    assert pod == "default/other"
    assert f"{place}: its containers are not updated: is a link, not a directory" in text
    assert active(machine.memory) == sorted([POD, APP, LOG])
    assert not (machine.directory / "other.pod").exists()


def test_an_old_podman_is_reported(machine, monkeypatch):
    machine.put("other", OTHER)
    machine.applied()
    monkeypatch.setattr(quadlets, "_version_of", lambda _: (5, 2))
    code, lines, err = machine.run()
    assert (code, lines) == (0, [])
    # once, and not for each manifest
    assert err.startswith(
        "podman: the containers of pods are not updated: the generator of 5.2 cannot keep pods in"
        " their slices; install podman 5.4 or later"
    )
    assert len(err.splitlines()) == 1


def test_another_directory_is_not_the_agents(machine, monkeypatch):
    monkeypatch.setattr(wanted, "manifest_directories", lambda *_: ("/elsewhere",))
    assert machine.run() == (0, [], "")


def failures(machine):
    """What the last run could not do."""
    machine.run()
    return [
        (each.pod, each.unit, str(each).replace(f"{machine.manifests}/", ""))
        for each in ContainerFailures(machine.store.root).load()
    ]


def test_a_failure_is_recorded_and_logged_once(machine, journal):
    machine.put("web", WEB.replace("spec:", "spec:\n  setHostnameAsFQDN: true"))
    for _ in range(2):
        ((pod, unit, text),) = failures(machine)
        assert text.startswith("web.yaml: spec.setHostnameAsFQDN: its containers are not updated: ")
        assert (pod, unit) == (None, None)
    (event,) = journal.of(Kind.STEP_FAILED)
    assert event.pod is None
    assert event.message.startswith(f"{machine.manifests}/web.yaml: ")
    machine.put("web", WEB)
    assert failures(machine) == []
    assert not (machine.store.root / "container-failures.json").exists()


def test_a_service_that_does_not_start_or_stop_is_recorded_with_its_pod(machine, journal):
    machine.memory.refuse(APP, Refused("no"))
    assert failures(machine) == [("default/web", APP, f"failed to start {APP}: no")]
    (event,) = journal.of(Kind.STEP_FAILED)
    assert (event.pod, event.unit) == ("default/web", APP)
    machine.memory.refuse(APP, None)
    assert failures(machine) == []
    machine.store.remove("u1")
    machine.memory.refuse(POD, Refused("no"))
    assert failures(machine) == [("default/web", None, f"failed to stop {POD}: no")]


def test_an_error_of_the_whole_run_is_recorded(machine):
    machine.directory.parent.mkdir(parents=True, exist_ok=True)
    machine.directory.write_text("")
    ((pod, unit, text),) = failures(machine)
    assert (pod, unit) == (None, None)
    assert text.startswith("the containers of pods are not updated: ")


def test_a_warning_of_a_file_is_only_printed(machine):
    log = containers.ContainerLog(machine.store, SYSTEM)
    with log.published():
        log.add_problem(warning("web.yaml", "odd"))
    assert ContainerFailures(machine.store.root).load() == ()


def test_the_record_of_a_later_run_remains(machine):
    first, second = (containers.ContainerLog(machine.store, SYSTEM) for _ in range(2))
    with first.published():
        pass
    with second.published():
        second.add_error(HostError("later"))
    with first.published():
        first.add_error(HostError("earlier"))
    (found,) = ContainerFailures(machine.store.root).load()
    assert found.message == "the containers of pods are not updated: later"
