"""The same verbs without root: the user's own service manager."""

import json

import pytest

from tests.host import users
from tests.host.scenario import BIG, GI, SEED
from tests.lab.machine import START_SERVICE

MI = 2**20
UID = "0a1b"
VOLUME = f"{users.RUNTIME_DIR}/podslice/pods/{UID}/volumes/cache"
POD_GROUP = f"kubepods-pod{UID}.slice"
MAIN, HELPER = f"podslice-pod{UID}-main", f"podslice-pod{UID}-helper"
FILE = "/tmp/site.yaml"
SITE = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: site, uid: {UID}}}
spec:
  terminationGracePeriodSeconds: 3
  resources: {{requests: {{cpu: 2, memory: 48Mi}}, limits: {{cpu: 2, memory: 48Mi}}}}
  initContainers:
  - name: setup
    resources: {{requests: {{memory: 16Mi}}, limits: {{cpu: 1, memory: 64Mi}}}}
  containers:
  - name: main
    resources: {{limits: {{cpu: 1, memory: 24Mi}}}}
  - name: helper
  volumes:
  - name: cache
    emptyDir: {{medium: Memory, sizeLimit: 16Mi}}
"""


@pytest.fixture
def podslice(machine):
    """Run verbs with `--user`, as the user `lab`, whose service manager is up for the test."""
    with users.user_manager(machine) as run:
        yield run


def control_group(machine, name):
    return users.command(machine, "systemctl", "--user", "show", "-P", "ControlGroup", name).stdout


def kernel(machine, name, file):
    """Return the content of a file of cgroup v2 of one of the user's units."""
    path = f"/sys/fs/cgroup{control_group(machine, name).strip()}/{file}"
    return machine.get(path).decode().strip()


def test_a_user_has_the_same_tree_in_the_user_manager(machine, podslice):
    podslice("apply", "-f", SEED, *BIG)
    assert podslice("plan", "-f", SEED, *BIG).stdout == "nothing to do\n"
    status = json.loads(podslice("status", "-o", "json", *BIG).stdout)
    assert status["in_sync"]
    pod1 = next(
        unit
        for unit in status["units"]
        if unit["pod"] == "default/pod1" and unit["name"].endswith(".slice")
    )
    shown = users.command(
        machine, "systemctl", "--user", "show", pod1["name"], "-p", "MemoryMax"
    ).stdout
    assert shown == f"MemoryMax={3 * GI}\n"
    manager = f"/user.slice/user-{users.UID}.slice/{users.MANAGER}/"
    assert pod1["control_group"].startswith(manager)
    if machine.cgroup_version == 2:
        assert kernel(machine, pod1["name"], "memory.max") == str(3 * GI)
    assert not machine.run("sh", "-c", "systemctl list-units --plain --no-legend 'kube*'").stdout
    found = json.loads(podslice("doctor", "-o", "json", check=False).stdout)["findings"]
    states = {each["check"]: each["state"] for each in found}
    # systemd delegates cpu, memory and pids by default; nothing with the old layouts
    assert states["controllers"] == ("info" if machine.cgroup_version == 2 else "attention")
    assert states["oom-score"] == states["volumes"] == "info"
    podslice("delete", "--all", *BIG)
    left = machine.run("sh", "-c", f"ls -d {users.RUNTIME_DIR}/podslice 2>/dev/null || true")
    assert left.stdout == ""


def test_a_user_has_processes_in_pods(machine, podslice):
    machine.put(FILE, SITE)
    is_v2 = machine.cgroup_version == 2
    applied = podslice("apply", "-f", FILE, *BIG)
    assert f"volume cache is the directory {VOLUME}, without a size of its own" in applied.stderr

    # the init phase: the pod's own limit applies when it is complete
    assert podslice("run", "site", "-c", "setup", "--", "true").exit_code == 0
    limits = ("systemctl", "--user", "show", "-P", "MemoryMax", POD_GROUP)
    assert users.command(machine, *limits).stdout == f"{48 * MI}\n"

    # run: inside, with the volume, its exit code its own; refusals of the kernel are reported
    script = "cat /proc/self/cgroup; head -c 8M /dev/zero > $PODSLICE_VOLUME_CACHE/file; exit 5"
    ended = podslice("run", "site", "-c", "main", "--", "sh", "-c", script, check=False)
    assert ended.exit_code == 5
    assert f"/{users.MANAGER}/kubepods.slice/{POD_GROUP}/{MAIN}.scope\n" in ended.stdout
    assert ended.stderr == "oom_score_adj remains 0 instead of -997: Permission denied\n"
    assert machine.run("stat", "-c", "%s %U", f"{VOLUME}/file").stdout == f"{8 * MI} lab\n"

    # adopt, and run --detach
    service = (*START_SERVICE, "--user", "--unit=podlab-work")
    users.command(machine, *service, "sleep", "1000")
    shown = users.command(machine, "systemctl", "--user", "show", "-P", "MainPID", "podlab-work")
    pid = shown.stdout.strip()
    adopted = podslice("adopt", "site", "-c", "helper", pid)
    assert f"{HELPER}.scope: 1 adopted\n" in adopted.stdout
    podslice("run", "site", "-c", "main", "--detach", "--", "sleep", "1000")
    again = podslice("run", "site", "-c", "main", "--", "true", check=False)
    assert (again.exit_code, again.stderr.count("\n")) == (1, 1)
    tree = podslice("tree", *BIG).stdout
    assert f"{pid} sleep\n" in tree
    assert tree.count(" sleep\n") == 2

    if is_v2:
        # limited, and the volume is charged to the pod although its writer has ended
        assert kernel(machine, f"{MAIN}.service", "memory.max") == str(24 * MI)
        assert kernel(machine, POD_GROUP, "memory.max") == str(48 * MI)
        assert int(kernel(machine, POD_GROUP, "memory.current")) >= 8 * MI
        users.command(machine, "systemctl", "--user", "stop", f"{MAIN}.service")
        killed = podslice("run", "site", "-c", "main", "--", "tail", "/dev/zero", check=False)
        assert killed.exit_code == 128 + 9
        assert f"{pid} sleep\n" in podslice("tree", *BIG).stdout

    deleted = podslice("delete", "site", *BIG)
    assert "container helper: 1 process (sleep)" in deleted.stdout
    assert machine.run("kill", "-0", pid, check=False).exit_code != 0
    assert machine.run("sh", "-c", f"ls -d {users.RUNTIME_DIR}/podslice* || true").stdout == ""
