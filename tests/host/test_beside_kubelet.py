"""Units as a kubelet leaves them on a real systemd, while no kubelet runs."""

import json

import pytest

from podslice.model.properties import PROPERTIES
from podslice.model.unit import INFINITY
from tests.host import agent
from tests.host.scenario import BIG, ROOT, SEED
from tests.lab.machine import START_SERVICE
from tests.unit.features.kubelet.recorded_node import RecordedNode

RECORDED = json.loads((ROOT / "tests/kubelet_units.json").read_text())["units"]
START = (
    *("busctl", "--", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"),
    *("org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))"),
)
HELD = "podlab-held"


def start(machine, name, unit, pid=None):
    """Start a unit with the properties that libcontainer gives it."""
    properties = [
        *("Description", "s", unit["Description"]),
        *("DefaultDependencies", "b", "false"),
    ]
    if pid is None:
        properties += ["Wants", "as", "1", unit["Wants"]]
    else:
        properties += ["Slice", "s", unit["Slice"], "Delegate", "b", "true"]
        properties += ["PIDs", "au", "1", str(pid)]
    count = 3 if pid is None else 5
    machine.run(*START, name, "replace", str(count), *properties, "0")


@pytest.fixture
def node(clean_namespace):
    """A machine with the slices of a kubelet, and one of its containers."""
    machine = clean_namespace
    agent.begin(machine)
    for name, unit in RECORDED.items():
        if name.endswith(".slice"):
            start(machine, name, unit)
    machine.run(*START_SERVICE, f"--unit={HELD}", "sleep", "1000")
    pid = machine.run("systemctl", "show", "-P", "MainPID", HELD).stdout.strip()
    scope, unit = next(each for each in RECORDED.items() if each[0].endswith(".scope"))
    start(machine, scope, unit, pid)
    yield machine
    agent.remove(machine)
    machine.run("systemctl", "stop", "kubepods.slice", HELD, check=False)


def state(machine):
    """Return every unit of the kubelet with its properties."""
    names = sorted(RECORDED)
    shown = machine.run("systemctl", "show", *names, "-p", "Id,ActiveState,CPUWeight,MemoryMax")
    return shown.stdout


def test_units_of_a_stopped_kubelet_are_not_changed(node):
    before = state(node)
    assert before.count("ActiveState=active") == 6
    for verb in (["apply", "-f", SEED, *BIG], ["delete", "--all", *BIG]):
        refused = node.podslice(*verb, check=False)
        assert refused.exit_code == 1
        assert "kubepods.slice belongs to a kubelet" in refused.stderr
        assert 'cgroup-root = "/podslice" in podslice.toml' in refused.stderr
    agent.put(node, "web", agent.manifest("web"))
    agent.start(node, "--collect-orphans")
    (event,) = agent.until(lambda: agent.events(node, "agent-failed"))
    assert "kubepods.slice belongs to a kubelet" in event["MESSAGE"]
    # an orphan would be reported before it is stopped
    assert "podslice_orphans 0.0" in agent.ask(node, "/metrics")
    assert not agent.events(node, "orphan-found", "orphan-removed", "pod-applied")
    node.run("systemctl", "stop", agent.UNIT)
    assert state(node) == before
    doctor = json.loads(node.podslice("doctor", "-o", "json", check=False).stdout)
    (found,) = [each for each in doctor["findings"] if each["check"] == "kubelet"]
    assert (found["state"], "belongs to a kubelet" in found["what"]) == ("attention", True)
    status = node.podslice("status", *BIG, check=False)
    assert status.exit_code == 3
    assert "kubepods.slice belongs to a kubelet" in status.stdout
    plan = node.podslice("plan", "-o", "json", "-f", SEED, *BIG, check=False)
    assert plan.exit_code == 1
    assert "belongs to a kubelet" in json.loads(plan.stdout)["foreign"]["reason"]


PODS, CONFIG = "/tmp/pods.json", "/tmp/kubelet.json"


def audit(machine):
    ended = machine.podslice(
        *("audit", "-f", PODS, f"--kubelet-config={CONFIG}", "-o", "json"), check=False
    )
    assert ended.stderr == ""
    return ended.exit_code, json.loads(ended.stdout)


def test_an_audit_finds_what_the_units_lack_and_nothing_once_it_is_set(node):
    """Units of a kubelet without any value, then with every value that the audit expects."""
    recorded = RecordedNode()
    slices = {name.removesuffix(".slice") for name in RECORDED}
    recorded.pods = [
        pod
        for pod in recorded.pods
        if any(name.endswith(pod["metadata"]["uid"].replace("-", "_")) for name in slices)
    ]
    assert len(recorded.pods) == 2
    node.put(PODS, json.dumps(recorded.document()))
    node.put(CONFIG, json.dumps(recorded.config))
    code, document = audit(node)
    assert code == 3
    kinds = {(each["kind"], each["property"]) for each in document["findings"]}
    assert {
        ("limit-missing", "MemoryMax"),
        ("limit-missing", "TasksMax"),
        ("value-changed", "CPUWeight"),
        ("container-outside", None),  # of the pod without a scope
    } <= kinds
    for unit in document["units"]:
        values = [
            f"{PROPERTIES[each['name']].key}={PROPERTIES[each['name']].format(each['expected'])}"
            for each in unit["properties"]
            if each["name"] in PROPERTIES and each["expected"] not in {None, INFINITY}
        ]
        if unit["exists"]:
            node.run("systemctl", "set-property", "--runtime", unit["unit"], *values)
    assert {each["kind"] for each in audit(node)[1]["findings"]} == {"container-outside"}
