"""A container's memory limit, from YAML to `status`; `python -m tests.house` traces these tests."""

import asyncio

import pytest

from tests.unit.builders import make_files

LIMIT_BYTES = 73_924_608
SHOWN = "72192Ki"
MANIFEST = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: web, uid: web}}
spec:
  containers:
  - {{name: app, resources: {{limits: {{memory: {LIMIT_BYTES}}}}}}}
"""
SLICE = "kubepods-burstable-podweb.slice"
GROUP = f"kubepods.slice/kubepods-burstable.slice/{SLICE}"


@pytest.fixture
def manifest(files):
    files({"limit.yaml": MANIFEST})
    return "limit.yaml"


def test_apply_sets_it(memory, manifest, podslice):
    assert podslice("apply", "-f", manifest).code == 0
    (pod,) = asyncio.run(memory.observe([SLICE]))
    assert pod.properties["MemoryMax"] == LIMIT_BYTES


def test_status_shows_it(memory, manifest, podslice, here):
    assert podslice("apply", "-f", manifest).code == 0
    kernel = {"cgroup.controllers": "memory\n", f"{GROUP}/memory.max": f"{LIMIT_BYTES}\n"}
    make_files(here / "cgroup", kernel)
    shown = podslice("status", "-o", "wide").out
    row = ["default/web", "MemoryMax", SHOWN, SHOWN, str(LIMIT_BYTES)]
    assert row in map(str.split, shown.split("\n"))
