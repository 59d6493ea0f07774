"""Files that are not what a verb can apply: misspelled fields, other objects, projects, templates."""

import json

import pytest

from podslice.inputs.manifest.fields import WORKLOADS
from tests.unit.builders import manifest
from tests.unit.cli.pods import WEB

TYPO = WEB.replace("resources:", "resource:", 1)
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {a: b}\n"
COMPOSE = "name: shop\nservices:\n  web: {image: a, deploy: !reset {}}\n"
UNKNOWN = "web.yaml: spec.containers[0].resource: unknown field 'resource'; write resources\n"


@pytest.mark.parametrize(
    "verb", ["check", "plan", "apply", "explain", "render", "cgroup-parent web -n shop"]
)
def test_a_typo_is_an_error_of_every_verb(verb, podslice, files, memory):
    check_typo(verb, podslice, files)


def check_typo(verb, podslice, files):
    """An unknown field is an error, a warning or nothing, as --validate states."""
    files({"web.yaml": TYPO})
    words = verb.split()
    ended = podslice(*words, "-f", "web.yaml")
    assert ended.code == 2
    assert f"error: {UNKNOWN}" in ended.err + ended.out
    ended = podslice(*words, "-f", "web.yaml", "--set=validate=warn")
    assert ended.code in (0, 3)
    assert f"warning: {UNKNOWN}" in ended.err + ended.out or verb.startswith("cgroup-parent")
    ended = podslice(*words, "-f", "web.yaml", "--set=validate=ignore")
    assert ended.code in (0, 3)
    assert "resource: " not in ended.err + ended.out
    assert "warning" not in ended.err


def test_the_configuration_states_what_an_unknown_field_is(podslice, files, memory):
    files({"web.yaml": TYPO, "warn.toml": "validate = 'warn'\n", "off.toml": "validate = false\n"})
    assert podslice("check", "-f", "web.yaml").code == 2
    ended = podslice("check", "-f", "web.yaml", "--config", "warn.toml")
    assert (ended.code, ended.out.count(UNKNOWN)) == (0, 1)
    ended = podslice("check", "-f", "web.yaml", "--config", "off.toml")
    assert (ended.code, ended.out.count(UNKNOWN)) == (0, 0)
    ended = podslice("check", "-f", "web.yaml", "--config", "off.toml", "--validate=true")
    assert (ended.code, ended.out.count(UNKNOWN)) == (2, 1)


def test_an_unknown_value_of_the_option_is_an_error(podslice, web):
    ended = podslice("check", "-f", web, "--validate=strickt")
    assert ended.code == 2
    assert "--validate: must be one of strict, warn, ignore" in ended.err


def test_a_typo_in_one_of_several_pods_changes_nothing(podslice, files, memory):
    """It is invalid input, as a malformed value is: exit code 2, unlike a pod that does not fit."""
    files({"a.yaml": manifest("a"), "b.yaml": TYPO, "c.yaml": manifest("c", requests={"cpu": 900})})
    ended = podslice("apply", "-f", "a.yaml", "-f", "b.yaml", "-f", "c.yaml")
    assert (ended.code, ended.out) == (2, "")
    assert memory.calls.keys() <= {"observe", "caps"}
    files({"b.yaml": WEB.replace("256Mi", "much")})
    ended = podslice("apply", "-f", "a.yaml", "-f", "b.yaml")
    assert (ended.code, ended.out) == (2, "")
    files({"b.yaml": WEB})
    ended = podslice("apply", "-f", "a.yaml", "-f", "b.yaml", "-f", "c.yaml", "-o", "json")
    document = json.loads(ended.out)
    assert ended.code == 1
    assert [each["pod"] for each in document["refused"]] == ["default/c"]
    pods = {each["unit"] for each in document["steps"] if each["outcome"] == "done"}
    assert {"kubepods-burstable-pod0a1b_2c.slice"} < pods
    assert len([each for each in pods if "-pod" in each]) == 2


def test_a_typo_does_not_keep_a_pod_from_being_deleted(podslice, files, memory):
    files({"web.yaml": WEB})
    assert podslice("apply", "-f", "web.yaml").code == 0
    files({"web.yaml": TYPO})
    assert podslice("delete", "-f", "web.yaml").code == 0


@pytest.mark.parametrize("verb", ["apply", "plan"])
def test_files_without_a_pod(verb, podslice, files, memory):
    files({"web.yaml": f"{SERVICE}---\n{CONFIG}", "pod.yaml": manifest("a")})
    ended = podslice(verb, "-f", "web.yaml")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.endswith(
        "error: web.yaml: there is no pod in it, only: Service, ConfigMap; podslice applies"
        f" {', '.join(WORKLOADS)} and lists of them\n"
    )
    assert memory.calls == {}
    assert podslice(verb, "-f", "web.yaml", "-f", "pod.yaml").code in (0, 3)


def test_directories_without_a_pod_do_not_keep_reservations_from_being_set(podslice, files, memory):
    directory = files({"manifests/web.yaml": SERVICE, "a.yaml": manifest("a")})
    assert podslice("apply", "-f", "a.yaml").code == 0
    files({"podslice.toml": f"manifests = ['{directory / 'manifests'}']\n"})
    ended = podslice("apply", "--config", "podslice.toml")
    assert (ended.code, ended.out) == (0, "nothing to do\n")


def test_a_workload_without_replicas_is_a_workload(podslice, files, memory):
    spec = "{replicas: 0, template: {spec: {containers: [{name: a}]}}}"
    head = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"
    files({"web.yaml": f"{SERVICE}---\n{head}spec: {spec}\n"})
    assert podslice("apply", "-f", "web.yaml").code == 0


@pytest.mark.parametrize("verb", ["apply", "plan", "check", "explain", "render"])
def test_a_compose_project_is_named_as_such(verb, podslice, files, memory):
    check_compose(verb, podslice, files)


def check_compose(verb, podslice, files):
    """The error about a compose project names the verb for it."""
    files({"compose.yaml": COMPOSE})
    ended = podslice(verb, "-f", "compose.yaml")
    assert ended.code == 2
    text = "compose.yaml: this is a compose project; use podslice compose -f compose.yaml\n"
    assert f"error: {text}" in ended.err + ended.out
    assert (ended.err + ended.out).count("error") <= 2  # `check` counts them


def test_a_compose_project_in_a_directory_is_named_and_the_other_files_are_applied(
    podslice, files, memory
):
    directory = files({"pods/compose.yaml": COMPOSE, "pods/web.yaml": WEB}) / "pods"
    ended = podslice("apply", "-f", "pods")
    assert ended.code == 0
    assert ended.err == (
        "warning: pods/compose.yaml: this is a compose project; use podslice compose -f"
        " pods/compose.yaml\n"
    )
    assert "kubepods-burstable-pod0a1b_2c.slice" in ended.out
    (directory / "web.yaml").unlink()
    ended = podslice("apply", "-f", "pods")
    assert ended.code == 1
    assert "pods: there is no pod in it, only: compose project" in ended.err


def test_a_template_is_named_as_such(podslice, files, memory):
    files({"web.yaml": WEB.replace("name: web", "name: {{ .Release.Name }}")})
    ended = podslice("apply", "-f", "web.yaml")
    assert ended.code == 2
    assert ended.err.endswith("this is a template; render it with helm template first\n")
