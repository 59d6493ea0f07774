"""Every verb by a user without privileges: it works, or fails with one clear line and exit code 1."""

import json

import pytest

from podslice.cli.verb_table import VERBS
from tests.host import users
from tests.host.scenario import BIG, apply
from tests.lab import fixtures
from tests.lab.machine import START_SERVICE

WEB = """\
apiVersion: v1
kind: Pod
metadata: {name: web, uid: 0a1b}
spec:
  initContainers:
  - name: setup
    resources: {limits: {cpu: 100m, memory: 64Mi}}
  containers:
  - name: main
    resources: {limits: {cpu: 100m, memory: 32Mi}}
"""
FILE = "/tmp/web.yaml"
PROJECT = """\
name: shop
services: {web: {image: web, cpus: 1, mem_limit: 64m}}
"""
PROJECT_FILE = "/tmp/project.yaml"
KUBELET_FILE = "/tmp/kubelet.yaml"
# files that compose writes
COMPOSED = ("/tmp/pod.podslice.yaml", "/tmp/compose.podslice.yaml")
MARK = json.dumps(
    {
        "pod": "default/gone",
        "uid": "0a1c",
        "digest": "",
        "signal": "memory.available",
        "message": "the node was low on memory",
        "at_usec": 1,
    }
)
UNCONFIRMED = (
    *("--set=system-reserved=cpu=1", "--set=system-reserved-cgroup=/system.slice"),
    *("--set=enforce-node-allocatable=pods,system-reserved-compressible", "--confirm=1000"),
)
SLICE = "kubepods-pod0a1b.slice"
DAEMON = "podlab-daemon.service"

# verb → the ways to call it; those that change something, and those that do not
CHANGING = {
    "apply": (("-f", FILE, *BIG), ("-f", FILE, *BIG, "--prune")),
    "delete": (("web",), ("--all",)),
    "run": (
        ("web", "-c", "main", "--", "touch", "/tmp/changed"),
        ("web", "-c", "main", "--detach", "--", "touch", "/tmp/changed"),
        ("web", "-c", "setup", "--", "touch", "/tmp/changed"),
    ),
    "adopt": (("web", "-c", "main", "PID"), ("web", DAEMON)),
    "release": ((DAEMON,),),
    "phase": (("web", "running"),),
    "node init": ((),),
    "events": ((), ("--since=1h",)),  # changes nothing, but not every user may read the journal
    "logs": (("web",),),  # likewise
    "confirm": ((),),
    "readmit": (("gone",),),
    "agent": ((),),
}
READING = {
    "new": (("web", "--cpu=1"), ("web", "--like=1")),
    "import": (("systemd-journald",),),
    "compose": ((f"--resolved={PROJECT_FILE}", "--output-dir=/tmp"),),
    "check": (("-f", FILE),),
    "explain": (("-f", FILE, *BIG),),
    "render": (("-f", FILE, *BIG),),
    "node": ((),),
    "node init": (("--dry-run",), ("--dry-run", "-o", "json")),
    "node reset": ((), ("-o", "json")),
    "plan": (("-f", FILE, *BIG),),
    "status": (BIG,),
    "tree": (BIG,),
    "top": (("--interval=100ms", *BIG),),
    "phase": (("web",),),
    "cgroup-parent": (("web",),),
    "recommend": ((),),
    "node recommend": ((),),
    "simulate": (("-f", FILE, *BIG),),
    "doctor": ((),),
    "audit": (("-f", FILE, f"--kubelet-config={KUBELET_FILE}"),),
    "version": ((), ("-o", "json")),
}
WITHOUT_HISTORY = ("recommend", "node recommend")
"""Verbs that report that the agent has recorded no usage."""

WITHOUT_MANAGER = (
    "new",
    "compose",
    "check",
    "explain",
    "render",
    "node",
    "node init",
    "node reset",
    "doctor",
    "audit",  # of the host only
    "version",
    "events",
    "confirm",  # there are no reserved slices with --user
    "simulate",
    *WITHOUT_HISTORY,
)
"""Verbs that need neither the user's service manager nor a directory for records."""

IN_CONTROL_GROUPS = ("apply", "run", "adopt", "plan", "status", "tree", "top")
"""Verbs that read control groups, or that put processes there."""


def test_every_verb_is_tested():
    assert CHANGING.keys() | READING.keys() == {name for name in VERBS if not name.startswith("_")}


@pytest.fixture
def applied(clean_machine):
    """A machine with a pod and a process in it, an evicted pod, and values to confirm."""
    yield from _applied(clean_machine)


@pytest.fixture
def applied_fast(namespace):
    """The same as a namespace; for tests in which the kernel is not involved."""
    for machine in fixtures.keep_clean(namespace):
        yield from _applied(machine)


def _applied(machine):
    machine.put(FILE, WEB)
    machine.put(PROJECT_FILE, PROJECT)
    machine.put(KUBELET_FILE, "{kind: KubeletConfiguration}")
    apply(machine, "-f", FILE, *BIG, *UNCONFIRMED)
    machine.put("/run/podslice/evicted/0a1c.json", MARK)
    machine.run(*START_SERVICE, f"--unit={DAEMON}", f"--slice={SLICE}", "sleep", "1000")
    yield machine
    machine.run("systemctl", "stop", DAEMON)
    machine.run("rm", "-f", FILE, PROJECT_FILE, KUBELET_FILE, *COMPOSED)


def everything(machine):
    """Return the state that a verb without privileges must not change."""
    script = (
        "systemctl list-units --all --plain --no-legend 'kubepods*' 'podslice*' podlab-daemon*;"
        f"systemctl show -p MainPID,InvocationID {DAEMON};"
        f"systemctl show -p MemoryMax,CPUQuotaPerSecUSec {SLICE};"
        "find /run/podslice /etc/podslice -type f -exec cat {} + 2>/dev/null;"
        "ls /tmp/changed /etc/podslice /run/systemd/system.control 2>/dev/null; true"
    )
    return machine.run("sh", "-c", script).stdout


def called(machine, calls, *more, env=None):
    """Return every way to call the verbs, with the result."""
    pid = machine.run("systemctl", "show", "-P", "MainPID", DAEMON).stdout.strip()
    for verb, ways in calls.items():
        for way in ways:
            arguments = [pid if word == "PID" else word for word in way]
            line = [*verb.split(), *more, *arguments]
            yield " ".join(line), users.podslice(machine, *line, env=env, check=False)


def is_one_clear_line(ended, *says):
    return (
        ended.exit_code == 1
        and ended.stderr.startswith("error: ")
        and ended.stderr.count("\n") == 1
        and any(text in ended.stderr for text in says)
    )


def has_output(ended):
    return ended.exit_code in (0, 3) and "error" not in ended.stderr and ended.stdout


def has_no_history(ended):
    return ended.exit_code in (0, 1) and ended.stderr.endswith("systemctl status podslice-agent\n")


@pytest.mark.namespace
@pytest.mark.newest
def test_an_unprivileged_user_may_read_and_change_nothing(applied):
    before = everything(applied)
    # of the others, some propose values that need controllers
    wanted = READING | CHANGING if applied.has_controllers else IN_CONTROL_GROUPS
    changing, reading = (
        {verb: ways for verb, ways in calls.items() if verb in wanted}
        for calls in (CHANGING, READING)
    )
    unclear = {
        line: ended
        for line, ended in called(applied, changing)
        if not is_one_clear_line(ended, "run as root")
    }
    assert unclear == {}
    failed = {
        line: (ended.exit_code, ended.stderr)
        for line, ended in called(applied, reading)
        if not (has_no_history(ended) if line.startswith(WITHOUT_HISTORY) else has_output(ended))
    }
    assert failed == {}
    assert everything(applied) == before


def test_hidden_records_are_reported_in_one_line(applied_fast):
    """As with a umask of root that removes all permissions of others."""
    applied_fast.run("chmod", "700", "/run/podslice")
    for verb in ("plan", "status", "tree", "phase", "cgroup-parent"):
        for line, ended in called(applied_fast, {verb: READING[verb]}):
            assert is_one_clear_line(ended, "run as root, or use --user"), (line, ended)


def test_every_verb_that_needs_a_session_reports_that_there_is_none(applied_fast):
    before = everything(applied_fast)
    for calls in (READING, CHANGING):
        needing = {verb: ways for verb, ways in calls.items() if verb not in WITHOUT_MANAGER}
        for line, ended in called(applied_fast, needing, "--user"):
            assert is_one_clear_line(ended, "there is no user session: XDG_RUNTIME_DIR is not"), (
                line,
                ended,
            )
    assert everything(applied_fast) == before


def test_a_session_without_a_service_manager_is_reported(applied_fast):
    applied_fast.run("sh", "-c", f"mkdir -p {users.RUNTIME_DIR} && chown lab {users.RUNTIME_DIR}")
    try:
        for verb, ways in {**READING, **CHANGING}.items():
            # readmit and logs need none, and the agent waits for it
            if verb in (*WITHOUT_MANAGER, "plan", "cgroup-parent", "readmit", "logs", "agent"):
                continue
            calls = {verb: ways[:1]}
            for line, ended in called(applied_fast, calls, "--user", env=users.SESSION):
                assert is_one_clear_line(ended, "is a user manager running"), (line, ended)
    finally:
        applied_fast.run("rm", "-r", users.RUNTIME_DIR)


def test_the_session_of_another_user_is_reported(namespace):
    """As `su` leaves it."""
    foreign = {"XDG_RUNTIME_DIR": "/run/systemd"}
    for verb in ("status", "tree"):
        ended = users.podslice(namespace, verb, "--user", env=foreign, check=False)
        assert is_one_clear_line(ended, "belongs to user 0, not to user 1000; set XDG_")
    ended = users.podslice(namespace, "doctor", "--user", env=foreign, check=False)
    assert ended.exit_code == 3
    assert (
        "attention  session      XDG_RUNTIME_DIR is /run/systemd, which belongs to user 0"
        in ended.stdout
    )
