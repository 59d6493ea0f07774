"""A property that is only a row of the table has all that other properties have."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from podslice.agent.endpoints.metrics import expose
from podslice.model import codec
from podslice.model.event import Kind
from podslice.model.properties import (
    LIMITED,
    MANAGED,
    ROWS,
    Metric,
    Property,
    RuntimeOption,
    Tighter,
    set_rows,
)
from podslice.model.unit import INFINITY
from tests.unit.agent import sample_node
from tests.unit.agent.fakes import write_group
from tests.unit.agent.reconciled import Node
from tests.unit.builders import besteffort, control_group_of, decisions, make_files

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "packaging"))
from docs import manual

BURST = Property(
    name="CPUBurstUSec",
    signature="t",
    since=250,
    unset=INFINITY,
    managed=LIMITED,
    minimum=1_000,
    maximum=1_000_000,
    codec=codec.DURATION,
    kernel_file="cpu.max.burst",
    annotation="cpu-burst",
    controller="cpu",
    tighter=Tighter.LOWER,
    runtime=RuntimeOption(is_file=True),
    metric=Metric(resource="cpu-burst", unit="seconds"),
    meaning="The CPU time that a pod saves for later",
)
"""A property that systemd does not have, in microseconds."""
MANIFEST = """\
apiVersion: v1
kind: Pod
metadata:
  name: web
  uid: web
  annotations: {podslice.io/cpu-burst: 25ms, podslice.io/cpu-burst.app: %s}
spec:
  containers:
  - {name: app}
"""
WEB = MANIFEST % "2500us"
SLICE = "kubepods-besteffort-podweb.slice"


@pytest.fixture(autouse=True)
def row():
    set_rows((*ROWS, BURST))
    yield
    set_rows(ROWS)


def test_a_row_is_gone_with_the_table_that_has_it():
    assert all(BURST.name in MANAGED[kind] for kind in LIMITED)
    set_rows(ROWS)
    assert not any(BURST.name in names for names in MANAGED.values())


def test_texts_of_microseconds_have_a_unit():
    """In a unit file 25000 would be seconds."""
    with pytest.raises(ValueError, match="CPUBurstUSec"):
        replace(BURST, codec=codec.COUNT)


def test_the_annotation_is_explained_rendered_planned_applied_and_shown(
    podslice, files, here, memory
):
    files({"web.yaml": WEB})
    explained = podslice("explain", "-f", "web.yaml").out
    assert "CPUBurstSec=25000us" in explained
    assert "podslice.io/cpu-burst 25ms" in explained
    assert "podslice.io/cpu-burst 2.5ms" in explained
    assert podslice("render", "-f", "web.yaml", "--output-dir", "units").code == 0
    assert "\nCPUBurstSec=25000us\n" in Path("units", SLICE).read_text()
    assert "CPUBurstSec=25000us" in podslice("plan", "-f", "web.yaml").out
    assert podslice("apply", "-f", "web.yaml").code == 0
    (unit,) = asyncio.run(memory.observe([SLICE]))
    assert unit.properties[BURST.name] == 25_000
    group = control_group_of(SLICE).lstrip("/")
    make_files(here / "cgroup", {"cgroup.controllers": "", f"{group}/cpu.max.burst": "24000\n"})
    (line,) = (
        line for line in podslice("status", "-o", "wide").out.splitlines() if "Burst" in line
    )
    assert line.split()[-4:] == ["CPUBurstSec", "25000us", "25000us", "24000"]
    options = podslice("cgroup-parent", "web", "-c", "app", "-o", "podman").out
    assert "--cgroup-conf=cpu.max.burst=2500" in options.split()


@pytest.mark.parametrize("text", ["25", "25000", "999us", "1001ms"])
def test_an_amount_without_a_unit_or_out_of_range_is_an_error(podslice, files, no_systemd, text):
    files({"web.yaml": MANIFEST % f'"{text}"'})
    ended = podslice("check", "-f", "web.yaml")
    assert ended.code != 0
    assert "podslice.io/cpu-burst.app" in ended.out + ended.err


async def test_an_external_write_to_the_kernel_is_undone(tmp_path, monkeypatch):
    node = Node(tmp_path)
    set_it = node.memory.set_properties

    async def set_properties(name, properties):
        await set_it(name, properties)
        write_group(node.context, SLICE, **{"cpu_max.burst": properties[BURST.name]})

    monkeypatch.setattr(node.memory, "set_properties", set_properties)
    node.write("web", WEB)
    write_group(node.context, SLICE, **{"cpu_max.burst": 25_000})
    await node.settle()
    write_group(node.context, SLICE, **{"cpu_max.burst": 7})
    assert node.client.verify() == (SLICE,)
    await node.run_round()
    assert node.memory.calls["set_properties"] == 1
    (text,) = node.texts(Kind.DRIFT_REPAIRED)
    assert "CPUBurstUSec=25000 (was 7)" in text


def test_a_metric_has_the_value_in_base_units():
    pod = replace(besteffort("web"), properties={BURST.name: 25_000})
    stats = sample_node.node_stats(*map(sample_node.pod_stats, decisions(pod)))
    text = b"".join(expose(sample_node.snapshot(pods=decisions(pod)), stats)).decode()
    assert (
        'podslice_pod_resource_limit{namespace="default",pod="web",resource="cpu-burst",unit="seconds"}'
        " 0.025"
    ) in text


def test_the_manual_describes_it(tmp_path, monkeypatch):
    (tmp_path / "a.7.md").write_text("@annotations\n\n@properties\n")
    monkeypatch.setattr(manual, "_compare", lambda *_: None)  # one page has no verbs
    page = manual.pages(tmp_path)["a.7"]
    assert "podslice.io/cpu\\-burst" in page
    assert "1ms to 1s; for pods and containers" in page
    assert BURST.meaning in page
    assert "cpu.max.burst" in page
