"""Findings from facts: the state of the host, its effect on pods, and the remedy. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podslice.doctor import control_groups
from podslice.doctor.facts import Facts, Layout, Session
from podslice.doctor.finding import Finding, FindingState
from podslice.doctor.runtime_drivers import SYSTEMD, Runtime
from podslice.errors import Problem
from podslice.model.kubelet import Foreign, Kubelet
from podslice.model.properties import PROPERTIES

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


def check_host(facts: Facts) -> tuple[Finding, ...]:
    """Return all findings about a host, also those without a problem."""
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
        fix="none is needed: podslice checks that the processes moved" if lacks else "",
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
        effect="verbs that read work; those that change something fail",
        fix=f"run these as root, or use --user{by_group if facts.has_manifest_dir else ''}",
    )


def _session(facts: Facts, session: Session) -> Finding:
    if not session.directory:
        return Finding(
            check="session",
            state=FindingState.ATTENTION,
            what="XDG_RUNTIME_DIR is not set: there is no session",
            effect="records of pods cannot be stored, and nothing can be applied",
            fix=f"log in; or loginctl enable-linger {session.name}, and set"
            f" XDG_RUNTIME_DIR=/run/user/{facts.uid}",
        )
    if session.owner not in (facts.uid, None):
        return Finding(
            check="session",
            state=FindingState.ATTENTION,
            what=f"XDG_RUNTIME_DIR is {session.directory}, which belongs to user {session.owner}",
            effect="every verb with --user fails: records would be stored with another user's",
            fix=f"set XDG_RUNTIME_DIR=/run/user/{facts.uid}, as a login does",
        )
    if not session.lingers:
        return Finding(
            check="session",
            state=FindingState.INFO,
            what=f"user {session.name} does not linger",
            effect="pods and their processes stop with the user's last session",
            fix=f"loginctl enable-linger {session.name}",
        )
    return Finding(
        check="session",
        state=FindingState.OK,
        what=f"user {session.name} lingers: pods run without a session",
    )


def _user_limits(facts: Facts) -> Iterator[Finding]:
    yield Finding(
        check="oom-score",
        state=FindingState.INFO,
        what=f"oom_score_adj cannot be below that of the session, {facts.oom_score_adj}",
        effect="containers with a lower value get that one; the order of the others is kept",
        fix="apply pods that others must not outlive as root",
    )
    yield Finding(
        check="volumes",
        state=FindingState.INFO,
        what="a user's manager cannot mount",
        effect="volumes in memory are directories below XDG_RUNTIME_DIR, charged to the pod, without"
        " a size limit of their own",
        fix="set RuntimeDirectorySize= in /etc/systemd/logind.conf, which limits their total size",
    )


def _foreign(foreign: Foreign) -> Finding:
    return Finding(
        check="kubelet",
        state=FindingState.ATTENTION,
        what=foreign.reason,
        effect="podslice changes nothing: apply, delete, run, adopt, phase --set, confirm and the"
        " agent fail; verbs that only read work",
        fix=foreign.way_out,
    )


def _kubelet(kubelet: Kubelet, claims: Sequence[Problem]) -> Iterator[Finding]:
    yield Finding(
        check="kubelet",
        state=FindingState.OK,
        what=f"a kubelet runs (process {kubelet.pid}, {kubelet.name}), and podslice's pods are"
        " below another root",
    )
    for each in claims:
        yield Finding(
            check="kubelet",
            state=FindingState.ATTENTION,
            what=each.message,
            effect="neither has what it counts on while both are busy",
            fix=each.hint,
        )


def _runtime(runtime: Runtime) -> Finding:
    if runtime.unreadable:
        return Finding(
            check=runtime.name,
            state=FindingState.INFO,
            what=f"cannot read its configuration: {runtime.unreadable}",
            effect="whether its containers run in pods is not known",
            fix="correct the file, or run doctor as root",
        )
    source = runtime.source or "its default"
    if runtime.driver == SYSTEMD:
        return Finding(
            check=runtime.name,
            state=FindingState.OK,
            what=f"control groups are created by systemd ({source})",
        )
    if not runtime.in_use:
        return Finding(
            check=runtime.name,
            state=FindingState.INFO,
            what="its CRI plugin does not create control groups by systemd, and appears to be unused",
            effect="none for docker and nerdctl, which set the driver themselves",
            fix=runtime.fix,
        )
    return Finding(
        check=runtime.name,
        state=FindingState.ATTENTION,
        what=f"control groups are created by {runtime.driver}, not by systemd ({source})",
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
        effect="how long pods wait for CPU, memory and I/O cannot be shown; limits work",
        fix="boot with psi=1" if "psi=0" not in facts.command_line else "boot without psi=0",
    )


def _swap(facts: Facts) -> Finding:
    if not facts.swap_bytes:
        return Finding(
            check="swap",
            state=FindingState.OK,
            what="no swap: a pod at its memory limit releases its caches, or processes are OOM-killed",
        )
    return Finding(
        check="swap",
        state=FindingState.INFO,
        what=f"swap is enabled, {facts.swap_bytes // 2**20}Mi",
        effect="memory limits do not include it: a pod may use all of the swap beyond its limit",
        fix="swapoff -a, which Kubernetes requires by default; or keep it, if intended",
    )
