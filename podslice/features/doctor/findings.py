"""Findings from facts: the state of the host, its effect on pods, and the remedy. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

from podslice.errors import Problem
from podslice.features.doctor.facts import SYSTEMD, Facts, Layout, Runtime, Session
from podslice.model.node_state import Foreign, Kubelet
from podslice.model.properties import PROPERTIES
from podslice.model.quantity import human_bytes


class FindingState(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    INFO = "info"
    """Informative; no action is needed."""
    ATTENTION = "attention"
    """Something will not work as the manifests request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    check: str
    state: FindingState
    what: str
    effect: str
    fix: str


def _ok(check: str, what: str) -> Finding:
    return Finding(check=check, state=FindingState.OK, what=what, effect="", fix="")


def _info(check: str, what: str, *, effect: str, fix: str) -> Finding:
    return Finding(check=check, state=FindingState.INFO, what=what, effect=effect, fix=fix)


def _attention(check: str, what: str, *, effect: str, fix: str) -> Finding:
    return Finding(check=check, state=FindingState.ATTENTION, what=what, effect=effect, fix=fix)


SYSTEMD_LEAST = 252
"""The oldest tested version."""
_SYSTEMD_LACKS = ((255, "processes join a new scope by number only, not by descriptor (PIDFDs)"),)
"""A version, and what earlier ones lack. Source: systemd, pull request 29455."""

_KERNEL_LACKS = (
    ((5, 3), "processes cannot be referred to by descriptor (pidfd_open)"),
    ((5, 6), "huge pages cannot be limited (no hugetlb on cgroup v2)"),
    ((5, 7), "MemoryLow of a pod protects only what its containers request (memory_recursiveprot)"),
    ((5, 14), "the processes of a pod are killed one by one, not at once (cgroup.kill)"),
)
"""Source: Linux, admin-guide/cgroup-v2.rst and its history; pidfd_open(2)."""

_SYSTEMD_WITHOUT_V1 = 258
"""Source: systemd's NEWS, 258."""
_NEEDED = {
    "cpu": "CPUWeight and CPUQuota have no effect",
    "memory": "MemoryMax, MemoryHigh and MemoryLow have no effect",
    "pids": "TasksMax has no effect",
}
"""The controllers that podslice needs, and the effect of their absence."""
_AVAILABLE = "cpu, memory and pids are available"
_CONFIG = {"cpu": "SCHED", "pids": "PIDS"}
_USEFUL = ("cpuset", "io")
"""The controllers that units in pods may need."""

_DROP_IN = "/etc/systemd/system/user@.service.d/podslice.conf"
_DELEGATION = (
    f"as root: mkdir -p {_DROP_IN.rpartition('/')[0]} &&"
    rf" printf '[Service]\nDelegate=cpu cpuset io memory pids\n' > {_DROP_IN} &&"
    " systemctl daemon-reload; then end all sessions of the user, and log in again"
)
_BOOT_V2 = "boot with systemd.unified_cgroup_hierarchy=1"


def check_host(facts: Facts) -> Iterator[Finding]:
    """Yield all findings about a host, also those without a problem."""
    yield _systemd(facts)
    if facts.session is not None:
        yield _session(facts, facts.session)
    else:
        yield _rights(facts)
    yield _layout(facts)
    if facts.layout is not Layout.NONE:
        yield _controllers(facts)
    yield _hugepages(facts)
    if facts.session is not None:
        yield from _user_limits(facts)
    if (foreign := facts.systemd.foreign) is not None:
        yield _foreign(foreign)
    elif facts.systemd.kubelets:
        yield from _kubelet(facts.systemd.kubelets[0], facts.systemd.claims)
    yield from (_runtime(runtime) for runtime in facts.runtimes)
    yield _kernel(facts)
    yield _pressure(facts)
    yield _swap(facts)


def _systemd(facts: Facts) -> Finding:
    version = facts.systemd.version
    if version is None:
        return _no_systemd(facts)
    whose = "the user's manager" if facts.manager.is_user else "the service manager"
    if version < SYSTEMD_LEAST:
        rows = (row for row in PROPERTIES.values() if row.managed)
        unknown = sorted(row.key for row in rows if row.since > version)
        left_out = (
            f"; properties that it lacks are not set: {', '.join(unknown)}" if unknown else ""
        )
        return _attention(
            "systemd",
            f"{whose} is systemd {version}",
            effect=f"podslice is tested with {SYSTEMD_LEAST} and later{left_out}",
            fix=f"a distribution with systemd {SYSTEMD_LEAST} or later",
        )
    lacks = [what for since, what in _SYSTEMD_LACKS if version < since]
    return Finding(
        check="systemd",
        state=FindingState.INFO if lacks else FindingState.OK,
        what=f"{whose} is systemd {version}",
        effect="; ".join(lacks),
        fix="none is needed: podslice checks that the processes moved" if lacks else "",
    )


def _no_systemd(facts: Facts) -> Finding:
    if facts.first_process != SYSTEMD:
        what = f"process 1 is {facts.first_process or 'unknown'}, not systemd"
        fix = "boot with systemd; in a container, run podslice on the host"
    elif facts.manager.is_user:
        what = f"the user's manager does not answer: {facts.systemd.error}"
        name = facts.session.name if facts.session else facts.uid
        fix = f"loginctl enable-linger {name}, and set XDG_RUNTIME_DIR=/run/user/{facts.uid}"
    else:
        what = f"systemd does not answer: {facts.systemd.error}"
        fix = "install dbus (or dbus-broker), and start it: systemctl start dbus.socket"
    return _attention(
        "systemd",
        what,
        effect="check, explain, render and plan work; nothing can be applied",
        fix=fix,
    )


def _rights(facts: Facts) -> Finding:
    if facts.uid == 0:
        return _ok("rights", "root may change everything")
    by_group = (
        "; members of podslice-admin write manifests to /etc/podslice/manifests,"
        " and podslice-agent.service applies them"
    )
    return _info(
        "rights",
        f"user {facts.uid} is not root",
        effect="verbs that read work; those that change something fail",
        fix=f"run these as root, or use --user{by_group if facts.has_manifest_dir else ''}",
    )


def _session(facts: Facts, session: Session) -> Finding:
    if not session.directory:
        return _attention(
            "session",
            "XDG_RUNTIME_DIR is not set: there is no session",
            effect="records of pods cannot be stored, and nothing can be applied",
            fix=f"log in; or loginctl enable-linger {session.name}, and set"
            f" XDG_RUNTIME_DIR=/run/user/{facts.uid}",
        )
    if session.owner not in (facts.uid, None):
        return _attention(
            "session",
            f"XDG_RUNTIME_DIR is {session.directory}, which belongs to user {session.owner}",
            effect="every verb with --user fails: records would be stored with another user's",
            fix=f"set XDG_RUNTIME_DIR=/run/user/{facts.uid}, as a login does",
        )
    if not session.lingers:
        return _info(
            "session",
            f"user {session.name} does not linger",
            effect="pods and their processes stop with the user's last session",
            fix=f"loginctl enable-linger {session.name}",
        )
    return _ok("session", f"user {session.name} lingers: pods run without a session")


def _layout(facts: Facts) -> Finding:
    """Return whether control groups have version 2, and the effect of another one."""
    if facts.layout is Layout.V2 and facts.protects_below:
        return _ok("cgroup", "cgroup v2")
    if facts.layout is Layout.V2:
        return _info(
            "cgroup",
            "cgroup v2, mounted without memory_recursiveprot",
            effect="MemoryLow of a pod protects only what its containers request",
            fix="mount -o remount,nsdelegate,memory_recursiveprot"
            f"{',memory_hugetlb_accounting' if facts.counts_hugepages else ''} /sys/fs/cgroup",
        )
    if facts.layout is Layout.NONE:
        return _attention(
            "cgroup",
            "no control groups are mounted at /sys/fs/cgroup",
            effect="nothing is limited, and usage cannot be read",
            fix="mount -t cgroup2 cgroup2 /sys/fs/cgroup, which systemd does at boot",
        )
    how = "the hybrid layout" if facts.layout is Layout.HYBRID else "cgroup v1"
    is_last = (facts.systemd.version or 0) < _SYSTEMD_WITHOUT_V1
    unsupported = f"; systemd {_SYSTEMD_WITHOUT_V1} and later require cgroup v2" if is_last else ""
    return _attention(
        "cgroup",
        f"{how}, not cgroup v2",
        effect="weights, quotas, MemoryMax and TasksMax work; MemoryLow, MemoryMin and MemoryHigh"
        f" do not, nor does limiting huge pages{unsupported}",
        fix=_BOOT_V2,
    )


def _controllers(facts: Facts) -> Finding:
    """Return whether the needed controllers are available, delegated and enabled."""
    missing = [name for name in _NEEDED if name not in facts.controllers]
    if facts.slice_controllers is not None and not missing:
        return _in_slice(facts, facts.slice_controllers)
    if facts.manager.is_user:
        return _delegated(facts, missing)
    if not missing:
        return _ok("controllers", _AVAILABLE)
    return _attention(
        "controllers",
        f"{_list(missing)} {_is(missing)} not available",
        effect="; ".join(_NEEDED[name] for name in missing),
        fix="; ".join(_enabled(facts, name) for name in missing),
    )


def _in_slice(facts: Facts, controllers: frozenset[str]) -> Finding:
    """Return the controllers of the root slice, which exists already."""
    missing = [name for name in _NEEDED if name not in controllers]
    if not missing:
        if facts.manager.is_user:
            return _delegated(facts, [])
        return _ok("controllers", f"{_AVAILABLE}, also in {facts.root_slice}")
    return _attention(
        "controllers",
        f"{_list(missing)} {_is(missing)} not enabled in {facts.root_slice}, but available",
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


def _delegated(facts: Facts, missing: list[str]) -> Finding:
    """Return whether the controllers are delegated to a user's manager."""
    if facts.layout is not Layout.V2:
        return _attention(
            "controllers",
            "a user's manager has no controllers with cgroup v1",
            effect="pods are created without limits",
            fix=_BOOT_V2,
        )
    if missing:
        return _attention(
            "controllers",
            f"{_list(missing)} {_is(missing)} not delegated to the user's manager",
            effect="; ".join(_NEEDED[name] for name in missing),
            fix=_DELEGATION,
        )
    rest = [name for name in _USEFUL if name not in facts.controllers]
    if rest:
        return _info(
            "controllers",
            f"cpu, memory and pids are delegated to the user's manager; {_list(rest)}"
            f" {_is(rest)} not",
            effect="podslice sets no properties of these; units and containers in pods cannot either",
            fix=_DELEGATION,
        )
    return _ok(
        "controllers", "cpu, memory, pids, cpuset and io are delegated to the user's manager"
    )


def _hugepages(facts: Facts) -> Finding:
    """Return whether huge pages can be limited: systemd does not enable this controller.

    Where they count as memory and are not limited, a process with more of them than MemoryMax
    allows is not killed; see `policy.aggregate.with_hugepages`.
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
    # systemd knows no controller of huge pages, so that nothing enables it in the tree
    elif hugetlb.stops_at is not None:
        path = f"/sys/fs/cgroup{hugetlb.stops_at.rstrip('/')}/cgroup.subtree_control"
        what = f"the hugetlb controller is not enabled below {hugetlb.stops_at}"
        fix = (
            f"echo +hugetlb > {path}; and for every boot:"
            f" echo 'w {path} - - - - +hugetlb' > /etc/tmpfiles.d/hugetlb.conf"
        )
    else:
        return _ok("hugepages", f"huge pages can be limited; {_pages(facts)}")
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


def _user_limits(facts: Facts) -> Iterator[Finding]:
    yield _info(
        "oom-score",
        f"oom_score_adj cannot be below that of the session, {facts.oom_score_adj}",
        effect="containers with a lower value get that one; the order of the others is kept",
        fix="apply the pods that must survive longest as root",
    )
    yield _info(
        "volumes",
        "a user's manager cannot mount",
        effect="volumes in memory are directories below XDG_RUNTIME_DIR, charged to the pod, without"
        " a size limit of their own",
        fix="set RuntimeDirectorySize= in /etc/systemd/logind.conf, which limits their total size",
    )


def _foreign(foreign: Foreign) -> Finding:
    return _attention(
        "kubelet",
        foreign.reason,
        effect="podslice changes nothing: apply, delete, run, adopt, phase POD init, confirm and the"
        " agent fail; verbs that only read work",
        fix=foreign.way_out,
    )


def _kubelet(kubelet: Kubelet, claims: Sequence[Problem]) -> Iterator[Finding]:
    yield _ok(
        "kubelet",
        f"a kubelet runs (process {kubelet.pid}, {kubelet.name}), and podslice's pods are"
        " below another root",
    )
    for each in claims:
        yield _attention(
            "kubelet",
            each.message,
            effect="neither has what it counts on while both are busy",
            fix=each.hint,
        )


def _runtime(runtime: Runtime) -> Finding:
    if runtime.unreadable:
        return _info(
            runtime.name,
            f"cannot read its configuration: {runtime.unreadable}",
            effect="whether its containers run in pods is not known",
            fix="correct the file, or run doctor as root",
        )
    source = runtime.source or "its default"
    if runtime.driver == SYSTEMD:
        return _ok(runtime.name, f"control groups are created by systemd ({source})")
    if not runtime.in_use:
        return _info(
            runtime.name,
            "its CRI plugin does not create control groups by systemd, and appears to be unused",
            effect="none for docker and nerdctl, which set the driver themselves",
            fix=runtime.fix,
        )
    return _attention(
        runtime.name,
        f"control groups are created by {runtime.driver}, not by systemd ({source})",
        effect="its containers do not run in pods: a slice as --cgroup-parent is rejected, or taken"
        " for a directory of that name",
        fix=runtime.fix,
    )


def _kernel(facts: Facts) -> Finding:
    lacks = [what for since, what in _KERNEL_LACKS if _version(facts.kernel) < since]
    return Finding(
        check="kernel",
        state=FindingState.INFO if lacks else FindingState.OK,
        what=f"Linux {facts.kernel}",
        effect="; ".join(lacks),
        fix="a kernel of 5.14 or later" if lacks else "",
    )


def _version(release: str) -> tuple[int, ...]:
    """`6.12.1-amd64` → (6, 12)."""
    major, _, rest = release.partition(".")
    minor = "".join(takewhile(str.isdigit, rest))
    return (int(major), int(minor or 0)) if major.isdigit() else (0, 0)


def _pressure(facts: Facts) -> Finding:
    if facts.has_pressure:
        return _ok("pressure", "pressure (PSI) is measured")
    return _info(
        "pressure",
        "the kernel does not measure pressure (PSI)",
        effect="how long pods wait for CPU, memory and I/O cannot be shown; limits work",
        fix="boot with psi=1" if "psi=0" not in facts.command_line else "boot without psi=0",
    )


def _swap(facts: Facts) -> Finding:
    if not facts.swap_bytes:
        return _ok(
            "swap",
            "no swap: a pod at its memory limit releases its caches, or processes are OOM-killed",
        )
    return _info(
        "swap",
        f"swap is enabled, {human_bytes(facts.swap_bytes)}",
        effect="memory limits do not include it: a pod may use all of the swap beyond its limit",
        fix="swapoff -a, which Kubernetes requires by default; or keep it, if intended",
    )
