"""The names and ports that Services give pods, and what is reported of each.

A row of `services.toml` has manifests: `input` is YAML, in which a Service or a pod may leave out
what is the same in all. It expects the aliases and published ports by pod, and all problems.
"""

import json
from pathlib import Path

import pytest
import yaml

from podslice.features.quadlet.discovery import SERVICES_MAX
from podslice.features.quadlet.workloads import read_workloads
from podslice.inputs.manifest.load import Extent, load_pods
from tests.cases.rows import check_row, load_rows

CONTAINERS = [{"name": "app", "image": "localhost/app:1"}]


def completed(document):
    """A manifest with what is the same in all."""
    spec = document.get("spec")
    if document["kind"] == "Pod":
        spec.setdefault("containers", CONTAINERS)
    if document["kind"] == "StatefulSet":
        spec["template"].setdefault("spec", {"containers": CONTAINERS})
    return {"apiVersion": "apps/v1" if document["kind"] == "StatefulSet" else "v1", **document}


def run_services(row):
    documents = [completed(each) for each in yaml.safe_load_all(row["input"])]
    text = "\n---\n".join(map(json.dumps, documents))
    loaded = load_pods(["-"], stdin=text.encode, extent=Extent.WORKLOADS, namespace=row.get("of"))
    read = read_workloads(loaded, namespace=row.get("of"))
    networks = {key.partition("/")[2]: each.network for key, each in read.workloads.items()}
    joined = {name: each for name, each in networks.items() if each is not None}
    return {
        "aliases": {name: list(each.aliases) for name, each in joined.items()},
        "published": {
            name: [f"{p.host_port}:{p.container_port}/{p.protocol}" for p in each.published]
            for name, each in joined.items()
            if each.published
        },
        "problems": [f"{each.severity}: {each}" for each in read.problems],
    }


@pytest.mark.parametrize(("kind", "row"), load_rows("services", Path(__file__).parent))
def test_row(kind, row):
    row = {"aliases": {}, "published": {}, "problems": [], **row}
    check_row(run_services, row)


def problems_of(services, pods):
    """The errors of as many Services that select as many pods."""
    service = {"kind": "Service", "spec": {"selector": {"app": "a"}}}
    documents = [service | {"metadata": {"name": f"s{n}"}} for n in range(services)]
    template = {"metadata": {"labels": {"app": "a"}}}
    name = {"name": "set"}
    spec = {"replicas": pods, "template": template}
    documents.append({"kind": "StatefulSet", "metadata": name, "spec": spec})
    text = "\n---\n".join(json.dumps(completed(each)) for each in documents)
    loaded = load_pods(["-"], stdin=text.encode, extent=Extent.WORKLOADS)
    return [str(each) for each in read_workloads(loaded).problems if each.severity == "error"]


@pytest.mark.parametrize(
    ("services", "pods", "errors"),
    [
        (SERVICES_MAX, 0, []),
        (SERVICES_MAX + 1, 0, [f"stdin[{SERVICES_MAX}]: there are more than 1,000 Services"]),
        (
            21,
            1000,
            ["stdin[20]: spec.selector: all Services together select pods more than 20,000 times"],
        ),
        (20, 1000, []),
    ],
)
def test_the_number_of_names_is_limited(services, pods, errors):
    assert problems_of(services, pods) == errors
