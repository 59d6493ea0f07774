"""Small hosts, each with one peculiarity, and the findings of doctor."""

import pytest

from podslice.errors import HostError, warning
from podslice.features.doctor.facts import SystemdReply
from podslice.features.doctor.findings import FindingState
from podslice.model.node_state import Foreign, Kubelet
from podslice.model.unit import user_manager
from tests.unit.features.doctor.hosts import (
    LEGACY,
    PLAIN,
    ROOT,
    USER,
    USER_GROUP,
    facts,
    findings,
    host,
)

DOWN = SystemdReply(version=None, error="/run/dbus: no such file")
MOUNT = "cgroup2 /sys/fs/cgroup cgroup2 rw,{} 0 0\n"
COUNTED = {"proc/self/mounts": MOUNT.format("memory_recursiveprot,memory_hugetlb_accounting")}
POOL = {"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "8\n"}
CONTROLLERS = "sys/fs/cgroup/cgroup.controllers"
HANDED_DOWN = "sys/fs/cgroup/cgroup.subtree_control"
SLICE = "sys/fs/cgroup/kubepods.slice/cgroup.controllers"
LINGERS = {"var/lib/systemd/linger/4711": ""}
PACKAGE = {"etc/podslice/manifests/web.yaml": ""}


def test_a_plain_host_has_no_problem(tmp_path):
    found = findings(host(tmp_path))
    assert list(found) == [
        "systemd",
        "rights",
        "cgroup",
        "controllers",
        "hugepages",
        "kernel",
        "pressure",
        "swap",
    ]
    assert {each.state for each in found.values()} == {FindingState.OK}
    assert not any(each.effect or each.fix for each in found.values())


def test_a_user_with_all_delegations_has_no_problem(tmp_path):
    found = findings(host(tmp_path, LINGERS), USER)
    grave = {name: each.state for name, each in found.items() if each.state is not FindingState.OK}
    assert grave == dict.fromkeys(("hugepages", "oom-score", "volumes"), FindingState.INFO)


CASES = {
    # systemd
    "systemd without PIDFDs": (
        {},
        {"systemd": SystemdReply(version=252)},
        ("systemd", "info", "is systemd 252", "not by descriptor (PIDFDs)", "none is needed"),
    ),
    "an untested systemd": (
        {},
        {"systemd": SystemdReply(version=239)},
        (
            *("systemd", "attention", "is systemd 239"),
            *("ManagedOOMSwap, MemoryMin", "systemd 252 or later"),
        ),
    ),
    "an untested systemd with all properties": (
        {},
        {"systemd": SystemdReply(version=249)},
        ("systemd", "attention", "is systemd 249", "tested with 252 and later", "252 or later"),
    ),
    "another process 1": (
        {"proc/1/comm": "runit\n"},
        {"systemd": DOWN},
        ("systemd", "attention", "process 1 is runit", "nothing can be applied", "boot with"),
    ),
    "process 1 hidden": (
        {"proc/1/comm": None},
        {"systemd": DOWN},
        ("systemd", "attention", "process 1 is unknown, not systemd", "", ""),
    ),
    "no bus": (
        {},
        {"systemd": DOWN},
        (
            *("systemd", "attention", "does not answer: /run/dbus: no such file"),
            *("nothing can be applied", "systemctl start dbus.socket"),
        ),
    ),
    "no user manager": (
        {},
        {"systemd": DOWN, "subject": USER},
        (
            *("systemd", "attention", "the user's manager does not answer: /run/dbus"),
            *("nothing can be", "loginctl enable-linger 4711, and set XDG_RUNTIME_DIR=/run/user"),
        ),
    ),
    # who may write
    "a user": (
        {},
        {"uid": 1000},
        ("rights", "info", "user 1000 is not root", "something fail", "as root, or use --user"),
    ),
    "a user of a host with the package": (
        PACKAGE,
        {"uid": 1000},
        ("rights", "info", "", "", "members of podslice-admin write manifests to /etc/podslice"),
    ),
    "no session": (
        {},
        {"subject": USER, "manager": user_manager(4711, {})},
        (
            *("session", "attention", "XDG_RUNTIME_DIR is not set", "cannot be stored"),
            "XDG_RUNTIME_DIR=/run/user/4711",
        ),
    ),
    "another user's session": (
        {"run/user/4711/bus": ""},
        {"subject": USER},
        (
            *("session", "attention", "is /run/user/4711, which belongs to user ", "--user fails"),
            "set XDG_RUNTIME_DIR=/run/user/4711",
        ),
    ),
    "no lingering": (
        {},
        {"subject": USER},
        (
            *("session", "info", "user 4711 does not linger", "stop with the user's last session"),
            "loginctl enable-linger 4711",
        ),
    ),
    # control groups
    "no recursive protection": (
        {"proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"},
        {},
        ("cgroup", "info", "without memory_recursiveprot", "MemoryLow", "mount -o remount,"),
    ),
    # any user can mount with FUSE, and name what is mounted
    "hostile mounts": (
        {
            "proc/self/mounts": (
                "x\fy /home/eve/\x85m fuse.x rw 0 0\n"
                "x\x85x\f/sys/fs/cgroup\fcgroup2\fmemory_recursiveprot /mnt fuse.x rw 0 0\n"
                "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"
            )
        },
        {},
        ("cgroup", "info", "without memory_recursiveprot", "MemoryLow", "mount -o remount,"),
    ),
    "no control groups": (
        {"proc/self/mounts": "", CONTROLLERS: None, HANDED_DOWN: None},
        {},
        ("cgroup", "attention", "no control groups", "nothing is limited", "mount -t cgroup2"),
    ),
    "no memory controller": (
        {CONTROLLERS: "cpuset cpu io pids\n"},
        {},
        (
            "controllers",
            "attention",
            "memory is not available",
            "MemoryMax",
            "cgroup_enable=memory",
        ),
    ),
    "the memory controller disabled": (
        {
            CONTROLLERS: "cpuset cpu io pids\n",
            "proc/cmdline": "quiet cgroup_disable=rdma,memory ro\n",
        },
        {},
        ("controllers", "attention", "memory is not", "", "remove cgroup_disable=rdma,memory"),
    ),
    "two controllers missing": (
        {CONTROLLERS: "io memory\n"},
        {},
        (
            *("controllers", "attention", "cpu and pids are not available"),
            *("CPUWeight and CPUQuota have no effect; TasksMax has no effect", "CONFIG_CGROUP_"),
        ),
    ),
    "the root slice exists": (
        {SLICE: "cpu memory hugetlb pids\n"},
        {},
        ("controllers", "ok", "are available, also in kubepods.slice", "", ""),
    ),
    "the root slice lacks a controller": (
        {SLICE: "memory pids\n"},
        {},
        (
            "controllers",
            "attention",
            "cpu is not enabled in kubepods.slice",
            "CPUWeight",
            "journalctl",
        ),
    ),
    "nothing delegated": (
        {f"{USER_GROUP}/cgroup.controllers": "\n"},
        {"subject": USER},
        (
            *("controllers", "attention", "cpu, memory and pids are not delegated"),
            *("no effect", r"printf '[Service]\nDelegate=cpu cpuset io memory pids\n' > /etc/sys"),
        ),
    ),
    "the manager's control group does not exist": (
        {f"{USER_GROUP}/cgroup.controllers": None},
        {"subject": USER},
        ("controllers", "attention", "cpu, memory and pids are not delegated", "", "daemon-reload"),
    ),
    "delegated by default": (
        {f"{USER_GROUP}/cgroup.controllers": "cpu memory pids\n"},
        {"subject": USER},
        (
            *(
                "controllers",
                "info",
                "cpuset and io are not",
                "podslice sets no properties of these",
            ),
            "/etc/systemd/system/user@.service.d/podslice.conf",
        ),
    ),
    "delegated, and the root slice exists": (
        {f"{USER_GROUP}/kubepods.slice/cgroup.controllers": "cpu memory pids\n"},
        {"subject": USER},
        ("controllers", "ok", "are delegated to the user's manager", "", ""),
    ),
    # huge pages
    "hugetlb not enabled": (
        {HANDED_DOWN: "cpu memory pids\n"},
        {},
        (
            *("hugepages", "info", "not enabled below /; none are allocated", "without limits"),
            "echo +hugetlb > /sys/fs/cgroup/cgroup.subtree_control; and for every boot: echo 'w /",
        ),
    ),
    "hugetlb not enabled, and huge pages allocated": (
        {HANDED_DOWN: "cpu memory pids\n"} | POOL,
        {},
        (
            "hugepages",
            "attention",
            "not enabled below /; 8 are allocated",
            "without limits",
            "echo",
        ),
    ),
    "hugetlb not enabled further below": (
        {"sys/fs/cgroup/podslice.slice/cgroup.subtree_control": "memory\n"},
        {"control_group": "/podslice.slice/podslice-kubepods.slice"},
        (
            *("hugepages", "info", "not enabled below /podslice.slice;", ""),
            "> /sys/fs/cgroup/podslice.slice/cgroup.subtree_control",
        ),
    ),
    "no hugetlb in the kernel": (
        {CONTROLLERS: "cpu memory pids\n", HANDED_DOWN: "cpu memory pids\n"} | POOL,
        {},
        ("hugepages", "attention", "the kernel has no hugetlb", "", "CONFIG_CGROUP_HUGETLB"),
    ),
    "huge pages that count as memory": (
        COUNTED | POOL,
        {},
        ("hugepages", "ok", "8 are allocated on this host, and they count as memory", "", ""),
    ),
    "huge pages that count as memory and are not limited": (
        {HANDED_DOWN: "cpu memory pids\n"} | COUNTED | POOL,
        {},
        (
            *("hugepages", "attention", "8 are allocated on this host, and they count as memory"),
            *(
                "a process with more of them than its MemoryMax allows hangs in a page fault",
                "echo",
            ),
        ),
    ),
    "a remount that keeps options": (
        {"proc/self/mounts": MOUNT.format("nsdelegate,memory_hugetlb_accounting")},
        {},
        ("cgroup", "info", "without memory_recursiveprot", "", ",memory_hugetlb_accounting /sys"),
    ),
    "a huge page for users": (
        {"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "1\n"},
        {"subject": USER},
        (
            "hugepages",
            "attention",
            "a user's manager cannot limit huge pages; 1 is allocated",
            "",
            "as root",
        ),
    ),
    # what else there is
    "a kubelet": (
        {},
        {
            "systemd": SystemdReply(
                version=257,
                foreign=Foreign(reason="kubepods.slice belongs to a kubelet", way_out="go away"),
            )
        },
        (
            *("kubelet", "attention", "kubepods.slice belongs to a kubelet"),
            *("podslice changes nothing: apply, delete, run", "go away"),
        ),
    ),
    "a kubelet, and pods elsewhere": (
        {},
        {"systemd": SystemdReply(version=257, kubelets=(Kubelet(pid=77, name="k3s-server"),))},
        ("kubelet", "ok", "podslice's pods are below another root", "", ""),
    ),
    "a kubelet that claims the same": (
        {},
        {
            "systemd": SystemdReply(
                version=257,
                kubelets=(Kubelet(pid=77, name="kubelet"),),
                claims=(warning("", "both claim it", "reserve it"),),
            )
        },
        ("kubelet", "attention", "both claim it", "while both are busy", "reserve it"),
    ),
    "an old kernel": (
        {"proc/sys/kernel/osrelease": "5.4.0-42-generic\n"},
        {},
        ("kernel", "info", "Linux 5.4.0-42-generic", "huge pages cannot be", "5.14 or later"),
    ),
    "a kernel of another kind": (
        {"proc/sys/kernel/osrelease": "next\n"},
        {},
        ("kernel", "info", "Linux next", "pidfd_open", ""),
    ),
    "no pressure": (
        {"proc/pressure/memory": None},
        {},
        ("pressure", "info", "does not measure pressure", "limits work", "boot with psi=1"),
    ),
    "pressure disabled": (
        {"proc/pressure/memory": None, "proc/cmdline": "psi=0\n"},
        {},
        ("pressure", "info", "", "", "boot without psi=0"),
    ),
    "swap": (
        {"proc/meminfo": "MemTotal: 1 kB\nSwapTotal:       2097148 kB\n"},
        {},
        (
            "swap",
            "info",
            "swap is enabled, 2 GiB",
            "memory limits do not include it",
            "swapoff -a",
        ),
    ),
}


@pytest.mark.parametrize(("change", "subject", "expected"), CASES.values(), ids=CASES)
def test_finding(tmp_path, change, subject, expected):
    check, state, what, effect, fix = expected
    found = findings(host(tmp_path, change), **subject)[check]
    assert found.state == state
    assert what in found.what
    assert effect in found.effect
    assert fix in found.fix
    if found.state is not FindingState.OK:
        assert all((found.what, found.effect, found.fix))
        assert not found.fix.endswith(".")


@pytest.mark.parametrize(
    ("change", "layout"),
    [
        ({}, "cgroup v1"),
        ({"sys/fs/cgroup/unified/cgroup.procs": ""}, "the hybrid layout"),
    ],
)
def test_cgroup_v1_and_hybrid(tmp_path, change, layout):
    found = findings(host(tmp_path, change, base=LEGACY))
    assert (found["cgroup"].state, found["cgroup"].what) == (
        "attention",
        f"{layout}, not cgroup v2",
    )
    assert "MemoryLow, MemoryMin and MemoryHigh do not" in found["cgroup"].effect
    assert "systemd 258 and later require" in found["cgroup"].effect
    assert "systemd.unified_cgroup_hierarchy=1" in found["cgroup"].fix
    assert found["controllers"].state == "ok"
    assert found["hugepages"].state == "info"
    assert (
        "systemd 258" not in findings(tmp_path, systemd=SystemdReply(version=258))["cgroup"].effect
    )


def test_users_have_no_controllers_with_cgroup_v1(tmp_path):
    found = findings(host(tmp_path, base=LEGACY), USER)["controllers"]
    assert (found.state, found.effect) == ("attention", "pods are created without limits")


def test_limits_of_a_user_are_findings(tmp_path):
    found = findings(host(tmp_path), USER)
    assert found["oom-score"].what == "oom_score_adj cannot be below that of the session, 100"
    assert "directories below XDG_RUNTIME_DIR" in found["volumes"].effect


@pytest.mark.parametrize(
    "name", ["proc/meminfo", "proc/sys/kernel/osrelease", "proc/self/oom_score_adj"]
)
def test_a_host_that_can_not_be_read_is_an_error(tmp_path, name):
    root = host(tmp_path, {name: None})
    with pytest.raises(HostError, match=r"this host cannot be read: .*; is /proc mounted\?"):
        facts(root)


def test_a_host_without_a_swap_line_has_no_swap(tmp_path):
    assert facts(host(tmp_path, {"proc/meminfo": "MemTotal: 1 kB\n"})).swap_bytes == 0


def test_the_session_has_the_users_name(tmp_path):
    session = facts(host(tmp_path), USER, manager=user_manager(0, {})).session
    assert session.name == "root"


def test_facts_are_of_the_system_or_of_a_user(tmp_path):
    root = host(tmp_path)
    assert not facts(root, ROOT).manager.is_user
    assert facts(root, USER).manager.is_user
    assert PLAIN["proc/1/comm"].strip() == facts(root).first_process
