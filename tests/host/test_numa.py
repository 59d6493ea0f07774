"""CPUs and memory of pods on a machine with 8 CPUs and 2 NUMA nodes, as their processes have them."""

from tests.host import agent
from tests.host.scenario import apply, kernel, show

ISOLATED = """
cpu-manager-policy-options = "strict-cpu-reservation=true"
cpuset-partition = "isolated"
"""
STATIC = 'cpu-manager-policy = "static"\nreserved-cpus = "0"\n'
ALIGNED = f'{STATIC}topology-manager-policy = "single-numa-node"\n'
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, uid: {name}}}
spec:
  containers:
  - {{name: main, resources: {{limits: {limits}}}}}
"""
OWN = POD.format(name="own", limits='{cpu: "2", memory: 64Mi}')
SHARED = POD.format(name="shared", limits="{memory: 64Mi}")
LATE = POD.format(name="late", limits='{cpu: "1", memory: 64Mi}')
WIDE = POD.format(name="wide", limits='{cpu: "5", memory: 64Mi}')
SIX = POD.format(name="six", limits='{cpu: "6", memory: 64Mi}')
BY_OPTION = {
    "full-pcpus-only=true": "2-7",
    "distribute-cpus-across-numa=true": "1-6",
    "prefer-align-cpus-by-uncorecache=true": "2-7",
}
"""Six CPUs where 0 is reserved: whole cores; three of each node; a cache and a core."""
SLICES = {
    "own": "kubepods-podown.slice",
    "late": "kubepods-podlate.slice",
    "shared": "kubepods-burstable.slice/kubepods-burstable-podshared.slice",
}
READ = """
for process in $(cat /sys/fs/cgroup/kubepods.slice/$1/*/cgroup.procs); do
  sed -n 's/^\\(Cpus\\|Mems\\)_allowed_list:\\s*//p' /proc/$process/status
done
"""


def allowed(machine, pod):
    """The CPUs and the NUMA nodes of the pod's only process."""
    return machine.run("sh", "-c", READ, "read", SLICES[pod]).stdout.split()


def test_processes_have_the_cpus_and_the_memory_of_their_pod(new_vm):
    machine = new_vm
    machine.put("/etc/podslice/podslice.toml", ALIGNED)
    machine.put("/root/wide.yaml", WIDE)
    refused = apply(machine, "-f", "/root/wide.yaml", check=False)
    assert refused.exit_code == 1
    assert (
        "TopologyAffinityError: requested CPUs: 5; free: 3 (1-3) on NUMA node 0" in refused.stdout
    )

    machine.put("/root/pods.yaml", f"{OWN}---\n{SHARED}")
    files = ("-f", "/root/pods.yaml")
    apply(machine, *files)
    for name in ("own", "shared"):
        machine.podslice("run", name, "--detach", "--", "sleep", "infinity")
    assert allowed(machine, "own") == ["2-3", "0"]
    assert allowed(machine, "shared") == ["0-1,4-7", "0-1"]

    machine.run("systemctl", "daemon-reload")
    assert machine.podslice("plan", *files).stdout == "nothing to do\n"
    assert apply(machine, *files).stdout.splitlines()[-1] == "nothing to do"
    assert allowed(machine, "own") == ["2-3", "0"]

    machine.put("/etc/podslice/podslice.toml", STATIC)
    apply(machine, *files)
    assert allowed(machine, "own") == ["2-3", "0-1"]

    machine.podslice("delete", "own", "--grace-period", "0")
    assert allowed(machine, "shared") == ["0-7", "0-1"]


def test_a_pod_keeps_its_cpus_while_others_change_and_the_agent_restarts(new_vm):
    machine = new_vm
    machine.put("/etc/podslice/podslice.toml", STATIC)
    own, late = (f"{agent.MANIFESTS}/{name}.yaml" for name in ("own", "late"))
    machine.put(own, OWN)
    apply(machine, "-f", own)
    machine.podslice("run", "own", "--detach", "--", "sleep", "infinity")
    assert allowed(machine, "own") == ["2-3", "0-1"]
    machine.put(late, LATE)
    agent.start(machine)
    agent.until(lambda: show(machine, SLICES["late"], "AllowedCPUs") == {"AllowedCPUs": "1"})
    machine.run("rm", late)
    machine.run("systemctl", "restart", agent.UNIT)
    agent.until(lambda: show(machine, SLICES["late"], "AllowedCPUs") == {"AllowedCPUs": ""})
    assert allowed(machine, "own") == ["2-3", "0-1"]
    agent.remove(machine)


PARTITIONS = {
    "kubepods.slice": ("1-7", "root"),
    f"kubepods.slice/{SLICES['own']}": ("2-3", "isolated"),
}


def test_the_kernel_isolates_the_cpus_of_a_pod(new_vm):
    machine = new_vm
    machine.put("/etc/podslice/podslice.toml", f"{STATIC}{ISOLATED}")
    machine.put("/root/pods.yaml", f"{OWN}---\n{SHARED}")
    apply(machine, "-f", "/root/pods.yaml")
    for group, (cpus, partition) in PARTITIONS.items():
        assert kernel(machine, f"/{group}", "cpuset.cpus") == cpus
        assert kernel(machine, f"/{group}", "cpuset.cpus.partition") == partition
    assert kernel(machine, "/system.slice", "cpuset.cpus.effective") == "0"
    assert (allowed(machine, "own")[0], allowed(machine, "shared")[0]) == ("2-3", "1,4-7")
    assert "PROBLEMS" not in machine.podslice("status").stdout
    machine.run("systemctl", "daemon-reload")
    assert machine.podslice("plan", "-f", "/root/pods.yaml").stdout == "nothing to do\n"

    # the pod that has them is removed, and with it the partition
    machine.podslice("delete", "own", "--grace-period", "0")
    assert kernel(machine, "/kubepods.slice", "cpuset.cpus.partition") == "member"
    for group in ("/kubepods.slice", "/system.slice"):
        assert kernel(machine, group, "cpuset.cpus.effective") == "0-7"
    machine.podslice("delete", "--all")


def test_the_kernel_has_the_cpus_that_each_option_chooses(new_vm):
    machine = new_vm
    machine.put("/root/late.yaml", LATE)
    machine.put("/root/six.yaml", SIX)
    for option, cpus in BY_OPTION.items():
        machine.put(
            "/etc/podslice/podslice.toml", f'{STATIC}cpu-manager-policy-options = "{option}"\n'
        )
        apply(machine, "-f", "/root/six.yaml")
        assert kernel(machine, "/kubepods.slice/kubepods-podsix.slice", "cpuset.cpus") == cpus
        machine.podslice("delete", "six", "--grace-period", "0")
        if option.startswith("full"):
            refused = apply(machine, "-f", "/root/late.yaml", check=False)
            assert (refused.exit_code, "SMTAlignmentError" in refused.stdout) == (1, True)
