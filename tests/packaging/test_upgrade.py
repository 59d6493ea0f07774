"""The package used as the README shows, configured, upgraded, removed and purged, in two releases.

The tests of each release run in one machine, offline, in the order of this file: each continues from
the state that the previous one left. They run in namespaces, because they concern dpkg and the units,
not the kernel; test_install.py checks values of the kernel, in virtual machines.
"""

from __future__ import annotations

import json

import pytest

from podslice.kernel.proc import parse_control_group
from tests.host.scenario import BIG, show, units
from tests.lab import session
from tests.lab.machine import START_SERVICE
from tests.lab.namespace import Namespace
from tests.packaging.builds import NEXT_VERSION, ROOT
from tests.packaging.installed import AGENT, MANIFESTS, reload_agent
from tests.packaging.release import POD, SUITES, Host

POD1 = "default/pod1"
EXAMPLES = "/usr/share/doc/podslice/examples"
RESERVED = """
system-reserved = "cpu=500m"
system-reserved-cgroup = "/system.slice"
enforce-node-allocatable = "pods,system-reserved-compressible"
"""


@pytest.fixture(scope="module", params=SUITES)
def host(request, packages):
    with Namespace(request.param) as namespace:
        host = Host(namespace, request.param, packages)
        host.seen["files"] = host.files()
        host.install_present()
        yield host


def test_the_commands_of_the_readme_do_what_it_shows(host):
    """From top to bottom, as an operator would copy them; `make pictures` writes their output."""
    session.prepare(host.machine)
    steps = session.read_steps((ROOT / "README.md").read_text())
    try:
        results = [(each, session.run(host.machine, each.command)) for each in steps]
    finally:
        # the last one is wanted by the adopted service
        started = ("build.service", "report.service", "podslice-apply.service")
        host.run("systemctl", "stop", *started, check=False)
        host.run("rm", "-rf", session.DIRECTORY, "/etc/systemd/system/report.service")
    assert [line for step, found in results for line in session.differences(step, found)] == []
    assert units(host.machine) == []


def test_examples_can_be_applied_and_deleted(host):
    files = [
        f"{EXAMPLES}/{name}" for name in ("seeds/pods.yaml", "database.yaml", "ci-runner.yaml")
    ]
    arguments = [word for name in files for word in ("-f", name)]
    host.podslice("apply", *arguments, *BIG)
    assert show(host.machine, "kubepods.slice", "MemoryMax") == {"MemoryMax": str(32 * 2**30)}
    start_and_adopt(host)
    shown = host.podslice("top", "--once", *BIG).stdout
    assert POD1 in shown
    host.run("systemctl", "stop", "podslice-*bar.service")
    check_status(json.loads(host.podslice("status", "-o", "json", *BIG).stdout))
    host.podslice("delete", "--all")
    assert units(host.machine) == []


def start_and_adopt(host):
    """Move processes into both containers of a pod, and check their control groups.

    A command takes the CPU time of its start from its container, of which foo has hardly any.
    """
    host.podslice("run", "--detach", POD1, "-c", "bar", "--", "sleep", "infinity")
    host.run(*START_SERVICE, "--unit=outside", "sleep", "infinity")
    adopted = show(host.machine, "outside.service", "MainPID")["MainPID"]
    host.podslice("adopt", POD1, "-c", "foo", adopted)
    (started,) = host.run(
        "systemctl", "show", "-P", "MainPID", "podslice-*bar.service"
    ).stdout.split()
    for pid, unit in ((started, "-bar.service"), (adopted, "-foo.scope")):
        group = parse_control_group(host.machine.get(f"/proc/{pid}/cgroup").decode())
        assert group.startswith("/kubepods.slice/")
        assert group.endswith(unit)


def check_status(status):
    """Check the pods of the examples, and the end of the command that was stopped."""
    assert status["in_sync"]
    pods = [unit for unit in status["units"] if unit["pod"] and unit["kind"] == "slice"]
    assert len(pods) == 8
    exits = [unit["last_exit"] for unit in status["units"] if unit.get("last_exit")]
    found = [(each["result"], each["exit_code"], each["signal"]) for each in exits]
    assert found == [("success", None, "SIGTERM")]


def test_reservations_are_proposed_written_and_reverted(host):
    runtime = "/etc/systemd/system/docker.service"
    host.machine.put(runtime, "[Service]\nExecStart=/bin/true\n")
    shown = host.podslice("node", "init", "--dry-run").stdout
    assert "would write /etc/podslice/podslice.toml\n" in shown
    before = host.files()
    host.podslice("node", "init")
    written = host.files() - before
    drop_ins = {path for path in written if path.endswith(".conf")}
    assert drop_ins == {"/etc/systemd/system/docker.service.d/50-podslice.conf"}
    assert "/etc/systemd/system/podruntime.slice" not in written  # the package has it
    host.podslice("node", "reset")
    assert host.files() == before
    host.run("rm", runtime)


def use(host):
    """Have a pod applied at boot, with a process in it, and a line of the administrator's own."""
    host.machine.put(f"{MANIFESTS}/web.yaml", POD)
    host.run("sh", "-c", "echo '# mine' >> /etc/podslice/podslice.toml")
    host.run("systemctl", "--quiet", "enable", "--now", "podslice-apply.service")
    (pod,) = [unit for unit in units(host.machine) if "-pod" in unit]
    host.run(*START_SERVICE, "--unit=inside", f"--slice={pod}", "sleep", "infinity")
    host.seen["pod"] = pod
    host.seen["alive"] = alive(host)


def alive(host):
    """Return the pod's slice as it was started, and its process."""
    names = ("InvocationID", "ActiveState", "MemoryMax")
    pid = show(host.machine, "inside.service", "MainPID")["MainPID"]
    return show(host.machine, host.seen["pod"], *names), pid


def test_an_upgrade_keeps_pods_and_configuration(host):
    use(host)
    assert host.seen["alive"][0]["MemoryMax"] == str(8 * 2**20)
    service = show(host.machine, "podslice-apply.service", "InvocationID")
    host.run("systemctl", "--quiet", "enable", "--now", AGENT)
    agent = show(host.machine, AGENT, "InvocationID")
    host.install_next()
    assert host.podslice("--version").stdout == f"podslice {NEXT_VERSION}\n"
    assert alive(host) == host.seen["alive"]
    assert show(host.machine, "podslice-apply.service", "InvocationID") == service
    assert host.states()["podslice-apply.service"] == ("active", "enabled")
    assert host.states()[AGENT] == ("active", "enabled")
    assert show(host.machine, AGENT, "InvocationID") != agent  # it runs as the new version
    assert host.machine.get(f"{MANIFESTS}/web.yaml").decode() == POD
    assert host.machine.get("/etc/podslice/podslice.toml").endswith(b"# mine\n")
    assert host.run("stat", "-c", "%a %U:%G", MANIFESTS).stdout == "2770 root:podslice-admin\n"
    plan = host.podslice("plan", "-f", MANIFESTS)
    assert plan.stdout == "nothing to do\n"


def test_removal_leaves_the_pods_and_the_configuration(host):
    host.run("rm", "/etc/podslice/podslice.toml")
    host.podslice("node", "init")
    weight = show(host.machine, "system.slice", "CPUWeight")
    # also for the agent, which would restore what only the command line requests
    host.machine.put("/etc/podslice/podslice.toml", RESERVED)
    reload_agent(host)
    host.podslice("apply", "-f", MANIFESTS)
    assert show(host.machine, "system.slice", "CPUWeight") == {"CPUWeight": "50"}
    host.run("apt-get", "remove", "--yes", "-q", "podslice", timeout_sec=300)
    for name in (AGENT, "podslice-agent.socket"):
        assert show(host.machine, name, "ActiveState") == {"ActiveState": "inactive"}
    assert host.run("sh", "-c", "command -v podslice", check=False).exit_code != 0
    assert alive(host) == host.seen["alive"]
    assert host.machine.get(f"{MANIFESTS}/web.yaml").decode() == POD
    assert host.run("ls", "/run/podslice/pods").stdout != ""
    assert host.explained() == set()
    # values set outside the root are restored when the package is removed
    assert show(host.machine, "system.slice", "CPUWeight") == weight


def test_purging_leaves_nothing_but_running_processes(host):
    host.run("apt-get", "purge", "--yes", "-q", "podslice", timeout_sec=300)
    assert alive(host) == host.seen["alive"]
    assert host.files() ^ host.seen["files"] == set()
    groups = host.run("getent", "group", "podslice", "podslice-admin", check=False).stdout
    assert groups == ""
    left = host.run("sh", "-c", "ls -d /run/podslice /etc/podslice 2>/dev/null || true").stdout
    assert left == ""
    host.run("systemctl", "stop", "kubepods.slice")
    assert show(host.machine, "inside.service", "ActiveState") == {"ActiveState": "inactive"}
