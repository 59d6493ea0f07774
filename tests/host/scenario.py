"""Common parts of the scenario tests: manifests, and queries to a machine."""

import json
from pathlib import Path

from tests.host import users

ROOT = Path(__file__).resolve().parents[2]
SEED = "/src/examples/seeds/pods.yaml"
GI = 2**30

# a node on which the proposals' pods fit, independent of the machine
BIG = ("--set", "capacity=cpu=8,memory=32Gi,ephemeral-storage=100Gi")
SHARED = 32 * GI
"""The share of pods: nothing is reserved, and the eviction threshold is not subtracted."""


PROPERTIES = {
    "cpu.max": "CPUQuotaPerSecUSec",
    "cpu.weight": "CPUWeight",
    "memory.high": "MemoryHigh",
    "memory.low": "MemoryLow",
    "memory.max": "MemoryMax",
    "memory.min": "MemoryMin",
    "memory.swap.max": "MemorySwapMax",
}


def pods(count, *, cpu="10m", memory="8Mi", prefix="many"):
    """Return a manifest of ordinary Burstable pods, `prefix-0` and on."""
    return "---\n".join(
        f"""apiVersion: v1
kind: Pod
metadata: {{name: {prefix}-{number}}}
spec:
  containers:
  - name: main
    resources:
      requests: {{cpu: {cpu}, memory: 4Mi}}
      limits: {{cpu: 100m, memory: {memory}}}
"""
        for number in range(count)
    )


def apply(machine, *arguments, **more):
    return machine.podslice("apply", *arguments, **more)


def show(machine, unit, *names):
    """Return properties of a unit as `systemctl show` prints them."""
    lines = machine.run("systemctl", "show", unit, "-p", ",".join(names)).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines)


def explained(machine, *arguments):
    """Return the pods of `explain -o json` by name."""
    result = machine.podslice("explain", "-o", "json", *arguments)
    return {pod["name"]: pod for pod in json.loads(result.stdout)["pods"]}


def kernel(machine, control_group, file):
    """Return the content of a file of cgroup v2."""
    return machine.get(f"/sys/fs/cgroup{control_group}/{file}").decode().strip()


def enforced(machine, control_group, file):
    """Return the content of a file of cgroup v2; without controllers, what systemd would write to it."""
    if machine.has_controllers:
        return kernel(machine, control_group, file)
    words = ("show", "-P", PROPERTIES[file], control_group.rpartition("/")[2])
    if users.MANAGER in control_group:
        value = users.command(machine, "systemctl", "--user", *words).stdout.strip()
    else:
        value = machine.run("systemctl", *words).stdout.strip()
    value = {"infinity": "max", "[not set]": "100"}.get(value, value)
    if file != "cpu.max":
        return value
    scale = 100_000 if not value.endswith("ms") else 100
    return f"{value if value == 'max' else int(value.rstrip('ms')) * scale} 100000"


def units(machine):
    """Return the loaded units below kubepods."""
    out = machine.run(
        "systemctl", "list-units", "--all", "--plain", "--no-legend", "kubepods*", "podslice*"
    ).stdout
    return sorted(line.split()[0] for line in out.splitlines())


def control_groups(machine):
    """Return the control groups of podslice, in every hierarchy."""
    found = machine.run("find", "/sys/fs/cgroup", "-type", "d", "-name", "kubepods*").stdout
    return sorted(set(found.split()))


def exists(machine, path):
    """Return whether a file exists, without a process in the machine."""
    try:
        machine.get(path)
    except FileNotFoundError:
        return False
    return True


def records(machine):
    """Return the records of applied pods."""
    found = machine.run("sh", "-c", "ls /run/podslice/pods 2>/dev/null || true").stdout
    return sorted(found.split())
