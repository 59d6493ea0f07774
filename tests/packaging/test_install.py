"""The package in virtual machines of Debian 13 and 12: installed, used, used at boot.

The tests of each release run in one machine, offline, in the order of this file: each continues from
the state that the previous one left. What does not depend on the kernel is in test_upgrade.py.
"""

from __future__ import annotations

import json

import pytest

from podslice import __version__
from podslice.model.event import Kind
from podslice.model.pod import default_uid
from tests.host import mail, podman
from tests.host.scenario import kernel, show, units
from tests.lab.vm import Vm
from tests.packaging.installed import AGENT, MANIFESTS, wait_until
from tests.packaging.release import POD, SUITES, UNITS, Host

SOCKET = "/run/podslice/agent.sock"
ASK = f"""
import http.client, socket, sys
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect("{SOCKET}")
connection.request("GET", sys.argv[1])
answer = connection.getresponse()
print(answer.status, answer.read().decode().strip())
"""


SHOP = "/usr/share/doc/podslice/examples/shop"
MI = 2**20
LETTERS = """
apiVersion: v1
kind: Service
metadata: {name: letters, namespace: shop}
spec: {selector: {app: mail}}
"""
"""It names the pod `mail-0`, whose sidecar is an HTTP server."""
WEB_ID = default_uid("default", "web").replace("-", "_")
with_podman = pytest.mark.parametrize("host", ["trixie"], indirect=True)
"""Debian 12 has podman 4.3, whose generator cannot keep pods in their slices."""
with_services = pytest.mark.parametrize("host", ["bookworm"], indirect=True)
"""In the machine without podman, and with the oldest systemd: each command takes half a minute."""


@pytest.fixture(scope="module", params=SUITES)
def host(request, packages):
    packages.get(request.param)  # before the machine is started
    with Vm(request.param) as vm:
        yield Host(vm, request.param, packages)


def test_it_is_installed_without_network(host):
    """As apt leaves it, which takes a minute in an emulated machine; test_upgrade.py runs apt itself."""
    host.copy_present()
    assert host.podslice("--version").stdout == f"podslice {__version__}\n"
    assert host.run("dpkg", "--verify", "podslice").stdout == ""
    assert host.run("dpkg", "--audit").stdout == ""


def test_nothing_is_enabled_or_running(host):
    expected = ("disabled", "inactive")
    assert host.states() == dict.fromkeys(UNITS, expected)
    assert units(host.machine) == []
    assert host.run("systemctl", "is-system-running").stdout == "running\n"


def test_groups_and_the_directory_of_manifests(host):
    groups = host.run("getent", "group", "podslice", "podslice-admin").stdout.splitlines()
    assert [(line.split(":")[0], line.split(":")[3]) for line in groups] == [
        ("podslice", ""),
        ("podslice-admin", ""),
    ]
    shown = host.run("stat", "-c", "%a %U:%G", MANIFESTS).stdout
    assert shown == "2770 root:podslice-admin\n"


def test_systemd_accepts_the_units(host):
    # the machine has no man, which is otherwise used to find pages
    result = host.run("systemd-analyze", "verify", "--man=no", *UNITS, check=False)
    told = [line for line in result.stderr.splitlines() if "pod" in line]
    assert (result.exit_code, told) == (0, [])


def test_the_journal_explains_every_event(host):
    assert host.explained() == set(Kind)


def test_reservations_are_proposed_by_the_use_of_the_slices(host):
    shown = host.podslice("node", "init", "--dry-run").stdout
    assert "times the memory that system.slice and user.slice use now" in " ".join(shown.split())


@with_podman
def test_a_pod_of_the_shop_is_started(host):
    """As in EXAMPLES of podslice-quadlet(7), with one of its files."""
    podman.install(host.machine, mail.IMAGE)
    host.run("cp", f"{SHOP}/mail.yaml", MANIFESTS)
    host.machine.put(f"{MANIFESTS}/letters.yaml", LETTERS)
    host.run("systemctl", "--quiet", "enable", "--now", "podslice-apply.service")
    apply = ("podslice", "apply", "-f", MANIFESTS, "--start")
    started = host.run(*apply)
    # nothing is missing for a start at boot
    assert "waiting for the services of shop/mail-0" in started.stderr.splitlines()
    assert "do not start" not in started.stderr
    pod = mail.MailPod(host.machine)
    pod.check()
    assert problems(host) == []

    # at shutdown systemd does not stop the container that holds the pod's network before the others
    slices = host.run("systemctl", "show", "podsandbox*.slice", "-P", "DefaultDependencies")
    assert slices.stdout.split() == ["no", "no"]

    # the init container has written for others, and ended before they started
    assert pod.queue("read") == f"{mail.LETTER}an example"
    assert show(host.machine, mail.TEMPLATES, "SubState") == {"SubState": "exited"}
    # the prober has let the next one start, and has nothing else to do
    assert show(host.machine, mail.PROBERS["queue"], "Result", "ActiveState", "Slice") == {
        "Result": "success",
        "ActiveState": "inactive",
        "Slice": "podruntime.slice",
    }


@with_podman
def test_a_container_that_is_not_alive_is_killed_and_starts_again(host):
    host.run("podman", "exec", "shop__mail-0_mail", "touch", "/tmp/dead")
    mail.MailPod(host.machine).wait_for_log(mail.RESTARTED)
    assert show(host.machine, mail.MAIL, "NRestarts") == {"NRestarts": "1"}
    host.run("systemctl", "start", mail.MAIL)  # until podman has started it whole


def problems(host):
    """Return what `status` reports, for example of containers that are elsewhere."""
    return json.loads(host.podslice("status", "-o", "json", check=False).stdout)["problems"]


LG = "[Service]\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
BURSTABLE = "{requests: {cpu: 10m}, limits: {memory: 8Mi}}"
GUARANTEED = "{limits: {cpu: 100m, memory: 8Mi}}"


def put_service(host, name, resources):
    """Write the manifest of a pod with the name of a service."""
    text = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec: {{containers: [{{name: main, resources: {resources}}}]}}
"""
    host.machine.put(f"{MANIFESTS}/{name}.yaml", text)


@with_services
def test_services_are_adopted(host):
    """One of them has a pod of another class after the reboot."""
    for name in ("early", "moved"):
        host.machine.put(f"/etc/systemd/system/{name}.service", LG)
        put_service(host, name, BURSTABLE)
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "--quiet", "enable", "--now", "early", "moved")
    host.podslice("apply", "-f", MANIFESTS)
    refused = host.podslice("adopt", "early", "dbus", check=False)
    assert (refused.exit_code, "starts before podslice-apply.service" in refused.stderr) == (
        2,
        True,
    )
    host.podslice("adopt", "early", "early")
    assert show(host.machine, "early", "Slice") == {
        "Slice": "kubepods-burstable-podearly.default.slice"
    }
    moved = host.podslice("adopt", "moved", "moved", "--restart")
    assert moved.stdout.splitlines()[-1] == "restarted moved.service"
    put_service(host, "moved", GUARANTEED)


def test_after_a_reboot_the_pods_exist_before_multi_user_target(host):
    host.machine.put(f"{MANIFESTS}/web.yaml", POD)
    host.run("sh", "-c", "echo 'sync-period = \"2s\"' >> /etc/podslice/podslice.toml")
    host.run("systemctl", "--quiet", "enable", "podslice-apply.service")
    reboot(host.machine)
    name = "ActiveEnterTimestampMonotonic"
    (pod,) = [unit for unit in units(host.machine) if WEB_ID in unit]
    target = int(show(host.machine, "multi-user.target", name)[name])
    for unit in ("podslice-apply.service", "kubepods.slice", pod):
        assert 0 < int(show(host.machine, unit, name)[name]) <= target, unit
    assert show(host.machine, pod, "MemoryMax") == {"MemoryMax": str(8 * 2**20)}
    group = show(host.machine, pod, "ControlGroup")["ControlGroup"]
    assert kernel(host.machine, group, "memory.max") == str(8 * 2**20)
    host.seen["pod"] = pod


@with_services
def test_after_a_reboot_adopted_services_start_within_their_limits(host):
    times = ("ActiveEnterTimestampMonotonic", "InactiveExitTimestampMonotonic")
    applied = int(show(host.machine, "podslice-apply.service", times[0])[times[0]])
    slices = {"early": "kubepods-burstable-podearly", "moved": "kubepods-podmoved"}
    for name, slice_ in slices.items():
        shown = show(host.machine, name, "ActiveState", "ControlGroup", times[1])
        assert (shown["ActiveState"], applied <= int(shown[times[1]])) == ("active", True)
        parent = shown["ControlGroup"].removesuffix(f"/{name}.service")
        assert parent.endswith(f"/{slice_}.default.slice")
        assert kernel(host.machine, parent, "memory.max") == str(8 * MI)
    cycles = host.run("journalctl", "-b", "-q", "--grep=ordering cycle", check=False).stdout
    assert cycles == ""
    host.podslice("delete", "early", "moved", "--forget", "--restart")
    for name in slices:
        shown = show(host.machine, name, "ActiveState", "ControlGroup")
        assert shown == {"ActiveState": "active", "ControlGroup": f"/system.slice/{name}.service"}
    host.run("systemctl", "--quiet", "disable", "--now", "early", "moved")


@with_podman
def test_after_a_reboot_containers_start_within_their_limits(host):
    applied, started = (
        int(show(host.machine, unit, name)[name])
        for unit, name in (
            ("podslice-apply.service", "ActiveEnterTimestampMonotonic"),
            ("shop__mail-0-pod.service", "InactiveExitTimestampMonotonic"),
        )
    )
    assert 0 < applied <= started
    # the hook ran before the signal
    pod = mail.MailPod(host.machine)
    pod.wait_for_log(f"{mail.RESTARTED}stopping\nstopped\n{mail.STARTED}")
    pod.check()
    assert problems(host) == []
    # the names of Services are known again, and nothing of them is left
    url = "http://letters.shop.svc.cluster.local:8025/ready"
    ask = ("busybox", "wget", "-q", "-O", "-", url)
    host.run("podman", "exec", "shop__mail-0_mail", *ask)
    host.run("rm", f"{MANIFESTS}/mail.yaml", f"{MANIFESTS}/letters.yaml")
    host.run("podslice", "delete", "mail-0", "-n", "shop")
    assert host.run("podman", "network", "ls", "--format={{.Name}}").stdout == "podman\n"


def reboot(machine):
    """Reboot, and check the lab's guarantees of that, as each boot takes long."""
    machine.put("/etc/kept", "disk")
    machine.put("/run/lost", "memory")
    booted = machine.get("/proc/sys/kernel/random/boot_id")
    machine.reboot()
    assert machine.get("/proc/sys/kernel/random/boot_id") != booted
    assert machine.get("/etc/kept") == b"disk"
    with pytest.raises(FileNotFoundError):
        machine.get("/run/lost")


def test_the_agent_keeps_the_pods_and_answers_the_group(host):
    host.run("systemctl", "start", AGENT)
    assert host.states()["podslice-agent.socket"] == ("active", "disabled")
    assert host.run("stat", "-c", "%a %U:%G", SOCKET).stdout == "660 root:podslice\n"
    assert host.run("python3", "-c", ASK, "/healthz").stdout == "200 ok\n"
    host.run("systemctl", "set-property", "--runtime", host.seen["pod"], "MemoryMax=16M")
    wait_for_memory_max(host, 8 * 2**20)
    host.run("systemctl", "reload", AGENT)
    host.run("systemctl", "stop", AGENT)
    # for example that the kernel does not notify it of pressure
    said = host.run("journalctl", "-q", "--no-pager", "-p", "warning", "-u", AGENT).stdout
    assert said == ""
    assert host.states()["podslice-agent.socket"] == ("disabled", "inactive")
    shown = show(host.machine, host.seen["pod"], "ActiveState")
    assert shown == {"ActiveState": "active"}


def wait_for_memory_max(host, wanted):
    """Wait for the limit, which the agent sets at the next comparison of all units."""
    has_it = f"systemctl show {host.seen['pod']} -p MemoryMax | grep -qx MemoryMax={wanted}"
    wait_until(host.machine, has_it)
