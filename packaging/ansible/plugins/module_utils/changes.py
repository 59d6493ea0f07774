# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Plans and reports: their differences, what they stop, and what did not succeed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .podslice import Document
from .rendering import format_value, key_of, to_yaml


def unit_diff(steps: Iterable[Document], pods: Mapping[str, str] | None = None) -> Document:
    """Return the units of a plan before and after it, with the pods of slices as comments."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for step in steps:
        unit = step["unit"]
        if step["action"] == "stop":
            before[unit] = {"processes": processes_of(step)} if processes_of(step) else {}
            continue
        old = {
            key_of(each["name"]): format_value(each["name"], each["old"])
            for each in step["properties"]
            if each["old"] is not None
        }
        new = {
            key_of(each["name"]): format_value(each["name"], each["new"])
            for each in step["properties"]
        }
        if step["action"] == "set":
            before.setdefault(unit, {}).update(old)
        after.setdefault(unit, {}).update(new)
    return {
        "before_header": "units",
        "after_header": "units",
        "before": _as_yaml(before, pods or {}),
        "after": _as_yaml(after, pods or {}),
    }


def file_diff(path: str, before: str | None, after: str | None) -> Document:
    """Return the difference of a file; None where it does not exist."""
    return {
        "before_header": path if before is not None else f"{path} (absent)",
        "after_header": path if after is not None else f"{path} (absent)",
        "before": before or "",
        "after": after or "",
    }


def _as_yaml(units: Mapping[str, object], pods: Mapping[str, str]) -> str:
    return to_yaml(dict(units), pods) if units else ""


def processes_of(step: Document) -> list[str]:
    """Return descriptions of the processes that a step stops."""
    if step.get("occupants"):
        return list(step["occupants"])
    return [f"{step['tasks']} tasks"] if step.get("tasks") else []


def stops_of(steps: Iterable[Document]) -> list[Document]:
    """Return the units with processes that a plan stops."""
    return [
        {
            "unit": step["unit"],
            "why": step.get("why", ""),
            "tasks": step.get("tasks", 0),
            "processes": processes_of(step),
        }
        for step in steps
        if step["action"] == "stop" and processes_of(step)
    ]


def describe_stop(stop: Document) -> str:
    """Return what a plan stops, and why."""
    why = f" ({stop['why']})" if stop["why"] else ""
    return f"{stop['unit']}{why}: {', '.join(stop['processes'])}"


def describe_refusal(refusal: Document) -> str:
    """Return why a pod was refused."""
    return f"pod {refusal['pod']} is refused: {refusal['reason']}: {refusal['message']}"


def describe_skipped(skipped: Document) -> str:
    """Return what a plan leaves out."""
    return f"{skipped['unit']}: {skipped['name']} is left out: {skipped['why']}"


def shortcomings(report: Document) -> list[str]:
    """Return what an apply or a delete did not do, without refused pods."""
    failed = [
        f"{step['action']} {step['unit']}: {step['outcome']}: {step['error']}"
        for step in report["steps"]
        if step["outcome"] != "done"
    ]
    remaining = [
        f"{step['action']} {step['unit']}: still pending afterwards" for step in report["remaining"]
    ]
    stuck = [f"pod {each['pod']}: {each['why']}; {each['hint']}" for each in report["stuck"]]
    return [*failed, *remaining, *stuck]
