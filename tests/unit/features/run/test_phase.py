"""`phase`: the properties that apply now and later, and setting the phase."""

import pytest

SHOP = """\
apiVersion: v1
kind: Pod
metadata: {name: shop, uid: u-1}
spec:
  resources: {limits: {memory: 64Mi}}
  initContainers:
  - {name: fetch, resources: {requests: {memory: 1Mi}}}
  - {name: build}
  containers:
  - {name: app, resources: {requests: {cpu: 250m, memory: 8Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  containers:
  - {name: app}
"""
SLICE = "kubepods-burstable-podu_1.slice"


@pytest.fixture
def shop(memory, podslice, files):
    files({"shop.yaml": SHOP})
    assert podslice("apply", "-f", "shop.yaml").code == 0


def test_a_pod_begins_in_its_init_phase(shop, podslice):
    assert podslice("phase", "shop") == (
        0,
        (
            "pod default/shop  init\n"
            "  init container fetch  pending\n"
            "  init container build  pending\n"
            "  applies now           CPUWeight=25 MemoryLow=8Mi\n"
            "  applies later         CPUWeight=25 MemoryLow=8Mi MemoryMax=64Mi\n"
        ),
        "",
    )


def test_the_phase_is_a_document(shop, podslice):
    assert podslice("phase", "default/shop", "-o", "json").out == (
        '{\n  "version": 1,\n  "pod": "default/shop",\n  "phase": "init",\n'
        '  "init_containers": [\n'
        '    {\n      "name": "fetch",\n      "done": false\n    },\n'
        '    {\n      "name": "build",\n      "done": false\n    }\n  ]\n}\n'
    )
    assert podslice("phase", "shop", "-o", "name").out == "init\n"


def test_the_init_phase_can_be_ended_and_begun_again(shop, podslice):
    assert podslice("phase", "shop", "running") == (
        0,
        f"set MemoryMax=64Mi (was unset) on {SLICE} (default/shop)\n1 done\n",
        "",
    )
    assert podslice("phase", "shop").out == (
        "pod default/shop  running\n"
        "  init container fetch  pending\n"
        "  init container build  pending\n"
        "  applies now           CPUWeight=25 MemoryLow=8Mi MemoryMax=64Mi\n"
    )
    assert podslice("phase", "shop", "running").out == "nothing to do\n"
    assert podslice("phase", "shop", "init").out == (
        f"set MemoryMax=unset (was 64Mi) on {SLICE} (default/shop)\n1 done\n"
    )
    assert podslice("phase", "shop", "-o", "name").out == "init\n"


def test_a_pod_without_init_containers_runs_always(shop, podslice):
    assert podslice("phase", "plain").out == (
        "pod default/plain  running\n"
        "  it has no init containers, so its limits always bind\n"
        "  applies now  CPUWeight=1\n"
    )
    ended = podslice("phase", "plain", "init")
    assert (ended.code, ended.err) == (
        2,
        (
            "error: pod default/plain: it has no init containers, so its limits always bind;"
            " there is nothing to set; see: podslice phase default/plain\n"
        ),
    )


def test_under_the_rules_of_kubernetes_there_is_no_init_phase(shop, podslice):
    rules = ("--set", "rules=kubernetes")
    shown = podslice("phase", "shop", *rules).out
    assert shown.startswith(
        "pod default/shop  running\n"
        "  under the rules of Kubernetes a pod's limits bind from the start\n"
        "  init container fetch  pending\n"
    )
    for phase in ("init", "running"):
        ended = podslice("phase", "shop", phase, *rules)
        assert (ended.code, ended.out) == (2, "")
        assert "bind from the start; there is nothing to set" in ended.err


def test_a_pod_that_is_not_applied_has_no_phase(shop, podslice):
    for arguments in (["other"], ["other", "init"]):
        ended = podslice("phase", *arguments)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err.startswith("error: pod default/other is not applied; apply its manifest")


def test_only_two_phases_can_be_set(podslice):
    ended = podslice("phase", "shop", "done")
    assert ended.code == 2
    assert "'done' is not one of 'init', 'running'" in ended.err
