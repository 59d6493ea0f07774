# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The logic of the module info."""

from __future__ import annotations

from .podslice import BAD_INPUT, DIFFERENCES, DONE, Document, Podslice

ARGUMENTS: Document = {
    "gather": {
        "type": "list",
        "elements": "str",
        "choices": ["version", "node", "pods", "status", "doctor", "usage"],
        "default": ["node", "pods", "status"],
    },
}

_META = ("version", "notes")
_OF_STATUS = (
    *("healthy", "problems", "in_sync", "agent_pid", "conditions", "pending", "evicted"),
    *("orphans", "strays", "terminating", "unconfirmed", "reserved_slices", "configuration"),
)
_MEASURED = "500ms"
"""How long the usage is measured."""


def run(wanted: Document, podslice: Podslice, *, check_mode: bool) -> Document:
    """Return the facts of a host.

    Raises:
        Failure: podslice cannot determine them.
    """
    del check_mode  # nothing is changed
    gathered = set(wanted["gather"])
    result: Document = {"changed": False, "podslice_version": podslice.require_version()}
    if "version" in gathered:
        found = podslice.read_plain("version")
        result["version"] = _facts(found)
    if "node" in gathered:
        # with invalid reservations there is a document, too
        result["node"] = _facts(podslice.read("node", accept=(DONE, BAD_INPUT)))
    if gathered & {"pods", "status"}:
        status = podslice.read("status", accept=(DONE, DIFFERENCES))
        if "status" in gathered:
            result.update({name: status[name] for name in _OF_STATUS if name in status})
        if "pods" in gathered:
            result["pods"] = pods_of(status)
    if "doctor" in gathered:
        result["doctor"] = _facts(podslice.read("doctor", accept=(DONE, DIFFERENCES)))
    if "usage" in gathered:
        words = ("top", "--once", f"--interval={_MEASURED}")
        result["usage"] = _facts(podslice.read(*words))
    return result


def _facts(found: Document) -> Document:
    return {name: value for name, value in found.items() if name not in _META}


def pods_of(status: Document) -> dict[str, Document]:
    """Return the applied pods by `namespace/name`, with their containers."""
    found: dict[str, Document] = {}
    for unit in status["units"]:
        if unit["pod"] is not None and unit["kind"] == "slice":
            found[unit["pod"]] = {
                "slice": unit["name"],
                "control_group": unit["control_group"],
                "qos_class": unit["qos_class"],
                "state": unit["state"],
                "in_sync": not unit["differs"],
                "usage": unit["usage"],
                "containers": {},
            }
    for unit in status["units"]:
        if unit["pod"] in found and unit.get("container"):
            found[unit["pod"]]["containers"][unit["container"]] = {
                "unit": unit["name"],
                "state": unit["state"],
                "processes": unit["processes"],
                "restarts": unit["restarts"],
                "last_exit": unit["last_exit"],
            }
    return found
