"""Real tools that resolve projects, without containers: their output, and the override file in it."""

import json
import shlex
import tomllib

import pytest
import yaml

from tests.lab import extras, fixtures
from tests.lab.namespace import Namespace
from tests.lab.recipe import DEFAULT_SUITE
from tests.unit.features.compose.test_cases import PROJECTS, convert

CASES = sorted(path.parent.name for path in PROJECTS.glob("*/pod.yaml"))
# what this version does not accept
REFUSED = {
    "misspelled-fields": "is not allowed",
    "replicas-and-names": "provider is not allowed",
    "two-forms-of-one-amount": "can't set distinct values",
}
# a service without an image is an error
RESOLVE = """
cd /src/tests/unit/features/compose/cases
for case in {cases}; do
  for more in '' "-f $case/override.yaml"; do
    docker-compose --profile='*' -f $case/project.yaml -f /images/$case.yaml $more \
      config --format=json --output "/out/$case${{more:+-in-pod}}" 2>> "/out/$case-errors"
  done
done
"""
PROJECT = """
services:
  db: {extends: {file: common.yaml, service: base}, image: db, mem_limit: "${DB_MEMORY}"}
  web: {extends: {file: common.yaml, service: base}, image: web, deploy: {replicas: 2}}
  admin: {image: admin, profiles: [support]}
x-podslice: {budget: {cpu: 1, memory: 1Gi}}
"""
COMMON = "services: {base: {mem_limit: 64m, deploy: {resources: {reservations: {cpus: 0.25}}}}}"
POD = [
    ("db", {"requests": {"cpu": "250m", "memory": "0"}, "limits": {"memory": "512Mi"}}),
    ("web-1", {"requests": {"cpu": "250m", "memory": "0"}, "limits": {"memory": "64Mi"}}),
    ("web-2", {"requests": {"cpu": "250m", "memory": "0"}, "limits": {"memory": "64Mi"}}),
]


@pytest.fixture(scope="module")
def box():
    """A namespace of this module's own, with docker-compose 2."""
    with fixtures.boot_namespace() as booted:
        extras.unpack(booted, DEFAULT_SUITE, ("docker-compose",))
        yield booted


@pytest.fixture(scope="module")
def resolved(box):
    """Each case as the tool resolves it, without and with its override file."""
    for case in CASES:
        services = yaml.safe_load((PROJECTS / case / "project.yaml").read_text())["services"]
        images = {name: {"image": "app"} for name in services}
        box.put(f"/images/{case}.yaml", json.dumps({"services": images}))
    box.run("mkdir", "/out")
    box.run("sh", "-c", RESOLVE.format(cases=" ".join(CASES)), check=False)
    return lambda name: box.get(f"/out/{name}")


@pytest.mark.parametrize("case", sorted({*CASES} - REFUSED.keys()))
def test_docker_compose_resolves_a_case_to_the_same_pod(resolved, case):
    path = PROJECTS / case / "options.toml"
    result = convert(resolved(case), tomllib.loads(path.read_text()) if path.exists() else {})
    assert in_order(result.document) == in_order(read(case, "pod.yaml"))
    assert result.override == read(case, "override.yaml")


@pytest.mark.parametrize("case", sorted({*CASES} - REFUSED.keys()))
def test_docker_compose_takes_the_override_file_of_a_case(resolved, case):
    before = json.loads(resolved(case))["services"]
    after = json.loads(resolved(f"{case}-in-pod"))["services"]
    added = read(case, "override.yaml")["services"]
    assert after == {name: {**fields, **added[name]} for name, fields in before.items()}


@pytest.mark.parametrize("case", REFUSED)
def test_cases_that_docker_compose_does_not_accept(resolved, case):
    assert REFUSED[case] in resolved(f"{case}-errors").decode()


def test_a_project_of_several_files_and_variables(box):
    box.put("/shop/compose.yaml", PROJECT)
    box.put("/shop/common.yaml", COMMON)
    box.put("/shop/.env", "DB_MEMORY=512m\n")
    ended = box.podslice("compose", "-f", "/shop/compose.yaml")
    assert ended.stderr == ""
    pod = yaml.safe_load(box.get("/shop/pod.podslice.yaml"))
    containers = pod["spec"]["containers"]
    assert [(each["name"], each["resources"]) for each in containers] == POD
    *up, _, _ = next(
        shlex.split(line) for line in ended.stdout.splitlines() if line.endswith(" up -d")
    )
    every = box.run(*up, "--profile=support", "config").stdout
    services = yaml.safe_load(every)["services"]
    override = yaml.safe_load(box.get("/shop/compose.podslice.yaml"))["services"]
    assert services.keys() == override.keys() == {"db", "web", "admin"}
    for name, keys in override.items():
        assert {key: services[name][key] for key in keys} == keys


def test_docker_compose_1_prints_the_case_and_takes_its_override_file():
    case = "printed-by-docker-compose-1"
    with Namespace("bookworm") as old:
        extras.unpack(old, "bookworm", ("docker-compose",))
        for name in ("project.yaml", "override.yaml"):
            old.put(f"/shop/{name}", (PROJECTS / case / name).read_bytes())
        old.put("/shop/more.yaml", 'version: "3.8"\nx-podslice: {budget: {cpu: 1}}\n')
        words = ("docker-compose", "-f", "/shop/project.yaml", "-f", "/shop/more.yaml")
        before = yaml.safe_load(old.run(*words, "config").stdout)
        after = yaml.safe_load(old.run(*words, "-f", "/shop/override.yaml", "config").stdout)
    assert before == read(case, "project.yaml")
    added = read(case, "override.yaml")["services"]
    merged = {name: {**fields, **added[name]} for name, fields in before["services"].items()}
    assert after["services"] == merged


def read(case, name):
    """Return the values of a file of a case."""
    return yaml.safe_load((PROJECTS / case / name).read_text())


def in_order(document):
    """Return a manifest with its containers by name: the tool sorts services."""
    containers = sorted(document["spec"]["containers"], key=lambda each: each["name"])
    return {**document, "spec": {**document["spec"], "containers": containers}}
