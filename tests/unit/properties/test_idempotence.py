"""Doing it twice is doing it once, and what is written reads back as the same."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("hypothesis")

import yaml
from hypothesis import given
from hypothesis import strategies as st

from podslice.inputs.manifest.load import format_manifest, load_pods, parse_manifest
from podslice.policy.aggregate import default_pod
from podslice.policy.decide import decide
from tests.unit.properties.strategies import configs, nodes, pods, some


@some
@given(pods())
def test_what_has_its_defaults_gets_no_others(pod):
    once = default_pod(pod)
    assert default_pod(once) == once
    for before, after in ((pod, once), *zip(pod.containers, once.containers, strict=True)):
        assert after.resources.limits == before.resources.limits
        assert before.resources.requests.items() <= after.resources.requests.items()


@some
@given(pods(), nodes, configs)
def test_stating_the_defaults_changes_no_decision(pod, node, config):
    one, other = decide(pod, node, config), decide(default_pod(pod), node, config)
    # a stated request is blamed where a defaulted one is not
    assert replace(other, pod=one.pod, problems=one.problems) == one
    assert other.is_valid == one.is_valid


@some
@given(pods(), nodes, configs)
def test_a_manifest_reads_back_as_the_pod_it_was_written_from(pod, node, config):
    back = parse_manifest(format_manifest(pod), where=pod.where)
    assert back == pod
    assert decide(back, node, config) == decide(pod, node, config)


@some
@given(pods(), st.sampled_from((json.dumps, yaml.safe_dump)))
def test_a_manifest_survives_as_text(pod, dump):
    text = dump(format_manifest(pod)).encode()
    loaded = load_pods(("-",), stdin=lambda: text)
    assert not loaded.problems
    assert loaded.pods == (replace(pod, where="stdin", problems=loaded.pods[0].problems),)
