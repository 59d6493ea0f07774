"""`compose`: the tool that resolves the project, the files that are written, and what is reported."""

import json
import sys

import pytest
import yaml

from podslice.errors import EXCERPT_MAX
from podslice.features.compose import tools
from podslice.features.compose.tools import HEAD
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


def test_the_options_of_the_tool(podslice, files, install):
    files({"a/compose.yaml": "", "b.yaml": "", "prod.env": ""})
    arguments = install("docker-compose")
    words = ["-f", "a/compose.yaml", "-f", "b.yaml", "--profile=front", "--env-file=prod.env"]
    ended = podslice("compose", *words, "-p", "shop")
    assert ended.code == 0
    given = "--env-file=prod.env --project-name=shop -f a/compose.yaml -f b.yaml"
    assert read_calls(arguments) == [f"{given} --profile=front config"]
    up = f"{given} -f a/compose.podslice.yaml --profile=front up -d"
    assert f"  docker-compose {up}\n" in ended.out


def test_podman_compose_gets_the_slice_as_an_option(podslice, files, install):
    files({"compose.yaml": ""})
    install("podman-compose")
    option = f"--podman-run-args=--cgroup-parent={SLICE}"
    ended = podslice("compose")
    last = f"  podman-compose {option} -f compose.yaml -f compose.podslice.yaml up -d\n"
    later = "podman-compose up without this option starts the services outside the pod\n"
    assert ended.out.endswith(last + later)


def test_the_first_tool_that_is_installed(podslice, files, install, no_tools):
    files({"compose.yaml": ""})
    for name in ("podman-compose", "docker-compose", "docker"):
        install(name)
    assert "  docker compose -f" in podslice("compose").out
    install("docker", "exit 1")  # without its plugin
    assert "  docker-compose -f" in podslice("compose").out
    assert "  podman-compose " in podslice("compose", "--tool", "podman-compose").out


def test_a_docker_that_is_podman_is_not_the_first(podslice, files, install):
    files({"compose.yaml": ""})
    install("docker", "echo 'Executing external compose provider /usr/bin/podman-compose' >&2")
    install("podman-compose")
    assert "  podman-compose --podman-run-args=" in podslice("compose").out


def test_without_a_tool(podslice, files):
    files({"compose.yaml": ""})
    ended = podslice("compose")
    assert (ended.code, ended.out) == (1, "")
    assert "pass the output: --resolved FILE" in ended.err


def test_a_stated_tool_that_is_not_installed(podslice, files, allow_effects):
    files({"compose.yaml": ""})
    ended = podslice("compose", "--tool", "docker-compose")
    assert ended == (1, "", "error: docker-compose is not installed, or not in PATH\n")


@pytest.mark.parametrize(
    ("present", "chosen"),
    [
        (["compose.yaml", "docker-compose.yml"], ["compose.yaml"]),
        (["docker-compose.yaml", "docker-compose.yml"], ["docker-compose.yml"]),
        (
            ["compose.yml", "compose.override.yaml", "compose.podslice.yaml"],
            ["compose.yml", "compose.override.yaml"],
        ),
    ],
)
def test_the_files_of_a_directory(podslice, files, install, present, chosen):
    files(dict.fromkeys(present, "") | {"compose.podslice.yaml": HEAD})
    arguments = install("docker")
    assert podslice("compose").code == 0
    words = " ".join(f"-f {name}" for name in chosen)
    assert read_calls(arguments) == [f"compose {words} config"]


def test_the_files_of_the_environment(podslice, install, monkeypatch):
    monkeypatch.setenv("COMPOSE_FILE", "a.yaml:compose.podslice.yaml:b.yaml")
    arguments = install("docker")
    assert podslice("compose").code == 0
    assert read_calls(arguments) == ["compose -f a.yaml -f b.yaml config"]


def test_the_files_that_a_file_of_variables_chooses_are_to_be_stated(podslice, files, install):
    files({"compose.yaml": "", ".env": "A=1\nCOMPOSE_FILE=a.yaml\n"})
    install("docker")
    error = "error: .env: it chooses the files (COMPOSE_FILE); state them: -f FILE\n"
    assert podslice("compose") == (2, "", error)
    assert podslice("compose", "-f", "compose.yaml").code == 0


def test_no_compose_file(podslice, install):
    install("docker")
    error = "error: there is no compose.yaml here; state the file: -f FILE\n"
    assert podslice("compose") == (2, "", error)


def test_compose_files_are_not_read_from_standard_input(podslice, install):
    install("docker")
    assert podslice("compose", "-f", "-") == (
        2,
        "",
        (
            "error: -f: compose files cannot be read from standard input; pass a resolved project"
            " instead: --resolved -\n"
        ),
    )


@pytest.mark.parametrize(
    ("printed", "errors"),
    [
        (
            "services.web: no \x1b[31mimage\\n  or build\\n",
            ["services.web: no \\x1b[31mimage", "or build"],
        ),
        (
            "Traceback (most recent call last):\\n  a\\nValueError: no image\\n",
            ["ValueError: no image"],
        ),
        ("unknown command\\n\\nRun 'docker --help'\\n", ["unknown command"]),
        ("unknown flag\\nUsage:  docker\\n  options\\n", ["unknown flag"]),
        ("usage: podman-compose\\n  options\\ninvalid choice\\n", ["invalid choice"]),
        ("", ["exit code 15"]),
    ],
)
def test_what_the_tool_refuses(podslice, files, install, printed, errors):
    files({"compose.yaml": ""})
    install("docker-compose", f'printf "{printed}" >&2; exit 15')
    lines = "".join(f"error: docker-compose config: {each}\n" for each in errors)
    assert podslice("compose") == (2, "", lines)


@pytest.mark.parametrize(
    ("printed", "hint"),
    [
        ("error: invalid choice: 'config'", "podman-compose can resolve projects since 1.0.6"),
        (
            "AttributeError: 'NoneType' object has no attribute 'get'",
            "a service, or its extends, is empty in a compose file: remove it, or complete it",
        ),
    ],
)
def test_what_podman_compose_cannot_resolve(podslice, files, install, printed, hint):
    files({"compose.yaml": ""})
    install("podman-compose", f'echo "{printed}" >&2; exit 2')
    expected = f"error: podman-compose config: {printed}; {hint}\n"
    assert podslice("compose") == (2, "", expected)


@pytest.mark.parametrize(
    ("variable", "dotenv", "options", "profiles"),
    [
        ("dev, ,front", "COMPOSE_PROFILES=back\n", ["--profile=front"], ["front", "dev"]),
        (None, "A=1\nexport COMPOSE_PROFILES='dev, front' # two\n", [], ["dev", "front"]),
        (None, "#COMPOSE_PROFILES=dev\n", [], []),
        ("", "COMPOSE_PROFILES=back\n", [], []),
        (None, "COMPOSE_PROFILES=back\n", ["--env-file=prod.env"], ["prod"]),
    ],
)
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


def test_a_tool_that_prints_without_end(podslice, files, install):
    files({"compose.yaml": ""})
    install("docker-compose", "while :; do echo 'services: {a: {image: b}}'; done")
    error = "its output is longer than the limit of 8,192 KiB"
    ended = podslice("compose")
    assert ended == (1, "", f"error: docker-compose -f compose.yaml config: {error}\n")


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


def test_warnings_of_the_tool_are_passed_on(podslice, files, install):
    files({"compose.yaml": ""})
    install("docker-compose", "echo 'the variable X is not set' >&2")
    assert podslice("compose").err == "docker-compose: the variable X is not set\n"


def test_a_resolved_project_needs_no_tool(podslice, resolved):
    assert podslice("compose", resolved()) == (0, WRITTEN, "")


def test_a_resolved_project_for_podman_compose(podslice, resolved):
    services = {"web": {"cpu_quota": 50_000}}
    ended = podslice("compose", resolved(services=services), "--tool", "podman-compose")
    assert "  podman-compose --podman-run-args=" in ended.out
    assert ended.err == "warning: services.web.cpu_quota: podman-compose ignores it; state cpus\n"


def test_a_resolved_project_from_standard_input(podslice, here, monkeypatch, tmp_path):
    path = tmp_path / "stdin"
    path.write_text(json.dumps(PROJECT))
    with path.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert podslice("compose", "--resolved", "-") == (0, WRITTEN, "")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: [", "resolved.yaml: line 2: "),
        ("a: 1\n---\nb: 2\n", "resolved.yaml: there is not exactly one project in it"),
        ("", "resolved.yaml: there is not exactly one project in it"),
        ("[1]", "a project must be a mapping, not a list"),
        ("name: x", "services: the project has no services"),
    ],
)
def test_what_is_not_a_project(podslice, files, text, error):
    files({"resolved.yaml": text})
    ended = podslice("compose", "--resolved=resolved.yaml")
    assert (ended.code, ended.out) == (2, "")
    assert f"error: {error}" in ended.err


def test_a_missing_resolved_project(podslice):
    error = "error: resolved.yaml: no such file or directory\n"
    assert podslice("compose", "--resolved=resolved.yaml") == (2, "", error)


def test_the_budget_of_the_command_line(podslice, resolved):
    ended = podslice("compose", resolved(), "--budget", "memory=8Gi, cpu=1")
    assert "budget cpu=1,memory=8Gi" in ended.out


def test_a_budget_of_some_services_is_none(podslice, resolved):
    services = {"db": {"mem_limit": "1g", "cpus": 0.5}, "web": {"cpus": 1}}
    ended = podslice("compose", resolved(services=services, **{"x-podslice": None}))
    assert "Burstable, 2 containers, budget cpu=1500m\n" in ended.out
    assert "the project has no budget of memory, since web has no limit" in ended.err


@pytest.mark.parametrize(
    "text", ["cpu", "", "cpu=1,cpu=2", "gpu=1", "memory=4g", "cpu=0", "cpu=-1"]
)
def test_an_invalid_budget(podslice, resolved, tmp_path, text):
    ended = podslice("compose", resolved(), "--budget", text)
    assert (ended.code, ended.out) == (2, "")
    assert all(line.startswith("error: --budget: ") for line in ended.err.splitlines())
    assert not (tmp_path / "work/pod.podslice.yaml").exists()


def test_the_problems_of_the_configuration_and_the_project_at_once(podslice, resolved):
    ended = podslice(
        "compose", resolved(services={"web": {"cpus": "x"}}), "--set=cgroup-root=relative"
    )
    assert ended.code == 2
    assert "services.web.cpus: must be a number of CPUs" in ended.err
    assert "cgroup-root" in ended.err


def test_names(podslice, files, install):
    files({"My_Shop/compose.yaml": ""})
    nameless = {key: value for key, value in PROJECT.items() if key != "name"}
    install("podman-compose", project=nameless)
    words = ("compose", "-f", "My_Shop/compose.yaml")
    assert "pod default/my-shop," in podslice(*words).out
    assert "pod default/market," in podslice(*words, "-p", "market").out
    assert "pod prod/stall," in podslice(*words, "--name", "stall", "-n", "prod").out


def test_docker_compose_1_leaves_out_the_settings(podslice, files, install):
    files({"shop/compose.yaml": ""})
    install("docker-compose", project={"services": {"web": {}}, "version": "3.8"})
    ended = podslice("compose", "-f", "shop/compose.yaml", "--budget", "cpu=1,memory=1Gi")
    assert ended.code == 0
    assert ended.err.startswith("warning: x-podslice: docker-compose 1 leaves it out")


def test_a_resolved_project_without_a_name(podslice, resolved):
    ended = podslice("compose", resolved(name=None))
    assert (ended.code, ended.err) == (
        2,
        "error: name: the project has no name; state one: --name NAME\n",
    )


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


def test_pods_of_the_user(podslice, resolved):
    assert (
        "  podslice apply --user -f pod.podslice.yaml"
        in podslice("compose", resolved(), "--user").out
    )


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


def test_a_project_whose_services_are_all_in_profiles_names_the_option(podslice, files, install):
    files({"compose.yaml": ""})
    every = {"web": {"profiles": ["front"]}, "db": {"profiles": ["back", "front"]}}
    install("docker", project={**PROJECT, "services": {}}, every={**PROJECT, "services": every})
    message = "services: every service is in a profile; state one or more: --profile back"
    expected = f"error: {message}; the profiles are back, front\n"
    assert podslice("compose") == (2, "", expected)


def test_a_project_without_limits_needs_a_budget(podslice, resolved):
    nothing = resolved(services={"web": {}}, **{"x-podslice": None})
    ended = podslice("compose", nothing)
    assert (ended.code, ended.out) == (2, "")
    assert "no service has a limit, and the project has no budget" in ended.err
    assert "--budget cpu=2,memory=4Gi" in ended.err
    assert podslice("compose", nothing, "--budget", "cpu=2,memory=4Gi").code == 0


def test_a_budget_is_reserved_on_request(podslice, resolved, tmp_path):
    assert "Guaranteed, 2 containers" in podslice("compose", resolved(), "--reserve").out
    override = yaml.safe_load((tmp_path / "work/compose.podslice.yaml").read_text())
    assert override["services"]["web"]["oom_score_adj"] == -997


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("docker compose", "compose.override.yaml"),
        ("docker-compose", "docker-compose.override.yml"),
    ],
)
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


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "compose.override.yml exists; state compose.podslice.yaml"),
        (["-f", "compose.yaml"], "reads compose.override.yaml only where no files are stated"),
        (["--output-dir", "out"], "reads compose.override.yaml only where no files are stated"),
        (["--tool", "podman-compose"], "podman-compose ignores cgroup_parent; state --podman-"),
    ],
)
def test_where_compose_would_not_read_the_override_file(
    podslice, files, install, tmp_path, words, error
):
    files({"compose.yaml": "", "compose.override.yml": ""})
    install("docker")
    install("podman-compose")
    ended = podslice("compose", "--write-override", *words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: --write-override: ")
    assert error in ended.err
    assert not (tmp_path / "work/pod.podslice.yaml").exists()
