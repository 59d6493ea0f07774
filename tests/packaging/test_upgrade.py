"""The package used as the README shows, configured, upgraded, removed and purged, in two releases.

The tests of each release run in one machine, offline, in the order of this file: each continues from
the state that the previous one left. They run in namespaces, because they concern dpkg and the units,
not the kernel; test_install.py checks values of the kernel, in virtual machines.
"""

from __future__ import annotations

import pytest

from tests.host.scenario import show, units
from tests.lab import session
from tests.lab.machine import START_SERVICE
from tests.lab.namespace import Namespace
from tests.packaging.builds import NEXT_VERSION, ROOT
from tests.packaging.installed import AGENT, MANIFESTS, reload_agent
from tests.packaging.release import POD, SUITES, Host

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
        host.run("rm", "-r", session.DIRECTORY)
        host.run("systemctl", "stop", "build.service", check=False)
    assert [line for step, found in results for line in session.differences(step, found)] == []
    assert units(host.machine) == []


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
