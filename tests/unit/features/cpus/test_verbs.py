"""Exclusive CPUs on the command line."""

import json

import pytest

from tests.cases.tables import cases
from tests.unit.builders import make_files

STATIC = ("--set=cpu-manager-policy=static", "--set=reserved-cpus=0")
TWO_NODES = ("--cpu-topology=sockets=2,numa=2,cores=4",)


def own(name, cpu="2"):
    resources = {"limits": {"cpu": cpu, "memory": "1Gi"}}
    spec = {"containers": [{"name": "c", "resources": resources}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def manifest(here):
    """Write a manifest of pods, and return its path."""

    def write(*pods):
        make_files(here, {"pods.yaml": "\n---\n".join(map(json.dumps, pods))})
        return str(here / "pods.yaml")

    return write


def stated(out):
    """The lists of CPUs in an explanation."""
    return [line.split()[0] for line in out.splitlines() if "AllowedCPUs=" in line]


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("verb", ["explain", "plan", "render"])
def test_a_plan_for_another_machine(podslice, manifest, verb):
    ended = podslice(verb, "-f", manifest(own("a", "3")), *STATIC, *TWO_NODES)
    assert "AllowedCPUs=1-3" in ended.out
    flat = podslice(verb, "-f", manifest(own("a", "12")), *STATIC, "--capacity=cpu=16")
    assert "AllowedCPUs=1-12" in flat.out


@pytest.mark.usefixtures("memory")
def test_only_a_plan_accepts_the_cpus_of_another_machine(podslice, manifest):
    path = manifest(own("a"))
    text = (
        "cpu-topology: it is for plans of another machine; leave it out; explain, render and plan"
    )
    for arguments in (("apply", "-f", path, *STATIC), ("agent",)):
        ended = podslice(*arguments, "--set=cpu-topology=sockets=2,numa=2,cores=4")
        assert ended == (2, "", f"error: {text} accept it\n")


ALIGNED = (*STATIC, *TWO_NODES, "--topology-manager-policy=single-numa-node")


@cases
def test_explain_reports_which_pods_cannot_have_their_cpus(
    podslice, manifest, cpu, options, problem
):
    path = manifest(own("a", cpu), own("b", "1"))
    ended = podslice("explain", "-f", path, *options)
    message = f"pod default/a cannot have exclusive CPUs {problem}"
    assert (ended.code, ended.err) == (2, "")
    assert f"  error: {path}[0]: {message}" in ended.out
    assert stated(ended.out) == ["AllowedCPUs=1"] * 2
    ended = podslice("explain", "-f", path, *options, "-o", "json")
    assert (ended.code, ended.err) == (2, "")
    without, having = json.loads(ended.out)["pods"]
    (found,) = without["problems"]
    assert (found["severity"], found["where"]) == ("error", f"{path}[0]")
    assert found["message"].startswith(message)
    assert not any("CPUs of its own" in each for each in without["notes"])
    assert "CPUQuotaPerSecUSec" in {each["name"] for each in without["properties"]}
    assert not having["problems"]
    assert "no CPUQuotaPerSecUSec: it has CPUs of its own" in having["notes"]


def test_explain_notes_which_pods_that_it_does_not_show_cannot_have_their_cpus(podslice, manifest):
    path = manifest(own("a", "5"), own("b", "1"))
    note = "pod default/a would be refused (TopologyAffinityError): requested CPUs: 5; free: 3"
    for arguments, code in ((("b",), 0), (("-o", "name"), 2)):
        ended = podslice("explain", "-f", path, *arguments, *ALIGNED)
        assert ended.code == code
        assert ended.err.startswith(note)


@pytest.mark.usefixtures("memory")
def test_explain_reports_which_applied_pods_lack_their_cpus(podslice, manifest):
    assert podslice("apply", "-f", manifest(own("a", "4"))).code == 0
    few = ("--reserved-cpus=0-5", "--cpu-manager-policy=static")
    ended = podslice("explain", "a", *few, "-o", "json")
    assert ended.code == 2
    (found,) = json.loads(ended.out)["pods"]
    (problem,) = found["problems"]
    assert problem["message"].startswith("pod default/a cannot have exclusive CPUs (NotEnoughCPUs)")
    assert not any("CPUs of its own" in each for each in found["notes"])


def test_explain_reports_reserved_cpus_that_the_machine_lacks(podslice, manifest):
    options = ("--cpu-manager-policy=static", "--reserved-cpus=9", "--cpu-topology=cores=4")
    path = manifest(own("a"))
    ended = podslice("explain", "-f", path, *options)
    text = "reserved-cpus: the node does not have 9; its CPUs are 0-3"
    assert (ended.code, ended.err) == (2, f"error: {text}\n")
    document = json.loads(podslice("explain", "-f", path, *options, "-o", "json").out)
    assert [each["where"] for each in document["problems"]] == ["reserved-cpus"]


@pytest.mark.usefixtures("memory")
def test_explain_shows_the_cpus_of_applied_pods(podslice, manifest):
    assert podslice("apply", "-f", manifest(own("a"), own("b")), *STATIC).code == 0
    assert stated(podslice("explain", "b", *STATIC).out) == ["AllowedCPUs=3-4"] * 2
    assert stated(podslice("explain", "b").out) == []
