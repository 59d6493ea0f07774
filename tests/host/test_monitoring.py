"""A real Prometheus scrapes real agents, with the rules of the examples.

Prometheus runs in a namespace beside an agent. What only the kernel of cgroup v2 counts is from an
agent in a virtual machine, whose answers are recorded; Prometheus scrapes these, too.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.host import agent, prometheus
from tests.host.prometheus import alert_states, api, figure, promtool, value
from tests.host.scenario import show
from tests.lab import fixtures, state
from tests.lab.namespace import Namespace
from tests.lab.paths import source_dir
from tests.unit.agent.monitoring import FOLDER, alerts, expressions, filled_in, records
from tests.unit.agent.summary_schema import decode

ROOT = Path(__file__).resolve().parents[2]
LISTEN = "units/examples/podslice-agent.service.d/listen.conf"
DROP_IN = f"/run/systemd/system/{agent.UNIT}.d/listen.conf"
MI = 2**20
SOCKET_UNIT = "podslice-agent.socket"
SOCKET_FILE = f"/run/systemd/system/{SOCKET_UNIT}"
BUSY = {"limits": {"cpu": "300m"}}
HERE, RECORDED = "127.0.0.1:9469", "recorded"
"""The instance of the agent beside Prometheus, and that whose answers are from the virtual machine."""
PAGES = "127.0.0.1:9470"
"""The address at which they are served."""
USE_OF_CONTAINERS = ("container_cpu_usage_seconds_total{", "container_memory_working_set_bytes{")


def start_agent(machine):
    """Start an agent that listens on loopback, with a busy pod and an idle one."""
    # a limit, otherwise it would take a processor of this host from all other tests
    busy = agent.manifest("busy", memory="16Mi", limit="64Mi", resources=BUSY)
    agent.put(machine, "busy", busy)
    agent.put(machine, "idle", agent.manifest("idle"))
    drop_in = (ROOT / LISTEN).read_text()
    here = drop_in.replace("/usr/bin/podslice", "/usr/bin/python3 -m podslice")
    assert here != drop_in
    machine.put(DROP_IN, here)
    machine.put(SOCKET_FILE, (ROOT / "units" / SOCKET_UNIT).read_text())
    agent.install(machine)
    machine.run("systemctl", "start", SOCKET_UNIT, agent.UNIT)
    machine.podslice("run", "--detach", "busy", "--", "sh", "-c", "while :; do :; done")


def remove_agent(machine):
    """Remove it, its pods and its listeners, for other tests."""
    machine.run("systemctl", "stop", SOCKET_UNIT, check=False)
    agent.remove(machine)
    machine.run("rm", "-f", DROP_IN, SOCKET_FILE)
    assert not state.restore(machine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What an agent has answered at one time."""

    time_sec: float
    metrics: str
    summary: dict
    pods: dict


def pressure(answers):
    """Return the seconds for which the busy pod has waited for CPU."""
    (found,) = (
        sample.value
        for family in text_string_to_metric_families(answers.metrics)
        for sample in family.samples
        if sample.name == "podslice_pod_pressure_waiting_seconds_total"
        and (sample.labels["pod"], sample.labels["resource"]) == ("busy", "cpu")
    )
    return found


def ask_all(machine):
    """Return an agent's answers at its TCP address."""
    urls = (f"http://{HERE}/{path}" for path in ("metrics", "stats/summary", "pods"))
    answers = json.loads(machine.module("tests.host.fetch", *urls).stdout)
    (time_sec, metrics), (_, summary), (_, pods) = answers
    return Answers(
        time_sec=time_sec,
        metrics=metrics,
        summary=json.loads(summary),
        pods=json.loads(pods),
    )


@pytest.fixture(scope="module")
def recorded(vm):
    """The virtual machine with such an agent, and without it for other tests."""
    try:
        start_agent(vm)
        yield vm
    finally:
        remove_agent(vm)


@pytest.fixture(scope="module")
def answers(recorded):
    """Two answers of an agent on cgroup v2, seconds apart, between which the busy pod has waited."""

    def has_waited():
        found = ask_all(recorded)
        return found if pressure(found) > 0 else None

    first = agent.until(has_waited, 120, what="the pressure of the busy pod")
    time.sleep(3)
    second = ask_all(recorded)
    assert show(recorded, agent.UNIT, "NRestarts") == {"NRestarts": "0"}
    return first, second


@pytest.fixture(scope="module")
def tools():
    """A namespace with an agent, promtool and the files of the examples."""
    fixtures.need_lab()
    with Namespace(bind={"/src": source_dir()}) as booted:
        prometheus.install(booted, ROOT / "tests/host/alerts_test.yml")
        start_agent(booted)
        yield booted


def scraped_page(answers):
    """Return the metrics of an agent, and those of a pod of which only cAdvisor has metrics."""
    pages = "\n".join((answers.metrics.rstrip("\n"), *cadvisor_lines(answers.metrics)))
    return prometheus.with_time(pages, answers.time_sec)


def cadvisor_lines(metrics):
    """Yield the use of the busy pod as cAdvisor has it: of its container, the sandbox and the pod.

    Source: cAdvisor, metrics/prometheus.go; Kubernetes, pkg/kubelet/server/server.go,
    containerPrometheusLabelsFunc.
    """
    for line in metrics.splitlines():
        if line.startswith(USE_OF_CONTAINERS) and 'pod="busy"' in line:
            other = line.replace('pod="busy"', 'pod="scraped",id="/kubepods",image="",name=""')
            for container in ("main", "POD", ""):
                yield other.replace('container="main"', f'container="{container}"')


@pytest.fixture(scope="module")
def box(tools, answers, tmp_path_factory):
    """The same with Prometheus, which has scraped this agent and the recorded answers."""
    first, second = answers
    page = tmp_path_factory.mktemp("pages") / "metrics"
    prometheus.put_page(page, scraped_page(first))
    scraped = f'timestamp(kubelet_running_pods{{instance="{RECORDED}"}})'
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    job["static_configs"].append({"targets": [PAGES], "labels": {"instance": RECORDED}})
    with prometheus.serving(tools, {PAGES: page}):
        prometheus.start(tools, config, targets=2)
        prometheus.put_page(page, scraped_page(second))
        agent.until(
            lambda: value(tools, scraped) == pytest.approx(second.time_sec, abs=0.01),
            60,
            what="the second page",
        )
        yield tools


def test_promtool_accepts_the_metrics(tools, answers):
    for page in (agent.ask(tools, "/metrics"), answers[1].metrics):
        result = promtool(tools, "check", "metrics", input=page)
        assert (result.stdout, result.stderr) == ("", "")


def test_promtool_accepts_the_configuration(tools):
    result = promtool(tools, "check", "config", prometheus.EXAMPLE)
    assert f"{len(alerts())} rules found" in result.stdout


def test_alerts_fire_when_they_should(tools):
    promtool(tools, "test", "rules", "/etc/prometheus/alerts_test.yml", timeout_sec=600)


def busy_pod(instance):
    return f'instance="{instance}", namespace="default", pod="busy"'


@pytest.mark.parametrize("instance", [HERE, RECORDED])
def test_a_query_returns_the_pods_and_what_they_have(box, answers, instance):
    of_busy, here = busy_pod(instance), f'instance="{instance}"'

    def found(expression):
        # of the recorded answer, although the test may take longer than a sample is valid
        more = {"time": answers[1].time_sec + 1} if instance == RECORDED else {}
        return figure(box, expression, **more)

    assert 0 < found(f"pod_memory_working_set_bytes{{{of_busy}}}") < 64 * MI
    assert found(f'podslice_pod_resource_limit{{resource="memory", {of_busy}}}') == 64 * MI
    running = found(f"kubelet_running_pods{{{here}}}")
    assert found(f"sum(podslice_pods{{{here}}})") == running == 2
    assert found(f'podslice_group_memory_working_set_bytes{{group="kubelet", {here}}}') > MI
    created = 'kubelet_cgroup_manager_duration_seconds_count{operation_type="create"'
    assert found(f"{created}, {here}}}") >= 2


def test_a_query_returns_the_use_of_cpu(box, answers):
    at = answers[1].time_sec + 1
    of_pod = f"pod_cpu_usage_seconds_total{{{busy_pod(RECORDED)}}}"
    assert 0.1 < figure(box, f"irate({of_pod}[5m])", time=at) < 0.5
    # the pod has only this container; its figures are read a moment later, in which a busy host may halt
    # the reader
    of_container = f'container_cpu_usage_seconds_total{{container="main", {busy_pod(RECORDED)}}}'
    share = figure(box, f"{of_container} / ignoring (container) {of_pod}", time=at)
    assert share == pytest.approx(1, abs=0.3)
    (rule,) = (rule for rule in records() if "used_cpu" in rule["record"])
    assert 0 < figure(box, f"({rule['expr']}) and on (instance) {of_pod}", time=at) < 0.5
    waiting = "podslice_pod_pressure_waiting_seconds_total"
    assert figure(box, f'{waiting}{{resource="cpu", {busy_pod(RECORDED)}}}', time=at) > 0


@pytest.mark.parametrize("expression", expressions())
def test_prometheus_accepts_the_expressions_of_alerts_and_panels(box, expression):
    assert api(box, "query", query=filled_in(expression)) is not None


def test_the_rules_are_loaded_and_an_alert_begins(box):
    agent.put(box, "broken", "kind: Pod\nmetadata: {name: web\n")

    assert alert_states(box).keys() == {rule["alert"] for rule in alerts()}
    agent.until(
        lambda: alert_states(box)["PodsliceManifestBroken"] == "pending",
        60,
        what="the alert's beginning",
    )
    box.run("rm", f"{agent.MANIFESTS}/broken.yaml")


def test_a_consumer_of_the_summary_api_reads_it(tools, answers):
    decode(json.loads(agent.ask(tools, "/stats/summary")))
    for each in answers:
        decode(each.summary)
    summary = answers[1].summary
    names = {each["name"] for each in summary["node"]["systemContainers"]}
    assert names == {"kubelet", "runtime", "misc", "pods"}
    pods = {pod["podRef"]["name"]: pod for pod in summary["pods"]}
    busy, idle = pods["busy"], pods["idle"]
    assert busy["cpu"]["usageNanoCores"] > 100_000_000 > idle["cpu"]["usageNanoCores"]
    assert busy["containers"][0]["name"] == "main"
    memory = busy["memory"]
    assert memory["workingSetBytes"] <= memory["usageBytes"]
    assert memory["availableBytes"] == 64 * MI - memory["workingSetBytes"]
    assert summary["node"]["memory"]["availableBytes"] > 0


def test_pods_are_listed_with_their_conditions(tools, answers):
    for pods in (json.loads(agent.ask(tools, "/pods")), answers[1].pods):
        phases = {item["metadata"]["name"]: item["status"]["phase"] for item in pods["items"]}
        assert phases == {"busy": "Running", "idle": "Pending"}


def test_the_agent_is_healthy_and_its_socket_is_for_its_group(tools):
    assert agent.ask(tools, "/healthz").strip() == "ok"
    mode = tools.run("stat", "-c", "%a %U %G", agent.SOCKET).stdout.strip()
    assert mode == "660 root podslice"
    assert show(tools, agent.UNIT, "NRestarts") == {"NRestarts": "0"}


@pytest.mark.parametrize("pod", ["busy", "scraped"])
def test_recommend_reads_the_usage_from_prometheus(box, pod):
    """The CPU is that of the recorded answers, the memory that of either."""

    def found():
        server = "--prometheus=http://127.0.0.1:9090"
        done = box.podslice("recommend", server, pod, "-o", "json", check=False)
        pods = json.loads(done.stdout)["pods"] if done.exit_code == 0 else []
        # a rate needs two scrapes within the same five minutes
        return [each for each in pods if each["cpu_request"] and each["containers"]]

    (found_pod,) = agent.until(found, what="a rate of the pod")
    # a rate over five minutes of a counter that is seconds old is small
    assert 12 <= found_pod["cpu_request"]["computed_milli"] <= 700
    assert MI <= found_pod["memory_request"]["computed_bytes"] <= 128 * MI
    (container,) = found_pod["containers"]
    assert container["name"] == "main"
    for name in ("cpu_request", "memory_request"):
        assert container[name]
        # neither the sandbox nor the sum of the pod is counted again
        assert pod == "busy" or container[name] == found_pod[name]
