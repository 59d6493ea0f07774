"""`compose`: the tool that resolves the project, the files that are written, and what is reported."""

import json
import sys

import pytest
import yaml

from podslice.errors import EXCERPT_MAX
from podslice.features.compose import tools
from podslice.features.compose.tools import HEAD
from tests.cases.tables import cases
from tests.unit.features.doctor.hosts import program

SLICE = "kubepods-burstable-podshop.default.slice"
PROJECT = {
    "name": "shop",
    "services": {"db": {"image": "postgres", "mem_limit": "1g"}, "web": {"image": "nginx"}},
    "x-podslice": {"budget": {"cpu": 2, "memory": "4Gi"}},
}
WRITTEN = f"""\
wrote pod.podslice.yaml: pod default/shop, Burstable, 2 containers, budget cpu=2,memory=4Gi
wrote compose.podslice.yaml: {SLICE} for every service
to start the project in its pod:
  podslice apply -f pod.podslice.yaml
  docker compose -f compose.yaml -f compose.podslice.yaml up -d
docker compose up without these files starts the services outside the pod; to avoid that:
  podslice compose --write-override
  or in .env: COMPOSE_FILE=compose.yaml:compose.podslice.yaml
"""
OVERRIDE = {
    "services": {
        name: {
            "cgroup_parent": SLICE,
            "labels": {"io.podslice.pod": "default/shop", "io.podslice.container": name},
        }
        for name in ("db", "web")
    }
}


@pytest.fixture(autouse=True)
def no_tools(tmp_path, monkeypatch):
    """A machine without compose and docker."""
    monkeypatch.setattr("podslice.features.compose.verb.HOST_ROOT", tmp_path / "nothing")
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    for name in ("FILE", "PATH_SEPARATOR", "PROFILES", "PROJECT_NAME"):
        monkeypatch.delenv(f"COMPOSE_{name}", raising=False)
    return programs


@pytest.fixture
def install(no_tools, allow_effects):
    """Install a stand-in for a tool, which records its arguments and prints the project.

    The stand-ins are scripts in the directory of the test. With all profiles they print `every`.
    """

    def make(name, lines="", project=PROJECT, every=None):
        directory = no_tools.parent
        (directory / "project.json").write_text(json.dumps(project))
        (directory / "every.json").write_text(json.dumps(every or project))
        program = no_tools / name
        program.write_text(
            f"#!/bin/sh\n{lines}\n"
            f'case "$*" in *"--profile=*"*) name=every;; *) name=project;; esac\n'
            f'printf "%s\\n" "$*" >> {directory}/arguments\n'
            f"while IFS= read -r line; do printf '%s\\n' \"$line\"; done < {directory}/$name.json\n"
            f"printf '%s\\n' \"$line\"\n"
        )
        program.chmod(0o755)
        return directory / "arguments"

    return make


@pytest.fixture
def resolved(files):
    """A resolved project as a file."""

    def write(**changes):
        files({"resolved.json": json.dumps({**PROJECT, **changes})})
        return "--resolved=resolved.json"

    return write


@cases
def test_what_is_printed(case, expect, files, install, monkeypatch, tmp_path):
    texts = case.get("given", {"compose.yaml": ""})
    files({path: HEAD if text == "HEAD" else text for path, text in texts.items()})
    for name, value in case.get("environment", {}).items():
        monkeypatch.setenv(name, value)
    project = {**PROJECT, **case.get("project", {})}
    project = {key: value for key, value in project.items() if key not in case.get("without", ())}
    for name, lines in case.get("tools", {}).items():
        arguments = install(name, lines, project, {**project, **case.get("every", {})})
    if "resolved" in case:
        nothing = dict.fromkeys(case.get("null", ()))
        files({"resolved.json": json.dumps({**PROJECT, **case["resolved"], **nothing})})
    expect(case)
    if "calls" in case:
        assert read_calls(arguments) == case["calls"]
    is_there = "code" not in case or "pod.podslice.yaml" in texts
    assert any((tmp_path / "work").rglob("pod.podslice.yaml")) is is_there


def read_calls(arguments):
    """Return the calls of a stand-in, without those with all profiles."""
    return [
        each
        for each in arguments.read_text().splitlines()
        if each.endswith("config") and "--profile=*" not in each
    ]


def test_both_files_and_the_next_commands(podslice, files, install, tmp_path):
    files({"compose.yaml": ""})
    arguments = install("docker")
    assert podslice("compose") == (0, WRITTEN, "")
    assert read_calls(arguments) == ["compose -f compose.yaml config"]
    assert yaml.safe_load((tmp_path / "work/compose.podslice.yaml").read_text()) == OVERRIDE
    assert podslice("check", "-f", "pod.podslice.yaml").code == 0
    slice_ = podslice("cgroup-parent", "shop", "-f", "pod.podslice.yaml").out
    assert slice_ == f"{SLICE}\n"


def test_the_files_and_the_next_commands_as_json(podslice, files, install):
    install("docker")
    files({"compose.yaml": ""})
    ended = podslice("compose", "-o", "json")
    assert json.loads(ended.out) == {
        "version": 1,
        "pod": "default/shop",
        "qos_class": "Burstable",
        "slice": SLICE,
        "manifest": "pod.podslice.yaml",
        "override": "compose.podslice.yaml",
        "apply": ["podslice", "apply", "-f", "pod.podslice.yaml"],
        "up": [
            *("docker", "compose", "-f", "compose.yaml", "-f", "compose.podslice.yaml"),
            *("up", "-d"),
        ],
    }


def test_the_keys_of_a_service_are_those_of_cgroup_parent(podslice, files, install, tmp_path):
    """`cgroup-parent` adds the limits, which the service has already."""
    files({"compose.yaml": ""})
    install("docker")
    assert podslice("compose").code == 0
    override = yaml.safe_load((tmp_path / "work/compose.podslice.yaml").read_text())["services"]
    for name, keys in override.items():
        words = ("-f", "pod.podslice.yaml", "-c", name, "-o", "compose")
        printed = yaml.safe_load(podslice("cgroup-parent", "shop", *words).out)
        assert {key: printed[key] for key in keys} == keys


@cases
def test_podman_compose_gets_the_profiles_of_the_environment_as_options(  # noqa: PLR0917 - fixtures and cases
    podslice, files, install, monkeypatch, variable, dotenv, options, profiles
):
    """Before 1.6 it ignores the variable."""
    files({"compose.yaml": "", ".env": dotenv, "prod.env": "COMPOSE_PROFILES=prod"})
    if variable is not None:
        monkeypatch.setenv("COMPOSE_PROFILES", variable)
    arguments = install("podman-compose")
    words = [*(each for each in options if "env-file" in each), "-f compose.yaml"]
    given = [f"--profile={each}" for each in profiles]
    out = podslice("compose", *options).out
    assert read_calls(arguments) == [" ".join([*words, *given, "config"])]
    assert f"{' '.join([*words, '-f compose.podslice.yaml', *given])} up -d\n" in out
    install("docker")
    assert "--profile=dev" not in podslice("compose").out


def test_a_tool_that_does_not_end(podslice, files, install, monkeypatch):
    monkeypatch.setattr(tools, "WAIT_SEC", 0.05)
    files({"compose.yaml": ""})
    install("docker-compose", "while :; do :; done")
    ended = podslice("compose")
    assert ended.code == 1
    assert "no answer in" in ended.err


LONG = f"{sys.executable} -c \"import sys; sys.stderr.write('x' * 1000000)\""


def test_an_error_of_the_tool_is_shortened(podslice, files, install):
    files({"compose.yaml": ""})
    install("docker-compose", f"{LONG}; exit 15")
    shown = "x" * EXCERPT_MAX
    assert podslice("compose") == (2, "", f"error: docker-compose config: {shown}…\n")


def test_warnings_of_the_tool_are_shortened(podslice, files, install):
    files({"compose.yaml": ""})
    install(
        "docker-compose", f"{LONG}; n=0; while [ $n -lt 120 ]; do n=$((n+1)); echo >&2 $n; done"
    )
    first, *lines = podslice("compose").err.splitlines()
    assert first == f"docker-compose: {'x' * EXCERPT_MAX}…"
    assert len(lines) == 100
    assert lines[-1] == "docker-compose: there are 20 more lines"


def test_a_resolved_project_needs_no_tool(podslice, resolved):
    assert podslice("compose", resolved()) == (0, WRITTEN, "")


def test_a_resolved_project_from_standard_input(podslice, here, monkeypatch, tmp_path):
    path = tmp_path / "stdin"
    path.write_text(json.dumps(PROJECT))
    with path.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert podslice("compose", "--resolved", "-") == (0, WRITTEN, "")


@pytest.mark.parametrize(
    "text", ["cpu", "", "cpu=1,cpu=2", "gpu=1", "memory=4g", "cpu=0", "cpu=-1"]
)
def test_an_invalid_budget(podslice, resolved, tmp_path, text):
    ended = podslice("compose", resolved(), "--budget", text)
    assert (ended.code, ended.out) == (2, "")
    assert all(line.startswith("error: --budget: ") for line in ended.err.splitlines())
    assert not (tmp_path / "work/pod.podslice.yaml").exists()


def test_own_files_are_replaced_and_no_others(podslice, resolved, files, tmp_path):
    assert podslice("compose", resolved()).code == 0
    assert podslice("compose", resolved(), "--budget", "cpu=1").code == 0
    assert 'cpu: "1"' in (tmp_path / "work/pod.podslice.yaml").read_text()
    files({"pod.podslice.yaml": "mine"})
    assert podslice("compose", resolved()) == (
        2,
        "",
        (
            "error: pod.podslice.yaml: the file exists and was not generated by podslice; remove"
            " it, or choose another directory\n"
        ),
    )


def test_another_directory(podslice, resolved, tmp_path):
    ended = podslice("compose", resolved(), "--output-dir", "out")
    assert ended.code == 0
    assert "-f compose.yaml -f out/compose.podslice.yaml up" in ended.out
    assert {each.name for each in (tmp_path / "work/out").iterdir()} == {
        "pod.podslice.yaml",
        "compose.podslice.yaml",
    }


def test_a_driver_that_does_not_use_slices(podslice, resolved, machine, monkeypatch):
    daemon = json.dumps({"exec-opts": ["native.cgroupdriver=cgroupfs"]})
    root = machine(program("dockerd", "podman"), {"etc/docker/daemon.json": daemon})
    monkeypatch.setattr("podslice.features.compose.verb.HOST_ROOT", root)
    err = podslice("compose", resolved()).err
    assert err.startswith("warning: docker: its cgroup driver is cgroupfs: ")
    assert err.count("\n") == 1
    assert podslice("compose", resolved(), "--tool", "podman-compose").err == ""


def test_services_of_other_profiles_start_in_the_pod_too(podslice, files, install, tmp_path):
    files({"compose.yaml": "services: {debug: {profiles: [dev]}, idle: {}}"})
    every = {**PROJECT["services"], "debug": {"profiles": ["dev"], "mem_limit": "9g"}}
    idle = {"idle": {"scale": 0, "build": "."}}
    arguments = install(
        "docker",
        project={**PROJECT, "services": {**PROJECT["services"], **idle}},
        every={**PROJECT, "services": {**every, **idle}},
    )
    ended = podslice("compose")
    assert (ended.code, ended.err) == (0, "")
    assert "  idle, debug have no containers now (a profile, or scale 0)\n" in ended.out
    assert "  images are built outside the pod: idle\n" in ended.out
    assert "compose -f compose.yaml --profile=* --profile=dev config" in arguments.read_text()
    override = yaml.safe_load((tmp_path / "work/compose.podslice.yaml").read_text())["services"]
    assert list(override) == ["db", "web", "idle", "debug"]
    outside = {"cgroup_parent": SLICE, "labels": {"io.podslice.pod": "default/shop"}}
    assert override["debug"] == override["idle"] == outside
    pod = yaml.safe_load((tmp_path / "work/pod.podslice.yaml").read_text())
    assert [each["name"] for each in pod["spec"]["containers"]] == ["db", "web"]


def test_a_budget_is_reserved_on_request(podslice, resolved, tmp_path):
    assert "Guaranteed, 2 containers" in podslice("compose", resolved(), "--reserve").out
    override = yaml.safe_load((tmp_path / "work/compose.podslice.yaml").read_text())
    assert override["services"]["web"]["oom_score_adj"] == -997


@cases
def test_the_override_file_that_compose_reads_by_itself(
    podslice, files, install, tmp_path, tool, name
):
    files({"docker-compose.yml": ""})
    arguments = install(tool.split(" ")[0])
    for _ in range(2):  # the file of the first call is not part of the project
        ended = podslice("compose", "--write-override")
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.endswith(f"  podslice apply -f pod.podslice.yaml\n  {tool} up -d\n")
        assert yaml.safe_load((tmp_path / "work" / name).read_text()) == OVERRIDE
    assert {each.removeprefix("compose ") for each in read_calls(arguments)} == {
        "-f docker-compose.yml config"
    }
