"""The agent over many rounds: its use of memory, descriptors and tasks does not grow.

An idle node has 1440 rounds a day: half of them are executed, and with PODSLICE_ROUNDS=10000 those
of a week. PODSLICE_ORDINARY_SEC=600 starts, stops and moves containers for ten minutes; the default
is to do everything once.
"""

import json
import os
import sys
import time

import pytest

from podslice.model.pod import default_uid
from podslice.model.unit import control_group_of
from tests.host import agent, podman
from tests.host.scenario import show
from tests.lab import fixtures
from tests.lab.vm import Vm

ORDINARY_SEC = int(os.environ.get("PODSLICE_ORDINARY_SEC", "0"))
ROUNDS = int(os.environ.get("PODSLICE_ROUNDS", "700"))
STAGES, WARM = 7, 4
"""Memory is taken from the system in steps of a MiB: the last one is in the fourth stage."""
PODS = 10
QUIET_SEC = 1.5
DROP_IN = f"/run/systemd/system/{agent.UNIT}.d/hasty.conf"
# rounds follow each other at once: the pauses between them are left out; usage is recorded each
# second: the first samples fill the memory of their thread
HASTY = (
    "import podslice.agent.service_process as process; process.QUIET_SEC = 0.0;"
    " import podslice.features.history.recorder as recorder; recorder.SAMPLE_SEC = 1.0;"
    " from podslice.__main__ import main; main()"
)

# Wake the agent until it has executed a number of rounds: in many a pod has another limit, is
# created or removed, or the configuration is reloaded.
DRIVE = r"""
import http.client, json, os, pathlib, random, re, signal, socket, subprocess, sys, time

directory, pid, place, rounds, seed, manifests = sys.argv[1:]
directory, pid, rounds, manifests = pathlib.Path(directory), int(pid), int(rounds), json.loads(manifests)
chance = random.Random(int(seed))
counts = {}

def taken():
    connection = http.client.HTTPConnection("agent")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(place)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return int(float(re.search(r"^podslice_reconcile_duration_seconds_count (\S+)$", text, re.M)[1]))

def put(name, text):
    new = directory / f"{name}.new"
    new.write_text(text)
    new.replace(directory / f"{name}.yaml")

def wake(name):
    os.utime(directory / f"{name}.yaml")

def change(name):
    put(name, manifests[name].replace("64Mi", f"{chance.randint(65, 99)}Mi"))

def come_or_go(name):
    path = directory / f"{name}-more.yaml"
    if path.exists():
        path.unlink()
    else:
        put(f"{name}-more", manifests[name].replace(f'"{name}"', f'"{name}-more"'))

def reload(name):
    os.kill(pid, signal.SIGHUP)

def forget(name):
    subprocess.run(["systemctl", "daemon-reload"], check=True)

events, weights = [wake, change, come_or_go, reload, forget], [900, 60, 20, 19, 1]
for name in manifests:
    change(name)  # at the latest now it has a directory of drop-ins
while taken() < rounds:
    for event in chance.choices(events, weights, k=100):
        event(chance.choice(sorted(manifests)))
        counts[event.__name__] = counts.get(event.__name__, 0) + 1
        time.sleep(0.002)
for name, text in manifests.items():
    put(name, text)
    (directory / f"{name}-more.yaml").unlink(missing_ok=True)
print(json.dumps({"taken": taken(), **counts}))
"""

# Resources of the process, and those that the bus keeps for it.
HELD = r"""
import json, os, re, subprocess, sys

pid = sys.argv[1]
status = dict(re.findall(r"(\w+):\s+(\d+)", open(f"/proc/{pid}/status").read()))
infos = [open(f"/proc/{pid}/fdinfo/{each}").read() for each in os.listdir(f"/proc/{pid}/fdinfo")]

def busctl(*arguments):
    done = subprocess.run(["busctl", *arguments], check=True, capture_output=True, text=True)
    return done.stdout

names = [line.split() for line in busctl("list", "--no-legend", "--no-pager").splitlines()]
mine = [name for name, owner, *_ in names if owner == pid]
rules = {}
for name in mine:
    text = busctl(
        *["--json=short", "call", "org.freedesktop.DBus", "/org/freedesktop/DBus"],
        *["org.freedesktop.DBus.Debug.Stats", "GetConnectionStats", "s", name],
    )
    rules[name] = json.loads(text)["data"][0]["MatchRules"]["data"]
print(json.dumps({
    "anon_kib": int(status["RssAnon"]),
    "threads": int(status["Threads"]),
    "descriptors": len(infos),
    "watches": sum(info.count("inotify wd:") for info in infos),
    "names": len(mine),
    "rules": sum(rules.values()),
}))
"""


@pytest.fixture
def node(namespace):
    """A machine whose agent, and the drop-in of its unit, are removed at the end."""
    for machine in fixtures.keep_clean(namespace):
        agent.begin(machine)
        yield machine
        agent.remove(machine)
        machine.run("rm", "-rf", f"/run/systemd/system/{agent.UNIT}.d")
        machine.run("systemctl", "daemon-reload")
        machine.podslice("delete", "--all", "--grace-period", "0", check=False)


def start_hasty(machine):
    agent.install(machine)
    command = f'/usr/bin/python3 -c "{HASTY}" agent'
    machine.put(DROP_IN, f"[Service]\nExecStart=\nExecStart={command}\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", agent.UNIT)


def drive(machine, manifests, rounds):
    """Let the agent execute a number of rounds; return its actions."""
    orders = [agent.MANIFESTS, agent.pid(machine), agent.SOCKET, rounds, rounds]
    out = machine.run(
        "python3", "-c", DRIVE, *map(str, orders), json.dumps(manifests), timeout_sec=300
    ).stdout
    return json.loads(out)


def held(machine):
    """Return the resources of the agent once it is idle."""
    time.sleep(QUIET_SEC)
    return json.loads(machine.run("python3", "-c", HELD, str(agent.pid(machine))).stdout)


def test_no_resource_grows_in_hundreds_of_rounds(node):
    manifests = {f"pod-{number}": agent.manifest(f"pod-{number}") for number in range(PODS)}
    for name, text in manifests.items():
        agent.put(node, name, text)
    start_hasty(node)
    first, stages = agent.pid(node), []
    began = time.monotonic()
    for stage in range(1, STAGES + 1):
        done = drive(node, manifests, ROUNDS * stage // STAGES)
        stages.append(held(node))
        sys.stdout.write(f"\n{done}\n{stages[-1]}\n")
    sys.stdout.write(f"{done['taken']} rounds in {time.monotonic() - began:.0f} s\n")
    assert agent.pid(node) == first
    # the first stages are for caches that are filled once
    warm, last = stages[WARM - 1], stages[-1]
    assert last.pop("anon_kib") <= warm.pop("anon_kib") * 1.01
    assert last == warm


def slice_of(pod):
    uid = default_uid("default", pod).replace("-", "_")
    return f"kubepods-burstable-pod{uid}.slice"


def service_of(pod):
    return f"podslice-pod{default_uid('default', pod).replace('-', '_')}-main.service"


def start_with_pods(machine):
    """Start an agent with three pods."""
    agent.begin(machine)
    for pod in ("web", "db", "batch"):
        agent.put(machine, pod, agent.manifest(pod))
    agent.start(machine)
    agent.until(lambda: len(agent.events(machine, "pod-applied")) == 3)
    agent.until_quiet(machine)


@pytest.fixture
def crashing(podman_namespace):
    """A namespace with podman, three pods and an agent."""
    start_with_pods(podman_namespace)
    yield podman_namespace
    agent.remove(podman_namespace)
    podman.clean(podman_namespace)


@pytest.fixture(scope="module")
def vm_with_pods():
    """The same in a virtual machine of this module's own."""
    fixtures.need_lab()
    with Vm(has_source=True) as booted:
        podman.unpack(booted)
        podman.configure(booted)
        booted.run("sh", "-ec", podman.MAKE_ROOTFS)
        start_with_pods(booted)
        yield booted


@pytest.fixture
def busy(vm_with_pods):
    """The same, where events count from here on."""
    agent.begin(vm_with_pods)
    return vm_with_pods


def run_podman(machine, *arguments):
    """Run a container in the pod `web`."""
    options = machine.podslice("cgroup-parent", "web", "-o", "podman").stdout.split()
    command = ("podman", "run", "--detach", "--network=none", *options, *arguments[:-1])
    machine.run(*command, "--rootfs", "/rootfs", "/bin/sh", "-c", arguments[-1])


def next_end(machine, count):
    """Return the kind and the text of the last of so many events of containers."""
    kinds = ("container-failed", "container-oom-killed")
    found = agent.until(lambda: agent.events(machine, *kinds)[count - 1 :])
    assert len(found) == 1
    kind, text = found[0]["PODSLICE_EVENT"], found[0]["MESSAGE"]
    assert found[0]["PODSLICE_POD"] == "default/web"
    return kind, text.removeprefix("container ")


def test_a_container_of_podman_that_fails_is_reported(crashing):
    failed = ("container-failed", "one of pod default/web has failed: exit code 7")
    run_podman(crashing, "--name=one", "exit 7")
    assert next_end(crashing, 1) == failed
    # a stop is not a failure, and a container outside of pods is ignored
    run_podman(crashing, "--name=three", podman.WAIT)
    crashing.run("podman", "stop", "--time=0", "three")
    outside = ("--network=none", "--rootfs", "/rootfs", "/bin/sh", "-c", "exit 8")
    crashing.run("podman", "run", "--detach", *outside)
    crashing.run("podman", "start", "one")
    assert next_end(crashing, 2) == failed


def test_a_container_of_podman_that_lacks_memory_is_reported(busy):
    run_podman(busy, "--name=two", "--rm", "x=x; while :; do x=$x$x; done")
    text = "two of pod default/web was killed for lack of memory: an OOM kill"
    assert next_end(busy, 1) == ("container-oom-killed", text)


def do_ordinary_things(machine):
    """Do to containers what operators, systemd and podman do on any day."""
    web, db = map(service_of, ("web", "db"))
    for pod in ("web", "db"):
        machine.podslice("run", pod, "--detach", "--", "sleep", "1000")
    machine.run("systemctl", "restart", web)
    beside = ("systemd-run", "--quiet", f"--slice={slice_of('web')}", "--unit=beside")
    machine.run(*beside, "sleep", "1000")
    machine.run("systemctl", "daemon-reload")
    process = machine.spawn("sleep", "1000")
    machine.podslice("adopt", "batch", str(process.pid))
    run_podman(machine, "--name=one", podman.WAIT)
    # a process that moves
    group = show(machine, "beside.service", "ControlGroup")["ControlGroup"]
    machine.run("sh", "-c", f"echo {process.pid} >/sys/fs/cgroup{group}/cgroup.procs")
    machine.run("systemctl", "kill", "--signal=KILL", db)
    machine.run("podman", "restart", "--time=0", "one")
    machine.run("systemctl", "stop", "beside.service")
    process.wait()
    machine.run("podman", "rm", "--force", "--time=0", "one")
    machine.run("systemctl", "stop", web)


def test_only_external_changes_are_drift(busy):
    """Not what podslice, systemd and runtimes do when containers start, end and move."""
    web, db, batch = map(slice_of, ("web", "db", "batch"))
    cycles, end = 0, time.monotonic() + ORDINARY_SEC
    while not cycles or time.monotonic() < end:
        do_ordinary_things(busy)
        cycles += 1
    agent.until_quiet(busy)
    events = agent.events(busy)
    sys.stdout.write(f"\n{cycles} cycles, {len(events)} events\n")
    assert agent.events(busy, "drift-repaired", "drift-contested", "step-failed") == []
    killed = agent.events(busy, "container-failed")
    assert [each["PODSLICE_POD"] for each in killed] == ["default/db"] * cycles
    journal = ("journalctl", "--boot", "--quiet", "--output=cat", "_PID=1")
    assert busy.run(*journal, "--grep=Failed to set", check=False).stdout == ""

    at = {name: f"/sys/fs/cgroup{control_group_of(name)}" for name in (web, db)}
    changes = [
        (f"echo 77 >{at[web]}/cpu.weight", web),
        (f"echo 1G >{at[db]}/memory.max", db),
        (f"echo 66 >{at[web].rpartition('/')[0]}/cpu.weight", "kubepods-burstable.slice"),
        (f"systemctl set-property --runtime {web} CPUWeight=99", web),
        (f"systemctl set-property --runtime {db} MemoryMax=1G", db),
        (f"systemctl stop {batch}", batch),
    ]
    for number, (command, _) in enumerate(changes, start=1):
        busy.run("sh", "-c", command)
        agent.until(
            lambda expected=number: len(agent.events(busy, "drift-repaired")) >= expected,
            what=command,
        )
    agent.until_quiet(busy)
    repaired = agent.events(busy, "drift-repaired")
    sys.stdout.write("".join(f"{each['MESSAGE']}\n" for each in repaired))
    assert [each["PODSLICE_UNIT"] for each in repaired] == [unit for _, unit in changes]
