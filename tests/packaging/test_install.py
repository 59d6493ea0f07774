"""The package's life cycle on Debian 13 and 12: installed, used at boot, upgraded, removed, purged.

The tests of each release run in one virtual machine, offline, in the order of this file: each
continues from the state that the previous one left.
"""

from __future__ import annotations

import json
import shutil

import pytest

from podslice import __version__
from podslice.model.event import Kind
from tests.bench import boot
from tests.host.scenario import BIG, kernel, show, units
from tests.lab import session
from tests.lab.machine import START_SERVICE
from tests.lab.namespace import Namespace
from tests.lab.paths import source_dir
from tests.lab.vm import Vm
from tests.packaging.builds import NEXT_VERSION, ROOT, install

AGENT = "podslice-agent.service"
UNITS = ("podslice-apply.service", AGENT, "podslice-agent.socket", "podruntime.slice")
MANIFESTS = "/etc/podslice/manifests"
POD1 = "default/pod1"
EXAMPLES = "/usr/share/doc/podslice/examples"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: main
    resources:
      requests: {cpu: 10m, memory: 4Mi}
      limits: {cpu: 100m, memory: 8Mi}
"""
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
# files of the machine: databases of dpkg and apt, logs, and files that systemd itself writes
PASSED_OVER = (
    *("/proc", "/sys", "/dev", "/run", "/tmp", "/src", "/root/deb", "/var/tmp"),
    *("/var/lib/dpkg", "/var/lib/apt", "/var/cache", "/var/log", "/var/lib/systemd"),
)


class Machine:
    """A virtual machine and the values that tests keep about it."""

    def __init__(self, vm, suite, packages):
        self.vm, self.suite, self._packages = vm, suite, packages
        self.run = vm.run
        self.before = self.files()
        self.seen = {}

    def install_present(self):
        install(self.vm, self._packages.get(self.suite))

    def install_next(self):
        install(self.vm, self._packages.next(self.suite))

    def podslice(self, *arguments, check=True):
        return self.run("podslice", *arguments, check=check)

    def states(self):
        """Return for each unit of the package whether it is enabled and active."""
        shown = {name: show(self.vm, name, "UnitFileState", "ActiveState") for name in UNITS}
        return {name: tuple(sorted(state.values())) for name, state in shown.items()}

    def files(self):
        skip = " -o ".join(f"-path {path}" for path in PASSED_OVER)
        found = self.run("sh", "-c", f"find / -xdev \\( {skip} \\) -prune -o -print").stdout
        lines = found.splitlines()
        return {line for line in lines if "__pycache__" not in line or "podslice" in line}


RESERVED = """
system-reserved = "cpu=500m"
system-reserved-cgroup = "/system.slice"
enforce-node-allocatable = "pods,system-reserved-compressible"
"""


@pytest.fixture(scope="module", params=["trixie", "bookworm"])
def machine(request, packages):
    packages.get(request.param)  # before the machine is started
    packages.next(request.param)
    with Vm(request.param) as vm:
        yield Machine(vm, request.param, packages)


def test_apt_installs_it_without_network(machine):
    machine.install_present()
    assert machine.podslice("--version").stdout == f"podslice {__version__}\n"
    assert machine.run("dpkg", "--verify", "podslice").stdout == ""
    assert machine.run("dpkg", "--audit").stdout == ""


def test_nothing_is_enabled_or_running(machine):
    expected = ("disabled", "inactive")
    assert machine.states() == dict.fromkeys(UNITS, expected)
    assert units(machine.vm) == []
    assert machine.run("systemctl", "is-system-running").stdout == "running\n"


def test_groups_and_the_directory_of_manifests(machine):
    groups = machine.run("getent", "group", "podslice", "podslice-admin").stdout.splitlines()
    assert [(line.split(":")[0], line.split(":")[3]) for line in groups] == [
        ("podslice", ""),
        ("podslice-admin", ""),
    ]
    shown = machine.run("stat", "-c", "%a %U:%G", MANIFESTS).stdout
    assert shown == "2770 root:podslice-admin\n"


def test_systemd_accepts_the_units(machine):
    # the machine has no man, which is otherwise used to find pages
    result = machine.run("systemd-analyze", "verify", "--man=no", *UNITS, check=False)
    told = [line for line in result.stderr.splitlines() if "pod" in line]
    assert (result.exit_code, told) == (0, [])


def explained(machine):
    """Return the kinds of events that the journal can explain."""
    listed = machine.run("journalctl", "--list-catalog").stdout
    return {kind for kind in Kind if kind.message_id in listed}


def test_the_journal_explains_every_event(machine):
    assert explained(machine) == set(Kind)


def test_examples_can_be_applied_and_deleted(machine):
    files = [
        f"{EXAMPLES}/{name}" for name in ("seeds/pods.yaml", "database.yaml", "ci-runner.yaml")
    ]
    arguments = [word for name in files for word in ("-f", name)]
    machine.podslice("apply", *arguments, *BIG)
    status = json.loads(machine.podslice("status", "-o", "json", *BIG).stdout)
    assert status["in_sync"]
    pods = [unit for unit in status["units"] if unit["pod"] and unit["kind"] == "slice"]
    assert len(pods) == 8
    limit = kernel(machine.vm, "/kubepods.slice", "memory.max")
    assert limit == str(32 * 2**30)
    start_and_adopt(machine)
    machine.podslice("delete", "--all")
    assert units(machine.vm) == []


def start_and_adopt(machine):
    """Move processes into both containers of a pod, check their control groups, and stop one.

    A command takes the CPU time of its start from its container, of which foo has hardly any.
    """
    machine.podslice("run", "--detach", POD1, "-c", "bar", "--", "sleep", "infinity")
    machine.run(*START_SERVICE, "--unit=outside", "sleep", "infinity")
    adopted = show(machine.vm, "outside.service", "MainPID")["MainPID"]
    machine.podslice("adopt", POD1, "-c", "foo", adopted)
    (started,) = machine.run(
        "systemctl", "show", "-P", "MainPID", "podslice-*bar.service"
    ).stdout.split()
    for pid, unit in ((started, "-bar.service"), (adopted, "-foo.scope")):
        group = machine.vm.get(f"/proc/{pid}/cgroup").decode().strip()
        assert group.startswith("0::/kubepods.slice/")
        assert group.endswith(unit)
    shown = machine.podslice("top", "--once", *BIG).stdout
    assert POD1 in shown
    machine.run("systemctl", "stop", "podslice-*bar.service")
    status = json.loads(machine.podslice("status", "-o", "json", *BIG).stdout)
    exits = [unit["last_exit"] for unit in status["units"] if unit.get("last_exit")]
    found = [(each["result"], each["exit_code"], each["signal"]) for each in exits]
    assert found == [("success", None, "SIGTERM")]


@pytest.fixture
def readme_machine(machine, packages):
    """The virtual machine with Debian 13; for Debian 12 namespaces, where commands are native.

    What depends on the kernel is tested in the virtual machine by the examples and the agent.
    """
    if machine.suite == "trixie":
        yield machine.vm
        return
    with Namespace(machine.suite) as namespace:
        install(namespace, packages.get(machine.suite))
        yield namespace


def test_the_commands_of_the_readme_do_what_it_shows(readme_machine):
    """From top to bottom, as an operator would copy them; `make pictures` writes their output."""
    session.prepare(readme_machine)
    steps = session.read_steps((ROOT / "README.md").read_text())
    try:
        results = [(each, session.run(readme_machine, each.command)) for each in steps]
    finally:
        readme_machine.run("rm", "-r", session.DIRECTORY)
        readme_machine.run("systemctl", "stop", "build.service", check=False)
    assert [line for step, found in results for line in session.differences(step, found)] == []
    assert units(readme_machine) == []


def test_reservations_are_proposed_written_and_reverted(machine):
    runtime = "/etc/systemd/system/docker.service"
    machine.vm.put(runtime, "[Service]\nExecStart=/bin/true\n")
    shown = machine.podslice("node", "init", "--dry-run").stdout
    assert "would write /etc/podslice/podslice.toml\n" in shown
    before = machine.files()
    machine.podslice("node", "init")
    written = machine.files() - before
    drop_ins = {path for path in written if path.endswith(".conf")}
    assert drop_ins == {"/etc/systemd/system/docker.service.d/50-podslice.conf"}
    assert "/etc/systemd/system/podruntime.slice" not in written  # the package has it
    machine.podslice("node", "reset")
    assert machine.files() == before
    machine.run("rm", runtime)


def test_after_a_reboot_the_pods_exist_before_multi_user_target(machine):
    machine.vm.put(f"{MANIFESTS}/web.yaml", POD)
    machine.run("sh", "-c", "echo '# mine' >> /etc/podslice/podslice.toml")
    machine.run("systemctl", "--quiet", "enable", "podslice-apply.service")
    machine.vm.reboot()
    name = "ActiveEnterTimestampMonotonic"
    (pod,) = [unit for unit in units(machine.vm) if "-pod" in unit]
    target = int(show(machine.vm, "multi-user.target", name)[name])
    for unit in ("podslice-apply.service", "kubepods.slice", pod):
        assert 0 < int(show(machine.vm, unit, name)[name]) <= target, unit
    assert show(machine.vm, pod, "MemoryMax") == {"MemoryMax": str(8 * 2**20)}
    group = show(machine.vm, pod, "ControlGroup")["ControlGroup"]
    assert kernel(machine.vm, group, "memory.max") == str(8 * 2**20)
    machine.seen["pod"] = pod


def test_the_benchmark_of_the_boot_finds_the_service_in_it(machine):
    """Of the boot above; `make bench` measures boots with more pods."""
    booted = boot.measure(machine.vm, pods=1)
    assert booted.service_cpu_sec > 0
    assert 0 < booted.service_sec < booted.target_sec
    assert booted.chain[0].unit == boot.TARGET
    result = boot.make_result([booted])
    assert {len(row) for table in result.tables for row in table.rows} == {3, 6}


def test_the_agent_keeps_the_pods_and_answers_the_group(machine):
    machine.run("systemctl", "start", AGENT)
    assert machine.states()["podslice-agent.socket"] == ("active", "disabled")
    assert machine.run("stat", "-c", "%a %U:%G", SOCKET).stdout == "660 root:podslice\n"
    assert machine.run("python3", "-c", ASK, "/healthz").stdout == "200 ok\n"
    machine.run("systemctl", "set-property", "--runtime", machine.seen["pod"], "MemoryMax=16M")
    wait_for_memory_max(machine, 8 * 2**20)
    machine.run("systemctl", "reload", AGENT)
    machine.run("systemctl", "stop", AGENT)
    # for example that the kernel does not notify it of pressure
    said = machine.run("journalctl", "-q", "--no-pager", "-p", "warning", "-u", AGENT).stdout
    assert said == ""
    assert machine.states()["podslice-agent.socket"] == ("disabled", "inactive")
    shown = show(machine.vm, machine.seen["pod"], "ActiveState")
    assert shown == {"ActiveState": "active"}


def wait_for_memory_max(machine, wanted):
    """Wait for the limit, which the agent sets within a minute, without a notification."""
    script = f"until systemctl show {machine.seen['pod']} -p MemoryMax | grep -qx {{}}; do :; done"
    command = script.format(f"MemoryMax={wanted}")
    machine.run("timeout", "60", "sh", "-c", command)


def put_something_in(machine):
    machine.run(
        *(*START_SERVICE, "--unit=inside", f"--slice={machine.seen['pod']}"),
        *("sleep", "infinity"),
    )
    machine.seen["alive"] = alive(machine)


def alive(machine):
    """Return the pod's slice as it was started, and its process."""
    names = ("InvocationID", "ActiveState", "MemoryMax")
    pid = show(machine.vm, "inside.service", "MainPID")["MainPID"]
    return show(machine.vm, machine.seen["pod"], *names), pid


def test_an_upgrade_keeps_pods_and_configuration(machine):
    put_something_in(machine)
    service = show(machine.vm, "podslice-apply.service", "InvocationID")
    machine.run("systemctl", "--quiet", "enable", "--now", AGENT)
    agent = show(machine.vm, AGENT, "InvocationID")
    machine.install_next()
    assert machine.podslice("--version").stdout == f"podslice {NEXT_VERSION}\n"
    assert alive(machine) == machine.seen["alive"]
    assert show(machine.vm, "podslice-apply.service", "InvocationID") == service
    assert machine.states()["podslice-apply.service"] == ("active", "enabled")
    assert machine.states()[AGENT] == ("active", "enabled")
    assert show(machine.vm, AGENT, "InvocationID") != agent  # it runs as the new version
    assert machine.vm.get(f"{MANIFESTS}/web.yaml").decode() == POD
    assert machine.vm.get("/etc/podslice/podslice.toml").endswith(b"# mine\n")
    assert machine.run("stat", "-c", "%a %U:%G", MANIFESTS).stdout == "2770 root:podslice-admin\n"
    plan = machine.podslice("plan", "-f", MANIFESTS)
    assert plan.stdout == "nothing to do\n"


def test_removal_leaves_the_pods_and_the_configuration(machine):
    machine.run("rm", "/etc/podslice/podslice.toml")
    machine.podslice("node", "init")
    weight = show(machine.vm, "system.slice", "CPUWeight")
    # also for the agent, which would restore what only the command line requests
    machine.vm.put("/etc/podslice/podslice.toml", RESERVED)
    machine.run("systemctl", "reload", AGENT)
    machine.podslice("apply", "-f", MANIFESTS)
    assert show(machine.vm, "system.slice", "CPUWeight") == {"CPUWeight": "50"}
    machine.run("apt-get", "remove", "--yes", "-q", "podslice", timeout_sec=300)
    for name in (AGENT, "podslice-agent.socket"):
        assert show(machine.vm, name, "ActiveState") == {"ActiveState": "inactive"}
    assert machine.run("sh", "-c", "command -v podslice", check=False).exit_code != 0
    assert alive(machine) == machine.seen["alive"]
    assert machine.vm.get(f"{MANIFESTS}/web.yaml").decode() == POD
    assert machine.run("ls", "/run/podslice/pods").stdout != ""
    assert explained(machine) == set()
    # values set outside the root are restored when the package is removed
    assert show(machine.vm, "system.slice", "CPUWeight") == weight


def test_purging_leaves_nothing_but_running_processes(machine):
    machine.run("apt-get", "purge", "--yes", "-q", "podslice", timeout_sec=300)
    assert alive(machine) == machine.seen["alive"]
    assert machine.files() - machine.before == set()
    assert machine.before - machine.files() == set()
    groups = machine.run("getent", "group", "podslice", "podslice-admin", check=False).stdout
    assert groups == ""
    left = machine.run("sh", "-c", "ls -d /run/podslice /etc/podslice 2>/dev/null || true").stdout
    assert left == ""
    machine.run("systemctl", "stop", "kubepods.slice")
    assert show(machine.vm, "inside.service", "ActiveState") == {"ActiveState": "inactive"}


@pytest.fixture(scope="module")
def installed(packages, tmp_path_factory):
    """Debian 13 in namespaces, with the package, and in /src the checkout without podslice/."""
    package = packages.get("trixie").package
    source = tmp_path_factory.mktemp("source")
    skip = shutil.ignore_patterns(".*", "__pycache__", "podslice", "dist")
    shutil.copytree(source_dir(), source, ignore=skip, dirs_exist_ok=True)
    with Namespace("trixie", bind={"/src": source}) as namespace:
        namespace.put(f"/root/{package.name}", package.read_bytes())
        namespace.run("dpkg", "--install", f"/root/{package.name}")
        yield namespace


def test_the_installed_package_is_imported(installed):
    script = "cd /src && python3 -c 'import podslice; print(podslice.__file__)'"
    found = installed.run("sh", "-c", script).stdout
    assert found == "/usr/lib/python3/dist-packages/podslice/__init__.py\n"


@pytest.mark.parametrize("part", ["unit", "bus"])
def test_the_tests_pass_against_the_installed_package(installed, part):
    result = installed.run(
        *("sh", "-c", 'cd /src && exec python3 -m pytest -q -p no:cacheprovider "$@"', "sh"),
        f"tests/{part}",
        env={"PODSLICE_TEST_LOCAL": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
        timeout_sec=600,
    )
    assert result.exit_code == 0, result.stdout[-5000:]
    assert " passed" in result.stdout


def test_the_examples_of_the_package_are_those_of_the_checkout(installed):
    found = installed.run("sh", "-c", f"cd {EXAMPLES} && find . -type f").stdout.splitlines()
    examples = ROOT / "examples"
    expected = {f"./{p.relative_to(examples)}" for p in examples.rglob("*") if p.is_file()}
    assert expected <= set(found)
