"""The agent on a real systemd: manifests, drift, and failures around it."""

import json
import os
import sys

import pytest

from tests.host import agent
from tests.host.agent import WEB, is_active
from tests.host.chaos import FEWEST, Chaos
from tests.host.scenario import records, show, units
from tests.lab.demo import PROGRAM

BURST = int(os.environ.get("PODSLICE_BURST", "25"))


@pytest.fixture
def node(clean_machine):
    """A machine whose agent is removed at the end."""
    agent.begin(clean_machine)
    yield clean_machine
    agent.remove(clean_machine)
    clean_machine.podslice("delete", "--all", "--grace-period", "0", check=False)


def is_healthy(machine):
    """Return the result of `status` if it lists no problem."""
    done = machine.podslice("status", check=False)
    return done if done.exit_code == 0 else None


@pytest.mark.namespace
def test_a_manifest_has_its_slice_once_the_agent_is_ready(node):
    agent.start(node)
    agent.put(node, "web", agent.manifest("web"))
    agent.until(lambda: is_active(node, WEB))
    agent.put(node, "web", agent.manifest("web", limit="96Mi"))
    agent.until(lambda: show(node, WEB, "MemoryMax") == {"MemoryMax": str(96 * 2**20)})
    node.run("rm", f"{agent.MANIFESTS}/web.yaml")
    agent.until(lambda: not records(node) and not is_active(node, WEB))


@pytest.mark.namespace
@pytest.mark.parametrize("how", [["set-property", "--runtime", WEB, "CPUWeight=77"], ["stop", WEB]])
def test_external_changes_are_repaired(node, how):
    agent.put(node, "web", agent.manifest("web"))
    agent.start(node)
    node.run("systemctl", *how)
    agent.until(lambda: agent.events(node, "drift-repaired"))
    expected = {"CPUWeight": "1", "ActiveState": "active"}
    agent.until(lambda: show(node, WEB, "CPUWeight", "ActiveState") == expected)


@pytest.mark.namespace
def test_usage_is_recorded_from_within_the_sandbox(node):
    agent.put(node, "web", agent.manifest("web"))
    agent.start(node)
    history = "/var/lib/podslice/usage/pods/default/web"
    # the first sample is taken within a second after the first round, and written at the end
    agent.until(lambda: is_active(node, WEB))
    agent.until(lambda: _is_written(node, history))
    found = json.loads(node.get(history))
    assert found["version"] == 1
    done = node.podslice("recommend", "web", check=False)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "default/web: no usage is recorded yet" in done.stderr


def _is_written(node, path):
    """Let the agent write what it has recorded so far; return whether there is a file."""
    node.run("systemctl", "restart", agent.UNIT)
    return node.run("test", "-e", path, check=False).exit_code == 0


@pytest.mark.namespace
def test_an_invalid_manifest_affects_no_other_pod(node):
    agent.put(node, "web", agent.manifest("web"))
    agent.put(node, "other", agent.manifest("other"))
    agent.start(node)
    agent.put(node, "web", "kind: Pod\nmetadata: {name: web\n")
    (event,) = agent.until(lambda: agent.events(node, "manifest-broken"))
    assert "/etc/podslice/manifests/web.yaml" in event["MESSAGE"]
    agent.put(node, "other", agent.manifest("other", limit="80Mi"))
    agent.until(lambda: "podslice_broken_manifests 1.0" in agent.ask(node, "/metrics"))
    assert is_active(node, WEB)
    status = node.podslice("status", check=False)
    assert "web.yaml" in status.stdout + status.stderr
    assert len(records(node)) == 2
    agent.put(node, "web", agent.manifest("web"))
    agent.until(lambda: agent.events(node, "manifest-valid"))
    # several events within a second are handled by one round
    agent.until(lambda: "podslice_broken_manifests 0.0" in agent.ask(node, "/metrics"))
    status = node.podslice("status")
    assert "web.yaml" not in status.stdout + status.stderr


@pytest.mark.namespace
def test_what_keeps_containers_from_running_is_a_problem(node):
    files = "/usr/bin/podslice", "/etc/podslice/podslice.toml"
    node.put(files[0], PROGRAM, mode=0o755)
    node.put(files[1], 'containers = "quadlet"\n')
    container = {"name": "main", "image": "app"}
    agent.put(node, "web", agent.manifest("web", containers=[container]))
    path = f"{agent.MANIFESTS}/web.yaml"
    node.run("chmod", "o+w", path)
    agent.start(node)
    (event,) = agent.until(lambda: agent.events(node, "step-failed"))
    assert event["MESSAGE"].startswith(f"{path}: its containers are not updated: users other")
    status = node.podslice("status", "-o", "json", check=False)
    assert status.exit_code == 3
    (problem,) = json.loads(status.stdout)["problems"]
    assert (problem["kind"], problem["object"]) == ("containers-failed", path)
    # the remedy takes effect; there is no podman here
    node.run("chmod", "go-w", path)
    agent.until(lambda: "install podman" in node.podslice("status", check=False).stdout)
    node.run("rm", *files)


@pytest.mark.namespace
def test_a_pod_that_the_rules_refuse_is_an_invalid_manifest(node):
    beyond = agent.manifest("web", resources={"limits": {"memory": "32Mi"}})
    agent.put(node, "web", beyond)
    agent.start(node, "--rules=kubernetes")
    (event,) = agent.until(lambda: agent.events(node, "manifest-broken"))
    assert "64Mi is more than the pod's limit of 32Mi" in event["MESSAGE"]
    assert "podslice_broken_manifests 1.0" in agent.ask(node, "/metrics")
    agent.put(node, "web", agent.manifest("web"))
    agent.until(lambda: agent.events(node, "manifest-valid") and is_active(node, WEB))


@pytest.mark.namespace
def test_the_agent_exits_at_once_and_leaves_the_pods(node):
    """systemd waits for 10 s (TimeoutStopSec); after that the result is `timeout`."""
    agent.put(node, "web", agent.manifest("web"))
    agent.start(node)
    node.run("systemctl", "stop", agent.UNIT)
    assert is_active(node, WEB)
    assert show(node, agent.UNIT, "Result") == {"Result": "success"}


@pytest.mark.namespace
def test_a_reload_reads_the_configuration(node):
    agent.put(node, "web", agent.manifest("web", cpu="1"))
    agent.start(node)
    assert show(node, WEB, "CPUWeight") == {"CPUWeight": "100"}
    node.put("/etc/podslice/podslice.toml", 'cpu-weight-mapping = "kubelet"\n')
    node.run("systemctl", "reload", agent.UNIT)
    agent.until(lambda: show(node, WEB, "CPUWeight") == {"CPUWeight": "39"})
    node.put("/etc/podslice/podslice.toml", 'cpu-weight-maping = "kubelet"\n')
    assert node.run("systemctl", "reload", agent.UNIT, check=False).exit_code == 1
    # only the signal, without the check that precedes a reload
    agent.hang_up(node)
    (event,) = agent.until(lambda: agent.events(node, "agent-failed"))
    assert "cpu-weight-maping" in event["MESSAGE"]
    assert "cpu-weight-mapping" in event["MESSAGE"]
    assert show(node, WEB, "CPUWeight") == {"CPUWeight": "39"}
    node.run("rm", "/etc/podslice/podslice.toml")


def lose_slowly(node, grace_sec):
    """Remove a pod with a process that ignores SIGTERM; return the event."""
    agent.put(node, "web", agent.manifest("web", terminationGracePeriodSeconds=grace_sec))
    agent.start(node)
    return agent.terminate_slowly(node)


@pytest.mark.namespace
def test_a_pod_that_terminates_slowly_delays_no_other_pod(node):
    event = lose_slowly(node, 300)
    assert event["PODSLICE_POD"] == "default/web"
    assert "of pod default/web, up to 300 s" in event["MESSAGE"]
    agent.put(node, "next", agent.manifest("next"))
    # a record precedes the values of the slices
    shown = agent.until(lambda: is_healthy(node))
    assert len(records(node)) == 2
    assert "pod default/web is terminating" in shown.stderr
    other = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "byhand"}, "spec": {}}
    other["spec"]["containers"] = [{"name": "main"}]
    node.podslice("apply", "-f", "-", input=json.dumps(other))
    # the new pod is started once the old one has terminated
    agent.put(node, "web", agent.manifest("web", limit="96Mi"))
    assert is_active(node, WEB)
    assert not agent.events(node, "pod-removed")
    node.run("systemctl", "kill", "--signal=KILL", WEB)
    (event,) = agent.until(lambda: agent.events(node, "pod-removed"))
    assert event["PODSLICE_UNIT"] == WEB
    agent.until(lambda: show(node, WEB, "MemoryMax") == {"MemoryMax": str(96 * 2**20)})
    assert not agent.events(node, "drift-repaired", "step-failed", "pod-stuck")
    assert len(records(node)) == 3


@pytest.mark.namespace
def test_a_new_agent_completes_the_termination_of_pods(node):
    lose_slowly(node, 300)
    node.run("systemctl", "stop", agent.UNIT)
    assert show(node, agent.UNIT, "Result") == {"Result": "success"}
    assert is_active(node, WEB)
    node.run("systemctl", "start", agent.UNIT)
    agent.until(lambda: len(agent.events(node, "pod-terminating")) == 2)
    node.run("systemctl", "kill", "--signal=KILL", WEB)
    agent.until(lambda: not is_active(node, WEB) and not records(node))
    assert not agent.events(node, "step-failed", "drift-repaired", "pod-stuck")


@pytest.mark.namespace
def test_applied_pods_stay_beside_those_of_manifests(node):
    agent.start(node)
    node.podslice("apply", "-f", "-", input=agent.manifest("byhand"))
    agent.put(node, "web", agent.manifest("web"))
    agent.until(lambda: len(records(node)) == 2)
    node.run("rm", f"{agent.MANIFESTS}/web.yaml")
    agent.until(lambda: len(records(node)) == 1)
    node.podslice("delete", "byhand")
    assert not records(node)


def test_a_thousand_random_events(node):
    """A part of them, unless PODSLICE_EVENTS overrides the number; in the vm with fewer pods.

    The agent notices each of them: it compares all units only every hour.
    """
    is_fast = node.kind == "namespace"
    events = int(os.environ.get("PODSLICE_EVENTS", "250" if is_fast else "25"))
    # with this seed nearly every kind of event is among the few, too
    chaos = Chaos(node, seed=events if is_fast else events + 22)
    node.run("mkdir", "-p", "/run/podslice")
    node.run("mount", "-t", "tmpfs", "-o", "size=2m,mode=0755", "none", "/run/podslice")
    try:
        agent.install(node)
        node.run("sh", "-c", "\n".join(chaos.fill(110 if is_fast else FEWEST)))
        node.run("systemctl", "start", agent.UNIT)
        for _ in range(events // BURST):
            node.run("sh", "-c", "\n".join(chaos.burst(BURST)), timeout_sec=300)
            agent.until_quiet(node)
            agent.until(chaos.is_settled, explain=chaos.explain)
        sys.stdout.write(f"\n{node.kind}: {events} events {dict(sorted(chaos.counts.items()))}\n")
        assert is_fast or "jump" in chaos.counts  # only there
        assert len(records(node)) == len(chaos.good)
        pods = [unit for unit in units(node) if "-pod" in unit and unit.startswith("kubepods")]
        assert len(pods) == len(chaos.good)
        found = agent.events(node)
        unexpected = {
            event["MESSAGE"]
            for event in found
            if int(event["PRIORITY"]) <= 4 and event.get("PODSLICE_EVENT") not in EXPECTED
        }
        assert not unexpected
    finally:
        agent.remove(node)
        node.run("umount", "/run/podslice")


EXPECTED = {
    "manifest-broken",
    "agent-failed",  # while there is no bus, or no room for a record
    "step-failed",  # interrupted by a daemon-reexec or a restart of the bus
    "drift-contested",
}
