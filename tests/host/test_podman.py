"""Real containers of podman and crun, started with the options that `cgroup-parent` prints."""

import json
import re
import shlex

import pytest

from podslice.model.pod import default_uid
from podslice.model.unit import control_group_of
from tests.host import podman, users
from tests.host.podman import WAIT
from tests.host.scenario import kernel, show

MI = 2**20
WEB_SLICE = f"kubepods-burstable-pod{default_uid('default', 'web').replace('-', '_')}.slice"
WEB_GROUP = control_group_of(WEB_SLICE)
WEB = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: main
    resources:
      requests: {cpu: 100m, memory: 16Mi}
      limits: {cpu: 500m, memory: 64Mi}
  - name: log
    resources:
      requests: {cpu: 50m}
      limits: {cpu: 250m, memory: 32Mi}
---
apiVersion: v1
kind: Pod
metadata: {name: db}
spec:
  containers:
  - name: main
"""
QUADLET = """
[Container]
Rootfs=/rootfs
Exec=/bin/sh -c '{wait}'
Network=none
PodmanArgs=--pidfile=/run/app.pid

{printed}
"""
OCI = {
    "ociVersion": "1.0.2",
    "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/sleep", "1000"], "cwd": "/"},
    "root": {"path": "/rootfs"},
    "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
    "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "network")]},
}


@pytest.fixture(scope="module")
def box(podman_vm):
    """The machine with podman, and two applied pods; containers in their place may stay in it."""
    podman_vm.put("/web.yaml", WEB)
    podman_vm.podslice("apply", "-f", "/web.yaml")
    yield podman_vm
    podman.clean(podman_vm)


def printed(box, *arguments):
    """Return the output of `cgroup-parent`; nothing else is printed."""
    result = box.podslice("cgroup-parent", *arguments)
    assert result.stderr == ""
    return result.stdout


def line(box, *arguments):
    """Return the options that it prints."""
    return shlex.split(printed(box, *arguments))


def start(box, name, *options):
    """Start a container; return its first process."""
    box.run(
        *("podman", "run", "--detach", f"--name={name}", f"--pidfile=/run/{name}.pid", *options),
        *("--rootfs", "/rootfs", "/bin/sh", "-c", WAIT),
    )
    return box.get(f"/run/{name}.pid").decode()


def group_of(box, pid):
    """Return its control group of cgroup v2."""
    (found,) = re.findall(r"^0::(.*)$", box.get(f"/proc/{pid}/cgroup").decode(), re.MULTILINE)
    return found


def status_of(podslice):
    """Return the result of `status` once the container runtimes have answered in time.

    A runtime of a busy host does not, which is reported, but not tested here.
    """
    while "no answer in" in (result := podslice("status", "-o", "json", check=False)).stderr:
        pass
    return result


def strays(box):
    """Return the exit code of `status`, and the names of the containers that it finds elsewhere."""
    result = status_of(box.podslice)
    assert result.stderr == ""
    return result.exit_code, {
        each["what"].split()[-1]: each for each in json.loads(result.stdout)["strays"]
    }


def test_containers_started_with_the_options_are_inside(box):
    options = line(box, "web", "-c", "main", "-o", "podman")
    pid = start(box, "one", "--network=none", *options)
    group = group_of(box, pid)
    assert group.startswith(f"{WEB_GROUP}/libpod-")
    scope = group.removesuffix("/container")
    assert kernel(box, scope, "cpu.max") == "50000 100000"
    assert kernel(box, scope, "cpu.weight") == "9"
    assert kernel(box, scope, "memory.max") == str(64 * MI)
    assert kernel(box, scope, "memory.low") == str(16 * MI)
    assert kernel(box, scope, "memory.swap.max") == "max"
    adjustment = box.get(f"/proc/{pid}/oom_score_adj").decode().strip()
    assert f"--oom-score-adj={adjustment}" in options

    before = int(kernel(box, WEB_GROUP, "memory.current"))
    write = ("dd", "if=/dev/zero", "of=/dev/shm/file", "bs=1M", "count=16")
    box.run("podman", "exec", "one", "/bin/busybox", *write)
    assert int(kernel(box, WEB_GROUP, "memory.current")) - before >= 15 * MI

    # in podman's own pods, with an infra container and without one
    of_pod, of_member = (line(box, "web", "-o", form) for form in ("podman-pod", "podman"))
    box.run("podman", "pod", "create", "--name=team", "--network=none", *of_pod)
    box.run("podman", "pod", "create", "--name=loose", "--infra=false", *of_pod)
    for member in (("member", "--pod=team"), ("loose-member", "--pod=loose", "--network=none")):
        pid = start(box, *member, *of_member)
        assert group_of(box, pid).startswith(f"{WEB_GROUP}/libpod-")
    assert strays(box) == (0, {})


def test_containers_without_the_options_are_reported(box):
    labels = ("--label=io.podslice.pod=default/web", "--label=io.podslice.container=log")
    start(box, "labelled", "--network=none", *labels)
    of_pod = line(box, "web", "-o", "podman-pod")
    box.run("podman", "pod", "create", "--name=crew", "--infra=false", *of_pod)
    pid = start(box, "forgotten", "--pod=crew", "--network=none")
    code, found = strays(box)
    assert code == 3
    assert {name: (each["pod"], each["container"]) for name, each in found.items()} == {
        "labelled": ("default/web", "log"),
        "forgotten": ("default/web", None),
    }
    assert found["labelled"]["control_group"].startswith("/machine.slice/libpod-")
    assert found["labelled"]["hint"].endswith("podslice cgroup-parent default/web -o podman")
    assert found["forgotten"]["pid"] == int(pid)
    box.run("podman", "rm", "--force", "--time=0", "labelled", "forgotten")


def test_an_imported_container_keeps_its_settings_in_the_pod(box):
    limits = ("--cpus=0.5", "--cpu-shares=512", "--memory=64m", "--memory-reservation=16m")
    start(box, "old", "--network=none", *limits, "--pids-limit=100")
    (pod,) = json.loads(box.podslice("import", "--podman", "old", "-o", "json").stdout)["pods"]
    (container,) = pod["containers"]
    assert (container["from"], container["mover"]) == ("podman container old", "podman")
    assert container["not_imported"] == ["--pids-limit=100"]
    (imported,) = pod["manifest"]["spec"]["containers"]
    assert imported["resources"] == {
        "requests": {"cpu": "500m", "memory": "16Mi"},
        "limits": {"cpu": "500m", "memory": "64Mi"},
    }
    box.put("/old.yaml", json.dumps(pod["manifest"]))
    box.podslice("apply", "-f", "/old.yaml")
    podman, run, *options, rest = shlex.split(container["lines"][0])
    assert (podman, run, rest) == ("podman", "run", "…")
    box.run("podman", "rm", "--force", "--time=0", "old")
    group = group_of(box, start(box, "old", "--network=none", *options))
    assert group.startswith(f"{control_group_of(pod['slice'])}/libpod-")
    scope = group.removesuffix("/container")
    assert kernel(box, scope, "cpu.max") == "50000 100000"
    assert kernel(box, scope, "memory.max") == str(64 * MI)
    assert kernel(box, scope, "memory.low") == str(16 * MI)
    again = box.podslice("import", "--podman", "old", check=False)
    assert (again.exit_code, again.stderr) == (2, "error: old: it is in pod default/old already\n")
    box.podslice("delete", "old")


def test_messages_of_a_container_are_found_after_its_exit(box):
    options = line(box, "web", "-c", "log", "-o", "podman")
    box.run(
        *("podman", "run", "--name=ended", "--network=none", *options),
        *("--rootfs", "/rootfs", "/bin/sh", "-c", "echo the last message"),
    )
    shown = box.podslice("logs", "web", "-c", "log", "-o", "cat").stdout
    assert shown.strip() == "the last message"
    box.run("podman", "rm", "ended")


def test_deleting_a_pod_stops_the_containers_in_it(box):
    options = line(box, "db", "-c", "main", "-o", "podman")
    pid = start(box, "inside", "--network=none", *options)
    slice_ = options[0].removeprefix("--cgroup-parent=")
    assert f"/{slice_}/libpod-" in group_of(box, pid)
    result = box.podslice("delete", "db")
    assert f"stopped {slice_}" in result.stdout
    with pytest.raises(FileNotFoundError):
        box.get(f"/proc/{pid}/cgroup")
    assert show(box, slice_, "ActiveState") == {"ActiveState": "inactive"}


def test_a_quadlet_is_inside(box):
    text = QUADLET.format(wait=WAIT, printed=printed(box, "web", "-c", "main", "-o", "quadlet"))
    box.put("/etc/containers/systemd/app.container", text)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", "app.service")
    service = f"{WEB_GROUP}/app.service"
    pid = box.get("/run/app.pid").decode()
    assert group_of(box, pid).startswith(f"{service}/libpod-payload-")
    assert kernel(box, service, "memory.max") == str(64 * MI)
    assert kernel(box, service, "cpu.weight") == "9"


def test_a_command_of_systemd_is_inside(box):
    lines = printed(box, "web", "-c", "log", "-o", "systemd").splitlines()
    (command,) = (each for each in lines if each.startswith("# for a command: "))
    *argv, last = shlex.split(command.removeprefix("# for a command: "))
    assert last == "COMMAND"
    report = (
        "cat /proc/self/cgroup /proc/self/oom_score_adj;"
        " cat /sys/fs/cgroup$(cut -c4- /proc/self/cgroup)/memory.max"
    )
    result = box.run(*argv, "--pipe", "--wait", "--quiet", "sh", "-c", report)
    group, adjustment, memory_max = result.stdout.splitlines()
    assert group.startswith(f"0::{WEB_GROUP}/run-")
    assert f"OOMScoreAdjust={adjustment}" in lines
    assert memory_max == str(32 * MI)


def test_the_scope_of_an_oci_runtime_is_the_container_itself(box):
    made = json.loads(printed(box, "web", "-c", "main", "-o", "oci"))
    config = {
        **OCI,
        "annotations": made["annotations"],
        "process": {**OCI["process"], **made["process"]},
        "linux": {**OCI["linux"], **made["linux"]},
    }
    box.put("/bundle/config.json", json.dumps(config))
    crun = ("crun", "--systemd-cgroup")
    detached = ("--detach", "--bundle=/bundle", "--pid-file=/bundle/pid")
    run = f"{shlex.join((*crun, 'run', *detached, 'web'))} >/bundle/log 2>&1"
    box.run("sh", "-c", f"{run} || {{ cat /bundle/log >&2; exit 1; }}")
    scope = f"podslice-pod{default_uid('default', 'web').replace('-', '_')}-main.scope"
    pid = box.get("/bundle/pid").decode()
    assert group_of(box, pid) == f"{WEB_GROUP}/{scope}/container"
    status = box.podslice("status", "-o", "json")
    units = {unit["name"]: unit for unit in json.loads(status.stdout)["units"]}
    assert [each["pid"] for each in units[scope]["processes"]] == [int(pid)]
    box.run(*crun, "delete", "--force", "web")


def test_containers_of_a_user_are_inside_the_pods_of_the_user(box):
    with users.user_manager(box) as podslice:
        podslice("apply", "-f", "/web.yaml")
        options = shlex.split(podslice("cgroup-parent", "web", "-o", "podman").stdout)
        podman = ("env", "--chdir=/home/lab", "HOME=/home/lab", "USER=lab", "podman")

        def start_as_user(name, *options):
            users.command(
                box,
                *(*podman, "run", "--detach", f"--pidfile={users.RUNTIME_DIR}/{name}.pid"),
                *(f"--name={name}", "--network=none", *options),
                *("--rootfs", "/home/lab/rootfs", "/bin/sh", "-c", WAIT),
            )
            return box.get(f"{users.RUNTIME_DIR}/{name}.pid").decode()

        pid = start_as_user("mine", *options)
        start_as_user("elsewhere", "--label=io.podslice.pod=default/web")
        manager = f"/user.slice/user-{users.UID}.slice/{users.MANAGER}"
        assert group_of(box, pid).startswith(f"{manager}{WEB_GROUP}/libpod-")
        result = status_of(podslice)
        assert result.exit_code == 3
        (stray,) = json.loads(result.stdout)["strays"]
        assert stray["what"] == "podman container elsewhere"

        start_as_user("own", "--memory=64m")
        (pod,) = json.loads(podslice("import", "--podman", "own", "-o", "json").stdout)["pods"]
        (imported,) = pod["manifest"]["spec"]["containers"]
        assert imported["resources"]["limits"] == {"memory": "64Mi"}
        # its control group is found: what it uses is the request
        assert imported["resources"]["requests"]["memory"] != "0"
