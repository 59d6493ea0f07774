"""What the verbs of the core take from the features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from podslice.cli.views.style import Display
from podslice.features import FEATURES
from podslice.model.config import Config, CpuManagerPolicy
from podslice.model.feature import load
from podslice.model.node import Node
from podslice.model.node_state import JobState
from podslice.model.pod import Pod
from podslice.model.resources import UsedAmounts
from podslice.model.unit import Manager
from podslice.policy.exclusive import CpuStage
from podslice.reconcile.assess import Assessment
from podslice.reconcile.extension import Extension, PodRequest
from podslice.reconcile.world import LiveWorld, World

if TYPE_CHECKING:
    from podslice.cli.report import Document


def extended(name: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator of a verb, which adds the options of features."""

    def extend(verb: Callable[..., int]) -> Callable[..., int]:
        for feature in FEATURES:
            if name in feature.extends:
                verb = load(feature.extends[name])(verb)
        return verb

    return extend


def extensions(world: World, request: PodRequest) -> tuple[Extension, ...]:
    """Return what features add to an apply, a delete or a plan."""
    return tuple(load(feature.changes)(world, request) for feature in FEATURES if feature.changes)


def pods_run_by_features(keys: Iterable[str] | None, manager: Manager) -> frozenset[str]:
    """Return the pods whose containers a feature runs; with None all such pods, also without a record."""
    keys = None if keys is None else frozenset(keys)
    found = (load(each.run_pods)(keys, manager) for each in FEATURES if each.run_pods)
    return frozenset(chain.from_iterable(found))


async def find_health_facts(world: LiveWorld, assessment: Assessment) -> dict[str, Any]:
    """Return the parts of `HealthFacts` that features find, by name."""
    facts: dict[str, Any] = {}
    for feature in FEATURES:
        if feature.health:
            facts |= await load(feature.health)(world, assessment)
    return facts


async def find_jobs(world: LiveWorld, assessment: Assessment) -> tuple[JobState, ...]:
    """Return the Jobs and CronJobs among the applied pods."""
    found = [await load(each.jobs)(world, assessment) for each in FEATURES if each.jobs]
    return tuple(chain.from_iterable(found))


def recorded_usage(world: LiveWorld) -> Callable[[str], UsedAmounts | None]:
    """Return a function that reads the recorded usage of a pod by its key, None without any."""
    for feature in FEATURES:
        if feature.recorded_usage:
            read: Callable[[str], UsedAmounts | None] = load(feature.recorded_usage)(world).read
            return read
    return lambda _: None


def cpu_stage(config: Config) -> CpuStage | None:
    """Return the function that assigns exclusive CPUs; None by the policy `none`."""
    if config.cpu_manager_policy is not CpuManagerPolicy.NONE:
        for feature in FEATURES:
            if feature.cpu_stage:
                stage: CpuStage = load(feature.cpu_stage)
                return stage
    return None


class NodeSection(NamedTuple):
    """A part of the output of `podslice node`."""

    key: str
    """The key of the document in JSON."""
    document: Document
    lines: Callable[[Display], Iterable[str]]


MakeSection = Callable[[Node, Config, Sequence[Pod], Manager], NodeSection | None]
"""Returns a part for a node with these applied pods; None if it is empty."""


def node_sections(
    node: Node, config: Config, pods: Sequence[Pod], manager: Manager
) -> Iterator[NodeSection]:
    """Yield what features add to the output of `podslice node`."""
    for feature in FEATURES:
        if feature.node_section:
            make: MakeSection = load(feature.node_section)
            if section := make(node, config, pods, manager):
                yield section
