"""A real Prometheus scrapes a real agent, with the rules of the examples."""

import json
import time
import urllib.parse
from pathlib import Path

import pytest

from tests.host import agent
from tests.host.scenario import show
from tests.lab import extras, fixtures
from tests.lab.machine import START_SERVICE
from tests.lab.namespace import Namespace
from tests.lab.paths import source_dir
from tests.lab.recipe import DEFAULT_SUITE
from tests.lab.vm import Vm
from tests.unit.agent.monitoring import FOLDER, alerts, expressions, filled_in
from tests.unit.agent.summary_schema import decode

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("prometheus",)
NOT_NEEDED = ("usr/share/javascript", "usr/share/nodejs", "usr/share/fonts", "usr/share/prometheus")
LISTEN = "units/examples/podslice-agent.service.d/listen.conf"
MI = 2**20
SOCKET_UNIT = "podslice-agent.socket"
BUSY = {"limits": {"cpu": "300m"}}


@pytest.fixture(scope="module")
def tools():
    """Namespaces with promtool and the files of the examples, where it is native."""
    fixtures.need_lab()
    with Namespace() as booted:
        extras.unpack(booted, DEFAULT_SUITE, PACKAGES, left_out=NOT_NEEDED)
        for path in (*FOLDER.iterdir(), ROOT / "tests/host/alerts_test.yml"):
            booted.put(f"/etc/prometheus/{path.name}", path.read_text())
        yield booted


@pytest.fixture(scope="module")
def box():
    """A machine of this module's own: the agent, a busy pod and an idle one, and a Prometheus server."""
    fixtures.need_lab()
    with Vm() as booted:
        booted.push(source_dir(), "/src")
        extras.unpack(booted, DEFAULT_SUITE, PACKAGES, left_out=NOT_NEEDED)
        for path in FOLDER.iterdir():
            booted.put(f"/etc/prometheus/{path.name}", path.read_text())
        # a limit, otherwise it would take a processor of this host from all other tests
        busy = agent.manifest("busy", memory="16Mi", limit="64Mi", resources=BUSY)
        agent.put(booted, "busy", busy)
        agent.put(booted, "idle", agent.manifest("idle"))
        drop_in = (ROOT / LISTEN).read_text()
        here = drop_in.replace("/usr/bin/podslice", "/usr/bin/python3 -m podslice")
        assert here != drop_in
        booted.put(f"/run/systemd/system/{agent.UNIT}.d/listen.conf", here)
        booted.put(f"/run/systemd/system/{SOCKET_UNIT}", (ROOT / "units" / SOCKET_UNIT).read_text())
        agent.install(booted)
        booted.run("systemctl", "start", SOCKET_UNIT, agent.UNIT)
        booted.podslice("run", "--detach", "busy", "--", "sh", "-c", "while :; do :; done")
        # a shorter interval than in the example, as a test has less time; it is also the time limit of
        # a scrape
        config = (FOLDER / "prometheus.yml").read_text()
        booted.put(
            "/etc/prometheus/prometheus.yml",
            config.replace("15s", "10s\n  evaluation_interval: 10s"),
        )
        booted.run(
            *(*START_SERVICE, "--unit=scraper", "prometheus"),
            *("--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/tmp/tsdb"),
            "--web.listen-address=127.0.0.1:9090",
        )
        agent.until(lambda: value(booted, "up") == 1, 300, what="the scrape")
        yield booted


def api(box, path, **query):
    """Return the answer of Prometheus; nothing while it is not up yet."""
    url = f"http://127.0.0.1:9090/api/v1/{path}?{urllib.parse.urlencode(query)}"
    result = box.module("tests.host.fetch", url, check=False)
    return json.loads(result.stdout)["data"] if result.exit_code == 0 else None


def value(box, expression):
    """Return the only value of an expression; None without one."""
    data = api(box, "query", query=expression)
    return float(data["result"][0]["value"][1]) if data and data["result"] else None


def figure(box, expression):
    """Return the only value, once there is one: a scrape may fail on a slow machine."""
    found = []
    agent.until(lambda: found.append(value(box, expression)) or found[-1] is not None, 60)
    return found[-1]


def promtool(tools, *arguments, **more):
    """Check that a tool succeeds without any remark."""
    result = tools.run("promtool", *arguments, **more)
    assert "FAIL" not in result.stdout + result.stderr
    return result


def test_promtool_accepts_the_metrics(box, tools):
    result = promtool(tools, "check", "metrics", input=agent.ask(box, "/metrics"))
    assert (result.stdout, result.stderr) == ("", "")


def test_promtool_accepts_the_configuration(tools):
    result = promtool(tools, "check", "config", "/etc/prometheus/prometheus.yml")
    assert f"{len(alerts())} rules found" in result.stdout


def test_alerts_fire_when_they_should(tools):
    promtool(tools, "test", "rules", "/etc/prometheus/alerts_test.yml", timeout_sec=600)


def test_a_query_returns_the_use_of_the_pods(box):
    busy = 'namespace="default", pod="busy"'
    agent.until(
        lambda: (value(box, f"rate(pod_cpu_usage_seconds_total{{{busy}}}[1m])") or 0) > 0.1,
        90,
        what="the busy pod's use of CPU",
    )
    used = figure(box, f"pod_memory_working_set_bytes{{{busy}}}")
    assert 0 < used < 64 * MI
    assert figure(box, f'podslice_pod_resource_limit{{resource="memory", {busy}}}') == 64 * MI
    # the pod has only this container; its figures are read a moment later
    of_container = f'container_cpu_usage_seconds_total{{container="main", {busy}}}'
    of_pod = f"pod_cpu_usage_seconds_total{{{busy}}}"
    share = figure(box, f"{of_container} / ignoring (container) {of_pod}")
    assert share == pytest.approx(1, abs=0.1)
    assert figure(box, f'podslice_pod_pressure_waiting_seconds_total{{resource="cpu", {busy}}}') > 0
    assert figure(box, "sum(podslice_pods)") == figure(box, "kubelet_running_pods") == 2
    assert figure(box, 'podslice_group_memory_working_set_bytes{group="kubelet"}') > MI
    created = 'kubelet_cgroup_manager_duration_seconds_count{operation_type="create"}'
    assert figure(box, created) >= 2


@pytest.mark.parametrize("expression", expressions())
def test_prometheus_accepts_the_expressions_of_alerts_and_panels(box, expression):
    assert api(box, "query", query=filled_in(expression)) is not None


def test_the_rules_are_loaded_and_an_alert_begins(box):
    agent.put(box, "broken", "kind: Pod\nmetadata: {name: web\n")

    def states():
        groups = api(box, "rules", type="alert")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
        return {rule["name"]: rule["state"] for rule in rules}

    assert states().keys() == {rule["alert"] for rule in alerts()}
    agent.until(
        lambda: states()["PodsliceManifestBroken"] == "pending", 60, what="the alert's beginning"
    )
    box.run("rm", f"{agent.MANIFESTS}/broken.yaml")


def test_a_consumer_of_the_summary_api_reads_it(box):
    decode(json.loads(agent.ask(box, "/stats/summary")))
    time.sleep(2)
    summary = json.loads(agent.ask(box, "/stats/summary"))
    decode(summary)
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


def test_pods_are_listed_with_their_conditions(box):
    items = json.loads(agent.ask(box, "/pods"))["items"]
    phases = {item["metadata"]["name"]: item["status"]["phase"] for item in items}
    assert phases == {"busy": "Running", "idle": "Pending"}


def test_the_agent_is_healthy_and_its_socket_is_for_its_group(box):
    assert agent.ask(box, "/healthz").strip() == "ok"
    mode = box.run("stat", "-c", "%a %U %G", agent.SOCKET).stdout.strip()
    assert mode == "660 root podslice"
    assert show(box, agent.UNIT, "NRestarts") == {"NRestarts": "0"}
