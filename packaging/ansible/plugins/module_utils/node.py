# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The logic of the module node."""

from __future__ import annotations

import json
from collections.abc import Iterable

from .changes import describe_skipped, file_diff, shortcomings, unit_diff
from .pod_status import pods_by_slice
from .podslice import (
    BAD_INPUT,
    DIFFERENCES,
    DONE,
    FAILED,
    Document,
    Failure,
    Podslice,
    describe_problem,
    failure_of,
    list_under,
    parse_document,
)

ARGUMENTS: Document = {
    "state": {
        "type": "str",
        "choices": ["initialized", "reset"],
        "default": "initialized",
    },
    "reservations": {
        "type": "dict",
        "options": {
            "like": {"type": "str", "choices": ["gke", "eks", "aks"]},
            "pods": {"type": "int"},
            "kube": {"type": "raw"},
            "system": {"type": "raw"},
            "refresh": {"type": "bool", "default": False},
        },
    },
    "confirm_seconds": {"type": "int"},
}

RUNTIME_SLICE = "podruntime.slice"
NO_PODS = json.dumps({"apiVersion": "v1", "kind": "List", "items": []})
"""An input of `apply` without pods: the values of the configuration take effect."""


def run(wanted: Document, podslice: Podslice, *, check_mode: bool) -> Document:
    """Write or remove the reservations of a host, and return the result of the module.

    Raises:
        Failure: a file is not podslice's own, or values cannot be set.
    """
    if podslice.is_user:
        raise Failure("reservations are those of the host: leave out 'scope: user'")
    podslice.require_version()
    found = _files(wanted, podslice, check_mode=check_mode)
    changed = [each for each in found["files"] if each["changed"]]
    if found["needs_daemon_reload"] and not check_mode:
        _systemctl(podslice, "daemon-reload")
    result: Document = {
        "changed": found["changed"],
        "capacity": found["capacity"],
        "reserved": found["reserved"],
        "allocatable": found["allocatable"],
        "written": [each["path"] for each in changed if each["after"] is not None],
        "removed": [each["path"] for each in changed if each["after"] is None],
        "needs_restart": needs_restart(podslice, found["services"], found["needs_restart"]),
        "needs_reload": found["needs_reload"],
        "diff": [file_diff(each["path"], each["before"], each["after"]) for each in changed],
        "warnings": [describe_problem(each) for each in found["configuration_problems"]],
    }
    if found["problems"]:
        verb = "init" if wanted["state"] == "initialized" else "reset"
        raise Failure(
            list_under(f"podslice node {verb} failed", map(describe_problem, found["problems"])),
            problems=found["problems"],
            **result,
        )
    if wanted["confirm_seconds"] is not None and not (check_mode and changed):
        _enforce(wanted["confirm_seconds"], podslice, result, check_mode=check_mode)
    return result


def _files(wanted: Document, podslice: Podslice, *, check_mode: bool) -> Document:
    """Return the document of `node init` or `node reset`.

    Files that are not podslice's own are problems of it: `init` then writes nothing, and `reset`
    removes the others.

    Raises:
        Failure: the options are invalid, or a file cannot be written.
    """
    verb = "init" if wanted["state"] == "initialized" else "reset"
    words = ["node", verb]
    if verb == "init":
        stated = wanted["reservations"] or {}
        words += [f"--like={stated['like']}"] if stated.get("like") else []
        words += [f"--pods={stated['pods']}"] if stated.get("pods") is not None else []
        for name in ("kube", "system"):
            if stated.get(name) is not None:
                words.append(f"--{name}-reserved={amounts(stated[name], name)}")
        words += [] if stated.get("refresh") else ["--keep"]
    words += ["--dry-run"] if check_mode else []
    return podslice.read_plain(*words, accept=(DONE, FAILED, BAD_INPUT))


def amounts(stated: object, name: str) -> str:
    """Return amounts as the command line has them: `cpu=500m,memory=1Gi`.

    Raises:
        Failure: they are neither a mapping nor a text.
    """
    if isinstance(stated, dict):
        return ",".join(f"{resource}={stated[resource]}" for resource in stated)
    if isinstance(stated, str):
        return stated
    raise Failure(f"reservations.{name} must be a mapping or a text, such as cpu=500m,memory=1Gi")


def _systemctl(podslice: Podslice, *words: str) -> str:
    """Run systemctl, and return what it prints.

    Raises:
        Failure: it failed.
    """
    ended = podslice.run_other(["systemctl", *words])
    if ended.code:
        raise Failure(f"systemctl {words[0]} failed: {ended.err.strip()}", rc=ended.code)
    return ended.out


def needs_restart(podslice: Podslice, placed: Iterable[str], changed: Iterable[str]) -> list[str]:
    """Return the running services that are not where their drop-in puts them, or were put by one."""
    wanted = set(placed)
    services = sorted(wanted | set(changed))
    if not services:
        return []
    shown = _systemctl(
        podslice,
        "show",
        "--property=Id",
        "--property=ActiveState",
        "--property=ControlGroup",
        *services,
    )
    found = []
    for block in shown.strip().split("\n\n"):
        unit = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        is_there = f"/{RUNTIME_SLICE}/" in unit.get("ControlGroup", "")
        is_active = unit.get("ActiveState") in ("active", "reloading")
        if is_active and is_there != (unit.get("Id") in wanted):
            found.append(unit["Id"])
    return found


def _enforce(seconds: int, podslice: Podslice, result: Document, *, check_mode: bool) -> None:
    """Apply the values of the configuration until they are confirmed.

    Raises:
        Failure: that is not possible.
    """
    words = ("--filename=-", "--output=json", *podslice.options)
    ended = podslice.call("plan", *words, text=NO_PODS)
    plan = parse_document(ended.out)
    if plan is None or ended.code not in (DONE, DIFFERENCES):
        blocked = list(map(describe_skipped, (plan or {}).get("skipped", [])))
        what = f"the values of the configuration cannot be set: {'; '.join(blocked)}"
        raise Failure(what) if blocked else failure_of(("plan",), ended)
    if plan["steps"]:
        result["changed"] = True
        # also slices of pods that have drifted
        status = podslice.read("status", accept=(DONE, DIFFERENCES))
        result["diff"].append(unit_diff(plan["steps"], pods_by_slice(status)))
    if check_mode:
        return
    if plan["steps"]:
        ended = podslice.call("apply", f"--confirm={seconds}", *words, text=NO_PODS)
        report = parse_document(ended.out)
        if report is None or ended.code != DONE:
            missing = shortcomings(report) if report is not None else []
            if not missing:
                raise failure_of(("apply",), ended)
            raise Failure(
                list_under("not everything was applied", missing), report=report, **result
            )
    found = podslice.unconfirmed()
    if found is not None:
        result["unconfirmed"] = found
