"""The unit files and related files, on both releases of systemd."""

import json
from contextlib import contextmanager
from functools import partial

import pytest

from tests.lab.recipe import SUITES
from tests.packaging.installed import (
    AGENT,
    DROP_INS,
    MANIFESTS,
    PLACES,
    SERVICE,
    UNITS,
    reload_agent,
    run_as,
    wait_until,
)

UNIT_NAMES = [
    path.name for pattern in ("*.service", "*.slice", "*.socket") for path in UNITS.glob(pattern)
]
USER_UNIT = f"/usr/lib/systemd/user/{AGENT}"
SANDBOX = "podsandbox.slice"
SOCKET = "/run/podslice/agent.sock"
ASK = f"""
import http.client, socket
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect("{SOCKET}")
connection.request("GET", "/healthz")
answer = connection.getresponse()
print(answer.status, answer.read().decode().strip())
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec: {{containers: [{{name: main, resources: {{limits: {{cpu: 100m, memory: {memory}}}}}}}]}}
"""


@pytest.fixture(scope="module", params=SUITES)
def machine(request, installed_on):
    """The machine, for tests that only read."""
    return installed_on(request.param)


@pytest.fixture(scope="module")
def trixie(installed_on):
    """The release whose libraries podslice runs with."""
    return installed_on("trixie")


@pytest.fixture
def host(trixie):
    """The same, without manifests and pods before and after each test."""
    yield trixie
    trixie.run("sh", "-c", f"rm -rf {MANIFESTS}/* /etc/systemd/system/{SERVICE}.d")
    trixie.run("systemctl", "daemon-reload")
    trixie.run("systemctl", "stop", SERVICE, AGENT)
    trixie.run("systemctl", "reset-failed", SERVICE, AGENT, check=False)
    trixie.podslice("delete", "--all")


def show(machine, unit, *names):
    shown = machine.run("systemctl", "show", unit, *(f"--property={name}" for name in names)).stdout
    return dict(line.split("=", 1) for line in shown.splitlines())


def put_pod(machine, name, memory="64Mi"):
    machine.put(f"{MANIFESTS}/{name}.yaml", POD.format(name=name, memory=memory))


def pods(machine):
    listed = machine.podslice("status", "-o", "name", check=False).stdout
    return sum("-pod" in line for line in listed.splitlines())


# unit files


def test_systemd_accepts_the_files(machine):
    for path in (UNITS / "examples").rglob("*.conf"):
        machine.put(f"/etc/systemd/system/{path.relative_to(UNITS / 'examples')}", path.read_text())
    # test_docs checks that the manual pages exist
    result = machine.run(
        *("systemd-analyze", "verify", "--man=no", *UNIT_NAMES, "system.slice", "user.slice"),
        check=False,
    )
    machine.run("sh", "-c", "rm -r /etc/systemd/system/*.slice.d /etc/systemd/system/podslice-*.d")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_every_file_has_a_destination():
    known = {path for pattern in PLACES for path in UNITS.glob(pattern)}
    known |= {*UNITS.glob(DROP_INS), UNITS / "README.md", *(UNITS / "examples").rglob("*.conf")}
    assert {path for path in UNITS.rglob("*") if path.is_file()} == known


def test_nothing_is_enabled_by_default(machine):
    machine.run("systemctl", "preset", *UNIT_NAMES)
    states = machine.run("systemctl", "is-enabled", *UNIT_NAMES, check=False).stdout.split()
    expected = dict.fromkeys(UNIT_NAMES, "disabled") | {SANDBOX: "static"}
    assert dict(zip(UNIT_NAMES, states, strict=True)) == expected


def test_a_shutdown_does_not_stop_the_slices_of_sandboxes(machine):
    with session_of(machine, "carol") as carol:
        for run in (partial(machine.run, "systemctl"), partial(carol, "systemctl", "--user")):
            run("start", "podsandbox-test.slice")
            for name in (SANDBOX, "podsandbox-test.slice"):
                shown = run("show", name, "--property=DefaultDependencies,Conflicts").stdout
                assert sorted(shown.splitlines()) == ["Conflicts=", "DefaultDependencies=no"]
            run("stop", SANDBOX)


@pytest.mark.parametrize("service", [SERVICE, AGENT])
def test_the_services_are_exposed_to_little(machine, service):
    # at most 1.5 of 10; the rest is that they are root and read /proc
    machine.run("systemd-analyze", "security", "--threshold=15", service)


@pytest.mark.parametrize("service", [SERVICE, AGENT])
def test_the_services_do_not_see_the_data_of_pods(host, service):
    """The service of the agent that writes it, `podslice-containers-*`, has no sandbox."""
    host.put("/var/lib/podslice/volumes/default_web/login/password", "hunter2\n")
    host.put(
        f"/etc/systemd/system/{service}.d/test.conf",
        "[Service]\nExecStartPre=/bin/sh -c 'find /var/lib/podslice/volumes; cat"
        " /var/lib/podslice/volumes/default_web/login/password; :'\n",
    )
    host.run("systemctl", "daemon-reload")
    put_pod(host, "web")
    host.run("systemctl", "start", service)
    said = host.run("journalctl", "--no-pager", "--output=cat", "-u", service).stdout
    host.run(
        "rm", "-r", "/var/lib/podslice/volumes/default_web", f"/etc/systemd/system/{service}.d"
    )
    assert "/var/lib/podslice/volumes" in said
    assert "default_web:" not in said
    assert "hunter2" not in said


def test_an_agent_that_keeps_failing_is_restarted_with_increasing_delays(trixie):
    assert show(trixie, AGENT, "RestartSteps") == {"RestartSteps": "8"}


# the service


def test_the_tree_exists_before_multi_user_and_before_container_runtimes(host):
    put_pod(host, "web")
    host.put(
        "/etc/systemd/system/podman.service",
        "[Service]\nType=oneshot\nRemainAfterExit=yes\n"
        "ExecStart=/bin/sh -c 'systemctl list-units --plain kubepods*.slice > /run/seen'\n"
        "[Install]\nWantedBy=multi-user.target\n",
    )
    host.run("systemctl", "enable", SERVICE, "podman.service")
    # the relevant part of a boot: the target is started again, with its new dependencies
    host.run("systemctl", "stop", "multi-user.target")
    host.run("systemctl", "start", "multi-user.target")
    # slices exist before the runtime starts
    assert "kubepods-pod" in host.get("/run/seen").decode()
    units = (SERVICE, "podman.service", "multi-user.target")
    times = [int(show(host, u, "ActiveEnterTimestampMonotonic").popitem()[1]) for u in units]
    assert times == sorted(times)
    host.run("systemctl", "disable", "--now", SERVICE, "podman.service")
    host.run("rm", "/etc/systemd/system/podman.service")


def test_a_manifest_of_a_member_of_podslice_admin_is_applied(host):
    text = POD.format(name="web", memory="64Mi")
    written = ("sh", "-c", f"umask 077; echo '{text}' > {MANIFESTS}/web.yaml")
    assert run_as(host, "alice", *written) == 0
    host.run("systemctl", "start", SERVICE)
    assert pods(host) == 1


def test_pods_outlast_the_service(host):
    put_pod(host, "web")
    host.run("systemctl", "start", SERVICE)
    state = show(host, SERVICE, "ActiveState", "SubState", "Result")
    assert state == {"ActiveState": "active", "SubState": "exited", "Result": "success"}
    host.run("systemctl", "stop", SERVICE)
    assert pods(host) == 1


def test_without_manifests_the_service_is_skipped(host):
    host.run("systemctl", "start", SERVICE)
    state = show(host, SERVICE, "ActiveState", "ConditionResult", "Result")
    assert state == {"ActiveState": "inactive", "ConditionResult": "no", "Result": "success"}


def test_a_reload_applies_new_manifests_and_stops_nothing(host):
    put_pod(host, "web")
    host.run("systemctl", "start", SERVICE)
    host.run("rm", f"{MANIFESTS}/web.yaml")
    put_pod(host, "shop")
    host.run("systemctl", "reload", SERVICE)
    assert pods(host) == 2


def test_with_the_example_a_reload_prunes(host):
    name = f"{SERVICE}.d/prune.conf"
    host.put(f"/etc/systemd/system/{name}", (UNITS / "examples" / name).read_text())
    host.run("systemctl", "daemon-reload")
    put_pod(host, "web")
    put_pod(host, "shop")
    host.run("systemctl", "start", SERVICE)
    host.run("rm", f"{MANIFESTS}/web.yaml")
    host.run("systemctl", "reload", SERVICE)
    assert pods(host) == 1


def test_a_refused_pod_is_shown_as_failed_with_its_reason_and_the_others_are_applied(host):
    put_pod(host, "small")
    put_pod(host, "vast", memory="999Ti")
    assert host.run("systemctl", "start", SERVICE, check=False).exit_code == 1
    state = show(host, SERVICE, "ActiveState", "Result", "ExecMainStatus")
    assert state == {"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "1"}
    status = host.run("systemctl", "status", "--no-pager", "--full", SERVICE, check=False).stdout
    assert "pod default/vast refused: OutOfmemory" in status
    assert pods(host) == 1


def test_an_invalid_manifest_is_shown_as_failed_and_nothing_is_applied(host):
    put_pod(host, "web")
    put_pod(host, "wrong", memory="2Gii")
    host.run("systemctl", "start", SERVICE, check=False)
    assert show(host, SERVICE, "ExecMainStatus") == {"ExecMainStatus": "2"}
    status = host.run("systemctl", "status", "--no-pager", "--full", SERVICE, check=False).stdout
    assert "'2Gii' is not a quantity; write 2Gi" in status
    assert pods(host) == 0


def test_invalid_manifests_do_not_disclose_files_that_only_root_may_read(host):
    host.put("/etc/secret", "kind: hunter2\n", mode=0o600)
    host.run("ln", "-s", "/etc/secret", f"{MANIFESTS}/web.yaml")
    host.run("systemctl", "start", SERVICE, check=False)
    said = host.run("journalctl", "--no-pager", "-u", SERVICE).stdout
    assert "web.yaml" in said
    assert "hunter2" not in said


def test_a_link_of_a_member_to_a_file_of_root_is_not_followed(host):
    host.put("/var/lib/secret", "kind: hunter2\n", mode=0o600)
    assert run_as(host, "alice", "ln", "-s", "/var/lib/secret", f"{MANIFESTS}/web.yaml") == 0
    host.run("systemctl", "start", SERVICE, check=False)
    said = host.run("journalctl", "--no-pager", "-u", SERVICE).stdout
    assert "web.yaml: is a link of user " in said
    assert "hunter2" not in said


def test_the_service_leaves_nothing_after_the_last_pod(host):
    put_pod(host, "web")
    host.run("systemctl", "start", SERVICE)
    host.podslice("delete", "--all")
    assert host.run("test", "-e", "/run/podslice", check=False).exit_code == 1


@pytest.mark.parametrize("unit", [SERVICE, AGENT])
def test_a_service_has_limits_of_memory_above_the_use_for_the_most_manifests(machine, unit):
    """Source: 450 MiB for apply, measured with the limits of podslice/inputs/budget.py."""
    shown = show(machine, unit, "MemoryHigh", "MemoryMax")
    assert 512 * 2**20 <= int(shown["MemoryHigh"]) < int(shown["MemoryMax"]) <= 2**31


# the agent


def start_agent(machine):
    machine.run("systemctl", "start", AGENT)
    return show(machine, AGENT, "MainPID")["MainPID"]


def test_the_agent_is_ready_when_the_pods_exist_and_reads_manifests_of_admins(host):
    text = POD.format(name="web", memory="64Mi")
    written = ("sh", "-c", f"umask 077; echo '{text}' > {MANIFESTS}/web.yaml")
    assert run_as(host, "alice", *written) == 0
    start_agent(host)
    assert pods(host) == 1
    assert show(host, AGENT, "Slice", "SubState") == {
        "Slice": "podruntime.slice",
        "SubState": "running",
    }


def test_podslice_admin_starts_and_stops_pods_with_manifests_alone(host):
    start_agent(host)
    path, text = f"{MANIFESTS}/web.yaml", POD.format(name="web", memory="64Mi")

    def await_slices(count):
        seen = "systemctl list-units --plain --no-legend 'kubepods-*pod*.slice' | wc -l"
        host.run("timeout", "60", "sh", "-c", f'until [ "$({seen})" = {count} ]; do :; done')

    assert run_as(host, "alice", "sh", "-c", f"echo '{text}' > {path}") == 0
    await_slices(1)
    assert run_as(host, "alice", "rm", path) == 0
    await_slices(0)


def test_root_and_the_group_may_query_the_agent(host):
    start_agent(host)
    assert host.run("stat", "-c", "%a %U:%G", SOCKET).stdout == "660 root:podslice\n"
    assert host.run("python3", "-c", ASK).stdout == "200 ok\n"
    may = {user: run_as(host, user, "python3", "-c", ASK) == 0 for user in ("bob", "carol")}
    assert may == {"bob": True, "carol": False}


def test_the_agent_reloads_its_configuration_and_continues(host):
    pid = start_agent(host)
    host.put("/etc/podslice/podslice.toml", 'system-reserved = "cpu=1"\n')
    reload_agent(host)
    host.run("rm", "/etc/podslice/podslice.toml")
    assert show(host, AGENT, "MainPID") == {"MainPID": pid}


def logged(machine, since):
    return machine.run("journalctl", "-u", AGENT, f"--since={since}", "-o", "cat").stdout


def test_a_reload_fails_where_the_configuration_is_invalid(host):
    """The agent keeps its configuration."""
    put_pod(host, "web")
    pid = start_agent(host)
    before = json.loads(host.podslice("status", "-o", "json").stdout)
    since = host.run("date", "+@%s.%N").stdout.strip()
    host.put("/etc/podslice/podslice.toml", 'rules = "own"\nfoo = 1\n')
    try:
        ended = host.run("systemctl", "reload", AGENT, check=False)
        status = json.loads(host.podslice("status", "-o", "json", check=False).stdout)
        said = logged(host, since)
        # only the signal, without the check that precedes a reload
        host.run("systemctl", "kill", "--kill-whom=main", "--signal=HUP", AGENT)
        keeps = f"journalctl -u {AGENT} --since={since} | grep 'stays in effect'"
        wait_until(host, keeps)
    finally:
        host.run("rm", "/etc/podslice/podslice.toml")
    reload_agent(host)
    assert (ended.exit_code, "Job for podslice-agent.service failed" in ended.stderr) == (1, True)
    assert show(host, AGENT, "MainPID", "ActiveState") == {"MainPID": pid, "ActiveState": "active"}
    assert status["configuration"]["source"] == "last-valid"
    units = [(unit["name"], unit["state"]) for unit in status["units"]]
    assert units == [(unit["name"], unit["state"]) for unit in before["units"]]
    for problem in ("unknown option 'foo'", "must be one of proposal, kubernetes"):
        assert said.count(problem) == 1
        assert logged(host, since).count(problem) == 2


def test_stopping_the_agent_stops_its_socket_and_no_pod(host):
    put_pod(host, "web")
    start_agent(host)
    host.run("systemctl", "stop", AGENT)
    assert show(host, "podslice-agent.socket", "ActiveState") == {"ActiveState": "inactive"}
    assert show(host, AGENT, "Result") == {"Result": "success"}
    assert host.run("test", "-e", SOCKET, check=False).exit_code == 1
    assert pods(host) == 1


def test_a_killed_agent_is_restarted(host):
    start_agent(host)
    host.run("systemctl", "kill", "--signal=SIGKILL", AGENT)
    is_back = f'[ "$(systemctl show -P NRestarts {AGENT})" = 1 ] && systemctl -q is-active {AGENT}'
    wait_until(host, is_back)
    assert host.run("python3", "-c", ASK).stdout == "200 ok\n"


def test_an_agent_that_cannot_listen_without_network_reports_the_remedy(host):
    host.put("/etc/podslice/podslice.toml", 'listen = "127.0.0.1:9469"\n')
    began = host.run("systemctl", "start", AGENT, check=False)
    said = host.run("journalctl", "--no-pager", "-u", AGENT, "-p", "info").stdout
    host.run("systemctl", "stop", AGENT)
    name = f"{AGENT}.d/listen.conf"
    host.put(f"/etc/systemd/system/{name}", (UNITS / "examples" / name).read_text())
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "start", AGENT)
    host.run("rm", f"/etc/systemd/system/{name}", "/etc/podslice/podslice.toml")
    assert began.exit_code == 1
    assert "its unit allows no network: see listen in podslice-agent(8)" in said
    assert "Traceback" not in said


def test_a_second_agent_reports_an_error_and_does_not_disturb_the_first(host):
    pid = start_agent(host)
    second = host.podslice("agent", check=False)
    assert second.exit_code == 1
    assert second.stderr.startswith(f"error: an agent is already running as process {pid}")
    assert second.stderr.count("\n") == 1
    assert host.run("python3", "-c", ASK).stdout == "200 ok\n"


def test_the_agent_has_at_most_one_capability_and_three_threads(host):
    status = host.get(f"/proc/{start_agent(host)}/status").decode()
    found = dict(line.split(":", 1) for line in status.splitlines())
    # a namespace does not even have this one, CAP_SYS_RESOURCE
    assert int(found["CapBnd"], 16) | 1 << 24 == 1 << 24
    # the event loop, manifests and decisions, records of usage
    assert (int(found["Threads"]) <= 3, found["Seccomp"].strip()) == (True, "2")


# the agent of a user


def as_user(machine, user, *argv):
    """Run a command in the session of a user, whose service manager is up."""
    uid = machine.run("id", "-u", user).stdout.strip()
    session = (f"XDG_RUNTIME_DIR=/run/user/{uid}", f"HOME=/home/{user}")
    return machine.run("runuser", "-u", user, "--", "env", *session, *argv)


@contextmanager
def session_of(machine, user):
    """Yield a function that runs a command as the user, whose service manager is up."""
    uid = machine.run("id", "-u", user).stdout.strip()
    machine.run("systemctl", "start", f"user@{uid}.service")
    yield partial(as_user, machine, user)
    as_user(machine, user, "systemctl", "--user", "--quiet", "disable", "--now", AGENT)
    machine.run("systemctl", "stop", f"user@{uid}.service")
    machine.run("rm", "-rf", f"/home/{user}/.config")


def test_systemd_accepts_the_unit_for_users_and_enables_it_for_none(machine):
    with session_of(machine, "carol") as carol:
        result = carol("systemd-analyze", "--user", "verify", "--man=no", USER_UNIT)
        assert (result.stdout, result.stderr) == ("", "")
        carol("systemctl", "--user", "preset", AGENT)
        enabled = carol("sh", "-c", f"systemctl --user is-enabled {AGENT} || true").stdout
        assert enabled == "disabled\n"


def test_a_user_enables_an_agent_for_own_pods(trixie):
    manifests, text = "/home/carol/.config/podslice/manifests", POD.format(name="w", memory="64Mi")
    with session_of(trixie, "carol") as carol:
        carol("mkdir", "-p", manifests)
        carol("sh", "-c", f"echo '{text}' > {manifests}/web.yaml")
        carol("systemctl", "--user", "--quiet", "enable", "--now", AGENT)
        # ready means that the pods of the manifests have their slices
        count = "systemctl --user list-units --plain --no-legend 'kubepods-*pod*.slice' | wc -l"
        assert carol("sh", "-c", count).stdout == "1\n"
        socket = carol("sh", "-c", "echo $XDG_RUNTIME_DIR/podslice/agent.sock").stdout.strip()
        assert carol("python3", "-c", ASK.replace(SOCKET, socket)).stdout == "200 ok\n"
        carol("systemctl", "--user", "reload", AGENT)
        carol("rm", f"{manifests}/web.yaml")
        carol("timeout", "60", "sh", "-c", f'until [ "$({count})" = 0 ]; do :; done')
        shown = carol("systemctl", "--user", "show", "-P", "NRestarts", AGENT).stdout
        assert shown == "0\n"
