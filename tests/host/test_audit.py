"""`podslice audit` of a stand-in for a kubelet, on a real systemd; in the VM also of the kernel's files."""

import json

import pytest

from tests.host import agent, kubelet_node
from tests.host.kubelet_node import (
    BESTEFFORT,
    BURSTABLE,
    CONFIG_FILE,
    LEVEL,
    LEVEL_SET,
    ROOT,
    SMALL,
    UNIT,
    URL,
    is_active,
    level_values,
    pod,
    synchronize,
    with_annotation,
    write_state,
)
from tests.host.podman import LONG_SEC
from tests.lab import extras
from tests.lab.machine import START_SERVICE
from tests.lab.recipe import DEFAULT_SUITE

WAIT_SEC = 120.0
PODS = [
    pod("g", {"limits": {"cpu": "200m", "memory": "64Mi"}}),
    pod("b", SMALL, {"limits": {"cpu": "500m", "memory": "32Mi"}}),
    pod("open", {"requests": {"cpu": "70m"}}, SMALL),
    pod("e", {}),
]
G, B, OPEN, E = (
    "kubepods-pod0000_g.slice",
    "kubepods-burstable-pod0000_b.slice",
    "kubepods-burstable-pod0000_open.slice",
    "kubepods-besteffort-pod0000_e.slice",
)
FAULTS = {
    ROOT: {"MemoryMax": "16G", "TasksMax": "infinity", "CPUWeight": "7"},
    BURSTABLE: {"CPUWeight": "99", "MemoryHigh": "900M"},
    BESTEFFORT: {"CPUWeight": "50", "MemoryMax": "100M"},
    G: {"MemoryMax": "infinity", "CPUQuota": "", "TasksMax": "infinity", "CPUWeight": "9"},
    B: {"MemoryMax": "256M", "CPUQuota": "150%"},
    OPEN: {"MemoryLow": "8M", "TasksMax": "9"},
    E: {"MemoryMax": "64M", "CPUQuota": "10%"},
}
"""Values that are set by hand: 17 faults; a container's makes 19, and two units make 21."""
MISSING = {(ROOT, "TasksMax"), (G, "MemoryMax"), (G, "CPUQuotaPerSecUSec"), (G, "TasksMax")}


@pytest.fixture
def kubelet(clean_machine):
    """A machine with a stand-in for a kubelet, and its pods."""
    kubelet_node.start(clean_machine, PODS)
    yield clean_machine
    kubelet_node.stop(clean_machine)


def audit(machine):
    """Return the findings as (kind, object, property) and the scopes by pod and container."""
    ended = machine.podslice(
        *("audit", "--kubelet", URL, f"--kubelet-config={CONFIG_FILE}", "-o", "json"), check=False
    )
    assert ended.stderr == ""
    document = json.loads(ended.stdout)
    problems = [each for each in document["findings"] if not each["known"]]
    assert ended.exit_code == (3 if problems else 0)
    scopes = {
        (each["pod"], each["container"]): each["unit"]
        for each in document["units"]
        if each["container"]
    }
    return {(each["kind"], each["object"], each["property"]) for each in problems}, scopes


def change(machine, unit, **values):
    words = (f"{name}={value}" for name, value in values.items())
    machine.run("systemctl", "set-property", "--runtime", unit, *words)


@pytest.mark.namespace
def test_every_fault_that_systemd_shows_is_found_at_once(kubelet):
    found, scopes = audit(kubelet)
    assert found == set()
    assert len(scopes) == 6
    for unit, values in FAULTS.items():
        change(kubelet, unit, **values)
    scope, ended = scopes["default/b", "c0"], scopes["default/open", "c1"]
    change(kubelet, scope, CPUWeight="500", MemoryMax="64M")
    kubelet.run("systemctl", "stop", ended)
    orphan = "kubepods-pod0000_gone.slice"
    kubelet.run("systemctl", "start", orphan)
    expected = {(unit, name) for unit, values in FAULTS.items() for name in values}
    expected |= {(scope, "CPUWeight"), (scope, "MemoryMax")}
    found, _ = audit(kubelet)
    quota = "CPUQuotaPerSecUSec"
    properties = {(unit, quota if name == "CPUQuota" else name) for unit, name in expected}
    assert found == {
        *(("limit-missing" if each in MISSING else "value-changed", *each) for each in properties),
        ("container-outside", ended, None),
        ("unit-orphaned", orphan, None),
    }
    assert len(found) >= 20
    kubelet.run("systemctl", "stop", orphan)


@pytest.mark.cgroup2
def test_all_that_is_below_the_root_and_not_the_kubelets_is_found(kubelet):
    """Of cgroup v2, in whose hierarchy alone podslice looks."""
    found, scopes = audit(kubelet)
    assert found == set()
    scope, mount = scopes["default/b", "c0"], "/sys/fs/cgroup"
    sleep = ("sleep", str(LONG_SEC))
    for unit, slice_ in (("greedy", ROOT), ("greedy2", BURSTABLE), ("moved", "system.slice")):
        placed = ("--property=CPUWeight=10000", f"--slice={slice_}", f"--unit={unit}")
        kubelet.run(*START_SERVICE, *placed, *sleep)
    pid = kubelet.run("systemctl", "show", "-P", "MainPID", "moved").stdout.strip()
    groups = {
        unit: kubelet.run("systemctl", "show", "-P", "ControlGroup", unit).stdout.strip()
        for unit in (scope, B)
    }
    kubelet.run("sh", "-c", f"echo {pid} >{mount}{groups[scope]}/cgroup.procs")
    kubelet.run("systemctl", "start", "kubepods-mine.slice")
    kubelet.run("mkdir", f"{mount}/{ROOT}/mine", f"{mount}{groups[B]}/mine.scope")
    kubelet.run("sh", "-c", f"echo 1 >{mount}{groups[B]}/cgroup.freeze")
    change(kubelet, B, AllowedCPUs="0", MemorySwapMax="0", IOWeight="50")
    change(kubelet, G, ManagedOOMMemoryPressure="kill")
    found, _ = audit(kubelet)
    assert found == {
        *(("unit-stray", f"greedy{each}.service", None) for each in ("", "2")),
        *(("unit-stray", each, None) for each in ("kubepods-mine.slice", "mine", "mine.scope")),
        ("process-stray", scope, None),
        ("value-changed", B, "cgroup.freeze"),
        *(("value-changed", B, name) for name in ("AllowedCPUs", "MemorySwapMax", "IOWeight")),
        ("value-changed", G, "ManagedOOMMemoryPressure"),
    }
    kubelet.run("sh", "-c", f"echo 0 >{mount}{groups[B]}/cgroup.freeze")
    kubelet.run("rmdir", f"{mount}/{ROOT}/mine", f"{mount}{groups[B]}/mine.scope")


@pytest.mark.namespace
def test_what_a_kubelet_corrects_itself_is_no_longer_found(kubelet):
    change(kubelet, BURSTABLE, CPUWeight="99")
    kubelet.run("systemctl", "stop", G)
    found, _ = audit(kubelet)
    assert {("value-changed", BURSTABLE, "CPUWeight"), ("unit-missing", G, None)} <= found
    synchronize(kubelet)
    agent.until(lambda: audit(kubelet)[0] == set(), WAIT_SEC)
    write_state(kubelet, [*PODS[:2], pod("new", SMALL)])
    synchronize(kubelet)
    agent.until(lambda: audit(kubelet)[0] == set() and len(audit(kubelet)[1]) == 4, WAIT_SEC)
    # the units remain, the kubelet's API does not
    kubelet.run("systemctl", "stop", UNIT)
    options = (f"--kubelet-config={CONFIG_FILE}", "--kubelet-version=1.36")
    ended = kubelet.podslice("audit", "--kubelet", URL, *options, check=False)
    assert ended.exit_code == 1
    assert "onnection refused" in ended.stderr


LEVELED = [
    {**pod("lv", {}, {}), "spec": {**pod("lv", {}, {})["spec"], "resources": LEVEL}},
    with_annotation(pod("an", SMALL, {})),
    with_annotation(pod("ow", SMALL, {})),
]
"""Pods with a pod level in the spec, and in an annotation."""
FEW = [*PODS[:2], *LEVELED[:2]]
"""For the virtual machine."""
LV, AN, OW = (
    "kubepods-besteffort-pod0000_lv.slice",
    "kubepods-burstable-pod0000_an.slice",
    "kubepods-burstable-pod0000_ow.slice",
)
REJECTED = ("pod-level-rejected", "default/lv", None)
"""The stand-in runs this pod, which a kubelet of its version rejects."""
LEVEL_SOCKET = "/run/podslice/kubelet/agent.sock"
WAITING = {name: {"state": {"waiting": {}}} for name in ("c0", "c1")}


def runtime_pod(statuses):
    """Return a pod whose containers something else than the stand-in starts, with their statuses."""
    listed = [{"name": name, **each} for name, each in statuses.items()]
    return {**pod("rc", SMALL, SMALL), "status": {"containerStatuses": listed}}


RC = "kubepods-burstable-pod0000_rc.slice"
TIER_WEIGHT = "30"
"""What the kubelet sets for the requests of all Burstable pods."""
UNCHANGED = (G, B, OPEN, E, ROOT, BURSTABLE, BESTEFFORT)
DROP_IN = "units/examples/podslice-agent.service.d/kubelet.conf"
DROP_IN_FILE = f"/run/systemd/system/{agent.UNIT}.d/kubelet.conf"
CONFIGURATION = "/etc/podslice/podslice.toml"
ALLOWED = 'pods-from = "kubelet"\nallow-kubelet-slices = true\n'


@pytest.fixture
def follower(clean_machine):
    """A machine with the stand-in for a kubelet without pod levels, and an agent that follows it."""
    machine = clean_machine
    agent.begin(machine)
    pods = [*FEW, runtime_pod(WAITING)] if machine.kind == "vm" else [*PODS, *LEVELED]
    kubelet_node.start(machine, pods, version="v1.33.0")
    machine.put(CONFIGURATION, ALLOWED)
    text = (agent.ROOT / DROP_IN).read_text()
    at, _, rest = text.partition("ExecStart=/usr/bin/podslice")
    command = (
        "ExecStart=/usr/bin/python3 -m podslice agent $AGENT_OPTIONS"
        f" --kubelet {URL} --kubelet-config {CONFIG_FILE}\n"
    )
    machine.put(DROP_IN_FILE, at + command + rest.partition("kubelet.crt\n")[2])
    yield machine
    agent.remove(machine)
    machine.run("rm", "-f", DROP_IN_FILE, CONFIGURATION)
    machine.run("systemctl", "daemon-reload")
    kubelet_node.stop(machine)
    if machine.kind == "vm":
        # runc and the stand-in enable all controllers, which other tests do not expect
        machine.run("sh", "-c", "echo -hugetlb > /sys/fs/cgroup/cgroup.subtree_control")


def applied(machine):
    """Return the pods whose level the agent has applied."""
    return {each["PODSLICE_POD"] for each in agent.events(machine, "pod-level-applied")}


@pytest.mark.namespace
def test_pod_levels_are_applied_kept_and_removed(follower):
    machine = follower
    before = level_values(machine, LV, AN, OW)
    # the kubelet updates the tiers after it has created the pods
    agent.until(lambda: level_values(machine, BURSTABLE)["CPUWeight"] == TIER_WEIGHT)
    others = level_values(machine, *UNCHANGED)
    assert before[LV]["MemoryMax"] == before[AN]["MemoryMax"] == "infinity"
    change(machine, OW, MemoryMax="77M")  # neither the kubelet's value nor that of the pod level
    agent.start(machine, "--restore")
    agent.until(
        lambda: level_values(machine, LV) == level_values(machine, AN) == LEVEL_SET, WAIT_SEC
    )
    own = {**LEVEL_SET, "MemoryMax": str(77 * 2**20)}
    agent.until(lambda: level_values(machine, OW) == own, WAIT_SEC)
    (left,) = agent.until(lambda: agent.events(machine, "pod-level-left"))
    assert (left["PODSLICE_UNIT"], left["PODSLICE_REASON"]) == (OW, "other-value")
    # the values are set before the events
    agent.until(lambda: applied(machine) == {"default/lv", "default/an", "default/ow"})
    document = json.loads(agent.ask(machine, "/pod-levels", LEVEL_SOCKET))
    assert {each["unit"] for each in document["applied"]} == {LV, AN, OW}
    assert "podslice_pod_levels_applied 3.0" in agent.ask(machine, "/metrics", LEVEL_SOCKET)
    assert audit(machine)[0] == {("value-changed", OW, "MemoryMax")}

    machine.run("systemctl", "daemon-reload")
    assert level_values(machine, LV) == level_values(machine, AN) == LEVEL_SET
    # a slice that the kubelet creates again has the kubelet's values first
    machine.run("systemctl", "stop", AN)
    machine.run("systemctl", "restart", UNIT)
    agent.until(lambda: is_active(machine, AN) and level_values(machine, AN) == LEVEL_SET, WAIT_SEC)
    # a kubelet that sets its own values again
    change(machine, LV, MemoryMax="infinity", CPUQuota="")
    agent.hang_up(machine)
    agent.until(lambda: level_values(machine, LV) == LEVEL_SET, WAIT_SEC)

    machine.run("systemctl", "stop", agent.UNIT)
    assert level_values(machine, LV, AN) == {unit: before[unit] for unit in (LV, AN)}
    assert level_values(machine, OW) == {**before[OW], "MemoryMax": own["MemoryMax"]}
    assert level_values(machine, *UNCHANGED) == others
    failed = agent.events(machine, "agent-failed")  # while the kubelet was restarted
    assert all(each["MESSAGE"].startswith(f"{URL}/") for each in failed)
    assert agent.events(machine, "pod-level-removed")


RESOURCES = {
    "cpu_shares": 51,
    "cpu_quota": 10_500,
    "cpu_period": 100_000,
    "memory_limit_in_bytes": 32 * 2**20,
    "memory_swap_limit_in_bytes": 32 * 2**20,
    "unified": {"memory.oom.group": "1"},
}
"""What the kubelet asks the container runtime for, for `SMALL`."""
ROOTFS = """
mkdir -p /rootfs/bin
cp /usr/bin/busybox /rootfs/bin/sleep
"""
IMAGE, SNAPSHOTTER = "localhost/app:1", "native"
CONTAINERD_CONFIGURATION = f"""
version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{IMAGE}"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{SNAPSHOTTER}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
"""
UNTIL_SERVED = f'until busybox wget -q -O - {URL}/pods | grep -q "$1"; do sleep 0.3; done'
CONTAINERD, ELSEWHERE = "containerd.service", "elsewhere.slice"
SANDBOXES = [
    {"name": "rc", "parent": RC, "containers": {"c0": RESOURCES}},
    {"name": "elsewhere", "parent": ELSEWHERE, "containers": {"c1": RESOURCES}},
]
"""One in the slice of its pod, and one elsewhere."""


@pytest.fixture
def containers(follower):
    """The machine with two containers of a pod, started by containerd and runc; and their IDs."""
    machine = follower
    extras.unpack(machine, DEFAULT_SUITE, ("containerd", "python3-grpcio"))
    machine.put("/etc/containerd/config.toml", CONTAINERD_CONFIGURATION)
    machine.run("systemctl", "start", CONTAINERD)
    machine.run("sh", "-ec", ROOTFS)
    command = ("python3", "/src/tests/host/cri.py", "/rootfs", IMAGE, SNAPSHOTTER)
    started = machine.run(*command, json.dumps(SANDBOXES))
    ids = json.loads(started.stdout)
    statuses = {
        name: {"containerID": f"containerd://{id_}", "state": {"running": {}}}
        for name, id_ in ids.items()
    }
    write_state(machine, [*FEW, runtime_pod(statuses)], "v1.33.0")
    synchronize(machine)
    machine.run("sh", "-c", UNTIL_SERVED, "sh", ids["c0"])
    yield machine, ids
    # the containers ignore SIGTERM
    machine.run("systemctl", "kill", "--signal=SIGKILL", ELSEWHERE, RC)
    machine.run("systemctl", "stop", CONTAINERD, ELSEWHERE, RC)
    machine.run("rm", "-r", "/rootfs", "/var/lib/containerd", "/etc/containerd")


def plant(machine, scope):
    """Write files of control groups; return the findings."""
    groups = {
        G: f"/{ROOT}/{G}",
        BURSTABLE: f"/{ROOT}/{BURSTABLE}",
        scope: f"/{ROOT}/{BURSTABLE}/{B}/{scope}",
    }
    faults = (
        ("file-changed", G, "MemoryMax", "memory.max", "max"),
        ("file-changed", G, "CPUQuotaPerSecUSec", "cpu.max", "max"),
        ("file-changed", G, "TasksMax", "pids.max", "max"),
        ("file-changed", BURSTABLE, "CPUWeight", "cpu.weight", "100"),
        ("file-changed", BURSTABLE, "MemoryHigh", "memory.high", "100000000"),
        ("file-changed", scope, "CPUWeight", "cpu.weight", "7"),
        ("value-changed", scope, "memory.oom.group", "memory.oom.group", "0"),
        ("value-changed", scope, "MemorySwapMax", "memory.swap.max", "max"),
    )
    for _, unit, _, file, text in faults:
        machine.put(f"/sys/fs/cgroup{groups[unit]}/{file}", text)
    return {(kind, unit, name) for kind, unit, name, _, _ in faults}


def level_files(machine, tier, unit):
    """Return what the kernel has for the properties of a pod level."""
    files = ("cpu.max", "cpu.weight", "memory.low", "memory.max")
    group = f"/sys/fs/cgroup/{ROOT}/{tier}/{unit}"
    return tuple(machine.run("cat", *(f"{group}/{file}" for file in files)).stdout.splitlines())


@pytest.mark.cgroup2
def test_the_kernel_has_what_an_audit_compares_and_what_the_agent_sets(containers):
    machine, ids = containers
    found, scopes = audit(machine)
    # the container inside is as expected
    known = {
        REJECTED,
        ("container-outside", f"cri-containerd-{ids['c1']}.scope", None),
    }
    assert found == known
    assert scopes["default/rc", "c0"] == f"cri-containerd-{ids['c0']}.scope"
    planted = plant(machine, scopes["default/b", "c0"])
    assert audit(machine)[0] == known | planted

    pods = ((BESTEFFORT, LV), (BURSTABLE, AN))
    before = [level_files(machine, *each) for each in pods]
    assert before == [("max 100000", weight, "0", "max") for weight in ("1", "2")]
    applied = [("100000 100000", "20", "25165824", "134217728")] * 2
    agent.start(machine, "--restore")
    agent.until(lambda: [level_files(machine, *each) for each in pods] == applied, WAIT_SEC)
    machine.run("systemctl", "daemon-reload")
    assert [level_files(machine, *each) for each in pods] == applied
    machine.run("systemctl", "stop", agent.UNIT)
    assert [level_files(machine, *each) for each in pods] == before
