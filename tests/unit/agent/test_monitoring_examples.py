"""The alerts and the dashboard use metrics and labels of the agent."""

from __future__ import annotations

import itertools
import json
import re

import pytest
import yaml

from podslice.agent.endpoints.metrics import collect
from podslice.model.event import Kind
from tests.unit.agent import sample_node
from tests.unit.agent.monitoring import (
    DASHBOARDS,
    FLEET_RULES,
    FOLDER,
    RULES,
    alerts,
    expressions,
    fleet_expressions,
    panels,
    queries,
    records,
    targets,
)

EXPRESSIONS = [*expressions(), *fleet_expressions()]
# added by Prometheus itself
OWN_NAMES = {"up", "ALERTS"}
OWN_LABELS = {"instance", "job", "le", "alertname", "alertstate"}
RECORDS = {rule["record"] for rule in records()}
# keywords of the language that are not followed by a bracket
WORDS = {"and", "or", "unless"}
NAME = r"[a-zA-Z_][a-zA-Z0-9_]*"
METRIC = r"[a-zA-Z_][a-zA-Z0-9_:]*"
MATCHING = r"\b(?:by|without|ignoring|on)\s*\(([^)]*)\)"


@pytest.fixture(scope="module")
def samples():
    families = collect(sample_node.snapshot(), sample_node.default_stats())
    return [sample for family in families for sample in family.samples]


def labels_in(expression):
    """Yield the labels of an expression, with the compared values."""
    for matcher in re.findall(r"\{([^}]*)\}", expression):
        for name, _, value in re.findall(rf'({NAME})\s*(=~|=)\s*"([^"]*)"', matcher):
            yield name, value
    for names in re.findall(MATCHING, expression):
        for name in names.split(","):
            yield name.strip(), None


def metrics_in(expression):
    bare = re.sub(rf"\{{[^}}]*\}}|\[[^]]*\]|{MATCHING}", " ", expression)
    return set(re.findall(rf"\b{METRIC}\b(?!\s*\()", bare)) - WORDS


def test_the_check_finds_names_and_labels():
    expression = (
        'sum by (pod) (rate(a_total{x="1", y=~"2|3"}[5m])) / ignoring (z) b > 0.5 or vector(0)'
    )
    assert metrics_in(expression) == {"a_total", "b"}
    assert set(labels_in(expression)) == {("pod", None), ("x", "1"), ("y", "2|3"), ("z", None)}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_is_one_that_the_agent_has(expression, samples):
    found = metrics_in(expression)
    assert found
    assert found <= {sample.name for sample in samples} | OWN_NAMES | RECORDS


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_label_and_value_is_one_of_the_agent(expression, samples):
    asked = metrics_in(expression)
    known = {}
    for sample in samples:
        if sample.name in asked:
            for name, value in sample.labels.items():
                known.setdefault(name, set()).add(value)
    for name, value in labels_in(expression):
        assert name in known.keys() | OWN_LABELS
        if value is not None and name in known and "$" not in value:
            wanted = (alternative for alternative in value.split("|"))
            signals = {"nodefs.available", "allocatableMemory.available"}
            for pattern in wanted:
                values = known[name] | (signals if name == "eviction_signal" else set())
                assert any(re.fullmatch(pattern, each) for each in values), pattern


def test_kinds_of_events_exist():
    text = (FOLDER / RULES).read_text()
    kinds = set(re.findall(r'events_total\{kind="([^"]*)"', text))
    assert kinds
    assert kinds <= {kind.label for kind in Kind}


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_every_alert_has_a_severity_and_advice(rule):
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert "$labels.instance" in rule["annotations"]["summary"]
    assert rule["annotations"]["description"].endswith(".")


@pytest.mark.parametrize("rule", alerts(FLEET_RULES), ids=lambda rule: rule["alert"])
def test_every_alert_about_several_hosts_states_how_many(rule):
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["summary"].startswith("{{ $value }} ")
    assert rule["annotations"]["description"].endswith(".")


def test_names_of_rules_are_all_different():
    names = [rule["alert"] for file in (RULES, FLEET_RULES) for rule in alerts(file)]
    assert all(name.startswith("Podslice") for name in names)
    names += [rule["record"] for rule in records()]
    assert len(set(names)) == len(names)


def test_every_recording_rule_is_of_a_host_and_shown_in_the_dashboard_of_the_fleet():
    used = set().union(*(metrics_in(query) for query in queries(DASHBOARDS[1])))
    assert used == RECORDS
    assert all(re.fullmatch(r"instance:podslice_[a-z_]+:[a-z0-9]+", name) for name in RECORDS)


def test_metrics_named_in_the_readme_exist(samples):
    text = (FOLDER / "README.md").read_text()
    named = set(re.findall(r"`((?:podslice|pod|container)_[a-z_]+)`", text)) - {"podslice_"}
    assert len(named) > 5
    assert named <= {sample.name for sample in samples}
    files = {path.name for path in FOLDER.iterdir()} - {"README.md"}
    assert files == set(re.findall(r"^\| `([\w.-]+\.(?:yml|json))` \|", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("file", "loaded"),
    [("prometheus.yml", [RULES]), ("prometheus-fleet.yml", [RULES, FLEET_RULES])],
)
def test_the_scrape_job_is_the_one_that_the_alerts_expect(file, loaded):
    config = yaml.safe_load((FOLDER / file).read_text())
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "podslice"
    assert config["rule_files"] == loaded


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each["uid"])
def test_the_dashboards_work_with_every_data_source(dashboard):
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    asking = [each for each in panels(dashboard) if each["type"] != "row"]
    sources = [each["datasource"]["uid"] for each in (*asking, *targets(dashboard))]
    sources += [each["datasource"]["uid"] for each in variables.values() if "datasource" in each]
    assert set(sources) == {"${datasource}"}
    assert "__inputs" not in dashboard
    text = json.dumps([*panels(dashboard), *variables.values()])
    used = set(re.findall(r"\$\{?(?!__)(\w+)", text))
    assert used == variables.keys()


def test_links_of_the_fleet_lead_to_the_node():
    node, fleet = DASHBOARDS
    urls = set(re.findall(r'"url": "([^"]*)"', json.dumps(fleet)))
    assert urls
    assert all(url.startswith(f"/d/{node['uid']}/podslice?var-instance=$") for url in urls)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each["uid"])
def test_panels_have_titles_and_explanations_and_cover_nothing(dashboard):
    assert len({panel["id"] for panel in panels(dashboard)}) == len(panels(dashboard))
    taken = {}
    for panel in panels(dashboard):
        assert panel["title"]
        assert panel["type"] == "row" or panel["description"].endswith((".", "POD", "events"))
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for cell in itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        ):
            assert taken.setdefault(cell, panel["title"]) == panel["title"]
