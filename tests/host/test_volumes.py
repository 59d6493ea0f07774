"""Volumes in memory: mounted in their pod's slice, charged to it, and removed with it."""

import re

import pytest

from tests.host import agent, users
from tests.host.scenario import BIG, apply, control_groups, kernel, records
from tests.lab import fixtures

MI = 2**20
SLICE = "kubepods-burstable-pod12_34.slice"
GROUP = f"/kubepods.slice/kubepods-burstable.slice/{SLICE}"
VOLUMES = "/run/podslice/pods/12-34/volumes"
CACHE, SPOOL = f"{VOLUMES}/my-cache", f"{VOLUMES}/spool"
MOUNT = r"run-podslice-pods-12\x2d34-volumes-my\x2dcache.mount"
FILE = "/tmp/volumes.yaml"
WEB = """\
apiVersion: v1
kind: Pod
metadata: {name: web, uid: 12-34}
spec:
  containers:
  - name: writer
    resources: {requests: {memory: 16Mi}, limits: {memory: 256Mi}}
  - name: reader
  volumes:
  - {name: config, configMap: {name: web}}
  - {name: my-cache, emptyDir: {medium: Memory, sizeLimit: 96Mi}}
  - {name: spool, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
"""
OTHER = """\
apiVersion: v1
kind: Pod
metadata: {name: other}
spec: {containers: [{name: main}]}
"""
# 64 MiB, and then more than the volume allows
WRITE = """
cd "$PODSLICE_VOLUME_MY_CACHE" && pwd
dd if=/dev/zero of=file bs=1M count=64 status=none
dd if=/dev/zero of=more bs=1M count=64 status=none; rm more
"""


@pytest.fixture
def fast(namespace):
    """A booted namespace: no test here depends on cgroup v2."""
    yield from fixtures.keep_clean(namespace)


def mounted(machine):
    return machine.run("sh", "-c", "grep -o '/run/podslice[^ ]*' /proc/mounts || true").stdout


def in_memory(machine):
    """Return the bytes of all files in memory."""
    lines = machine.get("/proc/meminfo").decode()
    return int(re.search(r"^Shmem: +(\d+) kB$", lines, re.MULTILINE)[1]) * 1024


@pytest.mark.cgroup2
def test_files_of_an_ended_container_are_charged_to_the_pod_until_it_is_deleted(clean_vm):
    machine = clean_vm
    before = in_memory(machine)
    machine.put(FILE, WEB)
    apply(machine, "-f", FILE, *BIG)
    options = machine.run("findmnt", "-rno", "FSTYPE,OPTIONS", CACHE).stdout
    assert re.match(r"tmpfs rw,nosuid,nodev,(\w+,)*size=98304k\b", options), options
    assert machine.run("stat", "-c", "%a %U", CACHE).stdout == "1777 root\n"

    written = machine.podslice("run", "web", "-c", "writer", *BIG, "--", "sh", "-c", WRITE)
    assert written.stdout == f"{CACHE}\n"
    assert "No space left on device" in written.stderr
    assert machine.run("ls", f"/sys/fs/cgroup{GROUP}").stdout.find(".scope") == -1
    assert int(kernel(machine, GROUP, "memory.current")) >= 64 * MI
    shared = re.search(r"^shmem (\d+)$", kernel(machine, GROUP, "memory.stat"), re.MULTILINE)
    assert int(shared[1]) >= 64 * MI

    # a process outside of pods has the volume open, and does not block the deletion of the pod
    holder = machine.spawn("sh", "-c", f"cd {CACHE} && exec sleep 1000")
    machine.run(
        "timeout",
        "120",
        "sh",
        "-c",
        f"until [ /proc/{holder.pid}/cwd -ef {CACHE} ]; do sleep 0.1; done",
    )
    deleted = machine.podslice("delete", "web", *BIG)
    assert deleted.exit_code == 0
    assert mounted(machine) == ""
    assert records(machine) == []
    assert control_groups(machine) == []
    assert machine.run("test", "-e", "/run/podslice", check=False).exit_code == 1
    holder.kill()
    holder.wait()
    machine.run("sh", "-c", f"while [ -e /proc/{holder.pid} ]; do sleep 0.1; done")
    assert in_memory(machine) < before + 16 * MI


def test_another_manifest_removes_volumes_and_keeps_the_size_of_others(fast):
    fast.put(FILE, WEB)
    apply(fast, "-f", FILE, *BIG)
    fast.podslice("run", "web", "-c", "reader", "--detach", *BIG, "--", "sleep", "1000")
    fast.run("sh", "-c", f"echo kept >{CACHE}/file")
    lines = WEB.replace("96Mi", "32Mi").splitlines(keepends=True)
    fast.put(FILE, "".join(line for line in lines if "spool" not in line))
    changed = apply(fast, "-f", FILE, *BIG)
    assert "pod default/web no longer has volume spool" in changed.stdout
    assert f"skipped the new size of {MOUNT}" in changed.stdout
    assert "delete the pod first to change the size" in changed.stdout
    assert mounted(fast) == f"{CACHE}\n"
    assert fast.get(f"{CACHE}/file") == b"kept\n"
    again = fast.podslice("plan", "-f", FILE, *BIG)
    assert again.stdout.splitlines()[-1] == "nothing to do"
    fast.put(FILE, WEB)
    apply(fast, "-f", FILE, *BIG)
    assert sorted(mounted(fast).split()) == [CACHE, SPOOL]
    fast.run("rm", "/run/podslice/pods/12-34.json")
    lost = fast.podslice("plan", *BIG, "-f", "-", input=OTHER, check=False)
    assert "pod default/web has no record" in lost.stderr
    assert ".mount" not in lost.stdout


def test_a_volume_that_was_unmounted_externally_is_mounted_again(fast):
    fast.put(FILE, WEB)
    apply(fast, "-f", FILE, *BIG)
    # a container that is started after its volumes keeps their units loaded
    fast.podslice("run", "web", "-c", "reader", "--detach", *BIG, "--", "sleep", "1000")
    fast.run("umount", CACHE)
    # systemd delays reading the mounts when they change often
    agent.until(lambda: not agent.is_active(fast, MOUNT), what="systemd without the mount")
    planned = fast.podslice("plan", "-f", FILE, *BIG, check=False)
    assert planned.exit_code == 3
    assert MOUNT in planned.stdout
    apply(fast, "-f", FILE, *BIG)
    assert sorted(mounted(fast).split()) == [CACHE, SPOOL]


def test_a_foreign_mount_in_the_place_of_a_volume_is_reported_and_stays(fast):
    """podslice removes only its own mounts."""
    fast.put(FILE, WEB)
    apply(fast, "-f", FILE, *BIG)
    foreign = f"{VOLUMES}/foreign"
    fast.run(
        "sh", "-c", f"mkdir {foreign} && mount -t tmpfs none {foreign} && touch {foreign}/kept"
    )
    deleted = fast.podslice("delete", "web", *BIG, check=False)
    assert deleted.exit_code == 1
    assert f"something is still mounted at {foreign}" in deleted.stdout + deleted.stderr
    assert fast.run("ls", foreign).stdout == "kept\n"
    fast.run("umount", foreign)
    assert fast.podslice("delete", "web", *BIG).exit_code == 0
    assert fast.run("test", "-e", "/run/podslice", check=False).exit_code == 1


def test_without_the_right_to_mount_a_volume_is_a_directory(fast):
    fast.put(FILE, WEB)
    place = f"{users.RUNTIME_DIR}/podslice/pods/12-34/volumes/my-cache"
    with users.user_manager(fast) as podslice:
        errors = podslice("apply", "-f", FILE, *BIG).stderr
        assert f"volume my-cache is the directory {place}, without a size of its own" in errors
        assert fast.run("stat", "-c", "%a %U", place).stdout == f"700 {users.NAME}\n"
        script = (
            'mkdir -p "$PODSLICE_VOLUME_MY_CACHE/a" && echo text >"$PODSLICE_VOLUME_MY_CACHE/a/b"'
        )
        podslice("run", "web", "-c", "writer", *BIG, "--", "sh", "-c", script)
        assert fast.get(f"{place}/a/b") == b"text\n"
        assert mounted(fast) == ""
        again = podslice("apply", "-f", FILE, *BIG)
        assert (again.stdout, again.stderr) == ("nothing to do\n", "")
        assert podslice("delete", "web", *BIG).exit_code == 0
        left = fast.run("test", "-e", f"{users.RUNTIME_DIR}/podslice", check=False)
        assert left.exit_code == 1


def test_a_terminating_container_has_its_volumes_to_the_end(fast):
    """A volume is removed after the containers, so that these can still write."""
    fast.put(FILE, WEB)
    apply(fast, "-f", FILE, *BIG)
    last = "for n in $(seq 300); do /bin/true; done; echo bye >$PODSLICE_VOLUME_SPOOL/x; mountpoint -q $PODSLICE_VOLUME_SPOOL && cp $PODSLICE_VOLUME_SPOOL/x"
    script = (
        f"trap '{last} /tmp/volumes.end; exit' TERM; touch /tmp/volumes.up; while :; do :; done"
    )
    fast.podslice("run", "web", "-c", "reader", "--detach", *BIG, "--", "sh", "-c", script)
    fast.run("sh", "-c", "until [ -e /tmp/volumes.up ]; do sleep 0.1; done")
    fast.podslice("delete", "web", *BIG)
    assert fast.get("/tmp/volumes.end") == b"bye\n"
    assert mounted(fast) == ""
