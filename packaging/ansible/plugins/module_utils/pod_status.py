# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Applied pods and their processes, as `podslice status` reports them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .podslice import Document


def applied_pods(status: Document) -> set[str]:
    """Return the pods that have units."""
    return {unit["pod"] for unit in status["units"] if unit["pod"] is not None}


def present_pods(status: Document, keys: Sequence[str]) -> list[str]:
    """Return the pods that `delete` would remove: applied ones, and marks of evicted ones."""
    known = applied_pods(status) | {each["pod"] for each in status["evicted"]}
    return [key for key in keys if key in known]


PROCESSES_SHOWN = 10
"""Processes of a pod that are named; the others are counted."""


def removals(status: Document, keys: Sequence[str]) -> Iterator[Document]:
    """Yield the slices of pods as steps that stop them: `delete` has no dry run."""
    stops = {stop["unit"]: stop for stop in occupied(status, keys)}
    for unit in status["units"]:
        if unit["pod"] in keys and unit["kind"] == "slice":
            stop = stops.get(unit["name"], {})
            yield {
                "action": "stop",
                "unit": unit["name"],
                "pod": unit["pod"],
                "properties": [],
                "why": f"pod {unit['pod']} is removed",
                "tasks": stop.get("tasks", 0),
                "occupants": stop.get("processes", []),
            }


def occupied(status: Document, keys: Sequence[str]) -> list[Document]:
    """Return the slices of pods with processes, as `stops_of` does for a plan."""
    found: dict[str, list[str]] = {}
    for unit in (*status["units"], *status["others"]):
        for process in unit.get("processes") or []:
            found.setdefault(unit["pod"], []).append(f"{process['name']} ({process['pid']})")
    tasks = {unit["pod"]: unit.get("usage", {}).get("tasks") or 0 for unit in _slices(status)}
    stops = []
    for unit in _slices(status):
        pod = unit["pod"]
        processes = found.get(pod, [])
        more = len(processes) - PROCESSES_SHOWN
        if more > 0:
            processes = [*processes[:PROCESSES_SHOWN], f"{more} more"]
        if not processes and tasks[pod]:
            processes = [f"{tasks[pod]} tasks"]
        if pod in keys and processes:
            stops.append(
                {
                    "unit": unit["name"],
                    "why": f"pod {pod}",
                    "tasks": max(tasks[pod], len(found.get(pod, []))),
                    "processes": processes,
                }
            )
    return stops


def pods_by_slice(status: Document) -> dict[str, str]:
    """Return the applied pods by the names of their slices."""
    return {unit["name"]: unit["pod"] for unit in _slices(status)}


def _slices(status: Document) -> list[Document]:
    return [unit for unit in status["units"] if unit["pod"] is not None and unit["kind"] == "slice"]
