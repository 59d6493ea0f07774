"""Findings about control groups: their layout and the controllers of each level. Pure."""

from __future__ import annotations

from podslice.doctor.facts import Facts, Layout
from podslice.doctor.finding import Finding, FindingState

_SYSTEMD_WITHOUT_V1 = 258
"""Source: systemd's NEWS, 258."""
_NEEDED = {
    "cpu": "CPUWeight and CPUQuota have no effect",
    "memory": "MemoryMax, MemoryHigh and MemoryLow have no effect",
    "pids": "TasksMax has no effect",
}
"""The controllers that podslice needs, and the effect of their absence."""
_AVAILABLE = "cpu, memory and pids are available"
_USEFUL = ("cpuset", "io")
"""The controllers that units in pods may need."""

_DROP_IN = "/etc/systemd/system/user@.service.d/podslice.conf"
_DELEGATION = (
    f"as root: mkdir -p {_DROP_IN.rpartition('/')[0]} &&"
    rf" printf '[Service]\nDelegate=cpu cpuset io memory pids\n' > {_DROP_IN} &&"
    " systemctl daemon-reload; then end all sessions of the user, and log in again"
)
_BOOT_V2 = "boot with systemd.unified_cgroup_hierarchy=1"


def layout(facts: Facts) -> Finding:
    """Return whether control groups have version 2, and the effect of another one."""
    if facts.layout is Layout.V2 and facts.protects_below:
        return Finding(check="cgroup", state=FindingState.OK, what="cgroup v2")
    if facts.layout is Layout.V2:
        return Finding(
            check="cgroup",
            state=FindingState.INFO,
            what="cgroup v2, mounted without memory_recursiveprot",
            effect="MemoryLow of a pod protects only what its containers request",
            # a remount removes options that it does not name
            fix="mount -o remount,nsdelegate,memory_recursiveprot"
            f"{',memory_hugetlb_accounting' if facts.counts_hugepages else ''} /sys/fs/cgroup",
        )
    if facts.layout is Layout.NONE:
        return Finding(
            check="cgroup",
            state=FindingState.ATTENTION,
            what="no control groups are mounted at /sys/fs/cgroup",
            effect="nothing is limited, and usage cannot be read",
            fix="mount -t cgroup2 cgroup2 /sys/fs/cgroup, which systemd does at boot",
        )
    how = "the hybrid layout" if facts.layout is Layout.HYBRID else "cgroup v1"
    is_last = (facts.systemd.version or 0) < _SYSTEMD_WITHOUT_V1
    unsupported = f"; systemd {_SYSTEMD_WITHOUT_V1} and later require cgroup v2" if is_last else ""
    return Finding(
        check="cgroup",
        state=FindingState.ATTENTION,
        what=f"{how}, not cgroup v2",
        effect="weights, quotas, MemoryMax and TasksMax work; MemoryLow, MemoryMin and MemoryHigh"
        f" do not, nor does limiting huge pages{unsupported}",
        fix=_BOOT_V2,
    )


def controllers(facts: Facts) -> Finding:
    """Return whether the needed controllers are available, delegated and enabled."""
    missing = [name for name in _NEEDED if name not in facts.controllers]
    if facts.slice_controllers is not None and not missing:
        return _in_slice(facts, facts.slice_controllers)
    if facts.manager.is_user:
        return _delegated(facts, missing)
    if not missing:
        return Finding(check="controllers", state=FindingState.OK, what=_AVAILABLE)
    return Finding(
        check="controllers",
        state=FindingState.ATTENTION,
        what=f"{_list(missing)} {_is(missing)} not available",
        effect="; ".join(_NEEDED[name] for name in missing),
        fix="; ".join(_enabled(facts, name) for name in missing),
    )


def _in_slice(facts: Facts, controllers: frozenset[str]) -> Finding:
    """Return the controllers of the root slice, which exists already."""
    missing = [name for name in _NEEDED if name not in controllers]
    if not missing:
        if facts.manager.is_user:
            return _delegated(facts, [])
        return Finding(
            check="controllers",
            state=FindingState.OK,
            what=f"{_AVAILABLE}, also in {facts.root_slice}",
        )
    return Finding(
        check="controllers",
        state=FindingState.ATTENTION,
        what=f"{_list(missing)} {_is(missing)} not enabled in {facts.root_slice}, but available",
        effect="; ".join(_NEEDED[name] for name in missing),
        fix="systemd enables them with the next change of a pod; otherwise its log states the reason:"
        " journalctl -b _PID=1 -g controller",
    )


def _enabled(facts: Facts, name: str) -> str:
    """Return the remedy for a controller that the kernel does not offer."""
    for word in facts.command_line:
        key, _, names = word.partition("=")
        if key == "cgroup_disable" and name in names.split(","):
            return f"remove {word} from the kernel's command line"
    if name == "memory":
        return "boot with cgroup_enable=memory"
    return f"boot a kernel with the {name} controller (CONFIG_CGROUP_{_CONFIG[name]})"


_CONFIG = {"cpu": "SCHED", "pids": "PIDS"}


def _delegated(facts: Facts, missing: list[str]) -> Finding:
    """Return whether the controllers are delegated to a user's manager."""
    if facts.layout is not Layout.V2:
        return Finding(
            check="controllers",
            state=FindingState.ATTENTION,
            what="a user's manager has no controllers with cgroup v1",
            effect="pods are created without limits",
            fix=_BOOT_V2,
        )
    if missing:
        return Finding(
            check="controllers",
            state=FindingState.ATTENTION,
            what=f"{_list(missing)} {_is(missing)} not delegated to the user's manager",
            effect="; ".join(_NEEDED[name] for name in missing),
            fix=_DELEGATION,
        )
    rest = [name for name in _USEFUL if name not in facts.controllers]
    if rest:
        return Finding(
            check="controllers",
            state=FindingState.INFO,
            what=f"cpu, memory and pids are delegated to the user's manager; {_list(rest)}"
            f" {_is(rest)} not",
            effect="podslice sets no properties of these; units and containers in pods cannot either",
            fix=_DELEGATION,
        )
    return Finding(
        check="controllers",
        state=FindingState.OK,
        what="cpu, memory, pids, cpuset and io are delegated to the user's manager",
    )


def hugepages(facts: Facts) -> Finding:
    """Return whether huge pages can be limited: systemd does not enable this controller.

    Where they count as memory and are not limited, a process with more of them than MemoryMax
    allows is not killed; see `policy.hugepages.with_hugepages`.
    """
    hugetlb = facts.hugetlb
    effect = "pods that request huge pages are created without limits of these"
    if facts.counts_hugepages:
        effect += "; a process with more of them than its MemoryMax allows hangs in a page fault"
    if facts.manager.is_user:
        what, fix = "a user's manager cannot limit huge pages", "apply such pods as root"
    elif facts.layout is not Layout.V2:
        what, fix = "huge pages cannot be limited without cgroup v2", _BOOT_V2
    elif not hugetlb.known:
        what = "the kernel has no hugetlb controller"
        fix = "boot a kernel of 5.6 or later with CONFIG_CGROUP_HUGETLB"
    elif hugetlb.stops_at is not None:
        path = f"/sys/fs/cgroup{hugetlb.stops_at.rstrip('/')}/cgroup.subtree_control"
        what = f"the hugetlb controller is not enabled below {hugetlb.stops_at}"
        fix = (
            f"echo +hugetlb > {path}; and for every boot:"
            f" echo 'w {path} - - - - +hugetlb' > /etc/tmpfiles.d/hugetlb.conf"
        )
    else:
        return Finding(
            check="hugepages",
            state=FindingState.OK,
            what=f"huge pages can be limited; {_pages(facts)}",
        )
    return Finding(
        check="hugepages",
        state=FindingState.ATTENTION if hugetlb.pages else FindingState.INFO,
        what=f"{what}; {_pages(facts)}",
        effect=effect,
        fix=fix,
    )


def _pages(facts: Facts) -> str:
    count = facts.hugetlb.pages
    verb = "is" if count == 1 else "are"
    text = f"{count or 'none'} {verb} allocated on this host"
    return text + (", and they count as memory" if facts.counts_hugepages else "")


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _list(names: list[str]) -> str:
    """`cpu, memory and pids`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
