"""`podslice audit` of a recorded node."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from podslice.cli import host as host_module
from podslice.errors import InputError
from podslice.features.kubelet import source as kubelet_source
from podslice.features.kubelet.pods import parse_pod_list
from podslice.kernel.cgroup import CgroupFs
from podslice.systemd import bus
from tests.cases.tables import cases
from tests.unit.builders import node as host
from tests.unit.features.kubelet.recorded_node import RecordedManager, RecordedNode
from tests.unit.tls_server import Certificates, KubeletServer

CONFIG = "--kubelet-config=config.json"
SLICE = "kubepods-pod922b9bb9_264a_5c7a_8997_1c828b7183ba.slice"
RAISED = {"properties": {"MemoryMax": "268435456"}, "files": {"memory.max": "268435456"}}


@pytest.fixture
def node(here, monkeypatch):
    """The recorded node as the machine."""
    node = RecordedNode()
    capacity = host("cpu=4,memory=4112412672,pid=31299,hugepages-2Mi=64Mi")
    capacity = replace(capacity, hugepage_sizes=(2**21,))
    monkeypatch.setattr(host_module, "read_node", lambda **_: capacity)
    monkeypatch.setattr(bus, "Bus", lambda *_, **__: RecordedManager(node))
    return node


@pytest.fixture(scope="module")
def mount(tmp_path_factory):
    """The control groups of one node after the other, of which most files are the same."""
    return tmp_path_factory.mktemp("cgroup")


@pytest.fixture
def cgroups(mount, here, monkeypatch):
    """The directory of the control groups, in which a test writes its node."""
    monkeypatch.setattr(CgroupFs.__new__, "__defaults__", (mount,))
    return mount


@pytest.fixture
def audit(cgroups, node, podslice, files):
    """Run the verb with the documents of the node."""

    def call(*arguments):
        node.write(cgroups)
        files({"pods.json": json.dumps(node.document()), "config.json": json.dumps(node.config)})
        os.utime("config.json", (0, 0))
        return podslice("audit", "-f", "pods.json", CONFIG, *arguments)

    return call


def change(node, name, *, properties, files):
    unit = node.units[node.path(name)]
    unit["properties"] |= properties
    unit["files"] |= files


def test_a_node_without_problems(audit):
    ended = audit()
    assert (ended.code, ended.err) == (0, "")
    head, _, known = ended.out.partition("\nKNOWN BEHAVIOUR OF THE KUBELET\n")
    assert re.fullmatch(r"UNIT +POD +CONTAINER +STATE", head.split("\n")[0])
    *others, pending = head.strip().split("\n")[1:]
    assert all(line.endswith("as expected") for line in others)
    assert re.fullmatch(r"kubepods-burstable-pod0.* +default/others +- +pending", pending)
    assert known.startswith(
        "default/b-sidecar2-open: s2 without a cpu limit shares that of the pod"
    )
    assert "kubepods.slice: it is limited to CPUs 0-3" in known
    assert known.endswith("\nno problems found\n")


def test_a_problem_has_its_remedy_and_exit_code_3(audit, node):
    change(node, "g-one", **RAISED)
    ended = audit()
    assert ended.code == 3
    assert re.search(rf"^{SLICE} +default/g-one +- +differs$", ended.out, re.MULTILINE)
    assert (
        f"""\
PROBLEMS
{SLICE} (default/g-one): MemoryMax is 256Mi, expected is 64Mi
  → delete the pod, so that it starts again; or until then: systemctl set-property --runtime \
{SLICE} MemoryMax=67108864
"""
        in ended.out
    )
    assert "no problems found" not in ended.out
    assert audit("-o", "name").out == f"{SLICE}\n"


def test_all_values_with_wide(audit, node):
    change(node, "g-one", **RAISED)
    change(node, "b-both/a", properties={"CPUWeight": "4"}, files={"cpu.weight": "4"})
    del node.units[node.path("e-two")]
    out = audit("-o", "wide").out
    assert re.search(
        rf"^{SLICE} +MemoryMax +64Mi +256Mi +268435456 +limits.memory 64Mi", out, re.MULTILINE
    )
    assert re.search(rf"^{SLICE} +hugetlb.2MB.max +0 +- +0 +", out, re.MULTILINE)
    assert re.search(r"default/e-two +- +missing$", out, re.MULTILINE)
    assert re.search(r"default/b-both +a +known$", out, re.MULTILINE)


def test_the_document(audit, node):
    change(node, "g-one", **RAISED)
    document = json.loads(audit("-o", "json").out)
    assert list(document) == ["version", "units", "findings"]
    (unit,) = (each for each in document["units"] if each["unit"] == SLICE)
    assert (unit["pod"], unit["container"], unit["exists"]) == ("default/g-one", None, True)
    assert unit["control_group"] == f"/kubepods.slice/{SLICE}"
    (value,) = (each for each in unit["properties"] if each["name"] == "MemoryMax")
    assert value == {
        "name": "MemoryMax",
        "expected": 67108864,
        "systemd": 268435456,
        "kernel": "268435456",
        "finding": "value-changed",
        "why": "limits.memory 64Mi",
    }
    assert document["findings"][0] == {
        "kind": "value-changed",
        "known": False,
        "object": SLICE,
        "pod": "default/g-one",
        "property": "MemoryMax",
        "message": "MemoryMax is 256Mi, expected is 64Mi",
        "hint": f"delete the pod, so that it starts again; or until then: systemctl set-property"
        f" --runtime {SLICE} MemoryMax=67108864",
    }
    assert all(each["known"] for each in document["findings"][1:])


def test_metrics_of_the_node_exporter(audit, node):
    change(node, "g-one", **RAISED)
    ended = audit("-o", "prometheus")
    assert ended.code == 3
    lines = ended.out.splitlines()
    assert 'podslice_audit_findings{kind="value-changed",known="false"} 1' in lines
    assert 'podslice_audit_findings{kind="sidecar-without-limit",known="true"} 2' in lines
    assert 'podslice_audit_findings{kind="unit-missing",known="false"} 0' in lines
    assert "podslice_audit_units 50" in lines
    labels = f'kind="value-changed",object="{SLICE}",pod="default/g-one",property="MemoryMax"'
    assert f"podslice_audit_finding{{{labels}}} 1" in lines
    names = [line.split("{")[0].split(" ")[0] for line in lines if line[0] != "#"]
    assert set(names) == {
        line.split(" ")[2] for line in lines if line.startswith("# TYPE podslice_audit_")
    }


def test_many_findings_are_counted(audit, node):
    for name in ("b-both", "b-partial", "b-sidecar", "g-one", "g-sidecar", "p-limits", "e-two"):
        for file in ("hugetlb.2MB.max", "hugetlb.2MB.rsvd.max", "memory.max", "pids.max"):
            node.units[node.path(name)]["files"][file] = "7"
    for pod in node.pods:
        for index in range(8):
            uid = f"{pod['metadata']['uid'][:-2]}{index:02}"
            slice_ = f"kubepods-pod{uid.replace('-', '_')}.slice"
            node.units[f"/kubepods.slice/{slice_}"] = {"files": {}, "properties": {}}
    out = audit().out
    assert re.search(r"^\d+ more; to see all: podslice audit -o json$", out, re.MULTILINE)


@cases
def test_a_configuration_that_is_none(config, error, node, podslice, files):
    files({"pods.json": json.dumps(node.document()), "config.json": config})
    ended = podslice("audit", "-f", "pods.json", CONFIG)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {error}")


def test_all_problems_of_a_configuration_are_reported(node, podslice, files):
    config = {
        "kind": "KubeletConfiguration",
        "podPidsLimit": "many",
        "singleProcessOOMKill": 3,
        "evictionHard": {"memory.available": "x"},
        "cgroupRoot": "relative",
        "enforceNodeAllocatable": ["everything"],
    }
    files({"pods.json": json.dumps(node.document()), "config.json": json.dumps(config)})
    ended = podslice("audit", "-f", "pods.json", CONFIG)
    assert ended.code == 2
    keys = [
        line.removeprefix("error: config.json: ").split(":")[0] for line in ended.err.split("\n")
    ]
    assert sorted(keys[:-1]) == [
        "cgroupRoot",
        "enforceNodeAllocatable.everything",
        "evictionHard.memory.available",
        "podPidsLimit",
        "singleProcessOOMKill",
    ]


def test_a_missing_configuration_and_a_wrong_version(node, podslice, files):
    files({"pods.json": json.dumps(node.document()), "config.json": json.dumps(node.config)})
    ended = podslice("audit", "-f", "pods.json", "--kubelet-config=none.yaml")
    hint = "state the file with --kubelet-config"
    assert ended.err == f"error: none.yaml: no such file or directory; {hint}\n"
    ended = podslice("audit", "-f", "pods.json", CONFIG, "--kubelet-version=new")
    assert ended.code == 2
    assert "'new' is not a version of the kubelet; write 1.36, for example" in ended.err
    assert podslice("audit", "-f", "pods.json", CONFIG, "--kubelet-version=v1.35.3+k3s1").code == 0


def test_pods_need_their_uid(node, podslice, files):
    del node.pods[0]["metadata"]["uid"]
    node.pods[1]["spec"]["containers"] = []
    files({"pods.json": json.dumps(node.document()), "config.json": json.dumps(node.config)})
    ended = podslice("audit", "-f", "pods.json", CONFIG)
    assert ended.code == 2
    assert "pod default/b-both has no uid, which names its slice, and no directory of" in ended.err
    assert "a pod needs at least one container" in ended.err


def test_the_pods_of_several_nodes_are_refused(node, podslice, files):
    for index, pod in enumerate(node.pods):
        pod["spec"]["nodeName"] = f"node{index % 4}"
    files({"pods.json": json.dumps(node.document()), "config.json": json.dumps(node.config)})
    ended = podslice("audit", "-f", "pods.json", CONFIG)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "error: pods.json: the pods are of 4 nodes: 'node0', 'node1', 'node2', …; save those of one"
        " node: kubectl get pods -A -o json --field-selector spec.nodeName=NODE\n"
    )


def test_an_authors_annotation_does_not_prevent_an_audit(audit, node):
    for text in ("[", '{"limits": {"memory": "-1"}}'):
        node.pods[0]["metadata"]["annotations"] = {"podslice.io/resources": text}
        ended = audit()
        assert (ended.code, ended.err) == (0, "")


def test_a_list_that_is_cut_off(podslice, node, files):
    text = json.dumps(node.document())
    files({"pods.json": text[: len(text) // 2], "config.json": json.dumps(node.config)})
    ended = podslice("audit", "-f", "pods.json", CONFIG)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: pods.json: line 1: not valid JSON: ")


# the API of a kubelet


@pytest.fixture(scope="module")
def certificates():
    return Certificates()


@pytest.fixture
def serving(allow_effects, here, cgroups, node, monkeypatch):
    """Give a server on the loopback interface the documents of the node."""
    node.write(cgroups)
    here.mkdir()
    monkeypatch.setattr(kubelet_source, "CONFIG_FILE", here / "config.yaml")

    def serve(server):
        server.documents = {
            "/pods": json.dumps(node.document()).encode(),
            "/configz": json.dumps({"kubeletconfig": node.config}).encode(),
            "/metrics": b'kubernetes_build_info{git_version="v1.36.2"} 1\n',
        }
        return server

    return serve


def test_the_api_of_a_kubelet(serving, node, certificates, podslice, files):
    user = {f"client-{name}": str(certificates.path(f"client.{suffix}")) for name, suffix in PARTS}
    config = {
        "kind": "Config",
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "users": [{"name": "a", "user": user}],
        "clusters": [{"name": "a", "cluster": {}}],
    }
    files({"kubeconfig": json.dumps(config)})
    change(node, "g-one", **RAISED)
    options = (f"--kubelet-ca={certificates.path('ca.crt')}", "--kubeconfig=kubeconfig")
    with KubeletServer(certificates) as server:
        serving(server)
        ended = podslice("audit", "--kubelet", server.url, *options)
        assert (ended.code, ended.err) == (3, "")
        assert [path for path, *_ in server.requests] == ["/pods", "/metrics", "/configz"]
        assert all(certificate for *_, certificate in server.requests)
        # by its version the kubelet does not apply the pod levels that its slices have
        server.documents["/metrics"] = b'kubernetes_build_info{git_version="v1.33.0"} 1\n'
        assert (
            "the kubelet applies spec.resources, other than its version"
            in podslice("audit", "--kubelet", server.url, *options).out
        )
        ended = podslice("audit", "--kubelet", server.url)
        assert (ended.code, ended.err.count("\n")) == (1, 1)
        assert "/pods: the certificate is not accepted" in ended.err
        insecure = podslice("audit", "--kubelet", server.url, "--insecure-skip-tls-verify")
        assert insecure.code == 3


PARTS = (("certificate", "crt"), ("key", "key"))


def test_the_read_only_port_with_the_file_of_the_configuration(serving, here, node, podslice):
    with KubeletServer() as server:
        serving(server)
        del server.documents["/configz"]
        ended = podslice("audit", "--kubelet", server.url)
        assert (ended.code, "config.yaml: no such file" in ended.err) == (2, True)
        (here / "config.yaml").write_text(json.dumps(node.config))
        os.utime(here / "config.yaml", (0, 0))
        assert podslice("audit", "--kubelet", server.url).code == 0
        del server.documents["/metrics"]
        ended = podslice("audit", "--kubelet", server.url)
        assert ended.code == 0
        assert ended.err.startswith("the version of the kubelet is not known, 1.36 is assumed: ")
        assert podslice("audit", "--kubelet", server.url, "--kubelet-version=1.36").err == ""
        server.documents["/pods"] = b"[]"
        assert (
            f"error: {server.url}/pods: a manifest must be a mapping"
            in podslice("audit", "--kubelet", server.url).err
        )


@cases
def test_options_that_do_not_match(podslice, node, arguments, error):
    ended = podslice("audit", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {error}")


def test_static_pods_have_their_uids_in_the_names_of_directories(node, here, tmp_path):
    logs = tmp_path / "logs"
    for pod in node.pods:
        metadata = pod["metadata"]
        directory = logs / f"default_{metadata['name']}-node1_{metadata.pop('uid')}"
        directory.mkdir(parents=True)
    old = logs / "default_g-one-node1_0123"
    old.mkdir()
    os.utime(old, (0, 0))
    for name in ("text", "other_g-one-node1_0123", "default_g_x_0123_4"):
        (logs / name).mkdir()
    text = json.dumps(node.document()).encode()
    pods = {each.pod.name: each.pod.uid for each in parse_pod_list(text, "pods", logs=logs)}
    recorded = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in RecordedNode().pods}
    assert pods == recorded
    with pytest.raises(InputError, match="pod default/g-one has no uid"):
        parse_pod_list(text, "pods", logs=tmp_path / "none")


@pytest.mark.usefixtures("allow_effects")  # the program itself, which imports no TLS at its start
@pytest.mark.parametrize("scheme", ["https", "http"])
def test_the_program_connects(scheme):
    url = f"{scheme}://127.0.0.1:1"
    command = (sys.executable, "-m", "podslice", "audit", "--kubelet", url, CONFIG)
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode in {1, 2}
    assert "connection refused" in ended.stderr
    assert "Traceback" not in ended.stderr
