"""From facts to findings: what is so, what it means for pods, and what mends it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.doctor import control_groups
from podslice.doctor.facts import Facts, Layout, Session
from podslice.doctor.finding import Finding, FindingState
from podslice.doctor.runtime_drivers import SYSTEMD, Runtime
from podslice.model.kubelet import Foreign, Kubelet
from podslice.model.properties import PROPERTIES

SYSTEMD_LEAST = 252
"""The oldest version that podslice is tested with."""
_SYSTEMD_LACKS = (
    (255, "it takes processes into a new scope by number only, not by descriptor (PIDFDs)"),
)
"""The version that brought something, and what it is. Source: systemd, pull request 29455."""

_KERNEL_LACKS = (
    ((5, 3), "processes can't be held by descriptor (pidfd_open)"),
    ((5, 6), "huge pages can't be limited (no hugetlb on cgroup v2)"),
    ((5, 7), "MemoryLow of a pod protects only what its containers ask for (memory_recursiveprot)"),
    ((5, 14), "what runs in a pod is killed one by one, not at once (cgroup.kill)"),
)
"""Source: Linux, admin-guide/cgroup-v2.rst and its history; pidfd_open(2)."""


def examine(facts: Facts) -> tuple[Finding, ...]:
    """Everything that there is to say about a host."""
    return tuple(_all(facts))


def _all(facts: Facts) -> Iterator[Finding]:
    yield _systemd(facts)
    if facts.session is not None:
        yield _session(facts, facts.session)
    else:
        yield _rights(facts)
    yield control_groups.layout(facts)
    if facts.layout is not Layout.NONE:
        yield control_groups.controllers(facts)
    yield control_groups.hugepages(facts)
    if facts.session is not None:
        yield from _user_limits(facts)
    if (foreign := facts.systemd.foreign) is not None:
        yield _foreign(foreign)
    elif facts.systemd.kubelets:
        yield _kubelet(facts.systemd.kubelets[0])
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
        left_out = f"; it does not know {', '.join(unknown)}, which are left out" if unknown else ""
        return Finding(
            check="systemd",
            state=FindingState.ATTENTION,
            what=f"{whose} is systemd {version}",
            effect=f"podslice is tested with {SYSTEMD_LEAST} and later{left_out}",
            fix=f"a distribution with systemd {SYSTEMD_LEAST} or later",
        )
    lacks = [what for since, what in _SYSTEMD_LACKS if version < since]
    return Finding(
        check="systemd",
        state=FindingState.INFO if lacks else FindingState.OK,
        what=f"{whose} is systemd {version}",
        effect="; ".join(lacks),
        fix="nothing has to be done: podslice looks whether they have arrived" if lacks else "",
    )


def _no_systemd(facts: Facts) -> Finding:
    if facts.first_process != SYSTEMD:
        what = f"process 1 is {facts.first_process or 'unknown'}, not systemd"
        fix = "boot with systemd; in a container, run podslice on the host"
    elif facts.manager.is_user:
        what = f"the user's manager does not answer: {facts.systemd.error}"
        fix = (
            f"loginctl enable-linger {_name(facts)}, and set XDG_RUNTIME_DIR=/run/user/{facts.uid}"
        )
    else:
        what = f"systemd does not answer: {facts.systemd.error}"
        fix = "install dbus (or dbus-broker), and start it: systemctl start dbus.socket"
    return Finding(
        check="systemd",
        state=FindingState.ATTENTION,
        what=what,
        effect="check, explain, render and plan work; nothing can be applied",
        fix=fix,
    )


def _name(facts: Facts) -> str:
    return facts.session.name if facts.session else str(facts.uid)


def _rights(facts: Facts) -> Finding:
    if facts.uid == 0:
        return Finding(check="rights", state=FindingState.OK, what="root may change everything")
    by_group = (
        "; members of podslice-admin write manifests to /etc/podslice/manifests,"
        " and podslice-agent.service applies them"
    )
    return Finding(
        check="rights",
        state=FindingState.INFO,
        what=f"user {facts.uid} is not root",
        effect="verbs that read work; those that change something are refused",
        fix=f"run those as root, or use --user{by_group if facts.has_manifest_dir else ''}",
    )


def _session(facts: Facts, session: Session) -> Finding:
    if not session.directory:
        return Finding(
            check="session",
            state=FindingState.ATTENTION,
            what="XDG_RUNTIME_DIR is not set: this is no session",
            effect="records of pods have no place, and nothing can be applied",
            fix=f"log in; or loginctl enable-linger {session.name}, and set"
            f" XDG_RUNTIME_DIR=/run/user/{facts.uid}",
        )
    if session.owner not in (facts.uid, None):
        return Finding(
            check="session",
            state=FindingState.ATTENTION,
            what=f"XDG_RUNTIME_DIR is {session.directory}, which is user {session.owner}'s",
            effect="every verb with --user is refused, lest records end up with somebody else",
            fix=f"set XDG_RUNTIME_DIR=/run/user/{facts.uid}, as a login does",
        )
    if not session.lingers:
        return Finding(
            check="session",
            state=FindingState.INFO,
            what=f"user {session.name} does not linger",
            effect="pods, and what runs in them, end with the user's last session",
            fix=f"loginctl enable-linger {session.name}",
        )
    return Finding(
        check="session",
        state=FindingState.OK,
        what=f"user {session.name} lingers: pods stay without a session",
    )


def _user_limits(facts: Facts) -> Iterator[Finding]:
    yield Finding(
        check="oom-score",
        state=FindingState.INFO,
        what=f"oom_score_adj can't go below that of the session, {facts.oom_score_adj}",
        effect="containers that should have less keep it; the order among the others holds",
        fix="apply pods that must outlive others as root",
    )
    yield Finding(
        check="volumes",
        state=FindingState.INFO,
        what="a user's manager can't mount",
        effect="volumes in memory are directories below XDG_RUNTIME_DIR, charged to the pod, and"
        " without a size of their own",
        fix="RuntimeDirectorySize= in /etc/systemd/logind.conf bounds all of them together",
    )


def _foreign(foreign: Foreign) -> Finding:
    return Finding(
        check="kubelet",
        state=FindingState.ATTENTION,
        what=foreign.reason,
        effect="podslice changes nothing: apply, delete, run, adopt, phase --set, confirm and the"
        " agent are refused; verbs that only read work",
        fix=foreign.way_out,
    )


def _kubelet(kubelet: Kubelet) -> Finding:
    return Finding(
        check="kubelet",
        state=FindingState.OK,
        what=f"a kubelet runs (process {kubelet.pid}, {kubelet.name}), and podslice's pods lie"
        " elsewhere",
    )


def _runtime(runtime: Runtime) -> Finding:
    if runtime.unreadable:
        return Finding(
            check=runtime.name,
            state=FindingState.INFO,
            what=f"its configuration can't be read: {runtime.unreadable}",
            effect="whether its containers get into pods can't be told",
            fix="mend the file, or run doctor as root",
        )
    told_by = runtime.source or "its default"
    if runtime.driver == SYSTEMD:
        return Finding(
            check=runtime.name, state=FindingState.OK, what=f"control groups by systemd ({told_by})"
        )
    if not runtime.in_use:
        return Finding(
            check=runtime.name,
            state=FindingState.INFO,
            what="its CRI plugin does not make control groups by systemd, and seems not to be used",
            effect="none for docker and nerdctl, which state the driver themselves",
            fix=runtime.fix,
        )
    return Finding(
        check=runtime.name,
        state=FindingState.ATTENTION,
        what=f"control groups by {runtime.driver}, not by systemd ({told_by})",
        effect="its containers do not get into pods: a slice as --cgroup-parent is refused, or"
        " taken for a directory of that name",
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
    minor = "".join(_leading_digits(rest))
    return (int(major), int(minor or 0)) if major.isdigit() else (0, 0)


def _leading_digits(text: str) -> Iterator[str]:
    for character in text:
        if not character.isdigit():
            return
        yield character


def _pressure(facts: Facts) -> Finding:
    if facts.has_pressure:
        return Finding(check="pressure", state=FindingState.OK, what="pressure (PSI) is measured")
    return Finding(
        check="pressure",
        state=FindingState.INFO,
        what="the kernel does not measure pressure (PSI)",
        effect="how long pods wait for CPU, memory and I/O can't be shown; limits work",
        fix="boot with psi=1" if "psi=0" not in facts.command_line else "boot without psi=0",
    )


def _swap(facts: Facts) -> Finding:
    if not facts.swap_bytes:
        return Finding(
            check="swap",
            state=FindingState.OK,
            what="no swap: a pod that reaches its memory limit frees its caches, or is killed",
        )
    return Finding(
        check="swap",
        state=FindingState.INFO,
        what=f"there is swap, {facts.swap_bytes // 2**20}Mi",
        effect="memory limits do not count it: a pod may have its limit and all of the swap beside",
        fix="swapoff -a, as Kubernetes asks for by default; or leave it, if that is meant",
    )
