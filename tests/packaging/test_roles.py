"""Permissions of each role on a host with the units, the groups and the polkit rule installed.

SECURITY.md names these tests. They run with every systemd of the lab, over the bus as an attacker
would: a refusal must originate from polkit or from the bus, not from an argument that systemd
rejects.
"""

import json
from itertools import product

import pytest

from tests.lab.machine import START_SERVICE
from tests.lab.recipe import SUITES
from tests.packaging.installed import AGENT, MANIFESTS, ROLES, SERVICE, run_as

MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
CALL = ("busctl", "call", *MANAGER, "org.freedesktop.systemd1.Manager")
SLICE, CONTAINER = "kubepods-podx.slice", "podslice-podx-main.service"
OTHER_SLICE, OTHER_SERVICE = "kubepodsx.slice", "systemd-journald.service"
PROOF = "/run/written-as-root"
REFUSALS = (
    *("Access denied", "Interactive authentication required."),
    "Job mode restart-dependencies invalid",  # systemd 252 has no such mode
)
# with this, only polkit refuses: both services are loaded, and the container accepts mounts
CONTAINER_PROPERTIES = (f"After={SERVICE} {AGENT}", "PrivateMounts=yes")
# Source: systemd 257, src/core/job.c, job_mode_table
JOB_MODES = (
    *("fail", "replace", "replace-irreversibly", "isolate", "flush"),
    *("ignore-dependencies", "ignore-requirements", "triggering", "restart-dependencies"),
)
# Source: org.freedesktop.systemd1(5), methods of the manager whose arguments are a unit and a mode
JOB_METHODS = (
    *("StartUnit", "StopUnit", "ReloadUnit", "RestartUnit", "TryRestartUnit"),
    *("ReloadOrRestartUnit", "ReloadOrTryRestartUnit"),
)
# executes each command and prints its standard error, or nothing if it was allowed
TRY_ALL = """
import json, subprocess, sys
def run(argv):
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.stderr.strip() or "failed without a word" if done.returncode else ""
print(json.dumps({name: run(argv) for name, argv in json.load(open(sys.argv[1])).items()}))
"""


@pytest.fixture(scope="module", params=SUITES)
def machine(request, installed_on):
    return installed_on(request.param)


@pytest.fixture
def pod(machine):
    """A pod's slice with one container, and units that belong to no pod."""
    for name in (SLICE, OTHER_SLICE):
        machine.run(*transient(name))
    machine.run(
        *(*START_SERVICE, f"--unit={CONTAINER}", f"--slice={SLICE}"),
        *(f"--property={name}" for name in CONTAINER_PROPERTIES),
        *("sleep", "infinity"),
    )
    yield machine
    machine.run("systemctl", "stop", SLICE, OTHER_SLICE)
    machine.run("systemctl", "reset-failed", check=False)
    machine.run("rm", "-rf", "/run/systemd/system.control")
    machine.run("systemctl", "daemon-reload")


@pytest.fixture
def queue(pod):
    """Two jobs that are in the manager's queue until the test ends."""
    pod.put(
        "/run/systemd/system/first.service", "[Service]\nType=oneshot\nExecStart=sleep infinity"
    )
    pod.put(
        "/run/systemd/system/second.service",
        "[Unit]\nAfter=first.service\n[Service]\nExecStart=true",
    )
    pod.run("systemctl", "daemon-reload")
    pod.run("systemctl", "start", "--no-block", "first.service", "second.service")
    yield pod
    pod.run("systemctl", "stop", "first.service", "second.service")
    pod.run("rm", "/run/systemd/system/first.service", "/run/systemd/system/second.service")


def transient(name):
    return (*CALL, "StartTransientUnit", "ssa(sv)a(sa(sv))", name, "replace", "0", "0")


def try_all(machine, user, calls):
    """Return the answer to each call; nothing if it was allowed."""
    machine.put("/run/calls.json", json.dumps(calls), mode=0o644)
    done = machine.run("runuser", "-u", user, "--", "python3", "-c", TRY_ALL, "/run/calls.json")
    return json.loads(done.stdout)


def allowed(machine, user, calls):
    """Return the calls that neither polkit nor the bus refused."""
    answers = try_all(machine, user, calls)
    return {
        name: answer or "allowed"
        for name, answer in answers.items()
        if not any(refusal in answer for refusal in REFUSALS)
    }


def unit_object(machine, unit):
    return machine.run(*CALL, "LoadUnit", "s", unit).stdout.split('"')[1]


# a pod's unit gives no access to text of other units


def text_writes(machine):
    """Every call that passes text to a unit, with line breaks that would begin a directive."""
    command = f"+/bin/touch {PROOF}"
    texts = {
        SLICE: ("x\nWants=probe.service", "Description"),
        CONTAINER: (f"x\n[Service]\nExecStopPost={command}", "Description"),
        OTHER_SERVICE: (f"x\n[Service]\nExecStopPost={command}", "Description"),
    }
    calls = {}
    for (unit, (text, name)), runtime in product(texts.items(), ("true", "false")):
        calls[f"{name} of {unit}, runtime {runtime}"] = (
            *(*CALL, "SetUnitProperties", "sba(sv)", unit, runtime, "1", name, "s", text),
        )
        calls[f"Documentation of {unit}, runtime {runtime}"] = (
            *(*CALL, "SetUnitProperties", "sba(sv)", unit, runtime, "1"),
            *("Documentation", "as", "1", f"man:x\n{text}"),
        )
    for unit, (text, name) in texts.items():
        path = unit_object(machine, unit)
        interface = ("busctl", "call", MANAGER[0], path, "org.freedesktop.systemd1.Unit")
        calls[f"SetProperties of {path}"] = (
            *(*interface, "SetProperties", "ba(sv)", "true", "1", name, "s", text),
        )
    return calls


NEVER = {
    # equivalent calls: a transient unit contains others
    "make a slice": transient("kubepods-pody.slice"),
    "make a batch": transient("podslicebatch0.slice"),
    "change a weight": (
        *CALL,
        "SetUnitProperties",
        "sba(sv)",
        SLICE,
        "true",
        "1",
        "CPUWeight",
        "t",
        "7",
    ),
    "bind a mount": (*CALL, "BindMountUnit", "sssbb", CONTAINER, "/etc", "/mnt", "false", "false"),
    "mount an image": (
        *(*CALL, "MountImageUnit", "sssbba(ss)", CONTAINER, "/x", "/mnt", "false", "false", "0"),
    ),
    "clean": (*CALL, "CleanUnit", "sas", CONTAINER, "1", "all"),
    "freeze": (*CALL, "FreezeUnit", "s", SLICE),
    "thaw": (*CALL, "ThawUnit", "s", SLICE),
    "enable": (*CALL, "EnableUnitFiles", "asbb", "1", SERVICE, "false", "false"),
    "link": (*CALL, "LinkUnitFiles", "asbb", "1", "/tmp/x.service", "true", "false"),
    "add a dependency": (
        *(*CALL, "AddDependencyUnitFiles", "asssbb", "1", SERVICE, "basic.target", "Wants"),
        *("true", "false"),
    ),
    "set the environment": (*CALL, "SetEnvironment", "as", "1", "LD_PRELOAD=/tmp/x.so"),
    "reload the manager": (*CALL, "Reload"),
    "cancel all jobs": (*CALL, "ClearJobs"),
    "reset all failed units": (*CALL, "ResetFailed"),
    "reboot": (*CALL, "Reboot"),
    "signal another service": (*CALL, "KillUnit", "ssi", OTHER_SERVICE, "all", "9"),
    "signal another slice": (*CALL, "KillUnit", "ssi", OTHER_SLICE, "all", "9"),
    "signal the agent": (*CALL, "KillUnit", "ssi", AGENT, "all", "9"),
    "hide a failure": (*CALL, "ResetFailedUnit", "s", SERVICE),
    "hide a failure of the agent": (*CALL, "ResetFailedUnit", "s", AGENT),
}


@pytest.mark.parametrize("user", ROLES)
def test_no_role_but_root_writes_text_of_a_unit_or_runs_a_command_as_root(pod, user):
    assert allowed(pod, user, text_writes(pod) | NEVER) == {}
    assert pod.run("ls", "-A", "/run/systemd/system.control", check=False).stdout == ""
    pod.run("systemctl", "daemon-reload")
    assert "probe" not in pod.run("systemctl", "show", SLICE, "--property=Wants").stdout
    pod.run("systemctl", "stop", CONTAINER)
    assert pod.run("test", "-e", PROOF, check=False).exit_code == 1


def test_systemd_writes_line_breaks_of_a_description_into_the_unit(pod):
    """The reason not to grant `set-property`: the line is a directive after the next reload."""
    (call,) = (
        argv
        for name, argv in text_writes(pod).items()
        if name == f"Description of {SLICE}, runtime true"
    )
    pod.run(*call)
    pod.run("systemctl", "daemon-reload")
    assert "probe.service" in pod.run("systemctl", "show", SLICE, "--property=Wants").stdout


# jobs: polkit receives the verb, not the mode


def job_calls(machine):
    """Every call that queues a job, for units of every kind, with the most harmful mode."""
    units = (SERVICE, AGENT, SLICE, CONTAINER, OTHER_SERVICE)
    calls = {
        f"{method} {unit}": (*CALL, method, "ss", unit, "flush")
        for method, unit in product(JOB_METHODS, units)
    }
    for unit, kind in product((SERVICE, SLICE), ("start", "stop", "reload", "restart")):
        calls[f"EnqueueUnitJob {unit} {kind}"] = (
            *CALL,
            "EnqueueUnitJob",
            "sss",
            unit,
            kind,
            "flush",
        )
        calls[f"Unit.{kind} {unit}"] = (
            *("busctl", "call", MANAGER[0], unit_object(machine, unit)),
            *("org.freedesktop.systemd1.Unit", kind.capitalize(), "s", "flush"),
        )
    calls["StartUnitWithFlags"] = (*CALL, "StartUnitWithFlags", "sst", SERVICE, "flush", "0")
    calls["StartUnitReplace"] = (
        *CALL,
        "StartUnitReplace",
        "sss",
        "first.service",
        SERVICE,
        "flush",
    )
    return calls


def job_ids(machine):
    listed = machine.run("systemctl", "list-jobs", "--no-legend").stdout
    return {line.split()[1]: line.split()[0] for line in listed.splitlines()}


@pytest.mark.parametrize("user", ROLES)
def test_no_role_but_root_queues_or_cancels_a_job(queue, user):
    before = job_ids(queue)
    assert before.keys() == {"first.service", "second.service"}
    calls = job_calls(queue)
    calls |= {f"cancel {unit}": (*CALL, "CancelJob", "u", job) for unit, job in before.items()}
    assert allowed(queue, user, calls) == {}
    assert job_ids(queue) == before


def test_podslice_admin_queues_no_job_of_any_mode(queue):
    before = job_ids(queue)
    calls = {
        f"{method} {mode}": (*CALL, method, "ss", SLICE, mode)
        for method, mode in product(JOB_METHODS, JOB_MODES)
    }
    assert allowed(queue, "alice", calls) == {}
    assert job_ids(queue) == before


def test_a_job_of_mode_flush_cancels_those_of_the_host(queue):
    """The reason not to grant any verb that queues a job."""
    queue.run(*CALL, "StopUnit", "ss", OTHER_SLICE, "flush")
    queue.run("sh", "-c", f"while systemctl is-active -q {OTHER_SLICE}; do :; done")
    assert job_ids(queue) == {}


# granted calls: signals to pods, and the reset of their failed containers

SIGNALS = {
    "kill a container": (*CALL, "KillUnit", "ssi", CONTAINER, "all", "9"),
    "terminate the processes of a pod": (*CALL, "KillUnit", "ssi", SLICE, "all", "15"),
    "reset a failed container": (*CALL, "ResetFailedUnit", "s", CONTAINER),
}


@pytest.mark.parametrize("user", sorted(ROLES.keys() - {"alice"}))
def test_only_podslice_admin_signals_pods(pod, user):
    assert allowed(pod, user, SIGNALS) == {}


def test_podslice_admin_terminates_the_processes_of_a_pod(pod):
    assert run_as(pod, "alice", "systemctl", "--no-ask-password", "kill", SLICE) == 0
    pod.run("timeout", "60", "sh", "-c", f"while systemctl is-active -q {CONTAINER}; do :; done")
    pod.run("systemctl", "is-active", SLICE)


def test_podslice_admin_kills_a_container_and_resets_its_failed_state(pod):
    kill, reset = SIGNALS["kill a container"], SIGNALS["reset a failed container"]
    assert try_all(pod, "alice", {"kill": kill}) == {"kill": ""}
    pod.run("timeout", "60", "sh", "-c", f"until systemctl is-failed -q {CONTAINER}; do :; done")
    assert try_all(pod, "alice", {"reset": reset}) == {"reset": ""}
    assert pod.run("systemctl", "is-failed", CONTAINER, check=False).exit_code != 0


# manifests


def test_admins_write_manifests_and_the_other_group_reads_them(machine):
    def write(user):
        return run_as(machine, user, "sh", "-c", f"umask 077; echo hello > {MANIFESTS}/{user}")

    def read(user):
        return run_as(machine, user, "cat", f"{MANIFESTS}/alice")

    codes = {user: (write(user), read(user)) for user in ROLES}
    written = {user: done == 0 for user, (done, _) in codes.items()}
    assert written == {"alice": True, "bob": False, "carol": False}
    machine.run("chmod", "0640", f"{MANIFESTS}/alice")
    assert {user: read(user) == 0 for user in codes} == {
        "alice": True,
        "bob": True,
        "carol": False,
    }
    machine.run("rm", f"{MANIFESTS}/alice")


@pytest.mark.parametrize("user", ROLES)
def test_no_role_but_root_writes_anything_else_that_podslice_reads(machine, user):
    places = (
        *("/etc/podslice", "/etc/podslice/podslice.toml.d", "/run", "/run/podslice/pods"),
        *("/var/lib/podslice", "/var/lib/podslice/volumes"),
    )
    machine.run("mkdir", "-p", "/etc/podslice/podslice.toml.d")
    calls = {place: ("touch", f"{place}/evil.toml") for place in places}
    calls["replace the directory"] = ("mv", MANIFESTS, f"{MANIFESTS}.old")
    assert "" not in try_all(machine, user, calls).values()
    machine.run("rmdir", "/etc/podslice/podslice.toml.d")
