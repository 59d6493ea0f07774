"""Eviction under real pressure: memory, storage and process ids run out in the virtual machine."""

import json

import pytest

from tests.host import agent
from tests.host.scenario import records, show
from tests.lab import fixtures

pytestmark = pytest.mark.cgroup2

WAIT = """
import os, sys, time
held = []
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""
"""Waits for a file before a pod grows."""
# It stops below the threshold of 100 MiB, and above what the kernel needs, which does not kill then,
# however late the agent is. `next_poll_usec`, which has tests of its own, computes how often the agent
# looks at a pod that grows.
EATER = f"""{WAIT}
def left():
    lines = dict(line.split(":") for line in open("/proc/meminfo"))
    return sum(int(lines[name].split()[0]) for name in ("MemFree", "Inactive(file)")) * 1024
while left() > 60 * 2**20:
    held.append(bytearray(4 * 2**20))
time.sleep(1e6)
"""
TIER = "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice"
# grows as fast as the kernel lets it
TIER_EATER = f"""{WAIT}
while True:
    held.append(bytearray(2**20))
"""
MAY_EAT = "/run/may-eat"
HOLDER = "import time; block = bytearray({} * 2**20); time.sleep(1e6)"
CONFIG_FILE = "/etc/podslice/podslice.toml"


@pytest.fixture(scope="module")
def machine_with_agent(module_machine):
    """A machine with an agent, whose start takes seconds in a virtual machine."""
    for machine in fixtures.keep_clean(module_machine):
        agent.begin(machine)
        agent.start(machine)
        yield machine
        agent.remove(machine)
        machine.run("rm", "-f", CONFIG_FILE)


@pytest.fixture
def node(machine_with_agent):
    """The same, without pods and conditions after the test."""
    agent.begin(machine_with_agent)
    yield machine_with_agent
    configure(machine_with_agent)
    machine_with_agent.run("sh", "-c", f"rm -rf {agent.MANIFESTS}/* /var/lib/filled {MAY_EAT}")
    agent.until(lambda: not (records(machine_with_agent) or conditions(machine_with_agent)))


def configure(machine, **options):
    """Let the agent have a configuration before it reads manifests that are written from now on."""
    options |= {"eviction_pressure_transition_period": "1s"}
    lines = [f"{name.replace('_', '-')} = {json.dumps(value)}\n" for name, value in options.items()]
    machine.put(CONFIG_FILE, "".join(lines))
    agent.hang_up(machine)


def run_in(machine, pod, *command):
    machine.podslice("run", "--detach", pod, "--", *command)


def conditions(machine):
    """Return the node's conditions that the agent has published; `status` prints these."""
    return json.loads(machine.get("/run/podslice/agent.json"))["conditions"]


def healthy_status(machine):
    """Return the document of `status` if it lists no problem."""
    done = machine.podslice("status", "-o", "json", check=False)
    return json.loads(done.stdout) if done.exit_code == 0 else None


def kills(machine):
    """Return the number of processes that the kernel has killed for lack of memory since the boot."""
    lines = machine.get("/proc/vmstat").decode().splitlines()
    return int(dict(line.split() for line in lines)["oom_kill"])


def guaranteed(name):
    amounts = {"cpu": "10m", "memory": "96Mi"}
    return manifest_of(name, {"requests": amounts, "limits": amounts})


def besteffort(name):
    return manifest_of(name, {})


def manifest_of(name, resources):
    spec = {"containers": [{"name": "main", "resources": resources}]}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    return json.dumps(document)


def test_the_pod_that_leaves_too_little_memory_is_evicted(node):
    configure(node, eviction_hard="memory.available<100Mi")
    agent.put(node, "calm", agent.manifest("calm", memory="64Mi", limit="4Gi"))
    agent.put(node, "guard", guaranteed("guard"))
    agent.put(node, "eater", agent.manifest("eater", limit="4Gi"))
    agent.until(lambda: len(records(node)) == 3)
    run_in(node, "calm", "python3", "-c", HOLDER.format(20))
    run_in(node, "guard", "python3", "-c", HOLDER.format(70))
    run_in(node, "eater", "python3", "-c", EATER, MAY_EAT)
    before = kills(node)
    node.put(MAY_EAT, "")
    (event,) = agent.until(lambda: agent.events(node, "pod-evicted"))
    assert event["PODSLICE_POD"] == "default/eater"
    assert event["PODSLICE_SIGNAL"] in {"memory.available", "allocatableMemory.available"}
    assert int(event["PODSLICE_REACTION_USEC"]) > 0
    agent.until(lambda: len(records(node)) == 2 and "MemoryPressure" not in conditions(node))
    assert kills(node) == before
    refused = node.podslice("apply", "-f", f"{agent.MANIFESTS}/eater.yaml", check=False)
    assert refused.exit_code == 1
    assert "podslice readmit default/eater" in refused.stdout
    node.podslice("readmit", "eater")
    agent.until(lambda: len(records(node)) == 3)
    # a record precedes the values of the slices
    status = agent.until(lambda: healthy_status(node))
    assert {"default/calm", "default/guard"} <= {unit.get("pod") for unit in status["units"]}


@pytest.fixture
def tier_node(node):
    """The same with a Burstable tier of 256 MiB, in which one pod waits for a file before it grows.

    The rest is reserved, or requested by the Guaranteed pod.
    """
    (total,) = (
        int(line.split()[1]) * 1024
        for line in node.get("/proc/meminfo").decode().splitlines()
        if line.startswith("MemTotal:")
    )
    configure(
        node,
        eviction_hard="",
        eviction_tier=["burstable=memory.available<20%"],
        qos_reserved="memory=100%",
        system_reserved=f"memory={total - (256 + 96) * 2**20}",
    )
    agent.put(node, "eater", agent.manifest("eater", limit="4Gi"))
    agent.put(node, "calm", agent.manifest("calm", memory="64Mi", limit="4Gi"))
    agent.put(node, "guard", guaranteed("guard"))
    agent.put(node, "batch", besteffort("batch"))
    agent.until(lambda: len(records(node)) == 4)
    # 10 % below it, in whole pages
    high = 256 * 2**20 * 9 // 10 // 4096 * 4096
    limits = {"MemoryMax": str(256 * 2**20), "MemoryHigh": str(high)}
    agent.until(lambda: show(node, "kubepods-burstable.slice", *limits) == limits)
    for pod, size_mib in (("calm", 20), ("guard", 40), ("batch", 20)):
        run_in(node, pod, "python3", "-c", HOLDER.format(size_mib))
    run_in(node, "eater", "python3", "-c", TIER_EATER, MAY_EAT)
    yield node
    node.run("rm", "-f", f"{agent.MANIFESTS}/eater.yaml")
    node.podslice("readmit", "eater", check=False)


def check_that_only_the_eater_ended(node, kills_before):
    (event,) = agent.until(lambda: agent.events(node, "pod-evicted"))
    assert event["PODSLICE_POD"] == "default/eater"
    assert event["PODSLICE_SIGNAL"] == "burstable.memory.available"
    agent.until(lambda: len(records(node)) == 3)
    (began,) = agent.events(node, "pressure-began")
    assert began["PODSLICE_CONDITION"] == "BurstableMemoryPressure"
    assert tier_events(node)["oom_kill"] == 0
    assert kills(node) == kills_before
    services = ("systemctl", "is-active", "podslice-pod*-main.service")
    assert node.run(*services, check=False).stdout.split() == ["active"] * 3


def tier_events(node):
    lines = node.get(f"{TIER}/memory.events").decode().splitlines()
    return {name: int(count) for name, count in map(str.split, lines)}


def test_a_tier_near_its_limit_evicts_its_own_pod_before_the_kernel_kills(tier_node):
    """It grows as fast as it can, and the agent may have to wait for a processor."""
    node = tier_node
    before = kills(node)
    node.put(MAY_EAT, "")
    check_that_only_the_eater_ended(node, before)

    # one that outruns the agent, which is stopped until the kernel has throttled the tier for seconds
    node.run("rm", MAY_EAT)
    agent.until(lambda: not conditions(node))
    agent.begin(node)
    node.podslice("readmit", "eater")
    agent.until(lambda: len(records(node)) == 4)
    run_in(node, "eater", "python3", "-c", TIER_EATER, MAY_EAT)
    high_before, throttled_before_sec = tier_events(node)["high"], throttled_sec(node)
    agent.until_quiet(node)
    signal_agent(node, "STOP")
    try:
        node.put(MAY_EAT, "")
        enough_sec = throttled_before_sec + 3
        agent.until(lambda: throttled_sec(node) > enough_sec or kills(node) > before)
        assert kills(node) == before
        assert tier_events(node)["high"] > high_before
        assert not agent.events(node, "pod-evicted")
    finally:
        signal_agent(node, "CONT")
    check_that_only_the_eater_ended(node, before)


def throttled_sec(node):
    """Return for how long some process of the tier has waited for memory."""
    some = node.get(f"{TIER}/memory.pressure").decode().splitlines()[0]
    return int(some.rpartition("total=")[2]) / 1e6


def signal_agent(node, name):
    node.run("systemctl", "kill", "--kill-whom=main", f"--signal={name}", agent.UNIT)


def test_the_pod_that_fills_the_disk_is_evicted(node):
    stat = node.run("df", "--output=avail", "-B1", "/var/lib").stdout.split()
    threshold = int(stat[-1]) - 32 * 2**20
    configure(node, eviction_hard=f"nodefs.available<{threshold}")
    agent.put(node, "writer", agent.manifest("writer"))
    agent.put(node, "calm", agent.manifest("calm"))
    agent.until(lambda: len(records(node)) == 2)
    run_in(node, "calm", "sleep", "100000")
    fill = "dd if=/dev/zero of=/var/lib/filled bs=1M count=64 conv=fsync; exec sleep 100000"
    run_in(node, "writer", "sh", "-c", fill)
    (event,) = agent.until(lambda: agent.events(node, "pod-evicted"))
    assert event["PODSLICE_POD"] == "default/writer"
    assert event["PODSLICE_SIGNAL"] == "nodefs.available"
    agent.until(lambda: len(records(node)) == 1)
    # a node that is short of storage admits no new pod
    agent.put(node, "late", agent.manifest("late"))
    (event,) = agent.until(
        lambda: [each for each in agent.events(node, "pod-refused") if "late" in each["MESSAGE"]]
    )
    assert "DiskPressure" in event["MESSAGE"]


def test_the_pod_that_forks_is_evicted(node):
    limits = [
        int(node.get(f"/proc/sys/kernel/{name}").decode()) for name in ("pid_max", "threads-max")
    ]
    running = int(node.get("/proc/loadavg").decode().split()[3].split("/")[1])
    threshold = min(limits) - running - 100
    configure(node, eviction_hard=f"pid.available<{threshold}")
    agent.put(node, "forker", agent.manifest("forker", limit="512Mi"))
    agent.put(node, "calm", agent.manifest("calm"))
    agent.until(lambda: len(records(node)) == 2)
    run_in(node, "calm", "sleep", "100000")
    run_in(node, "forker", "sh", "-c", "for i in $(seq 150); do sleep 100000 & done; wait")
    (event,) = agent.until(lambda: agent.events(node, "pod-evicted"))
    assert event["PODSLICE_POD"] == "default/forker"
    assert event["PODSLICE_SIGNAL"] == "pid.available"
    # the event precedes the end of the pod
    agent.until(lambda: len(records(node)) == 1)
    calm = show(node, "podslice-pod*-main.service", "ActiveState")
    assert calm == {"ActiveState": "active"}


def test_the_rest_of_a_pod_is_stopped_after_an_oom_kill(node):
    configure(node, oom_policy="pod")
    agent.put(node, "team", agent.manifest("team", limit="48Mi"))
    agent.until(lambda: records(node))
    before = kills(node)
    run_in(node, "team", "sh", "-c", "sleep 100000 & exec python3 -c 'bytearray(200 * 2**20)'")
    # the kernel kills the container's processes one after the other; the agent may look in between
    found = agent.until(lambda: agent.events(node, "pod-oom"))
    assert {event["PODSLICE_POD"] for event in found} == {"default/team"}
    slice_ = found[0]["PODSLICE_UNIT"]
    empty = {"ActiveState": "active", "TasksCurrent": "0"}
    agent.until(lambda: show(node, slice_, "ActiveState", "TasksCurrent") == empty)
    assert len(records(node)) == 1
    # none is reported twice
    totals = [int(event["PODSLICE_OOM_KILLS"]) for event in agent.events(node, "pod-oom")]
    assert totals == sorted(set(totals))
    assert totals[-1] <= kills(node) - before
