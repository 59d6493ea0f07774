"""Hosts for the doctor, as trees of files."""

from podslice.features.doctor.facts import Subject, SystemdReply, read_facts
from podslice.features.doctor.findings import check_host
from podslice.model.unit import user_manager
from tests.unit.builders import make_files

UP = SystemdReply(version=257)
ROOT = Subject(uid=0)
USER = Subject(
    uid=4711, manager=user_manager(4711, {"XDG_RUNTIME_DIR": "/run/user/4711", "HOME": "/home/web"})
)
USER_GROUP = "sys/fs/cgroup/user.slice/user-4711.slice/user@4711.service"

# Debian 13 as it is installed
PLAIN = {
    "proc/1/comm": "systemd\n",
    "proc/cmdline": "root=/dev/vda rw quiet\n",
    "proc/meminfo": "MemTotal:       16384 kB\nSwapTotal:             0 kB\n",
    "proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    "proc/self/mounts": (
        "proc /proc proc rw 0 0\n"
        "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nsdelegate,memory_recursiveprot 0 0\n"
    ),
    "proc/self/oom_score_adj": "100\n",
    "proc/sys/kernel/osrelease": "6.12.9-amd64\n",
    "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n",
    "sys/fs/cgroup/cgroup.subtree_control": "cpu memory hugetlb pids\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0\n",
    f"{USER_GROUP}/cgroup.controllers": "cpuset cpu io memory pids\n",
}
# the same with cgroup v1, as systemd mounts it
LEGACY = {
    **{
        name: text
        for name, text in PLAIN.items()
        if not name.startswith(("sys/fs", "proc/self/mounts"))
    },
    "proc/self/mounts": "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n",
    "sys/fs/cgroup/systemd/cgroup.procs": "",
    "sys/fs/cgroup/cpu/cgroup.procs": "",
    "sys/fs/cgroup/memory/cgroup.procs": "",
    "sys/fs/cgroup/pids/cgroup.procs": "",
    "sys/fs/cgroup/blkio/cgroup.procs": "",
}


def host(root, *changes, base=PLAIN):
    """A host below a directory; a change to None is a file less."""
    files = dict(base)
    for change in changes:
        files |= change
    return make_files(root, {name: text for name, text in files.items() if text is not None})


def facts(root, subject=ROOT, systemd=UP, **more):
    return read_facts(systemd, subject._replace(**more), root)


def findings(root, subject=ROOT, systemd=UP, **more):
    """Findings by the name of their check."""
    return {each.check: each for each in check_host(facts(root, subject, systemd, **more))}


def program(*names):
    return {f"usr/bin/{name}": "#!/bin/sh\n" for name in names}
