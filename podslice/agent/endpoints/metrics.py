"""What the agent tells Prometheus.

Names are the kubelet's, and those of the cAdvisor in it, where the meaning is the same; all others
begin with `podslice_`. Amounts are in base units: seconds, bytes, cores.

Source: Kubernetes, pkg/kubelet/metrics/collectors/resource_metrics.go and
pkg/kubelet/metrics/metrics.go; cAdvisor, metrics/prometheus.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import Metric

from podslice import __version__
from podslice.agent.endpoints.metric_families import (
    RESOURCE,
    Family,
    basics,
    details,
    filled,
    histogram,
    in_units,
    pressures,
    read_off,
)
from podslice.agent.endpoints.pod_metrics import of_containers, of_pods
from podslice.agent.endpoints.snapshot import Snapshot
from podslice.model.event import Kind
from podslice.model.node import Allocation
from podslice.model.node_state import Condition
from podslice.policy.allocatable import threshold_amount
from podslice.usage.stats import NodeStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_PROCESS = ProcessCollector(registry=None)
_GROUP_ROWS = (*basics("podslice_group", "group"), *details("podslice_group"))


def expose(snapshot: Snapshot, stats: NodeStats) -> Iterator[bytes]:
    """Everything in Prometheus' text format, family by family."""
    for family in collect(snapshot, stats):
        yield generate_latest(_One(family))


def collect(snapshot: Snapshot, stats: NodeStats) -> Iterator[Metric]:
    """Everything, one family after the other; those without anything to tell are left out."""
    families = chain(
        _of_node(snapshot, stats),
        _of_groups(snapshot.allocation, stats),
        of_pods(snapshot, stats.pods),
        of_containers(stats.pods),
        _of_agent(snapshot),
        _PROCESS.collect(),
    )
    return (family for family in families if family.samples)


class _One:
    """A single family, as `generate_latest` wants it."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


# The node and its parts.


def _of_node(snapshot: Snapshot, stats: NodeStats) -> Iterator[Family]:
    yield from read_off(basics("node", "node"), (), [((), stats.sample)])
    yield from pressures("node", (), [((), stats.sample)])
    yield filled(
        "podslice_node_resource_capacity",
        "What the node has",
        RESOURCE,
        in_units(snapshot.allocation.capacity),
    )
    yield filled(
        "podslice_node_resource_allocatable",
        "What pods may request in sum",
        RESOURCE,
        in_units(snapshot.allocation.allocatable),
    )
    yield from _signals(snapshot)
    yield filled(
        "podslice_node_condition",
        "Whether the node is short of something",
        ("condition",),
        (((each.value,), each in snapshot.conditions) for each in Condition),
    )


def _signals(snapshot: Snapshot) -> Iterator[Family]:
    """How far it is to the next eviction, in bytes, inodes or processes."""
    observed = snapshot.observe()
    label = ("eviction_signal",)
    yield filled(
        "podslice_eviction_signal_available",
        "What is left of what pods may be evicted for",
        label,
        (((name,), each.available / 1000) for name, each in sorted(observed.items())),
    )
    yield filled(
        "podslice_eviction_signal_capacity",
        "What there is of it",
        label,
        (((name,), each.capacity / 1000) for name, each in sorted(observed.items())),
    )
    thresholds = (
        (
            (each.signal, "hard" if each.is_hard else "soft"),
            threshold_amount(each.value, observed[each.signal].capacity) / 1000,
        )
        for each in snapshot.thresholds
        if each.signal in observed
    )
    yield filled(
        "podslice_eviction_threshold",
        "Below this much pods are evicted",
        (*label, "kind"),
        thresholds,
    )


def _of_groups(allocation: Allocation, stats: NodeStats) -> Iterator[Family]:
    samples = [((each.name,), each.sample) for each in stats.groups]
    yield from read_off(_GROUP_ROWS, ("group",), samples)
    yield from pressures("group", ("group",), samples)
    reserved = {
        "runtime": allocation.kube_reserved,
        "misc": allocation.system_reserved,
        "pods": allocation.enforced,
    }
    yield filled(
        "podslice_group_resource_reservation",
        "What is reserved for the group; for pods, what reservations leave of the node",
        ("group", *RESOURCE),
        (
            ((group, *labels), value)
            for group, amounts in reserved.items()
            for labels, value in in_units(amounts)
        ),
    )


# The agent itself.


def _of_agent(snapshot: Snapshot) -> Iterator[Metric]:
    counters = snapshot.counters
    yield filled("podslice_build_info", "The agent's version", ("version",), [((__version__,), 1)])
    yield histogram(
        "kubelet_cgroup_manager_duration_seconds",
        "How long it took to make, change or remove a control group",
        {(kind.value,): found for kind, found in counters.operations.items()},
        ("operation_type",),
    )
    yield histogram(
        "podslice_reconcile_duration_seconds",
        "How long rounds of the agent took",
        {(): counters.reconciles},
    )
    yield histogram(
        "podslice_eviction_reaction_seconds",
        "How long it took from seeing a shortage to the order to stop a pod",
        {(): counters.reactions},
    )
    # counts that are there before anything happens, so that the first time is a rise
    signals = {each.signal for each in snapshot.thresholds} | counters.evictions.keys()
    yield filled(
        "podslice_evictions_total",
        "Pods evicted, by what was short",
        ("eviction_signal",),
        (((signal,), counters.evictions[signal]) for signal in sorted(signals)),
    )
    yield filled(
        "podslice_events_total",
        "Events told to the journal",
        ("kind",),
        (((kind.label,), snapshot.events.get(kind, 0)) for kind in Kind),
    )
    for name, text, value in _plain(snapshot):
        yield filled(name, text, (), [((), value)])


def _plain(snapshot: Snapshot) -> tuple[tuple[str, str, int], ...]:
    """The agent's numbers without labels."""
    counters = snapshot.counters
    return (
        ("podslice_reconcile_errors_total", "Rounds that failed", counters.reconcile_errors),
        ("podslice_drift_repaired_total", "Changes by others undone", counters.drift_repaired),
        (
            "podslice_oom_kills_total",
            "Processes in pods that the kernel has killed, pods that are gone included",
            counters.oom_kills,
        ),
        ("podslice_broken_manifests", "Manifest files with an error", counters.broken_manifests),
        ("podslice_orphans", "Slices below the root that no pod accounts for", counters.orphans),
        ("podslice_refused_pods", "Pods that are not admitted", counters.refused),
        ("podslice_evicted_pods", "Pods that are kept away after eviction", snapshot.evicted),
        ("podslice_problems", "What keeps the agent from its work", len(snapshot.problems)),
    )
