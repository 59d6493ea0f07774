import json
from dataclasses import replace
from pathlib import Path

import pytest

from podslice.agent.endpoints.kubelet_summary import Summarizer, pod_list
from podslice.inputs.manifest.load import parse_manifest
from podslice.kernel.cgroup import Sample
from podslice.usage.stats import PodStats
from tests.unit import builders
from tests.unit.agent import sample_node
from tests.unit.agent.summary_schema import decode

SUMMARY = Path(__file__).with_name("summary.json")


def summarize(stats, summarizer=None):
    return (summarizer or Summarizer()).summary(sample_node.snapshot(), stats)


@pytest.fixture
def summary():
    return summarize(sample_node.default_stats())


def pods_of(summary):
    return {pod["podRef"]["name"]: pod for pod in summary["pods"]}


def test_the_summary_of_a_node_follows_the_schema_of_the_kubelet(summary, update_cases):
    decode(summary)
    text = json.dumps(summary, indent=1) + "\n"
    if update_cases:
        SUMMARY.write_text(text)
    assert SUMMARY.read_text() == text


def test_a_summary_with_few_values_follows_the_schema():
    (decision,) = builders.decisions(builders.burstable("web"))
    pod = PodStats(decision=decision, sample=Sample(), started_usec=sample_node.NOW_USEC)
    stats = sample_node.node_stats(pod, sample=Sample(), groups=())
    summary = summarize(stats)
    decode(summary)
    assert summary["pods"][0].keys() == {"podRef", "startTime", "containers"}
    assert "cpu" not in summary["node"]


def test_above_its_limit_nothing_is_available_to_a_pod():
    (decision,) = builders.decisions(builders.guaranteed("db", memory="16Mi"))
    summary = summarize(sample_node.node_stats(sample_node.pod_stats(decision)))
    assert pods_of(summary)["db"]["memory"]["availableBytes"] == 0


def later(stats, *, seconds, cpu_usec):
    """Return the same node some time later, with increased use."""

    def more(sample):
        return replace(sample, cpu_usec=sample.cpu_usec + cpu_usec)

    pods = tuple(
        pod._replace(
            sample=more(pod.sample),
            containers=tuple(c._replace(sample=more(c.sample)) for c in pod.containers),
        )
        for pod in stats.pods
    )
    groups = tuple(group._replace(sample=more(group.sample)) for group in stats.groups)
    return stats._replace(
        uptime_usec=stats.uptime_usec + seconds * 10**6,
        sample=more(stats.sample),
        groups=groups,
        pods=pods,
    )


def test_cpu_usage_is_the_average_since_the_previous_summary():
    first = sample_node.default_stats()
    summarizer = Summarizer()
    summarize(first, summarizer)
    second = later(first, seconds=10, cpu_usec=2_500_000)
    summary = summarize(second, summarizer)
    decode(summary)
    web = pods_of(summary)["web"]
    for each in (
        summary["node"],
        summary["node"]["systemContainers"][0],
        web,
        web["containers"][1],
    ):
        assert each["cpu"]["usageNanoCores"] == 250_000_000


def test_new_and_restarted_groups_have_no_invalid_rate():
    web, db, _ = sample_node.default_stats().pods
    summarizer = Summarizer()
    summarize(sample_node.node_stats(web), summarizer)
    reset = web._replace(sample=replace(web.sample, cpu_usec=10))
    second = later(sample_node.node_stats(reset, db), seconds=10, cpu_usec=0)
    pods = pods_of(summarize(second, summarizer))
    assert pods["web"]["cpu"]["usageNanoCores"] == 0
    assert "usageNanoCores" not in pods["db"]["cpu"]


def test_two_summaries_at_the_same_time_have_no_rate():
    stats = sample_node.default_stats()
    summarizer = Summarizer()
    for _ in range(2):
        summary = summarize(stats, summarizer)
    assert "usageNanoCores" not in summary["node"]["cpu"]


def test_the_list_of_pods_has_manifests_and_statuses():
    document = pod_list(sample_node.snapshot(), sample_node.default_stats())
    assert (document["kind"], document["apiVersion"]) == ("PodList", "v1")
    assert document["metadata"] == {}
    items = {item["metadata"]["name"]: item for item in document["items"]}
    assert items["web"]["kind"] == "Pod"
    assert parse_manifest(items["web"], "here").uid == "web"
    assert items["web"]["status"] == {
        "phase": "Running",
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Initialized", "status": "True"},
            {"type": "ContainersReady", "status": "True"},
            {"type": "Ready", "status": "True"},
        ],
        "qosClass": "Burstable",
        "startTime": "2023-11-14T22:14:20Z",
    }
    assert items["batch"]["status"]["qosClass"] == "BestEffort"


@pytest.mark.parametrize(
    ("has_container", "tasks", "initializing", "phase"),
    [
        (True, 3, False, "Running"),
        (False, 3, False, "Running"),
        (False, 0, False, "Pending"),
        (False, None, False, "Pending"),
        (True, 3, True, "Pending"),
    ],
)
def test_a_pod_with_processes_is_running_after_its_init_phase(
    has_container, tasks, initializing, phase
):
    (decision,) = builders.decisions(builders.burstable("web"))
    pod = sample_node.pod_stats(decision)
    pod = pod._replace(
        sample=replace(pod.sample, tasks=tasks),
        containers=pod.containers if has_container else (),
    )
    keys = frozenset({"default/web"} if initializing else ())
    (item,) = pod_list(sample_node.snapshot(initializing=keys), sample_node.node_stats(pod))[
        "items"
    ]
    status = item["status"]
    assert status["phase"] == phase
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions["Ready"] == str(phase == "Running")
    assert conditions["Initialized"] == str(not initializing)
