"""Recommendations for three programs whose needs are known, from the counters of a real kernel.

The same machine shows what becomes of the slices beside the pods.
"""

import json

import pytest

MI = 2**20
SOURCES = {"PYTHONPATH": "/src", "PYTHONDONTWRITEBYTECODE": "1"}
PODS = """\
apiVersion: v1
kind: Pod
metadata: {name: steady}
spec:
  resources: {limits: {cpu: 300m}}
  containers: [{name: main}]
---
apiVersion: v1
kind: Pod
metadata: {name: spikes}
spec: {containers: [{name: main}]}
---
apiVersion: v1
kind: Pod
metadata: {name: killed}
spec:
  resources: {requests: {memory: 64Mi}, limits: {memory: 64Mi}}
  containers: [{name: main}]
"""
STEADY = ("sh", "-c", "while :; do :; done")
# 120 MiB for a moment, between two samples
SPIKES = ("python3", "-c", f"import time\nb'x' * {120 * MI}\ntime.sleep(3600)")
KILLED = ("python3", "-c", f"b'x' * {200 * MI}")
# the recorder itself, with a wall clock on which two seconds are a minute
RECORD = """\
import asyncio, sys, time
from podslice.agent.context import AgentContext
from podslice.agent.context import Counters
from podslice.features.history.recorder import UsageRecorder
from podslice.cli.options import Planning
from podslice.cli.session import open_world
from podslice.reconcile.assess import assess
from podslice.reconcile.assess import Request
from podslice.systemd.journal import Journal

async def record(count):
    began, hour_ago = time.monotonic(), time.time() - 3600
    async with open_world(Planning()) as world:
        context = AgentContext(world, Journal(manager=world.manager), Counters())
        context.assessment = await assess(world, Request())
        wall = lambda: hour_ago + 30 * (time.monotonic() - began)
        recorder = UsageRecorder(context, wall=wall)
        for _ in range(count):
            recorder.sample()
            await asyncio.sleep(2)
        recorder.save()

asyncio.run(record(int(sys.argv[1])))
"""


GUESTS = "/run/systemd/system/guests.slice"
LIMITS = "[Slice]\nCPUWeight=300\nCPUQuota=50%\nAllowedCPUs=1\n"


@pytest.mark.cgroup2
def test_three_programs_whose_needs_are_known(clean_machine):
    machine = clean_machine
    machine.podslice("apply", "-f", "-", input=PODS)
    machine.podslice("run", "steady", "--detach", "--", *STEADY)
    machine.podslice("run", "spikes", "--detach", "--", *SPIKES)
    machine.podslice("run", "killed", "--detach", "--", *KILLED)
    machine.run("python3", "-c", RECORD, "8", env=SOURCES)
    document = json.loads(machine.podslice("recommend", "-o", "json").stdout)
    found = {pod["name"]: pod for pod in document["pods"]}
    # the kernel charges a stall of an emulated machine to its process, and throttles it for longer
    # afterwards: a sample may be above the quota, but not the half of them that is below the median
    assert found["steady"]["cpu_request"]["computed_milli"] >= 300
    assert median_milli(found["steady"]) <= 600
    assert found["steady"]["containers"][0]["cpu_request"]["computed_milli"] >= 300
    # the use of the interpreter itself is about 10 MiB
    assert 120 * MI <= found["spikes"]["memory_limit"]["computed_bytes"] <= 180 * MI
    assert found["spikes"]["cpu_request"]["computed_milli"] <= 60
    # 64 MiB were not enough: 100 MiB more
    assert found["killed"]["oom_kills"] >= 1
    assert 180 * MI <= found["killed"]["memory_request"]["computed_bytes"] <= 210 * MI
    check_reservations(machine)
    check_simulation(machine)


def median_milli(pod):
    """Return the 50th percentile of the CPU; the formula of lower bounds is in podslice-policy(7)."""
    lower, days = pod["cpu_request"]["lower_milli"], pod["confidence_days"]
    return lower / 1.15 * (1 + 0.001 / days) ** 2


def check_reservations(machine):
    """Check the proposal for the daemons of this machine, which were recorded, too."""
    found = json.loads(machine.podslice("node", "recommend", "-o", "json").stdout)
    slices = {each["unit"]: each for each in found["slices"]}
    assert [*slices] == ["podruntime.slice", "system.slice", "user.slice"]
    system, runtimes = slices["system.slice"], slices["podruntime.slice"]
    # the journal and the bus use a CPU now and then, and a few MiB
    assert system["samples"] >= 1
    assert system["cpu_peak_milli"] >= 10
    assert 10 * MI <= system["memory_peak_bytes"] <= 2**30
    # there is no container runtime
    assert (runtimes["samples"], runtimes["memory_peak_bytes"]) == (0, None)
    reservations = found["reservations"]
    assert reservations["kube-reserved"]["recommended"] is None
    proposed = reservations["system-reserved"]["recommended"]
    assert proposed["memory_bytes"] >= 1.15 * system["memory_peak_bytes"]
    assert proposed["cpu_milli"] >= 1.15 * system["cpu_p99_milli"]


def check_simulation(machine):
    """Check that slices with processes count with the weight, the quota and the CPUs of the kernel."""
    machine.put(GUESTS, LIMITS)
    machine.run("systemctl", "daemon-reload")
    try:
        machine.run(
            *("systemd-run", "--quiet", "--unit=guest", "--slice=guests.slice"),
            *("sleep", "infinity"),
        )
        found = json.loads(machine.podslice("simulate", "-o", "json").stdout)
        units = {unit["name"]: unit for unit in found["units"]}
        guests, system = units["guests.slice"], units["system.slice"]
        assert (guests["weight"], guests["quota_cpu_milli"]) == (300, 500)
        assert guests["allowed_cpus"] == [1]
        # half of its CPU: without a quota it would have more
        assert guests["cpu_milli"] == 500
        assert (system["weight"], system["quota_cpu_milli"]) == (100, None)
        tops = [unit["cpu_milli"] for unit in found["units"] if unit["parent"] is None]
        assert sum(tops) == pytest.approx(1000 * found["cpus"], abs=len(tops))
        idle = ("--idle=guests.slice", "--idle=system.slice")
        found = json.loads(machine.podslice("simulate", "-o", "json", *idle).stdout)
        units = {unit["name"]: unit["cpu_milli"] for unit in found["units"]}
        assert (units["guests.slice"], units["system.slice"]) == (0, 0)
    finally:
        machine.run("systemctl", "stop", "guest.service", "guests.slice", check=False)
        machine.run("rm", GUESTS)
        machine.run("systemctl", "daemon-reload")
