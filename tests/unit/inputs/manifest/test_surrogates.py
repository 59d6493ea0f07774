"""Unpaired surrogates in manifests: an error with its place, and nothing that UTF-8 cannot have."""

import json

import pytest
import yaml

from podslice.features.quadlet.workloads import read_workloads
from podslice.inputs.budget import POD_PROBLEMS_MAX
from podslice.inputs.manifest import parse
from podslice.inputs.manifest.load import Extent, load_pods
from podslice.model.config import Validate

HALF = "\ud800"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "app", "image": "app"}]},
}
YAML = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: app, image: app, args: ["\\ud800"]}
"""


def load(text):
    loaded = load_pods(["-"], stdin=text.encode, extent=Extent.WORKLOADS, validate=Validate.IGNORE)
    workloads = read_workloads(loaded)
    for each in loaded.documents.values():
        json.dumps(each, ensure_ascii=False).encode()
    return [each.where for each in (*loaded.all_problems, *workloads.problems)]


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
@pytest.mark.parametrize("field", ["data", "stringData", "binaryData"])
def test_data_of_containers(kind, field):
    data = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}, field: {"k": HALF}}
    assert f"stdin: {field}.k" in load(json.dumps(data))


def test_keys_of_a_mapping_and_entries_of_a_list():
    pod = {**POD, HALF: [["a", HALF]], "x": {f"a{HALF}": {"y": "b"}}}
    assert load(json.dumps(pod)) == [
        "stdin: ['\\ud800']",
        "stdin: ['\\ud800'][0][1]",
        "stdin: x['a\\ud800']",
    ]


def test_a_pair_is_a_character_and_an_escaped_backslash_is_none():
    pod = {**POD, "x": "\U0001f600", "y": "\\\\ud800"}
    assert load(json.dumps(pod)) == []


def test_the_problems_of_one_document_are_limited():
    found = load(json.dumps({**POD, "x": [HALF] * 1000}))
    assert len(found) == POD_PROBLEMS_MAX


@pytest.mark.parametrize("parser", ["c", "python"])
def test_yaml(parser, monkeypatch):
    if parser == "python":
        monkeypatch.setattr(parse, "YAML_LOADER", yaml.SafeLoader)
    where = "spec.containers[0].args[0]" if parser == "python" else "line 7"
    assert load(YAML) == [f"stdin: {where}"]
