"""`podslice status || alert`: the exit code, and the problems, in every situation."""

import asyncio
import json
import os
import re
import shlex
import shutil
import tempfile
import tomllib
from pathlib import Path

import pytest

from podslice.cli.wanted import _is_denied
from podslice.errors import Problem
from podslice.features.quadlet.status import ContainerFailures
from podslice.model.node_state import (
    Condition,
    ContainerFailure,
    PendingPod,
    StuckPod,
)
from podslice.model.unit import GENERATED, UnitName
from podslice.store import histories
from podslice.store.store import Store
from podslice.systemd import journal
from podslice.usage.runtimes import RuntimeContainer
from tests.unit.builders import make_files, manifest
from tests.unit.cli.pods import mark_evicted, run_agent

WEB = "kubepods-burstable-podweb.slice"
BATCH = "kubepods-besteffort-podbatch.slice"
BIG = PendingPod(
    pod="default/big",
    reason="OutOfmemory",
    message="requests 100Gi of memory, 32Gi is free",
    hint="lower its requests",
    qos="Burstable",
)
READMIT = "to readmit it: podslice readmit default/batch"
HELD = PendingPod(
    pod="default/batch",
    reason="MemoryPressure",
    message="the node is short of memory; BestEffort pods wait until that is over",
    qos="BestEffort",
)


CONTAINER = RuntimeContainer(
    runtime="podman",
    id="0123",
    name="web-main",
    pid=40,
    control_group="/machine.slice/x.scope",
    pod_key="default/web",
    pod_uid=None,
    container="main",
)


AGENT = {
    "terminating=batch": ("default/batch",),
    "conditions=memory": (Condition.MEMORY,),
    "failures=no_bus": (Problem(where="", message="no bus"),),
    "stuck=batch": (StuckPod(pod="default/batch", why="a process is left", hint="see"),),
    "pending=big": (BIG,),
    "pending=held": (HELD,),
    "pending=evicted": (
        PendingPod(pod="default/batch", reason="Evicted", message="50Mi", hint=READMIT),
    ),
}
"""What the steps of an agent mean."""
SITUATIONS = tomllib.loads(Path(__file__).with_name("situations.toml").read_text())


class Machine:
    """A machine with manifest directories, whose two pods are applied, and perhaps an agent."""

    def __init__(self, here, memory, podslice, runtimes_hold):
        self.here, self.memory, self.podslice = here, memory, podslice
        self.runtimes_hold = runtimes_hold
        self.store = Store(here / "run-False")
        self.directory = here / "manifests"
        self.put("web", cpu="500m")
        self.put("batch")

    def prepare(self, situation):
        """Take the steps of a situation."""
        for step in SITUATIONS[situation]["steps"]:
            name, *words = shlex.split(step.replace("WEB", WEB).replace("BATCH", BATCH))
            if name in SITUATIONS:
                self.prepare(name)
            else:
                self._take(name, words)

    def _take(self, name, words):
        pairs = [word.split("=", 1) for word in words if re.match(r"\w+=", word)]
        values = {key: int(text) if text.isdigit() else text for key, text in pairs}
        getattr(self, name)(*(word for word in words if not re.match(r"\w+=", word)), **values)

    def put(self, name, kind="requests", **resources):
        text = manifest(name, **{kind: resources})
        text = text.replace(f'"name": "{name}"', f'"name": "{name}", "uid": "{name}"', 1)
        self.write(f"manifests/{name}.yaml", text)

    def write(self, path, text):
        make_files(self.here, {path: text})

    def configure(self, text):
        self.write("etc/podslice/podslice.toml", text)

    def apply(self):
        self.run("apply", "-f", str(self.directory))

    def run(self, *words):
        assert self.podslice(*words).code == 0

    def agent(self, **names):
        run_agent(
            self.store,
            **{"pending": (), **{key: AGENT[f"{key}={value}"] for key, value in names.items()}},
        )

    def empty(self):
        for path in self.directory.iterdir():
            path.unlink()

    def remove(self, file):
        (self.directory / file).unlink()

    def replace_directory(self):
        self.directory.rmdir()
        self.directory.write_text("")

    def record_manifests(self):
        for pod in self.store.load().pods:
            self.store.save(pod, str(self.directory / f"{pod.name}.yaml"))

    def forget(self, uid):
        self.store.remove(uid)

    def unit(self, name, **values):
        self.memory.provide(UnitName(name), **values)

    def crash(self, name, restarts, **values):
        self.unit(name, **values)
        self.memory.crash(UnitName(name), int(restarts))

    def fail(self, name, **values):
        self.unit(name, **values)
        self.memory.fail(UnitName(name))

    def enable(self, service):
        wanted = self.here / "etc-False/systemd/system/multi-user.target.wants"
        wanted.mkdir(parents=True)
        (wanted / service).symlink_to(f"/usr/lib/systemd/system/{service}")

    def fail_containers(self):
        failures = (
            ContainerFailure(where="batch.yaml", message="its containers are not updated"),
            ContainerFailure(pod="default/web", message="failed to start", unit="a.service"),
            ContainerFailure(pod="default/web", message="active since", unit="b.service"),
        )
        ContainerFailures(self.store.root).save(failures)
        self.unit("b.service")

    def end(self, result, code, status, **more):
        """Let a container that was started before end, as its service or its parent records it."""
        self.store.histories.save_start("web", "main", 1)
        variables = {"SERVICE_RESULT": result, "EXIT_CODE": code, "EXIT_STATUS": status, **more}
        histories.save_end(self.store.histories.end_path("web", "main", 1), variables)

    def start_again(self):
        self.store.histories.save_start("web", "main", 2)

    def exit_in_podman(self, code, **fields):
        number = None if code == "-" else int(code)
        container = CONTAINER._replace(pid=0, control_group="", exit_code=number, **fields)
        self.runtimes_hold.append(container)

    def run_elsewhere(self):
        self.runtimes_hold.append(CONTAINER)

    def write_drop_in(self):
        text = "[X-Podslice]\nPod=default/web\nContainer=lg\n\n[Service]\nSlice=kubepods-podweb.slice\n"
        self.write("etc-False/systemd/system/lg.service.d/50-podslice.conf", text)

    def reserve_cpus(self):
        self.configure('admission = false\ncpu-manager-policy = "static"\nreserved-cpus = "0-6"\n')

    def set(self, name, **values):
        asyncio.run(self.memory.set_properties(UnitName(name), values))

    def stop(self, name):
        asyncio.run(self.memory.stop(UnitName(name)))

    def evict(self, name):
        (pod,) = (pod for pod in self.store.load().pods if pod.name == name)
        message = "memory.available is 50Mi, below the hard threshold 100Mi"
        mark_evicted(self.store, pod, message, at_usec=1)
        self.stop(BATCH)
        self.store.remove(pod.uid)


@pytest.fixture
def machine(here, memory, podslice, runtimes_hold):
    return Machine(here, memory, podslice, runtimes_hold)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_exit_code_of_each_situation(machine, situation):
    machine.prepare(situation)
    problems = SITUATIONS[situation].get("problems", [])
    code = 3 if problems else 0
    ended = machine.podslice("status")
    assert ended.code == code
    assert ("PROBLEMS" in ended.out) == bool(problems)
    assert machine.podslice("status", "--exit-zero").code == 0
    ended = machine.podslice("status", "-o", "json")
    document = json.loads(ended.out)
    found = [f"{each['kind']} {_last(each['object'])}" for each in document["problems"]]
    assert (ended.code, document["healthy"], found) == (code, not problems, problems)
    assert all(each["message"] for each in document["problems"])
    for each in document["problems"]:
        # a command that ends the problem is one of the remedies, and complete
        command = each["command"]
        assert command is None or shlex.join(command) in each["hint"]
        assert command is None or (command[0] == "podslice" and "FILE" not in command)


def hints(machine, *options):
    """Return the remedies of all problems except that the agent does not run, by kind."""
    document = json.loads(machine.podslice("status", "-o", "json", *options).out)
    listed = {each["kind"]: each["hint"] for each in document["problems"]}
    listed.pop("agent-stopped", None)
    return listed


@pytest.mark.parametrize(
    ("situation", "message"),
    [
        ("agent_stopped", "it is not running; changes in {} are not applied"),
        ("agent_failed", "it has failed"),
        ("pod_restarting", "podman cannot keep it active: 3 restarts"),
    ],
)
def test_a_service_that_does_not_run_is_described(machine, situation, message):
    machine.prepare(situation)
    document = json.loads(machine.podslice("status", "-o", "json").out)
    (problem,) = document["problems"]
    assert problem["message"] == message.format(machine.directory)


def test_a_pod_may_restart_a_few_times(machine):
    machine.prepare("pod_restarting")
    machine.crash("web-pod.service", 2)
    assert hints(machine) == {}


def give_quadlets(machine, name="web"):
    """Write the file with which podman's generator makes the service of a pod."""
    text = f"{GENERATED}\n[Unit]\nDescription=Pod default/{name}\n"
    make_files(machine.here / "etc-False/containers/systemd", {f"{name}.pod": text})


def test_the_remedy_for_a_pod_with_quadlets_starts_its_containers(machine, monkeypatch):
    for name in ("read_events", "read_messages"):
        monkeypatch.setattr(journal, name, lambda *_: ())
    source = machine.directory / "web.yaml"
    machine.apply()
    machine.put("web", cpu="600m")
    assert hints(machine) == {"pod-pending": f"to apply it: podslice apply -f {source}"}
    give_quadlets(machine, "other")
    assert hints(machine) == {"pod-pending": f"to apply it: podslice apply -f {source}"}
    give_quadlets(machine)
    assert hints(machine) == {"pod-pending": f"to apply it: podslice apply --start -f {source}"}
    machine.apply()
    machine.store.remove("web")
    command = f"podslice apply --start -f {source}"
    assert hints(machine)["pod-unrecorded"] == f"to apply its manifest again: {command}"
    machine.apply()
    machine.stop(WEB)
    command = f"podslice apply --start -f {source}"
    assert hints(machine) == {"unit-missing": f"to restore it with its containers: {command}"}
    for pod, expected in (("web", command), ("batch", f"podslice apply -f {machine.directory}")):
        page = json.loads(machine.podslice("status", pod, "-o", "json").out)["pod"]
        assert shlex.join(page["apply_command"]).startswith(expected)


def commands(machine):
    document = json.loads(machine.podslice("status", "-o", "json").out)
    return {each["kind"]: each["command"] for each in document["problems"]}


def test_the_command_that_ends_a_problem(machine):
    source = str(machine.directory / "web.yaml")
    machine.apply()
    machine.set(WEB, CPUWeight=1)
    found = commands(machine)
    assert found == {"agent-stopped": None, "unit-differs": ["podslice", "apply"]}
    machine.put("web", cpu="600m")
    assert commands(machine)["pod-pending"] == ["podslice", "apply", "-f", source]
    machine.store.remove("web")
    assert commands(machine)["pod-unrecorded"] == ["podslice", "apply", "-f", source]
    machine.prepare("manifest_removed_without_agent")
    assert commands(machine)["pod-unwanted"] == ["podslice", "delete", "default/batch"]
    machine.agent()
    machine.set(WEB, CPUWeight=1)
    # the agent does it
    assert commands(machine) == {"unit-differs": None}


def test_the_remedy_for_a_pod_with_quadlets_and_without_a_manifest(machine):
    machine.prepare("by_hand")
    give_quadlets(machine)
    machine.set(WEB, CPUWeight=1)
    assert hints(machine) == {"unit-differs": "to restore it: podslice apply"}
    machine.stop(WEB)
    start = "then, to start its containers: systemctl start web-pod.service"
    assert hints(machine) == {"unit-missing": f"to restore it: podslice apply; {start}"}
    machine.agent()
    assert hints(machine) == {"unit-missing": f"the agent restores it; {start}"}


def test_the_remedy_for_a_pod_whose_containers_the_agent_would_run(machine):
    make_files(machine.here, {"etc/podslice/podslice.toml": 'containers = "quadlet"\n'})
    source = machine.directory / "web.yaml"
    (machine.directory / "batch.yaml").unlink()
    assert hints(machine) == {"pod-pending": f"to apply it: podslice apply --start -f {source}"}


def test_the_restarts_by_podman_are_stated(machine):
    machine.prepare("by_hand")
    machine.exit_in_podman(9, restarts=2)
    message = "has failed with exit code 9, 2 restarts\n"
    assert message in machine.podslice("status").out


def test_a_directory_that_the_user_may_not_read_is_a_note(machine, monkeypatch):
    machine.prepare("by_hand")
    assert machine.podslice("status").code == 0
    make_files(machine.directory, {"bad.yaml": "a: ["})
    assert machine.podslice("status").code == 3
    hidden = str(machine.directory)
    monkeypatch.setattr("podslice.cli.wanted._is_denied", lambda where: where == hidden)
    ended = machine.podslice("status")
    assert (ended.code, ended.err.count(f"{hidden} is not readable for this user")) == (0, 1)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_what_a_user_may_not_read():
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    directory.chmod(0o755)
    make_files(directory, {"open/web.yaml": "", "closed/web.yaml": ""})
    (directory / "closed").chmod(0o700)
    os.seteuid(65534)
    try:
        places = ("open", "open/web.yaml", "closed", "closed/web.yaml", "missing")
        denied = [each for each in places if _is_denied(str(directory / each))]
    finally:
        os.seteuid(0)
        shutil.rmtree(directory)
    assert denied == ["closed", "closed/web.yaml"]


def test_warnings_about_manifests_are_left_to_check_and_apply(machine):
    machine.apply()
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: front}\n"
    (machine.directory / "front.yaml").write_text(service)
    assert machine.podslice("status").err == ""
    checked = machine.podslice("check", "-f", str(machine.directory))
    assert "'Service' have no pod" in checked.out


def _last(what):
    """Return the name of a file without its directory and the place in it; else the same."""
    return Path(what.partition(": ")[0]).name if ".toml" in what or what[0] == "/" else what
