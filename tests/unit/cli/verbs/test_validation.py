"""Manifests with fields that Kubernetes does not have."""

import json

import pytest

from tests.unit.builders import manifest
from tests.unit.cli.pods import WEB

TYPO = WEB.replace("resources:", "resource:", 1)
UNKNOWN = "web.yaml: spec.containers[0].resource: unknown field 'resource'; write resources\n"


@pytest.mark.parametrize(
    "verb", ["check", "plan", "apply", "explain", "render", "simulate", "cgroup-parent web -n shop"]
)
def test_a_typo_is_an_error_of_every_verb(verb, podslice, files, memory):
    files({"web.yaml": TYPO})
    words = verb.split()
    ended = podslice(*words, "-f", "web.yaml")
    assert ended.code == 2
    assert f"error: {UNKNOWN}" in ended.err + ended.out
    ended = podslice(*words, "-f", "web.yaml", "--validate=warn")
    assert ended.code in (0, 3)
    assert f"warning: {UNKNOWN}" in ended.err + ended.out or verb.startswith("cgroup-parent")
    ended = podslice(*words, "-f", "web.yaml", "--validate=ignore")
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
