"""The queries of `examples/monitoring`."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

FOLDER = Path(__file__).parents[3] / "examples/monitoring"
RULES, FLEET_RULES = ("podslice.rules.yml", "podslice-fleet.rules.yml")
DASHBOARD, FLEET_DASHBOARD = DASHBOARDS = tuple(
    json.loads((FOLDER / name).read_text())
    for name in ("podslice-dashboard.json", "podslice-fleet-dashboard.json")
)


def rules(file):
    groups = yaml.safe_load((FOLDER / file).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts(file=RULES):
    return [rule for rule in rules(file) if "alert" in rule]


def records():
    """Return the recording rules, which exist for the fleet only."""
    return [rule for rule in rules(FLEET_RULES) if "record" in rule]


def panels(dashboard):
    return dashboard["panels"]


def targets(dashboard):
    return [target for panel in panels(dashboard) for target in panel.get("targets", ())]


def queries(dashboard):
    """Return the expressions of its panels and annotations."""
    of_annotations = [each["expr"] for each in dashboard["annotations"]["list"]]
    return [*(target["expr"] for target in targets(dashboard)), *of_annotations]


def expressions():
    """Return the expressions of alerts, and of the node's dashboard."""
    return [*(rule["expr"] for rule in alerts()), *queries(DASHBOARD)]


def fleet_expressions():
    """Return the expressions of the fleet's rules and dashboard."""
    return [*(rule["expr"] for rule in rules(FLEET_RULES)), *queries(FLEET_DASHBOARD)]


def filled_in(expression):
    """Return an expression as Grafana sends it, with all values selected."""
    for name, value in (
        *(("$__rate_interval", "1m"), ("$__range", "1h")),
        *(("$instance", ".*"), ("$namespace", ".*"), ("$pod", ".*")),
    ):
        expression = expression.replace(name, value)
    return expression
