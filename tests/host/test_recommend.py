"""Recommendations for three programs whose needs are known, from the counters of a real kernel."""

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
from podslice.agent.counters import Counters
from podslice.agent.usage_recorder import UsageRecorder
from podslice.cli.options import Planning
from podslice.cli.session import open_world
from podslice.pausable import finish
from podslice.reconcile.assess import assess
from podslice.reconcile.request import Request
from podslice.systemd.journal import Journal

async def record(count):
    began = time.monotonic()
    async with open_world(Planning()) as world:
        context = AgentContext(world, Journal(manager=world.manager), Counters())
        context.assessment = await assess(world, Request())
        wall = lambda: 1_795_000_000 + 30 * (time.monotonic() - began)
        recorder = UsageRecorder(context, wall=wall)
        for _ in range(count):
            finish(recorder.sampling())
            await asyncio.sleep(2)
        recorder.close()

asyncio.run(record(int(sys.argv[1])))
"""


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
    # a bucket is 5 % wide, and 15 % are added; an emulated machine is not even over a few seconds
    assert 300 <= found["steady"]["cpu_request"]["computed_milli"] <= 550
    assert found["steady"]["containers"][0]["cpu_request"]["computed_milli"] >= 300
    # the use of the interpreter itself is about 10 MiB
    assert 120 * MI <= found["spikes"]["memory_limit"]["computed_bytes"] <= 180 * MI
    assert found["spikes"]["cpu_request"]["computed_milli"] <= 60
    # 64 MiB were not enough: 100 MiB more
    assert found["killed"]["oom_kills"] >= 1
    assert 180 * MI <= found["killed"]["memory_request"]["computed_bytes"] <= 210 * MI
