"""Evicted pods: `readmit`, and the output of the other verbs."""

import json
import os
from dataclasses import replace

import pytest

from podslice.errors import Problem, Severity
from podslice.inputs.manifest.load import parse_manifest
from podslice.kernel.proc import read_process
from podslice.model.node_state import AgentState, Condition, Eviction
from podslice.model.unit import GENERATED
from podslice.store.store import Store
from tests.unit.builders import make_files, manifest

NUMBERS = "50Mi of memory are available, 100Mi are required"


@pytest.fixture
def store(here):
    return Store(here / "run-False")


@pytest.fixture
def evicted(store, files, memory):
    """Two pods that were evicted; `web.json` has the one, as it was then."""
    text = manifest("web")
    files({"web.json": text})
    for name in ("web", "shop"):
        pod = parse_manifest(json.loads(manifest(name)), where=name)
        mark = Eviction(
            pod=pod.key,
            uid=pod.uid,
            digest=store.digest(pod),
            signal="memory.available",
            message=NUMBERS,
            at_usec=1_700_000_000_000_000,
        )
        store.mark_evicted(mark)


def run_agent(store, **fields):
    process = read_process(os.getpid())
    started = process.started_ticks
    store.agent.save(AgentState(pid=process.pid, started_ticks=started, **fields))


def names(store):
    return [mark.pod for mark in store.load().evicted]


def test_a_readmitted_pod_is_admitted_again(podslice, store, evicted):
    refused = podslice("apply", "-f", "web.json")
    assert refused.code == 1
    assert "podslice readmit default/web" in refused.out
    assert podslice("readmit", "web") == (
        0,
        "pod default/web is readmitted; to start it again: podslice apply -f FILE\n",
        "",
    )
    assert names(store) == ["default/shop"]
    assert podslice("apply", "-f", "web.json").code == 0


def test_the_evicted_pods_of_a_workload_are_readmitted(podslice, store, evicted):
    for number, mark in enumerate(store.load().evicted):
        store.mark_evicted(replace(mark, pod=f"default/api-{number}"))
    assert podslice("readmit", "deploy/api").code == 0
    assert not names(store)


def test_a_readmitted_pod_with_quadlets_is_applied_with_its_containers(podslice, here, evicted):
    text = f"{GENERATED}\n[Unit]\nDescription=Pod default/web\n"
    make_files(here / "etc-False/containers/systemd", {"web.pod": text})
    assert podslice("readmit", "web").out.endswith(": podslice apply --start -f FILE\n")


def test_a_removed_mark_is_a_change(podslice, store, evicted):
    document = json.loads(podslice("delete", "web", "-o", "json").out)
    assert (document["changed"], document["steps"]) == (True, [])
    assert names(store) == ["default/shop"]


def test_an_agent_brings_its_pods_back_itself(podslice, store, evicted):
    run_agent(store)
    ended = podslice("readmit", "default/web", "shop")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        f"pod default/{name} is readmitted; the agent starts it again if a manifest directory"
        " has it, otherwise run: podslice apply -f FILE"
        for name in ("shop", "web")
    ]
    assert names(store) == []


def test_pods_that_were_not_evicted_are_reported_and_the_others_readmitted(
    podslice, store, evicted
):
    ended = podslice("readmit", "web", "other", "-n", "default")
    assert ended.code == 1
    assert ended.out.startswith("pod default/web is readmitted")
    assert ended.err == (
        "error: pod default/other was not evicted; for evicted pods see: podslice status\n"
    )
    assert podslice("readmit", "shop", "-n", "elsewhere").code == 1
    assert names(store) == ["default/shop"]


def test_readmit_as_json_and_names(podslice, store, evicted):
    ended = podslice("readmit", "web", "other", "-o", "json")
    assert ended.code == 1
    assert json.loads(ended.out) == {
        "version": 1,
        "agent_runs": False,
        "readmitted": [{"pod": "default/web", "command": "podslice apply -f FILE"}],
        "not_evicted": ["default/other"],
    }
    assert podslice("readmit", "shop", "-o", "name").out == "default/shop\n"


def test_readmit_needs_a_pod(podslice, here):
    assert podslice("readmit").code == 2


def test_readmit_makes_nothing(podslice, store):
    assert podslice("readmit", "web").code == 1
    assert not store.root.exists()


def test_a_pod_that_is_only_marked_may_be_deleted(podslice, store, evicted):
    ended = podslice("delete", "web")
    assert (ended.code, ended.out) == (0, "nothing to do\n")
    assert (
        ended.err == "pod default/web was evicted; its mark is removed, it may be applied again\n"
    )
    assert podslice("delete", "web").code == 1
    assert podslice("delete", "--all").code == 0
    assert names(store) == []


HINT = "  → it is not admitted until its manifest changes; to readmit it: podslice readmit default/"


def test_status_lists_evicted_pods_and_reasons(podslice, evicted):
    ended = podslice("status")
    assert (ended.code, ended.err) == (3, "")
    rows = ended.out.splitlines()
    assert [row.split()[:4] for row in rows[1:3]] == [
        [f"default/{name}", "-", "pending", "(Evicted)"] for name in ("shop", "web")
    ]
    assert rows[3:] == [
        "",
        "PROBLEMS",
        *(
            line
            for name in ("shop", "web")
            for line in (
                f"pod default/{name}: evicted: {NUMBERS}",
                f"{HINT}{name}",
            )
        ),
        "",
        "2 pods, 2 problems",
    ]


def test_status_shows_the_conditions_and_problems_of_the_agent(podslice, store, memory):
    problems = (
        Problem(where="a.yaml", message="is \x1b[31mbroken", hint="fix it"),
        Problem(where="", message="odd", severity=Severity.WARNING),
    )
    run_agent(
        store,
        conditions=(Condition.MEMORY,),
        terminating=("default/web",),
        problems=problems,
        failures=(Problem(where="", message="cannot reconcile"),),
        pending=(),
    )
    ended = podslice("status")
    assert (ended.code, ended.out.splitlines()) == (
        3,
        [
            "no pods",
            "",
            "PROBLEMS",
            "podslice-agent: cannot reconcile",
            "  → see: podslice events",
            (
                "MemoryPressure: the node is short of memory: the agent evicts pods, and admits no"
                " new BestEffort pods"
            ),
            "  → to see what uses it: podslice top",
            "a.yaml: is \\x1b[31mbroken",
            "  → fix it",
            "",
            "3 problems",
        ],
    )
    assert ended.err.splitlines() == [
        "pod default/web is terminating (within its grace period)",
        "warning: odd",
    ]
    tree = podslice("tree")
    assert (tree.code, tree.err) == (0, ended.err)
    assert f"{tree.out}\n3 problems\n" == ended.out


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ((), "systemctl start podslice-agent"),
        (("--user",), "systemctl --user start podslice-agent"),
    ],
)
def test_status_notes_that_the_agent_is_not_running(podslice, here, files, memory, options, start):
    store = Store(here / f"run-{bool(options)}")
    files({"web.json": manifest("web")})
    assert podslice("apply", "-f", "web.json", *options).code == 0
    assert podslice("status", *options).code == 0
    (pod,) = store.load().pods
    store.save(pod, "/etc/podslice/manifests/web.yaml")
    ended = podslice("status", *options)
    assert ended.code == 3
    assert ended.out.splitlines()[-6:-4] == [
        ("podslice-agent: it is not running; changes in /etc/podslice/manifests are not applied"),
        f"  → to start it: {start}",
    ]
    run_agent(store, pending=())
    assert podslice("status", *options).code == 0


def test_status_as_json_has_both(podslice, store, evicted):
    document = json.loads(podslice("status", "-o", "json").out)
    assert [mark["pod"] for mark in document["evicted"]] == ["default/shop", "default/web"]
    assert document["evicted"][0]["message"] == NUMBERS
    assert document["evicted"][0]["at_usec"] == 1_700_000_000_000_000
    assert (document["conditions"], document["healthy"]) == ([], False)
    assert [each["kind"] for each in document["problems"]] == ["pod-evicted"] * 2
    assert document["pending"][0] == {
        "pod": "default/shop",
        "qos_class": None,
        "reason": "Evicted",
        "message": NUMBERS,
        "hint": (
            "it is not admitted until its manifest changes; to readmit it: podslice readmit"
            " default/shop"
        ),
        "condition": None,
        "manifest": None,
        "is_applied": False,
    }
    assert (document["agent_pid"], document["terminating"]) == (None, [])
    run_agent(
        store,
        conditions=(Condition.DISK,),
        terminating=("default/web",),
        problems=(
            Problem(where="a.yaml", message="bad", hint="fix it"),
            Problem(where="b.yaml", message="odd", severity=Severity.WARNING),
        ),
        pending=(),
    )
    document = json.loads(podslice("status", "-o", "json").out)
    assert document["conditions"] == ["DiskPressure"]
    assert document["terminating"] == ["default/web"]
    assert document["agent_pid"] == os.getpid()
    (invalid,) = (each for each in document["problems"] if each["object"] == "a.yaml")
    assert invalid == {
        "kind": "invalid-manifest",
        "object": "a.yaml",
        "message": "bad",
        "hint": "fix it",
        "pod": None,
        "command": None,
    }
    assert document["warnings"] == [{"where": "b.yaml", "message": "odd", "hint": ""}]
