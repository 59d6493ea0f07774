"""apply and related verbs on a real systemd, in namespaces and in the virtual machine."""

import json
import random

import pytest

from tests.host.scenario import (
    BIG,
    GI,
    SEED,
    SHARED,
    apply,
    control_groups,
    explained,
    kernel,
    pods,
    records,
    show,
    units,
)
from tests.lab.machine import START_SERVICE

WRITES = ("StartTransientUnit", "SetUnitProperties", "StopUnit", "StartUnit", "Reload")


@pytest.mark.namespace
@pytest.mark.newest
def test_apply_creates_the_tree_of_the_design(clean_machine):
    machine = clean_machine
    made = explained(machine, "-f", SEED, *BIG)
    apply(machine, "-f", SEED, *BIG)
    expected = {
        "pod1": ("Guaranteed", "/kubepods.slice/kubepods-pod"),
        "pod2": ("Guaranteed", "/kubepods.slice/kubepods-pod"),
        "pod3": ("Burstable", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"),
        "pod4": ("Burstable", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"),
        "pod5": ("BestEffort", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod"),
    }
    for name, (qos, prefix) in expected.items():
        assert made[name]["qos_class"] == qos
        properties = show(
            machine,
            made[name]["slice"],
            *("ControlGroup", "ActiveState", "Transient", "Description", "DefaultDependencies"),
            *("Wants", "MemoryAccounting", "TasksAccounting", "IOAccounting"),
        )
        assert properties.pop("ControlGroup").startswith(prefix)
        assert properties.pop("Wants") == properties_parent(made[name]["slice"])
        assert properties == {
            "ActiveState": "active",
            "Transient": "yes",
            "Description": f"Pod default/{name} ({qos})",
            "DefaultDependencies": "no",
            "MemoryAccounting": "yes",
            "TasksAccounting": "yes",
            "IOAccounting": "yes",
        }
    status = machine.run("systemctl", "status", "kubepods.slice", "--no-pager").stdout
    assert "kubepods.slice - Pods on this node" in status
    assert "Active: active" in status
    tree = machine.run("systemd-cgls", "--no-pager", "--all").stdout
    for pod in made.values():
        assert pod["slice"] in tree


def properties_parent(slice_):
    return slice_.rpartition("-pod")[0] + ".slice"


@pytest.mark.namespace
@pytest.mark.newest
def test_systemd_has_the_numbers_of_the_example(clean_machine):
    machine = clean_machine
    apply(machine, "-f", SEED, *BIG, "--set", "qos-reserved=memory=100%")
    made = explained(machine, "-f", SEED, *BIG)
    expected = {  # Kubelet pod level resource management, "Examples"
        "pod1": ("110ms", 3 * GI),
        "pod2": ("20ms", 2 * GI),
        "pod3": ("150ms", 3 * GI),
        "pod4": ("20ms", 2 * GI),
        "pod5": ("infinity", "infinity"),
    }
    for name, (quota, memory) in expected.items():
        has = show(machine, made[name]["slice"], "CPUQuotaPerSecUSec", "MemoryMax")
        assert has == {"CPUQuotaPerSecUSec": quota, "MemoryMax": str(memory)}
    burstable = show(machine, "kubepods-burstable.slice", "CPUWeight", "MemoryMax")
    # 130m are 133 shares, 133 × 100 / 1024 = 12
    assert burstable == {"CPUWeight": "12", "MemoryMax": str(SHARED - 5 * GI)}
    besteffort = show(machine, "kubepods-besteffort.slice", "CPUWeight", "MemoryMax")
    assert besteffort == {"CPUWeight": "1", "MemoryMax": str(SHARED - 8 * GI)}


STATED = """\
apiVersion: v1
kind: Pod
metadata:
  name: stated
  annotations:
    podslice.io/cpu-quota-period: 500ms
    podslice.io/memory-high: 64Mi
    podslice.io/memory-swap-max: 16Mi
    podslice.io/tasks-max: "200"
    podslice.io/allowed-cpus: "1"
    podslice.io/io-weight: "200"
    podslice.io/io-read-bandwidth-max: / 10Mi; /proc 1Mi
    podslice.io/io-write-bandwidth-max: / 20Mi
    podslice.io/io-read-iops-max: / 700
    podslice.io/io-write-iops-max: / 500
    podslice.io/memory-zswap-max: 8Mi
spec:
  containers:
  - {name: main, resources: {requests: {cpu: 0}, limits: {cpu: 200m}}}
"""


@pytest.mark.cgroup2
def test_the_kernel_has_the_numbers_of_the_example_and_of_annotations(clean_machine):
    machine = clean_machine
    machine.put("/root/stated.yaml", STATED)
    files = ("-f", SEED, "-f", "/root/stated.yaml", *BIG)
    options = ("--set", "qos-reserved=memory=100%", "--set", "pod-max-pids=4096")
    apply(machine, *files, *options)
    made = explained(machine, *files)
    expected = {
        "pod1": ("11000 100000", str(3 * GI)),
        "pod2": ("2000 100000", str(2 * GI)),
        "pod3": ("15000 100000", str(3 * GI)),
        "pod4": ("2000 100000", str(2 * GI)),
        "pod5": ("max 100000", "max"),
    }
    for name, (quota, memory) in expected.items():
        group = made[name]["control_group"]
        assert kernel(machine, group, "cpu.max") == quota
        assert kernel(machine, group, "memory.max") == memory
        assert kernel(machine, group, "pids.max") == "4096"
    group = made["stated"]["control_group"]
    assert kernel(machine, group, "cpu.max") == "100000 500000"
    assert kernel(machine, group, "memory.high") == str(64 * 2**20)
    assert kernel(machine, group, "memory.swap.max") == str(16 * 2**20)
    assert kernel(machine, group, "pids.max") == "200"
    # a kernel for virtual machines has no zswap
    assert show(machine, made["stated"]["slice"], "MemoryZSwapMax") == {"MemoryZSwapMax": "8388608"}
    assert kernel(machine, group, "io.weight") == "default 200"
    limits = dict.fromkeys(kernel(machine, group, "io.max").split()[1:])
    assert limits == dict.fromkeys(("rbps=10485760", "wbps=20971520", "riops=700", "wiops=500"))
    assert kernel(machine, group, "cpuset.cpus.effective") == "1"
    command = ("grep", "-h", "^Cpus_allowed_list", "/proc/self/status")
    ran = machine.podslice("run", "stated", "-c", "main", "--", *command)
    assert ran.stdout.split() == ["Cpus_allowed_list:", "1"]
    machine.put("/root/stated.yaml", STATED.replace('"1"', '"0-1"'))
    assert "AllowedCPUs=0-1 (was 1)" in apply(machine, *files, *options).stdout
    assert kernel(machine, group, "cpuset.cpus.effective") == "0-1"
    machine.put("/root/stated.yaml", STATED.replace('    podslice.io/allowed-cpus: "1"\n', ""))
    assert "AllowedCPUs=unset" in apply(machine, *files, *options).stdout
    assert show(machine, made["stated"]["slice"], "AllowedCPUs") == {"AllowedCPUs": ""}
    tiers = "/kubepods.slice/kubepods-"
    assert kernel(machine, f"{tiers}burstable.slice", "cpu.weight") == "12"
    assert kernel(machine, f"{tiers}burstable.slice", "memory.max") == str(SHARED - 5 * GI)
    assert kernel(machine, f"{tiers}besteffort.slice", "cpu.weight") == "1"
    assert kernel(machine, f"{tiers}besteffort.slice", "memory.max") == str(SHARED - 8 * GI)
    assert kernel(machine, "/kubepods.slice", "memory.max") == str(32 * GI)
    assert kernel(machine, "/kubepods.slice", "memory.low") == str(8 * GI)
    assert kernel(machine, made["pod3"]["control_group"], "memory.low") == str(2 * GI)


GUARDED = """
apiVersion: v1
kind: Pod
metadata: {name: guarded, uid: guarded}
spec:
  containers:
  - name: main
    resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 200m, memory: 128Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: whole, uid: whole}
spec:
  containers:
  - {name: main, resources: {limits: {cpu: 200m, memory: 48Mi}}}
"""
AS_KUBELET = """
capacity = "cpu=8,memory=1Gi"
rules = "kubernetes"
memory-protection = "tiered"
memory-throttling-factor = 0.5
memory-swap-behavior = "LimitedSwap"
kube-reserved = "memory=32Mi"
kube-reserved-cgroup = "/podruntime.slice"
enforce-node-allocatable = "pods,kube-reserved"
"""
SWAP_ON = "umask 77; head -c 64M /dev/zero >/swap; mkswap -q /swap; swapon /swap"
READ_OWN = """
for name in memory.high memory.low memory.min memory.swap.max; do
  cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/$name
done
"""


@pytest.mark.cgroup2
def test_the_kernel_protects_throttles_and_swaps_as_the_kubelet_has_it(clean_machine):
    machine = clean_machine
    machine.put("/root/guarded.yaml", GUARDED)
    machine.put("/etc/podslice/podslice.toml", AS_KUBELET)
    machine.run("sh", "-ec", SWAP_ON)
    machine.run("systemctl", "start", "podruntime.slice")
    try:
        apply(machine, "-f", "/root/guarded.yaml")
        read = ("-c", "main", "--", "sh", "-c", READ_OWN)
        own = {name: machine.podslice("run", name, *read) for name in ("guarded", "whole")}
        swap = next(
            int(line.split()[1]) * 1024
            for line in machine.get("/proc/meminfo").decode().splitlines()
            if line.startswith("SwapTotal:")
        )
    finally:
        machine.run("sh", "-ec", "swapoff /swap; rm -r /swap /etc/podslice")
    mi = 2**20
    # the request's part of the swap, in whole pages as the kernel counts
    share = 64 * mi * swap // GI // 4096 * 4096
    guarded = [96 * mi, 64 * mi, 0, share]
    assert own["guarded"].stdout.split() == list(map(str, guarded))
    assert own["whole"].stdout.split() == ["max", "0", str(48 * mi), "0"]
    kept = {
        "kubepods.slice": (48 * mi, 64 * mi),
        "kubepods.slice/kubepods-burstable.slice": (0, 64 * mi),
        "kubepods.slice/kubepods-podwhole.slice": (48 * mi, 0),
    }
    for group, (least, low) in kept.items():
        assert kernel(machine, f"/{group}", "memory.min") == str(least)
        assert kernel(machine, f"/{group}", "memory.low") == str(low)
    # a reserved slice is protected to its reservation
    for file in ("memory.min", "memory.max"):
        assert kernel(machine, "/podruntime.slice", file) == str(32 * mi)


OWN = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, uid: NAME}
spec:
  resources: {limits: {pid: "150"}}
  containers:
  - {name: main, resources: {limits: {cpu: "1", memory: 64Mi}}}
---
"""
SHARING = OWN.replace("NAME", "sharing").replace('cpu: "1", ', "")
STATIC = ("--set", "cpu-manager-policy=static", "--set", "reserved-cpus=0")


@pytest.mark.cgroup2
def test_a_pod_has_a_cpu_for_itself(clean_machine):
    machine = clean_machine
    machine.put("/root/cpus.yaml", OWN.replace("NAME", "own") + SHARING)
    memory = ("--set", "capacity=memory=32Gi")
    apply(machine, "-f", "/root/cpus.yaml", *memory, *STATIC)
    command = ("--", "grep", "-h", "^Cpus_allowed_list", "/proc/self/status")
    for name, cpu in (("own", "1"), ("sharing", "0")):
        ran = machine.podslice("run", name, "-c", "main", *command)
        assert ran.stdout.split() == ["Cpus_allowed_list:", cpu]
    assert kernel(machine, "/kubepods.slice/kubepods-burstable.slice", "cpuset.cpus") == "0"
    own = "/kubepods.slice/kubepods-podown.slice"
    assert kernel(machine, own, "cpuset.cpus") == "1"
    assert kernel(machine, own, "cpu.max") == "max 100000"
    assert kernel(machine, own, "pids.max") == "150"

    assert "a  1     default/own\n" in machine.podslice("node", *memory, *STATIC).stdout

    # another one is refused, and the first keeps its CPU
    machine.put("/root/more.yaml", OWN.replace("NAME", "second"))
    options = (*memory, *STATIC, "--set", "admission=false")
    refused = apply(machine, "-f", "/root/more.yaml", *options, check=False)
    assert refused.exit_code == 1
    assert "NotEnoughCPUs: requested CPUs: 1; free: 0" in refused.stdout
    assert kernel(machine, own, "cpuset.cpus") == "1"

    # processes of the host leave the CPU, on trial
    for_host = (*memory, *STATIC, "--set", "exclusive-for=host")
    apply(machine, "-f", "/root/cpus.yaml", *for_host, "--confirm", "3600")
    service = ("systemd-run", "--quiet", "--wait", "--pipe", *command[1:])
    assert machine.run(*service).stdout.split() == ["Cpus_allowed_list:", "0"]
    status = machine.podslice("status", *for_host, check=False)
    for name in ("system.slice", "user.slice"):
        assert kernel(machine, f"/{name}", "cpuset.cpus.effective") == "0"
        assert f"{name}: podslice has set AllowedCPUs=0 (previously: unset)" in status.stdout

    # the trial ends, and after another apply the option
    for restore in (
        lambda: machine.run("systemctl", "start", "podslice-rollback.service"),
        lambda: apply(machine, "-f", "/root/cpus.yaml", *memory, *STATIC),
    ):
        restore()
        for name in ("system.slice", "user.slice"):
            assert show(machine, name, "AllowedCPUs") == {"AllowedCPUs": ""}
            assert kernel(machine, f"/{name}", "cpuset.cpus.effective") == "0-1"
        assert machine.run(*service).stdout.split() == ["Cpus_allowed_list:", "0-1"]
        apply(machine, "-f", "/root/cpus.yaml", *for_host)
        assert kernel(machine, "/system.slice", "cpuset.cpus.effective") == "0"

    # the policy ends, and with it the limits
    apply(machine, "-f", "/root/cpus.yaml", *memory)
    assert machine.run(*service).stdout.split() == ["Cpus_allowed_list:", "0-1"]
    for unit in ("kubepods-podown.slice", "kubepods-burstable.slice"):
        assert show(machine, unit, "AllowedCPUs") == {"AllowedCPUs": ""}
    assert kernel(machine, own, "cpu.max") == "100000 100000"


@pytest.mark.namespace
def test_cpus_are_refused_where_the_controller_is_missing(clean_machine):
    """Namespaces have cgroup v1, with which systemd has no cpuset controller."""
    machine = clean_machine
    machine.put("/root/stated.yaml", STATED)
    refused = apply(machine, "-f", "/root/stated.yaml", *BIG, check=False)
    assert refused.exit_code == 2
    assert "[podslice.io/allowed-cpus]: the cpuset controller is not available" in refused.stderr
    assert not units(machine)


@pytest.mark.namespace
@pytest.mark.newest
def test_values_survive_daemon_reload(clean_machine):
    machine = clean_machine
    apply(machine, "-f", SEED, *BIG)
    names = ("CPUWeight", "CPUQuotaPerSecUSec", "MemoryLow", "MemoryMax", "Description")
    before = {unit: show(machine, unit, *names) for unit in units(machine)}
    machine.run("systemctl", "daemon-reload")
    assert {unit: show(machine, unit, *names) for unit in units(machine)} == before
    assert machine.podslice("plan", "-f", SEED, *BIG).stdout == "nothing to do\n"


@pytest.mark.namespace
@pytest.mark.newest
def test_a_second_apply_writes_nothing(clean_machine):
    machine = clean_machine
    first = calls_of(machine, "apply", "-f", SEED, *BIG)
    assert set(first) & set(WRITES) == {"StartTransientUnit", "StopUnit"}
    second = calls_of(machine, "apply", "-f", SEED, *BIG)
    assert second
    assert not set(second) & set(WRITES)
    result = machine.podslice("plan", "-f", SEED, *BIG)
    assert (result.exit_code, result.stdout) == (0, "nothing to do\n")


def calls_of(machine, *arguments):
    """Return the methods of systemd that a command called, as the bus recorded them."""
    match = "type='method_call',destination='org.freedesktop.systemd1'"
    machine.run("rm", "-f", "/tmp/seen")
    script = f'exec busctl monitor --json=short --match "{match}" >/tmp/seen'
    monitor = machine.spawn("sh", "-c", script)
    call_until_seen(machine, "Begin")
    machine.podslice(*arguments)
    call_until_seen(machine, "End")
    monitor.kill()
    monitor.wait()
    lines = machine.get("/tmp/seen").decode().splitlines()
    members = [json.loads(line)["member"] for line in lines]
    begin = max(place for place, member in enumerate(members) if member == "Begin")
    return members[begin + 1 : members.index("End")]


def call_until_seen(machine, member):
    """Call a method that systemd does not have, until the monitor has recorded it."""
    call = f"busctl call org.freedesktop.systemd1 / org.podslice.Lab {member} 2>/dev/null || :"
    seen = f'grep -qs \'"member":"{member}"\' /tmp/seen'
    machine.run("sh", "-c", f"until {seen}; do {call}; done")


@pytest.mark.namespace
@pytest.mark.newest
def test_drift_is_reported_and_repaired(clean_machine):
    machine = clean_machine
    apply(machine, "-f", SEED, *BIG)
    slice_ = explained(machine, "-f", SEED, *BIG)["pod3"]["slice"]
    machine.run("systemctl", "set-property", slice_, "MemoryMax=64M", "MemoryHigh=32M")
    status = machine.podslice("status", *BIG, check=False)
    assert status.exit_code == 3
    assert f"{slice_}: MemoryMax is 64Mi, should be 3Gi" in status.stdout
    assert f"{slice_}: MemoryHigh is 32Mi, should be unset" in status.stdout
    assert machine.podslice("plan", "-f", SEED, *BIG, check=False).exit_code == 3
    done = apply(machine, "-f", SEED, *BIG).stdout
    assert "MemoryMax=3Gi (was 64Mi)" in done
    assert show(machine, slice_, "MemoryMax", "MemoryHigh") == {
        "MemoryMax": str(3 * GI),
        "MemoryHigh": "infinity",
    }
    assert machine.podslice("status", *BIG).exit_code == 0


@pytest.mark.namespace
@pytest.mark.newest
def test_a_slice_that_was_stopped_externally_is_created_again(clean_machine):
    machine = clean_machine
    apply(machine, "-f", SEED, *BIG)
    machine.run("systemctl", "stop", "kubepods-burstable.slice")
    status = machine.podslice("status", *BIG, check=False)
    assert status.exit_code == 3
    assert "kubepods-burstable.slice: it is missing" in status.stdout
    apply(machine, "-f", SEED, *BIG)
    assert machine.podslice("status", *BIG).exit_code == 0


@pytest.mark.namespace
@pytest.mark.newest
def test_many_pods_are_created_changed_and_removed(clean_machine):
    machine = clean_machine
    count = 100
    machine.put("/tmp/pods.yaml", pods(count))
    apply(machine, "-f", "/tmp/pods.yaml", *BIG)
    assert len(units(machine)) == count + 3
    assert len(records(machine)) == count
    some = count // 2
    half = pods(some, memory="16Mi") + "---\n" + "---\n".join(pods(count).split("---\n")[some:])
    machine.put("/tmp/pods.yaml", half)
    changed = apply(machine, "-f", "/tmp/pods.yaml", *BIG).stdout.splitlines()
    assert sum("MemoryMax=16Mi (was 8Mi)" in line for line in changed) == some
    assert changed[-1] == f"{some} done"
    assert machine.podslice("plan", "-f", "/tmp/pods.yaml", *BIG).exit_code == 0
    machine.put("/tmp/pods.yaml", pods(3))
    pruned = apply(machine, "-f", "/tmp/pods.yaml", "--prune", *BIG).stdout
    assert len(units(machine)) == 6
    assert "stopped" in pruned
    machine.podslice("delete", "-f", "/tmp/pods.yaml")
    nothing_is_left(machine)


def nothing_is_left(machine):
    assert units(machine) == []
    assert control_groups(machine) == []
    assert machine.run("ls", "/run/podslice", check=False).exit_code != 0
    assert machine.run("find", "/run/systemd/transient", "-name", "kube*").stdout == ""
    assert (
        machine.run("sh", "-c", "find /run/systemd/system.control 2>/dev/null; true").stdout == ""
    )


@pytest.mark.namespace
@pytest.mark.newest
def test_a_pod_that_systemd_refuses_does_not_block_the_others(clean_machine):
    machine = clean_machine
    made = explained(machine, "-f", SEED, *BIG)
    refused = made["pod3"]["slice"]
    machine.run("ln", "-s", "/dev/null", f"/run/systemd/system/{refused}")
    machine.run("systemctl", "daemon-reload")
    try:
        result = apply(machine, "-f", SEED, *BIG, check=False)
        assert result.exit_code == 1
        failed = [line for line in result.stdout.splitlines() if line.startswith("failed")]
        assert len(failed) == 1
        assert refused in failed[0]
        for name in ("pod1", "pod2", "pod4", "pod5"):
            assert show(machine, made[name]["slice"], "ActiveState") == {"ActiveState": "active"}
        assert machine.podslice("status", *BIG, check=False).exit_code == 3
    finally:
        machine.run("rm", f"/run/systemd/system/{refused}")
        machine.run("systemctl", "daemon-reload")
    assert apply(machine, "-f", SEED, *BIG).stdout.splitlines()[-1] == "1 done"
    assert machine.podslice("plan", "-f", SEED, *BIG).exit_code == 0


@pytest.mark.namespace
def test_a_failed_tier_is_reported_with_the_skipped_steps(clean_machine):
    machine = clean_machine
    machine.run("ln", "-s", "/dev/null", "/run/systemd/system/kubepods-burstable.slice")
    machine.run("systemctl", "daemon-reload")
    try:
        result = apply(machine, "-f", SEED, *BIG, check=False)
    finally:
        machine.run("rm", "/run/systemd/system/kubepods-burstable.slice")
        machine.run("systemctl", "daemon-reload")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert sum(line.startswith("failed to start kubepods-burstable.slice") for line in lines) == 1
    assert sum(line.startswith("not tried: start kubepods-burstable-pod") for line in lines) == 2
    assert lines[-1] == "5 done, 1 failed, 2 not tried"
    apply(machine, "-f", SEED, *BIG)
    assert machine.podslice("plan", "-f", SEED, *BIG).exit_code == 0


@pytest.mark.namespace
@pytest.mark.newest
def test_foreign_units_below_the_root_are_not_changed(clean_machine):
    machine = clean_machine
    apply(machine, "-f", SEED, *BIG)
    machine.run(
        # exec: it returns once the process is in its control group
        *(*START_SERVICE, "--slice=kubepods.slice"),
        *("--unit=podlab-foreign", "sleep", "1000"),
    )
    try:
        result = machine.podslice("delete", "--all")
        assert "left kubepods.slice running: 1 process runs" in result.stdout
        assert units(machine) == ["kubepods.slice"]
        active = machine.run("systemctl", "is-active", "podlab-foreign.service").stdout
        assert active == "active\n"
    finally:
        machine.run("systemctl", "stop", "podlab-foreign.service")


KILLS = 10
"""tests/unit/reconcile/test_crashes.py crashes at every call."""


@pytest.mark.namespace
def test_apply_converges_after_being_killed_at_any_point(clean_machine):
    machine = clean_machine
    machine.put("/tmp/pods.yaml", pods(40))
    machine.podslice("apply", "-f", "/tmp/pods.yaml", *BIG)
    seconds = duration_of_apply(machine)
    chance = random.Random(20261120)  # the same points in every run, as far as a clock allows
    # one in each part of the duration: random ones leave larger gaps
    moments = [0.1 + (part + chance.random()) / KILLS for part in range(KILLS)]
    chance.shuffle(moments)
    for number, moment in enumerate(moments):
        count = chance.choice((1, 20, 40, 41, 60))
        machine.put("/tmp/pods.yaml", pods(count, memory=chance.choice(("8Mi", "16Mi"))))
        process = machine.spawn(
            *("env", "PYTHONPATH=/src", "PYTHONDONTWRITEBYTECODE=1", "python3", "-m", "podslice"),
            *("apply", "--prune", "-f", "/tmp/pods.yaml", *BIG),
        )
        machine.run("sleep", f"{moment * seconds:.3f}")
        process.kill()
        process.wait()
        apply(machine, "--prune", "-f", "/tmp/pods.yaml", *BIG)
        plan = machine.podslice("plan", "--prune", "-f", "/tmp/pods.yaml", *BIG, check=False)
        assert (plan.exit_code, plan.stdout) == (0, "nothing to do\n"), f"round {number}"
        assert len(units(machine)) == count + 3
        assert len(records(machine)) == count
    machine.podslice("delete", "--all")
    nothing_is_left(machine)


def duration_of_apply(machine):
    """Return the seconds that a complete apply takes here."""
    machine.podslice("delete", "--all")
    command = "PYTHONPATH=/src python3 -m podslice apply -f /tmp/pods.yaml " + " ".join(BIG)
    script = f"s=$(date +%s%N); {command} >/dev/null; e=$(date +%s%N); echo $((e - s))"
    return int(machine.run("bash", "-c", script).stdout) / 1e9


@pytest.mark.namespace
def test_lost_records_are_rebuilt_and_reported(clean_machine):
    machine = clean_machine
    apply(machine, "-f", SEED, *BIG)
    machine.run("rm", "-r", "/run/podslice")
    status = machine.podslice("status", *BIG, check=False)
    assert "pod default/pod3 has no record; it is recovered" in status.stderr
    # the pods are unchanged; of their CPU requests only the weights remain to be summed
    wrong = [line for line in status.stdout.splitlines() if " should be " in line]
    assert wrong == ["kubepods-burstable.slice: CPUWeight is 12, should be 11"]
    apply(machine, "-f", SEED, *BIG)
    assert len(records(machine)) == 5
    assert machine.podslice("status", *BIG).stderr == ""
