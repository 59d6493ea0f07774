"""The queries of `examples/monitoring`."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

FOLDER = Path(__file__).parents[3] / "examples/monitoring"
DASHBOARD = json.loads((FOLDER / "podslice-dashboard.json").read_text())


def alerts():
    groups = yaml.safe_load((FOLDER / "podslice.rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels():
    return DASHBOARD["panels"]


def targets():
    return [target for panel in panels() for target in panel.get("targets", ())]


def expressions():
    """Return the expressions of alerts, panels, and annotations of the dashboard."""
    of_annotations = [each["expr"] for each in DASHBOARD["annotations"]["list"]]
    of_panels = [target["expr"] for target in targets()]
    return [*(rule["expr"] for rule in alerts()), *of_panels, *of_annotations]


def filled_in(expression):
    """Return an expression as Grafana sends it, with all values selected."""
    for name, value in (
        *(("$__rate_interval", "1m"), ("$__range", "1h")),
        *(("$instance", ".*"), ("$namespace", ".*"), ("$pod", ".*")),
    ):
        expression = expression.replace(name, value)
    return expression
