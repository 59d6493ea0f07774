"""runc --systemd-cgroup compared with the C client: containers of the same pods, one each.

runc creates a scope with a process in it, and leaves the slices above it without limits, so this
compares only the time until the kernel enforces a pod's limits. Its containers are
minimal: two namespaces, no network, an empty root directory.

With cgroup v1, runc requires the controllers `devices` and `freezer`, which the machine does not
have: it gets a control group of its own in each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.bench import inside
from tests.bench.inside import DIR, FLOOR, WORK, WrongWork
from tests.lab.namespace import Namespace
from tests.lab.recipe import DEFAULT_SUITE

RUNC, FLOOR_BESIDE = "runc", "C beside runc"
PODS, QUICK_PODS = 100, 20
ROUNDS = 3
BUNDLES = f"{DIR}/bundles"
ROOT = f"{DIR}/root"
MISSING_V1 = ("devices", "freezer")
MOUNT = """\
mount -o remount,rw /sys/fs/cgroup
for name in $2; do
    mkdir -p /run/whole-$name /sys/fs/cgroup/$name
    mount -t cgroup -o $name $name /run/whole-$name
    mkdir /run/whole-$name/$1
    mount --bind /run/whole-$name/$1 /sys/fs/cgroup/$name
done
"""
UNMOUNT = """\
for name in $2; do
    find /run/whole-$name/$1 -depth -type d -exec rmdir {} \\;
    umount /sys/fs/cgroup/$name /run/whole-$name
done
"""
# runc creates control groups of its own where systemd, for lack of accounting, creates none
SWEEP = "find /sys/fs/cgroup -depth -path '*/kubepods.slice*' -type d -exec rmdir {} +"


def run(*, quick: bool = False) -> list[dict[str, object]]:
    """Run runc and the C client in turn."""
    pods, rounds = (QUICK_PODS, 1) if quick else (PODS, ROUNDS)
    taken: list[dict[str, object]] = []
    with Namespace(DEFAULT_SUITE) as machine:
        inside.prepare(machine, DEFAULT_SUITE)
        inside.put_pods(machine, pods)
        limits = put_bundles(machine)
        has_more = machine.cgroup_version == 1
        if has_more:
            machine.run("sh", "-ec", MOUNT, "mount", machine.name, " ".join(MISSING_V1))
        try:
            for number in range(rounds + 1):
                sys.stderr.write(f"runc, {pods} pods, round {number}\n")
                found = take_round(machine, number, limits)
                taken += found if number else []  # the first is to warm up
        finally:
            stop_containers(machine)
            if has_more:
                machine.run("sh", "-ec", UNMOUNT, "unmount", machine.name, " ".join(MISSING_V1))
    return [{**each, "pods": pods} for each in taken]


def take_round(machine: Namespace, number: int, limits: dict[str, int]) -> list[dict[str, object]]:
    """Run both once, runc first in every other round."""
    clients = {
        RUNC: (f"{DIR}/client_runc.sh", BUNDLES),
        FLOOR_BESIDE: (FLOOR, "create", WORK),
    }
    taken: list[dict[str, object]] = []
    for name in sorted(clients, reverse=number % 2 == 1):
        done = inside.measure(machine, clients[name])
        if name == RUNC:
            check_limits(inside.read_state(machine)["groups"], limits)
            stop_containers(machine)
        inside.stop_all(machine)
        taken.append({"round": number, "what": name, **done.figures()})
    return taken


def put_bundles(machine: Namespace) -> dict[str, int]:
    """Write a bundle for each pod of the work file; return memory limits by the names of scopes."""
    limits = {}
    machine.run("mkdir", "-p", f"{ROOT}/proc")
    machine.put(f"{ROOT}/never", "", 0o755)  # runc checks that it exists; it is never started
    for name, properties in read_pods(machine.get(WORK).decode()).items():
        uid = name.removesuffix(".slice").rpartition("-pod")[2]
        document = json.dumps(make_config(name, uid, properties))
        machine.put(f"{BUNDLES}/{uid}/config.json", document)
        if "MemoryMax" in properties:
            limits[f"runc-{uid}.scope"] = properties["MemoryMax"]
    return limits


def read_pods(work: str) -> dict[str, dict[str, int]]:
    """Return the slices of pods in a work file, with their numbers."""
    pods: dict[str, dict[str, int]] = {}
    name = ""
    for line in work.splitlines():
        what, *fields = line.split("\t")
        if what == "unit":
            name = fields[0]
        elif what == "set" and "-pod" in name:
            key, type_, value = fields[:3]
            pods.setdefault(name, {}).update({key: int(value)} if type_ == "t" else {})
    return pods


def make_config(slice_name: str, uid: str, properties: dict[str, int]) -> dict[str, object]:
    """Return a minimal container with the limits of its pod.

    Source: OCI runtime specification, "Linux Container Configuration".
    """
    cpu: dict[str, int] = {}
    if "CPUWeight" in properties:
        cpu["shares"] = max(2, 1024 * properties["CPUWeight"] // 100)
    if "CPUQuotaPerSecUSec" in properties:
        cpu |= {"period": 100_000, "quota": properties["CPUQuotaPerSecUSec"] // 10}
    memory = {"limit": properties["MemoryMax"]} if "MemoryMax" in properties else {}
    return {
        "ociVersion": "1.0.2",
        "process": {"cwd": "/", "args": ["/never"], "user": {"uid": 0, "gid": 0}},
        "root": {"path": ROOT, "readonly": True},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {
            "cgroupsPath": f"{slice_name}:runc:{uid}",
            "namespaces": [{"type": "pid"}, {"type": "mount"}],
            "resources": {"cpu": cpu, "memory": memory},
        },
    }


def check_limits(groups: dict[str, dict[str, str]], limits: dict[str, int]) -> None:
    """Check that the kernel enforces the memory limit of every container.

    Raises:
        WrongWork: it does not.
    """
    held = {
        Path(group).name: values.get("memory.max", values.get("memory.limit_in_bytes"))
        for group, values in groups.items()
        if "memory.max" in values or "memory.limit_in_bytes" in values
    }
    for scope, limit in limits.items():
        if held.get(scope) != str(limit):
            raise WrongWork(f"runc: {scope} is held to {held.get(scope)}, not {limit}")


def stop_containers(machine: Namespace) -> None:
    """Kill their processes, and remove the state of runc."""
    kill = ("systemctl", "kill", "--signal=KILL", "--kill-whom=all", "kubepods.slice")
    machine.run(*kill, check=False)
    machine.run("systemctl", "stop", "kubepods.slice")
    machine.run("rm", "-rf", "/run/runc")
    machine.run("sh", "-c", SWEEP)
