"""A real Prometheus scrapes three real agents, with the rules and the dashboard of a fleet."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.host import agent, prometheus
from tests.host.prometheus import api
from tests.lab import fixtures
from tests.lab.namespace import Namespace
from tests.lab.paths import source_dir
from tests.unit.agent.monitoring import (
    FLEET_DASHBOARD,
    FLEET_RULES,
    FOLDER,
    alerts,
    filled_in,
    queries,
    records,
)

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ("build1", "web1", "db1")
MI = 2**20
PODS = {"build1": (), "web1": ("web",), "db1": ("one", "two")}
UNIT_TESTS = ROOT / "tests/host/fleet_test.yml"


@pytest.fixture(scope="module")
def machines():
    """Three hosts with agents, and pods of different number."""
    fixtures.need_lab()
    with ExitStack() as stack:
        booted = {
            name: stack.enter_context(Namespace(bind={"/src": source_dir()})) for name in HOSTS
        }
        for name, machine in booted.items():
            for pod in PODS[name]:
                agent.put(machine, pod, agent.manifest(pod, memory="32Mi"))
            agent.start(machine)
        yield booted


@pytest.fixture(scope="module")
def fleet(machines):
    """The first host, where Prometheus scrapes all by their names, as with the example."""
    machine = machines[HOSTS[0]]
    addresses = {name: f"127.0.1.{number}" for number, name in enumerate(HOSTS, 1)}
    known = "".join(f"{address} {name}.example.org\n" for name, address in addresses.items())
    machine.put("/etc/hosts", f"127.0.0.1 localhost\n{known}")
    prometheus.install(machine, UNIT_TESTS)
    config = yaml.safe_load((FOLDER / "prometheus-fleet.yml").read_text())
    (job,) = config["scrape_configs"]
    # that the web server has TLS and passwords does not concern the rules
    del job["scheme"], job["basic_auth"]
    targets = [
        {"targets": [f"{name}.example.org:443" for name in HOSTS], "labels": {"role": "any"}}
    ]
    machine.put("/etc/prometheus/podslice-hosts.yml", json.dumps(targets))
    sockets = {
        f"{addresses[name]}:443": each.root / agent.SOCKET.lstrip("/")
        for name, each in machines.items()
    }
    with prometheus.serving(machine, sockets):
        prometheus.start(machine, config, targets=len(HOSTS))
        yield machine


def series(fleet, expression):
    """Return the values of an expression by host; no host may have two."""
    found = api(fleet, "query", query=filled_in(expression))["result"]
    values = {each["metric"]["instance"]: float(each["value"][1]) for each in found}
    assert len(values) == len(found)
    return {name.removesuffix(".example.org"): value for name, value in values.items()}


def until_series(fleet, expression, holds):
    """Wait until the values satisfy a condition: a scrape may fail on a busy machine."""
    agent.until(
        lambda: holds(series(fleet, expression)),
        120,
        what=expression,
        explain=lambda: str(series(fleet, expression)),
    )


def by_host(*values):
    return dict(zip(HOSTS, values, strict=True)).__eq__


@pytest.mark.parametrize("file", [*(path.name for path in FOLDER.glob("prometheus*.yml"))])
def test_promtool_accepts_the_configurations(fleet, file):
    fleet.put("/etc/prometheus/podslice-password", "secret\n")
    prometheus.promtool(fleet, "check", "config", f"/etc/prometheus/{file}")


def test_promtool_accepts_the_rules(fleet):
    checked = prometheus.promtool(fleet, "check", "rules", f"/etc/prometheus/{FLEET_RULES}")
    assert f"{len(records()) + len(alerts(FLEET_RULES))} rules found" in checked.stdout


def test_the_rules_compute_what_they_should(fleet):
    prometheus.promtool(fleet, "test", "rules", f"/etc/prometheus/{UNIT_TESTS.name}")


@pytest.mark.parametrize(
    "expression", [*(rule["record"] for rule in records()), *queries(FLEET_DASHBOARD)]
)
def test_every_rule_and_panel_has_one_series_for_each_host(fleet, machines, expression):
    counted = set(HOSTS)
    if "used_cpu" in expression:
        # of pods on cgroup v1 the agent does not know it: see test_monitoring.py
        counted = {n for n, each in machines.items() if each.cgroup_version == 2 or not PODS[n]}
    until_series(fleet, expression, lambda found: found.keys() == counted)


def test_the_series_are_those_of_each_host(fleet, machines):
    until_series(fleet, "instance:podslice_pods:sum", by_host(0, 1, 2))
    until_series(
        fleet, "instance:podslice_requested_memory_bytes:sum", by_host(0, 32 * MI, 64 * MI)
    )
    until_series(fleet, "instance:podslice_requested_cpu_cores:sum", by_host(0, 0.01, 0.02))
    of_node = series(fleet, 'podslice_node_resource_allocatable{resource="cpu"}')
    until_series(fleet, "instance:podslice_allocatable_cpu_cores:sum", of_node.__eq__)
    until_series(fleet, "instance:podslice_healthy:min", by_host(1, 1, 1))
    labels = api(fleet, "query", query="instance:podslice_healthy:min")["result"][0]["metric"]
    assert labels.keys() == {"__name__", "instance", "job", "role"}


def test_drift_is_that_of_the_changed_host(fleet, machines):
    web = machines["web1"].podslice("cgroup-parent", "web").stdout.strip()
    machines["web1"].run("systemctl", "set-property", "--runtime", web, "MemoryMax=1G")
    until_series(
        fleet,
        "instance:podslice_drift_repaired:increase1h",
        lambda found: {name for name, value in found.items() if value > 0} == {"web1"},
    )


def test_a_pod_that_does_not_fit_is_pending_and_the_host_is_not_healthy(fleet, machines):
    agent.put(machines["db1"], "huge", agent.manifest("huge", memory="999Gi", limit="999Gi"))
    until_series(fleet, "instance:podslice_pending_pods:sum", by_host(0, 0, 1))
    until_series(fleet, "instance:podslice_healthy:min", by_host(1, 1, 0))
    machines["db1"].run("rm", f"{agent.MANIFESTS}/huge.yaml")
    until_series(fleet, "instance:podslice_healthy:min", by_host(1, 1, 1))


def test_a_host_without_an_agent_is_not_healthy_and_the_alert_counts_it(fleet, machines):
    for name in ("web1", "db1"):
        machines[name].run("systemctl", "stop", agent.UNIT)
    until_series(fleet, "instance:podslice_healthy:min", by_host(1, 0, 0))
    until_series(fleet, "instance:podslice_pods:sum", {"build1": 0}.__eq__)
    agent.until(
        lambda: prometheus.alert_states(fleet)["PodsliceFleetUnhealthy"] == "pending",
        60,
        what="the alert",
    )
