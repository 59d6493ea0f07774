"""What the agent follows: manifests, control groups and processes, with one agent for all tests."""

import json

import pytest

from tests.host import agent
from tests.host.agent import WEB, is_active
from tests.host.scenario import exists, kernel, show
from tests.lab import fixtures
from tests.lab.machine import START_SERVICE

SERVICE = "podslice-podweb.default-main.service"
RECORD = "/run/podslice/pods/web.default.json"


@pytest.fixture(scope="module")
def machine_with_agent(module_machine):
    """A machine with an agent, whose start takes seconds in a virtual machine."""
    for machine in fixtures.keep_clean(module_machine):
        agent.begin(machine)
        agent.start(machine, "--collect-orphans")
        yield machine
        agent.remove(machine)


@pytest.fixture
def node(machine_with_agent):
    """The same without pods, before and after the test."""
    agent.begin(machine_with_agent)
    yield machine_with_agent
    machine_with_agent.run("rm", "-f", f"{agent.MANIFESTS}/web.yaml")
    has_no_web(machine_with_agent)


def has_web(node):
    agent.until(lambda: is_active(node, WEB), what="the slice of web")


def has_no_web(node):
    agent.until(
        lambda: not exists(node, RECORD) and not is_active(node, WEB), what="the end of web"
    )


@pytest.mark.cgroup2
def test_a_limit_of_input_and_output_written_to_the_control_group_is_repaired(node):
    stated = {"io-weight": "200", "io-read-bandwidth-max": "/ 10Mi", "io-write-iops-max": "/ 500"}
    pod = json.loads(agent.manifest("web"))
    pod["metadata"]["annotations"] = {f"podslice.io/{key}": text for key, text in stated.items()}
    agent.put(node, "web", json.dumps(pod))
    agent.until(lambda: show(node, WEB, "IOWeight") == {"IOWeight": "200"})
    group = show(node, WEB, "ControlGroup")["ControlGroup"]
    limits = agent.until(lambda: kernel(node, group, "io.max"), what="the limits of the device")
    device, *values = limits.split()
    assert set(values) == {"rbps=10485760", "wbps=max", "riops=max", "wiops=500"}
    for file, text, right in (
        ("io.max", f"{device} rbps=4096", limits),
        ("io.weight", "default 77", "default 200"),
    ):
        node.run("sh", "-c", f"echo '{text}' > /sys/fs/cgroup{group}/{file}")
        agent.until(
            lambda file=file, right=right: kernel(node, group, file) == right,
            what=f"{file} as before",
        )
    (slice_,) = (
        each
        for each in json.loads(node.podslice("status", "-o", "json").stdout)["units"]
        if each["name"] == WEB
    )
    found = {each["name"]: each["kernel"] for each in slice_["properties"]}
    assert found["IOWeight"] == "200"
    assert found["IOReadBandwidthMax"] == f"{device} 10485760"
    assert found["IOWriteIOPSMax"] == f"{device} 500"


@pytest.mark.cgroup2
def test_a_limit_written_to_the_control_group_is_repaired(node):
    agent.put(node, "web", agent.manifest("web"))
    # a record precedes the values of the slice
    agent.until(lambda: show(node, WEB, "CPUWeight") == {"CPUWeight": "1"})
    group = show(node, WEB, "ControlGroup")["ControlGroup"]
    node.run("sh", "-c", f"echo 77 > /sys/fs/cgroup{group}/cpu.weight")
    agent.until(lambda: kernel(node, group, "cpu.weight") == "1")


@pytest.mark.namespace
def test_a_manifest_directory_is_followed_through_permissions_and_moves(node):
    def messages():
        return [event["MESSAGE"] for event in agent.events(node)]

    node.run("chmod", "0", agent.MANIFESTS)
    agent.until(lambda: any(f"{agent.MANIFESTS}: permission" in text for text in messages()))
    node.run("chmod", "755", agent.MANIFESTS)
    agent.put(node, "web", agent.manifest("web"))
    has_web(node)

    node.run("mv", agent.MANIFESTS, "/etc/podslice/old")
    has_no_web(node)
    node.run("mv", "/etc/podslice/old", agent.MANIFESTS)
    has_web(node)


def test_a_manifest_directory_is_followed_through_mounts(node):
    agent.put(node, "web", agent.manifest("web"))
    has_web(node)
    # in a container systemd leaves mounts private, so that none reaches its services
    reach = () if node.kind == "vm" else ("nsenter", f"--target={agent.pid(node)}", "--mount")
    node.run(*reach, "mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", agent.MANIFESTS)
    has_no_web(node)
    node.run(*reach, "umount", agent.MANIFESTS)
    has_web(node)


@pytest.mark.namespace
@pytest.mark.newest
def test_a_pod_is_killed_after_its_grace_period(node):
    agent.put(node, "web", agent.manifest("web", terminationGracePeriodSeconds=2))
    has_web(node)
    agent.terminate_slowly(node)
    has_no_web(node)
    assert not agent.events(node, "step-failed", "drift-repaired", "pod-stuck")


def problems(node):
    found = json.loads(node.podslice("status", "-o", "json", check=False).stdout)
    return [(each["kind"], each["message"]) for each in found["problems"]]


@pytest.mark.namespace
def test_containers_that_fail_are_reported(node):
    agent.put(node, "web", agent.manifest("web"))
    has_web(node)
    node.podslice("run", "web", "--detach", "--", "sh", "-c", "exit 7")
    (event,) = agent.until(lambda: agent.events(node, "container-failed"))
    assert event["MESSAGE"] == "container main of pod default/web has failed: exit code 7"
    failed = ("container-failed", "container main has failed with exit code 7")
    assert failed in problems(node)

    # a service that systemd starts again until its limit is reached
    restart = ("--property=Restart=always", "--property=RestartSec=20ms")
    start = ("systemd-run", "--quiet", f"--unit={SERVICE}", f"--slice={WEB}", *restart)
    node.run(*start, "sh", "-c", "exit 3")
    agent.until(lambda: len(agent.events(node, "container-failed")) == 2)
    count = show(node, SERVICE, "NRestarts")["NRestarts"]
    restarted = agent.until(lambda: agent.events(node, "container-restarted"))
    agent.until(lambda: agent.events(node, "container-restarted")[-1]["PODSLICE_RESTARTS"] == count)
    assert {each["PODSLICE_CONTAINER"] for each in restarted} == {"main"}
    assert "container-failed" in [kind for kind, _ in problems(node)]
    node.run("systemctl", "reset-failed", SERVICE)

    # another service in the pod, as administrators place one there
    node.run(*start[:2], "--unit=beside", f"--slice={WEB}", "sh", "-c", "exit 4")
    message = "container beside.service has failed with exit code 4"
    agent.until(lambda: ("container-failed", message) in problems(node))
    event = agent.until(lambda: agent.events(node, "container-failed")[2:])[0]
    text = "container beside.service of pod default/web has failed: exit code 4"
    assert (event["MESSAGE"], event["PODSLICE_UNIT"]) == (text, "beside.service")
    node.run("systemctl", "reset-failed", "beside.service")
    assert message not in [text for _, text in problems(node)]


LG = "/etc/systemd/system/lg.service"
ADOPTED = """\
[Unit]
StartLimitIntervalSec=0
[Service]
ExecStart=sh -c 'if test -e /run/lg; then rm /run/lg; exit 5; else sleep infinity; fi'
Restart=on-failure
RestartSec=0
"""


@pytest.fixture
def adopted(node):
    """An adopted service that systemd starts again at once; it fails if /run/lg exists."""
    agent.put(node, "web", agent.manifest("web"))
    has_web(node)
    node.put(LG, ADOPTED)
    node.run("systemctl", "daemon-reload")
    node.podslice("adopt", "web", "lg")
    node.run("systemctl", "start", "lg.service")
    agent.until(
        lambda: 'container="lg",namespace="default",pod="web"' in agent.ask(node, "/metrics")
    )
    yield node
    node.run("systemctl", "stop", "lg.service")
    node.podslice("release", "lg")
    node.run("sh", "-c", f"rm {LG}; systemctl reset-failed; systemctl daemon-reload")


@pytest.mark.namespace
def test_adopted_services_that_fail_are_reported(adopted):
    node = adopted
    # a restart that is over within a moment has its reason
    for number in (1, 2):
        node.run("sh", "-c", "touch /run/lg && systemctl kill --signal=KILL lg.service")
        count = str(2 * number)
        agent.until(lambda count=count: show(node, "lg.service", "NRestarts")["NRestarts"] == count)
        agent.until(lambda count=count: restarts(node)[-1:] == [count])
    texts = [each["MESSAGE"] for each in agent.events(node, "container-restarted")]
    assert (
        "container lg of pod default/web was restarted after exit code 5: 4 restarts" in texts[-1]
    )
    assert {each["PODSLICE_UNIT"] for each in agent.events(node, "container-restarted")} == {
        "lg.service"
    }

    node.run("sh", "-c", "mkdir -p /run/systemd/system/lg.service.d")
    limit = "/run/systemd/system/lg.service.d/60-limit.conf"
    node.put(limit, "[Service]\nRestart=no\n")
    node.run("systemctl", "daemon-reload")
    node.run("sh", "-c", "touch /run/lg; systemctl restart lg.service")
    (event,) = agent.until(lambda: agent.events(node, "container-failed"))
    node.run("rm", limit)
    assert event["MESSAGE"] == "container lg of pod default/web has failed: exit code 5"
    assert (event["PODSLICE_CONTAINER"], event["PODSLICE_EXIT_STATUS"]) == ("lg", "5")
    assert ("container-failed", "container lg has failed with exit code 5") in problems(node)
    counted = {f'podslice_events_total{{kind="container-failed"}} {each}.0' for each in range(1, 9)}
    agent.until(lambda: counted & {*agent.ask(node, "/metrics").split("\n")})


def restarts(node):
    return [each["PODSLICE_RESTARTS"] for each in agent.events(node, "container-restarted")]


@pytest.mark.namespace
@pytest.mark.newest
def test_orphans_are_reported_and_with_collect_orphans_removed(node):
    agent.put(node, "web", agent.manifest("web"))
    has_web(node)
    orphan = "kubepods-podaa_bb.slice"
    node.run(*START_SERVICE, f"--slice={orphan}", "sleep", "1000")
    (event,) = agent.until(lambda: agent.events(node, "orphan-found"))
    assert event["PODSLICE_UNIT"] == orphan
    assert "sleep" in event["MESSAGE"]
    agent.until(lambda: agent.events(node, "orphan-removed"))
    assert not is_active(node, orphan)
