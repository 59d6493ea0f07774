"""`__containers`, which the agent has systemd start."""

from types import SimpleNamespace

import pytest

from podslice.cli import quadlets
from podslice.cli.verbs import containers
from podslice.model.node_state import Eviction
from podslice.store import Store
from tests.unit.builders import make_files
from tests.unit.cli.podman import APP, FILES, LOG, POD, WEB, active

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
            (pod,) = (each for each in self.store.load().pods if each.name == path.stem)
            self.store.save(pod, str(path))

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
    monkeypatch.setattr(containers, "manifest_directories", lambda *_: (str(here / "manifests"),))
    found.put("web", WEB)
    found.applied()
    return found


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
            f"wrote {machine.directory}/web-log.container (default/web)",
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
        (WEB.replace("spec:", "spec:\n  hostIPC: true"), "spec.hostIPC: cannot be kept"),
        (WEB.replace("image: log", "image: [log]"), "spec.containers[1].image"),
    ],
)
def test_a_file_with_an_error_leaves_its_pods_as_they_are(machine, text, message):
    machine.run()
    machine.put("web", text)
    code, lines, err = machine.run()
    assert (code, lines) == (0, [])
    assert f"{machine.manifests}/web.yaml: error: " in err
    assert message in err
    assert active(machine.memory) == sorted([POD, APP, LOG])


@pytest.mark.parametrize(("owner", "mode"), [(1000, 0o600), (0, 0o660), (0, 0o602)])
def test_containers_of_a_manifest_that_others_can_write_are_not_started(machine, owner, mode):
    """A container may have all rights of root, which members of podslice-admin have not."""
    path = str(machine.manifests / "web.yaml")
    machine.owners[path], machine.modes[path] = owner, mode
    code, lines, err = machine.run()
    assert (code, lines) == (0, [])
    assert f"{path}: its containers are not started: users other than 0 can write it" in err
    assert not machine.directory.exists()


def test_a_link_to_a_manifest_is_not_followed(machine, tmp_path):
    path = machine.manifests / "web.yaml"
    path.rename(tmp_path / "web.yaml")
    path.symlink_to(tmp_path / "web.yaml")
    assert f"{path}: is a link, not a regular file" in machine.run()[2]
    path.unlink()
    assert f"{path}: No such file or directory" in machine.run()[2]
    assert not machine.directory.exists()


def test_a_unit_of_another_program_is_reported_and_concerns_its_pod_only(machine):
    machine.put("other", OTHER)
    machine.applied()
    machine.directory.mkdir(parents=True)
    (machine.directory / "web.pod").write_text("[Pod]\n")
    code, lines, err = machine.run()
    assert "web.pod: the file exists and is not generated by podslice" in err
    assert "started other-pod.service (default/other)" in lines
    assert code == 0


def test_an_old_podman_is_reported(machine, monkeypatch):
    monkeypatch.setattr(quadlets, "_version_of", lambda _: (5, 2))
    code, lines, err = machine.run()
    assert (code, lines) == (0, [])
    assert "the generator of 5.2 cannot keep pods in their slices" in err


def test_another_directory_is_not_the_agents(machine, monkeypatch):
    monkeypatch.setattr(containers, "manifest_directories", lambda *_: ("/elsewhere",))
    assert machine.run() == (0, [], "")
