"""`podslice status || alert`: the exit code, and the problems, in every situation."""

import asyncio
import json
import os
import shlex
import shutil
import tempfile
from pathlib import Path

import pytest

from podslice.cli.wanted import _is_denied
from podslice.errors import Problem
from podslice.features.quadlet.keeper import ContainerFailures
from podslice.kernel.proc import read_process
from podslice.model.node_state import (
    AgentState,
    Condition,
    ContainerFailure,
    Eviction,
    PendingPod,
    StuckPod,
)
from podslice.model.unit import GENERATED, UnitName
from podslice.store import histories
from podslice.store.store import Store
from podslice.systemd import journal
from podslice.usage.runtimes import RuntimeContainer
from tests.unit.builders import make_files, manifest

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


class Machine:
    """A machine with manifest directories, whose two pods are applied, and perhaps an agent."""

    def __init__(self, here, memory, podslice, runtimes_hold):
        self.here, self.memory, self.podslice = here, memory, podslice
        self.runtimes_hold = runtimes_hold
        self.store = Store(here / "run-False")
        self.directory = here / "manifests"
        self.put("web", {"cpu": "500m"})
        self.put("batch")

    def put(self, name, requests=None):
        text = manifest(name, requests)
        text = text.replace(f'"name": "{name}"', f'"name": "{name}", "uid": "{name}"', 1)
        make_files(self.directory, {f"{name}.yaml": text})

    def apply(self):
        assert self.podslice("apply", "-f", str(self.directory)).code == 0

    def agent(self, **fields):
        process = read_process(os.getpid())
        state = {"pid": process.pid, "started_ticks": process.started_ticks, "pending": ()}
        self.store.agent.save(AgentState(**{**state, **fields}))

    def empty(self):
        for path in self.directory.iterdir():
            path.unlink()

    def unit(self, name):
        self.memory.provide(UnitName(name))

    def crash(self, name, restarts, **values):
        self.memory.provide(UnitName(name), **values)
        self.memory.crash(UnitName(name), restarts)

    def fail(self, name, **values):
        self.memory.provide(UnitName(name), **values)
        self.memory.fail(UnitName(name))

    def end(self, result, code, status, **more):
        """Let a container that was started before end, as its service or its parent records it."""
        self.store.histories.save_start("web", "main", 1)
        variables = {"SERVICE_RESULT": result, "EXIT_CODE": code, "EXIT_STATUS": status, **more}
        histories.save_end(self.store.histories.end_path("web", "main", 1), variables)

    def exit_in_podman(self, code, **fields):
        container = CONTAINER._replace(pid=0, control_group="", exit_code=code, **fields)
        self.runtimes_hold.append(container)

    def set(self, name, **values):
        asyncio.run(self.memory.set_properties(UnitName(name), values))

    def stop(self, name):
        asyncio.run(self.memory.stop(UnitName(name)))

    def evict(self, name):
        (pod,) = (pod for pod in self.store.load().pods if pod.name == name)
        self.store.mark_evicted(
            Eviction(
                pod=pod.key,
                uid=pod.uid,
                digest=self.store.digest(pod),
                signal="memory.available",
                message="memory.available is 50Mi, below the hard threshold 100Mi",
                at_usec=1,
            )
        )
        self.stop(BATCH)
        self.store.remove(pod.uid)


@pytest.fixture
def machine(here, memory, podslice, runtimes_hold):
    return Machine(here, memory, podslice, runtimes_hold)


def nothing(machine):
    machine.empty()


def by_hand(machine):
    machine.apply()
    machine.empty()


def kept_by_the_agent(machine):
    machine.apply()
    machine.agent()


def at_boot_only(machine):
    machine.apply()
    machine.unit("podslice-apply.service")


def changed_externally(machine):
    kept_by_the_agent(machine)
    machine.set(WEB, CPUWeight=1)


def slice_stopped(machine):
    by_hand(machine)
    machine.stop(WEB)


def refused(machine):
    kept_by_the_agent(machine)
    machine.put("big", {"memory": "100Gi"})
    machine.agent(pending=(BIG,))


def refused_without_agent(machine):
    machine.apply()
    machine.put("big", {"memory": "100Gi"})


def change_refused_without_agent(machine):
    machine.apply()
    machine.put("web", {"cpu": "100"})


def evicted(machine):
    kept_by_the_agent(machine)
    machine.evict("batch")
    machine.agent(
        pending=(PendingPod(pod="default/batch", reason="Evicted", message="50Mi", hint=READMIT),)
    )


def evicted_without_agent(machine):
    machine.apply()
    machine.evict("batch")


def evicted_and_applied_by_hand(machine):
    by_hand(machine)
    machine.evict("batch")


def short_of_memory(machine):
    kept_by_the_agent(machine)
    machine.agent(conditions=(Condition.MEMORY,))


def readmitted_while_memory_is_short(machine):
    evicted(machine)
    assert machine.podslice("readmit", "batch").code == 0
    machine.agent(conditions=(Condition.MEMORY,), pending=(HELD,))


def invalid_manifest_without_agent(machine):
    machine.apply()
    (machine.directory / "bad.yaml").write_text("[")


def unreadable_directory(machine):
    by_hand(machine)
    machine.directory.rmdir()
    machine.directory.write_text("")


def invalid_configuration(machine):
    kept_by_the_agent(machine)
    make_files(machine.here, {"etc/podslice/podslice.toml": "eviction-hrad = 1\n"})


def agent_stopped(machine):
    at_boot_only(machine)
    wanted = machine.here / "etc-False/systemd/system/multi-user.target.wants"
    wanted.mkdir(parents=True)
    (wanted / "podslice-agent.service").symlink_to("/usr/lib/systemd/system/podslice-agent.service")


def agent_loaded(machine):
    """Pods of quadlets refer to its unit."""
    at_boot_only(machine)
    machine.unit("podslice-agent.service")


def agent_failed(machine):
    by_hand(machine)
    machine.unit("podslice-agent.service")
    machine.memory.fail("podslice-agent.service")


def agent_cannot_work(machine):
    kept_by_the_agent(machine)
    machine.agent(failures=(Problem(where="", message="no bus"),))


def containers_failed(machine):
    kept_by_the_agent(machine)
    make_files(machine.here, {"etc/podslice/podslice.toml": 'containers = "quadlet"\n'})
    failures = (
        ContainerFailure(where="batch.yaml", message="its containers are not updated: no podman"),
        ContainerFailure(pod="default/web", message="failed to start", unit=UnitName("a.service")),
        ContainerFailure(pod="default/web", message="active since", unit=UnitName("b.service")),
    )
    ContainerFailures(machine.store.root).save(failures)
    machine.unit("b.service")


def containers_no_longer_kept(machine):
    containers_failed(machine)
    (machine.here / "etc/podslice/podslice.toml").unlink()


def not_applied_yet(machine):
    assert machine.directory.exists()


def changed_manifest_not_applied(machine):
    machine.apply()
    machine.put("web", {"cpu": "600m"})


def manifest_removed_without_agent(machine):
    machine.apply()
    for pod in machine.store.load().pods:
        machine.store.save(pod, str(machine.directory / f"{pod.name}.yaml"))
    (machine.directory / "batch.yaml").unlink()


def stuck(machine):
    kept_by_the_agent(machine)
    machine.stop(BATCH)
    machine.agent(stuck=(StuckPod(pod="default/batch", why="a process is left", hint="see"),))


def terminating(machine):
    kept_by_the_agent(machine)
    machine.stop(BATCH)
    machine.agent(terminating=("default/batch",))


def container_restarting(machine):
    by_hand(machine)
    machine.crash("podslice-podweb-main.service", 3, CPUWeight=50)


def container_crashed(machine):
    by_hand(machine)
    machine.end("exit-code", "exited", "7")


def container_killed(machine):
    by_hand(machine)
    machine.end("signal", "killed", "KILL")


def container_oom_killed(machine):
    by_hand(machine)
    machine.end("oom-kill", "killed", "KILL")


def container_done(machine):
    by_hand(machine)
    machine.end("success", "exited", "0")


def container_stopped(machine):
    by_hand(machine)
    machine.end("success", "killed", "TERM")


def container_crashed_in_the_foreground(machine):
    by_hand(machine)
    machine.end("exit-code", "exited", "7", PODSLICE_ATTENDED="yes")


def container_started_again(machine):
    container_crashed(machine)
    machine.store.histories.save_start("web", "main", 2)
    machine.memory.provide(UnitName("podslice-podweb-main.service"), Slice=WEB, CPUWeight=50)


def service_of_a_container_failed(machine):
    by_hand(machine)
    machine.fail("podslice-podweb-main.service", CPUWeight=50)


def service_in_a_pod_failed(machine):
    by_hand(machine)
    machine.fail("nginx.service", Slice=WEB)


def service_in_a_pod_restarts(machine):
    by_hand(machine)
    machine.crash("nginx.service", 3, Slice=WEB)


def service_elsewhere_failed(machine):
    by_hand(machine)
    machine.fail("nginx.service")
    machine.crash("cron.service", 9)


def podman_container_crashed(machine):
    by_hand(machine)
    machine.exit_in_podman(3)


def podman_container_oom_killed(machine):
    by_hand(machine)
    machine.exit_in_podman(137, is_oom=True)


def podman_containers_stopped(machine):
    by_hand(machine)
    for code in (0, 137, 143, None):
        machine.exit_in_podman(code)


def pod_restarting(machine):
    by_hand(machine)
    make_files(machine.here / "etc-False/containers/systemd", {"web.pod": "[Pod]\n"})
    machine.crash("web-pod.service", 3)
    machine.unit("batch-pod.service")


def cpus_shared(machine):
    """The CPUs of an applied pod are reserved now."""
    limits = {"limits": {"cpu": "4", "memory": "1Gi"}}
    pod = {
        "metadata": {"name": "own"},
        "spec": {"containers": [{"name": "c", "resources": limits}]},
    }
    make_files(
        machine.directory, {"own.yaml": json.dumps({"apiVersion": "v1", "kind": "Pod", **pod})}
    )
    by_hand(machine)
    policy = 'admission = false\ncpu-manager-policy = "static"\nreserved-cpus = "0-6"\n'
    make_files(machine.here, {"etc/podslice/podslice.toml": policy})
    machine.put("web", {"cpu": "500m"})
    by_hand(machine)


def elsewhere(machine):
    kept_by_the_agent(machine)
    machine.runtimes_hold.append(CONTAINER)


def orphan(machine):
    kept_by_the_agent(machine)
    machine.unit("kubepods-podforeign.slice")


def damaged_record(machine):
    by_hand(machine)
    (machine.store.root / "pods/other.json").write_text("{")


def lost_record(machine):
    by_hand(machine)
    machine.store.remove("web")


STOPPED = "agent-stopped podslice-agent"


def drop_in_outdated(machine):
    """A service starts in the slice of another class."""
    machine.apply()
    text = "[X-Podslice]\nPod=default/web\nContainer=lg\n\n[Service]\nSlice=kubepods-podweb.slice\n"
    path = "etc-False/systemd/system/lg.service.d/50-podslice.conf"
    make_files(machine.here, {path: text})
    machine.agent()


SITUATIONS = [
    (nothing, []),
    (by_hand, []),
    (kept_by_the_agent, []),
    (at_boot_only, []),
    (terminating, []),
    (changed_externally, [f"unit-differs {WEB}"]),
    (slice_stopped, [f"unit-missing {WEB}"]),
    (refused, ["pod-pending default/big"]),
    (refused_without_agent, [STOPPED, "pod-pending default/big"]),
    (change_refused_without_agent, [STOPPED, "pod-pending default/web"]),
    (evicted, ["pod-evicted default/batch"]),
    (evicted_without_agent, [STOPPED, "pod-evicted default/batch"]),
    (evicted_and_applied_by_hand, ["pod-evicted default/batch"]),
    (short_of_memory, ["node-condition MemoryPressure"]),
    (
        readmitted_while_memory_is_short,
        ["node-condition MemoryPressure", "pod-pending default/batch"],
    ),
    (invalid_manifest_without_agent, [STOPPED, "invalid-manifest bad.yaml"]),
    (unreadable_directory, [STOPPED, "invalid-manifest manifests"]),
    (invalid_configuration, ["invalid-configuration podslice.toml"]),
    (agent_loaded, []),
    (agent_stopped, [STOPPED]),
    (agent_failed, [STOPPED]),
    (agent_cannot_work, ["agent-failed podslice-agent"]),
    (containers_failed, ["containers-failed batch.yaml", "containers-failed default/web"]),
    (containers_no_longer_kept, []),
    (not_applied_yet, [STOPPED, "pod-pending default/batch", "pod-pending default/web"]),
    (changed_manifest_not_applied, [STOPPED, "pod-pending default/web"]),
    (manifest_removed_without_agent, [STOPPED, "pod-unwanted default/batch"]),
    (stuck, ["pod-stuck default/batch"]),
    (container_restarting, ["container-restarting default/web"]),
    (container_crashed, ["container-failed default/web"]),
    (container_killed, ["container-failed default/web"]),
    (container_oom_killed, ["container-oom-killed default/web"]),
    (container_done, []),
    (container_stopped, []),
    (container_crashed_in_the_foreground, []),
    (container_started_again, []),
    (service_of_a_container_failed, ["container-failed default/web"]),
    (service_in_a_pod_failed, ["container-failed default/web"]),
    (service_in_a_pod_restarts, ["container-restarting default/web"]),
    (service_elsewhere_failed, []),
    (podman_container_crashed, ["container-failed default/web"]),
    (podman_container_oom_killed, ["container-oom-killed default/web"]),
    (podman_containers_stopped, []),
    (pod_restarting, ["pod-restarting default/web"]),
    (drop_in_outdated, ["drop-in-outdated default/web"]),
    (cpus_shared, ["cpus-shared default/own"]),
    (elsewhere, ["processes-elsewhere default/web"]),
    (orphan, ["orphan kubepods-podforeign.slice"]),
    (damaged_record, ["damaged-record other.json"]),
    (lost_record, ["pod-unrecorded default/web"]),
]


@pytest.mark.parametrize(
    ("prepare", "problems"),
    [pytest.param(*each, id=each[0].__name__) for each in SITUATIONS],
)
def test_the_exit_code_of_each_situation(machine, prepare, problems):
    prepare(machine)
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
        (agent_stopped, "it is not running; changes in {} are not applied"),
        (agent_failed, "it has failed"),
        (pod_restarting, "podman cannot keep it active: 3 restarts"),
    ],
)
def test_a_service_that_does_not_run_is_described(machine, situation, message):
    situation(machine)
    document = json.loads(machine.podslice("status", "-o", "json").out)
    (problem,) = document["problems"]
    assert problem["message"] == message.format(machine.directory)


def test_a_pod_may_restart_a_few_times(machine):
    pod_restarting(machine)
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
    machine.put("web", {"cpu": "600m"})
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
    machine.put("web", {"cpu": "600m"})
    assert commands(machine)["pod-pending"] == ["podslice", "apply", "-f", source]
    machine.store.remove("web")
    assert commands(machine)["pod-unrecorded"] == ["podslice", "apply", "-f", source]
    manifest_removed_without_agent(machine)
    assert commands(machine)["pod-unwanted"] == ["podslice", "delete", "default/batch"]
    machine.agent()
    machine.set(WEB, CPUWeight=1)
    # the agent does it
    assert commands(machine) == {"unit-differs": None}


def test_the_remedy_for_a_pod_with_quadlets_and_without_a_manifest(machine):
    by_hand(machine)
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
    by_hand(machine)
    machine.exit_in_podman(9, restarts=2)
    message = "has failed with exit code 9, 2 restarts\n"
    assert message in machine.podslice("status").out


def test_a_directory_that_the_user_may_not_read_is_a_note(machine, monkeypatch):
    by_hand(machine)
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
