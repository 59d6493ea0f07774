"""The options of an agent that follows a kubelet, and what it reads of it."""

import json

import pytest

from podslice.errors import HostError, InputError
from podslice.features.kubelet import agent
from podslice.features.kubelet.agent import FollowedKubelet
from podslice.features.kubelet.source import KubeletSource, check_options
from podslice.model.config import Config, PodsFrom
from podslice.model.unit import SYSTEM
from tests.cases.tables import cases
from tests.unit.agent.fakes import Clock
from tests.unit.builders import USER, node
from tests.unit.features.kubelet.recorded_node import RecordedNode
from tests.unit.tls_server import KubeletServer

FOLLOWS = Config(pods_from=PodsFrom.KUBELET, allow_kubelet_slices=True)
STATED = KubeletSource(kubelet="http://127.0.0.1:10255")


def problems(source, config, *, manager=SYSTEM, restores=False):
    try:
        return check_options(source, config, manager, restores=restores)
    except InputError as error:
        return [str(each) for each in error.problems]


def test_options_that_agree():
    assert problems(KubeletSource(), Config()) is False
    assert problems(STATED, FOLLOWS, restores=True) is True


def test_options_that_contradict_each_other():
    url, user = problems(KubeletSource(), FOLLOWS, manager=USER)
    assert url == (
        "pods-from: the kubelet is not stated; add --kubelet https://127.0.0.1:10250 to the command"
        " line of the agent"
    )
    assert user == "--user: a user's service manager has no kubelet; leave it out"
    source = STATED._replace(insecure_skip_tls_verify=True, kubelet_version="1.33")
    found = problems(source, Config(), restores=True)
    assert [each.partition(": ")[0] for each in found] == [
        *("--kubelet", "--insecure-skip-tls-verify", "--kubelet-version", "--restore")
    ]
    assert found[0] == (
        '--kubelet: the agent reads its pods from manifests; set pods-from = "kubelet" and'
        " allow-kubelet-slices = true in podslice.toml, or leave it out"
    )


@cases
def test_the_verb_refuses_them(podslice, arguments, error):
    ended = podslice("agent", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.err


@pytest.fixture
def server(allow_effects, tmp_path, monkeypatch):
    """A kubelet of version 1.33 with the recorded pods, one of which has errors."""
    recorded = RecordedNode()
    recorded.pods[0]["metadata"]["annotations"] = {"podslice.io/resources": "{"}
    recorded.pods[1]["metadata"].pop("uid")
    monkeypatch.setattr(agent, "load_node", lambda _: node("cpu=4,memory=8Gi"))
    (tmp_path / "config.json").write_text(json.dumps(recorded.config))
    with KubeletServer() as server:
        server.documents = {
            "/pods": json.dumps(recorded.document()).encode(),
            "/metrics": b'kubernetes_build_info{git_version="v1.33.0"} 1\n',
        }
        yield server


@pytest.fixture
def followed(server, tmp_path):
    source = KubeletSource(kubelet=server.url, kubelet_config=tmp_path / "config.json")
    clock = Clock()
    return FollowedKubelet(source, server.url, clock), clock


def paths(server):
    found = [path for path, *_ in server.requests]
    server.requests.clear()
    return found


def test_pods_are_read_each_time_and_the_configuration_once_a_minute(server, followed):
    kubelet, clock = followed
    kubelet.check()
    found = kubelet.read()
    assert found.settings.version == (1, 33)
    assert paths(server) == ["/metrics", "/pods"]
    clock.advance(59)
    kubelet.read()
    assert paths(server) == ["/pods"]
    clock.advance(1)
    kubelet.read()
    assert paths(server) == ["/metrics", "/pods"]
    kubelet.refresh()
    kubelet.read()
    assert paths(server) == ["/metrics", "/pods"]


def test_a_pod_with_an_error_does_not_affect_others(followed):
    kubelet, _ = followed
    names = {each.pod.name: each.pod.is_valid for each in kubelet.read().pods}
    assert names.pop("b-both") is False
    assert "b-partial" not in names
    assert len(names) == 11
    assert all(names.values())


def test_after_a_failure_everything_is_read_again(server, followed):
    kubelet, _ = followed
    kubelet.read()
    documents = dict(server.documents)
    server.documents = {"/metrics": documents["/metrics"]}
    with pytest.raises(HostError, match="status 404"):
        kubelet.read()
    server.documents = {**documents, "/metrics": b"none"}
    paths(server)
    # without its version it is not known what the kubelet applies
    with pytest.raises(HostError, match="does not have the version of the kubelet; state it with"):
        kubelet.read()
    assert paths(server) == ["/metrics"]
    server.documents = documents
    assert kubelet.read().settings.version == (1, 33)
