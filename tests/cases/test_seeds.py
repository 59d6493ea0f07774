"""The examples of the three source documents, and a case for every section that has one.

A folder of `seeds/` begins with the number of the document in `DOCUMENTS` and its section:

    pods.yaml     the manifests; no such file where there are none
    config.toml   the configuration
    node.toml     the capacity
    expect.toml   worked out by hand from the document: `source` (document and section), `differs` (why
                  something is not as the document has it), and any of
                  `units`           unit → property → value; a unit that is named has these and no other
                  `control_groups`  unit → path
                  `qos`             pod → class
                  `allocatable`     resource → amount
                  `refused`         pod and reason
                  `errors`          what is wrong, by its end
                  `used_bytes`      unit → unreclaimable memory, an input
                  `initialized`     uids of pods whose init containers have finished, an input
"""

import functools
import itertools
import tomllib
from pathlib import Path

import pytest

from podslice.inputs.manifest.load import load_pods
from podslice.model.node import Node
from podslice.model.pod import InitProgress
from podslice.model.quantity import parse_quantity
from podslice.policy.decide import decide
from podslice.policy.desire import desire
from tests.cases.rows import to_amounts
from tests.configuration import load_config

CASES = Path(__file__).parent
SEEDS = CASES / "seeds"
FOLDERS = sorted(path.name for path in SEEDS.iterdir() if path.is_dir())

DOCUMENTS = {
    "000": "Kubelet pod level resource management",
    "002": "Pod-Level Resource Limits",
    "004": "Node Allocatable Resources",
}

# The sections with an example, a table, a formula or a rule that podslice can hold. The others say why
# something is wanted, or when it was to come; the tables of Pod-Level Resource Limits,
# "Test Results", are measurements of one workload, and tests/bench repeats the experiment instead.
SECTIONS = (
    "Kubelet pod level resource management, Enabling QoS and Pod level cgroups",
    "Kubelet pod level resource management, Configuring a cgroup driver",
    "Kubelet pod level resource management, Conversion of cgroupfs to systemd naming conventions",
    "Kubelet pod level resource management, Conversion of CPU millicores",
    "Kubelet pod level resource management, Guaranteed QoS",
    "Kubelet pod level resource management, Burstable QoS",
    "Kubelet pod level resource management, BestEffort QoS",
    "Kubelet pod level resource management, QoS level cgroups",
    "Kubelet pod level resource management, QoS level CPU allocation",
    "Kubelet pod level resource management, QoS level memory allocation",
    "Kubelet pod level resource management, Cgroup Hierarchy",
    "Kubelet pod level resource management, Guaranteed Pods",
    "Kubelet pod level resource management, Burstable Pods",
    "Kubelet pod level resource management, Best Effort pods",
    "Pod-Level Resource Limits, Proposal",
    "Pod-Level Resource Limits, Story 1",
    "Pod-Level Resource Limits, Implementation Details",
    "Pod-Level Resource Limits, ResourceOverhead",
    "Pod-Level Resource Limits, HugeTLB cgroup",
    "Pod-Level Resource Limits, PID, and other cgroups",
    "Pod-Level Resource Limits, Init Containers",
    "Pod-Level Resource Limits, Design Details",
    "Node Allocatable Resources, Allocatable",
    "Node Allocatable Resources, Kube-Reserved",
    "Node Allocatable Resources, System-Reserved",
    "Node Allocatable Resources, Kubelet Evictions Thresholds",
    "Node Allocatable Resources, General guidelines",
    "Node Allocatable Resources, Recommended Cgroups Setup",
    "Node Allocatable Resources, Phase 1",
    "Node Allocatable Resources, Phase 2",
    "Node Allocatable Resources, Rollout details",
    "Node Allocatable Resources, Phase 3",
)


@pytest.fixture(params=FOLDERS)
def path(request):
    return SEEDS / request.param


def read(path):
    return tomllib.loads((path / "expect.toml").read_text())


def test_the_document_s_numbers_come_out(path):
    expected = read(path)
    used = {name: in_bytes(text) for name, text in expected.get("used_bytes", {}).items()}
    over = {uid: InitProgress(over=True) for uid in expected.get("initialized", [])}
    found = run(path, used, over)
    for name, values in expected.get("units", {}).items():
        assert found["units"][name] == {key: in_bytes(value) for key, value in values.items()}, name
    for part in ("control_groups", "qos"):
        for name, value in expected.get(part, {}).items():
            assert found[part][name] == value, name
    for name, text in expected.get("allocatable", {}).items():
        assert found["allocatable"][name] == parse_quantity(text).milli, name
    assert found["refused"] == expected.get("refused", [])
    errors = expected.get("errors", [])
    for error, end in itertools.zip_longest(found["errors"], errors, fillvalue="none"):
        assert error.endswith(end)


def run(path, used_bytes, progress):
    fields = tomllib.loads((path / "node.toml").read_text())
    node = Node(capacity=to_amounts(fields["capacity"]))
    config = load_config({}, file=path / "config.toml")
    manifests = [str(each) for each in path.glob("pods.yaml")]
    loaded = load_pods(manifests, stdin=bytes) if manifests else None
    decisions = [decide(pod, node, config) for pod in (loaded.pods if loaded else ())]
    desired = desire(decisions, node, config, used_bytes=used_bytes, progress=progress)
    return {
        "units": {unit.name: unit.values for unit in desired.units},
        "control_groups": {unit.name: unit.control_group for unit in desired.units},
        "qos": {pod.pod.name: pod.qos for pod in desired.pods},
        "refused": [f"{each.pod}: {each.reason}" for each in desired.refused],
        "allocatable": desired.allocation.allocatable,
        "errors": [str(problem) for problem in (loaded.all_problems if loaded else ())],
    }


def test_every_folder_expects_something_and_is_named_after_its_document(path):
    expected = read(path)
    assert expected.keys() - {"source", "differs", "used_bytes", "initialized"}
    assert expected["source"].startswith(f"{DOCUMENTS[path.name[:3]]}, ")


@functools.cache
def all_sources():
    """The names and sources of all cases."""
    tables = [tomllib.loads(file.read_text()) for file in CASES.glob("*.toml")]
    rows = [row for table in tables for row in table.get("case", ())]
    folders = [read(SEEDS / name)["source"] for name in FOLDERS]
    return (*folders, *(row["name"] for row in rows), *(row["source"] for row in rows))


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_with_an_example_has_a_case(section):
    assert any(source.startswith(section) for source in all_sources())


def in_bytes(value):
    """`3Gi` in bytes; what is a number already stays."""
    return parse_quantity(value).milli // 1000 if isinstance(value, str) else value
