"""What a feature adds to the core.

A feature is a package below `podslice.features`, which the core does not import: the command line
and the agent read its value, and import by need what it refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from typing import Any, NamedTuple

Reference = str
"""`module:name`: a function or class that is imported when it is used."""


def load(reference: Reference) -> Callable[..., Any]:
    """Import what a reference names."""
    module, _, name = reference.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


class VerbGroup(StrEnum):
    """The headings of verbs in the help of the program, in this order."""

    WRITE = "Write manifests"
    AHEAD = "Look ahead"
    PODS = "Pods"
    PROCESSES = "Processes and services"
    HOST = "Host"
    KUBELET = "Kubelet nodes"
    INTERNAL = ""
    """Verbs for podslice itself, which are not documented."""


class VerbRow(NamedTuple):
    """A verb of the command line."""

    group: VerbGroup
    rank: int
    """The position in its group; smaller ones first."""
    function: Reference
    summary: str = ""
    is_hidden: bool = False
    """Documented, and not in the help of the program."""
    report: Reference = ""
    """The type of the document that it prints, `cli.report.document`: a frozen dataclass, or several."""


class Feature(NamedTuple):
    """What a feature adds; without a value it adds nothing of that kind."""

    verbs: Mapping[str, VerbRow] = {}
    """By name; one below another has both names: `node init`."""
    extends: Mapping[str, Reference] = {}
    """Functions that add options to a verb of the core: each takes its function and returns another."""
    agent_parts: Sequence[Reference] = ()
    """Functions that return a part of the agent, `agent.context.MakePart`."""
    changes: Reference = ""
    """A class, `reconcile.extension.Extension`, of which an object adds to an apply, a delete or a plan.

    It is made with a world and a `PodRequest`.
    """
    run_pods: Reference = ""
    """A function that returns, of the keys of pods, the keys of pods whose containers the feature runs.

    With None it returns all of them.
    """
    health: Reference = ""
    """A coroutine function that finds, in a world with its assessment, parts of `HealthFacts`, by name."""
    jobs: Reference = ""
    """A coroutine function that returns the jobs in a world with its assessment, `JobState`."""
    recorded_usage: Reference = ""
    """A class of which an object, made with a world, reads the recorded usage of a pod by its key."""
    cpu_stage: Reference = ""
    """The function that assigns exclusive CPUs, `policy.exclusive.CpuStage`."""
    node_section: Reference = ""
    """A function that returns a part of the output of `node`, `cli.extensions.MakeSection`."""
    keys: Mapping[str, Mapping[str, Reference]] = {}
    """The keys that it adds to the JSON documents of verbs, with the types of their values."""
    programs: Mapping[str, Reference] = {}
    """Internal verbs that run as long as a container, without the command line's modules."""
