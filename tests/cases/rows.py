"""Rows of TOML as values of the model, in a short notation.

`requests = "cpu=500m,memory=1Gi"` is a list of amounts; `{ kind = "init", limits = "cpu=1" }` is a
container. A row has a name, which is the test's id, a source, and what is expected.
"""

import re
import tomllib
from pathlib import Path

import pytest

from podslice.inputs.options.values import read_reservation
from podslice.model.config import Config, Enforce, MemoryProtection, Rules, SwapBehavior, Threshold
from podslice.model.node import Node, parse_cpus
from podslice.model.pod import Container, ContainerKind, MemoryVolume, Pod, Qos
from podslice.model.quantity import parse_quantity
from podslice.model.resources import Resources, format_amount
from podslice.policy.eviction import EvictionThreshold, PodUsage, SignalObservation

HERE = Path(__file__).parent
AMOUNTS = {
    *("requests", "limits", "allocatable", "enforced", "eviction", "hugepages", "kube_reserved")
}
"""Fields with amounts, which may be written in any way that means the same."""


def load_rows(kind, directory=HERE):
    """The rows of `<kind>.toml` in a directory as parameters of a test."""
    cases = tomllib.loads((directory / f"{kind}.toml").read_text())["case"]
    for case in cases:
        assert case["source"], case["name"]
    names = [case["name"] for case in cases]
    assert len(names) == len(set(names)), sorted({n for n in names if names.count(n) > 1})
    return [pytest.param(kind, case, id=f"{kind}: {case['name']}") for case in cases]


def to_amounts(text):
    """`cpu=500m,memory=1Gi` as amounts."""
    pairs = (part.split("=") for part in text.split(",") if part)
    return {name.strip(): parse_quantity(amount.strip()).milli for name, amount in pairs}


def of_amounts(amounts):
    """Amounts as `cpu=500m,memory=1Gi`, sorted; what is 0 is written as 0."""
    return ",".join(f"{name}={format_amount(name, amounts[name])}" for name in sorted(amounts))


def normal(text):
    """The same amounts in canonical writing."""
    return of_amounts(to_amounts(text))


def to_resources(fields):
    """A mapping with requests and limits, each optional."""
    return Resources(
        requests=to_amounts(fields.get("requests", "")), limits=to_amounts(fields.get("limits", ""))
    )


def to_container(fields, index, path="spec"):
    """One container; `kind` is container, init or sidecar."""
    kind = ContainerKind(fields.get("kind", "container"))
    group = "containers" if kind is ContainerKind.APP else "initContainers"
    return Container(
        name=fields.get("name", f"c{index}"),
        kind=kind,
        resources=to_resources(fields),
        where=f"{path}.{group}[{index}]",
    )


def to_pod(row):
    """The pod of a row: `containers`, `pod` (the pod level), `overhead`, `priority`, `volumes`."""
    containers = row.get("containers", [{}])
    indices = {"container": 0, "init": 0}
    made = []
    for fields in containers:
        group = "container" if fields.get("kind", "container") == "container" else "init"
        made.append(to_container(fields, indices[group]))
        indices[group] += 1
    name = row.get("pod_name", "pod")
    return Pod(
        name=name,
        uid=row.get("uid", name),
        containers=tuple(made),
        resources=to_resources(row.get("pod", {})),
        has_empty_level=row.get("has_empty_level", False),
        overhead=to_amounts(row.get("overhead", "")),
        priority=row.get("priority", 0),
        volumes=tuple(
            MemoryVolume(name=name, size_bytes=to_bytes(size), where=f"spec.volumes[{index}]")
            for index, (name, size) in enumerate(row.get("volumes", {}).items())
        ),
    )


def to_bytes(text):
    """`64Mi`; none for nothing."""
    return parse_quantity(text).milli // 1000 if text else None


def to_node(row):
    """A node with the capacity of a row."""
    return Node(
        capacity=to_amounts(row.get("capacity", "cpu=8,memory=32Gi")),
        swap_bytes=to_bytes(row.get("swap", "0")),
        counts_hugepages=row.get("counts_hugepages", False),
        hugepage_sizes=tuple(map(to_bytes, row.get("hugepage_sizes", []))),
        cpus=frozenset(parse_cpus(row["cpus"])) if "cpus" in row else None,
        controllers=frozenset(row["controllers"]) if "controllers" in row else None,
    )


def to_config(row):
    """The configuration of a row; eviction thresholds, and limits of swap, only where it states them."""
    fields = dict(row.get("config", {}))
    known = {"eviction_hard": {}}
    swap = fields.pop("memory_swap_behavior", "unlimited")
    known["memory_swap_behavior"] = SwapBehavior(swap) if swap else None
    for name in ("kube_reserved", "system_reserved"):
        if name in fields:
            known[name] = read_reservation(fields.pop(name))
    for name, value in fields.pop("eviction_hard", {}).items():
        known["eviction_hard"][name] = to_threshold(value)
    for name, kind in (("rules", Rules), ("memory_protection", MemoryProtection)):
        if name in fields:
            known[name] = kind(fields.pop(name))
    if "capacity" in fields:
        known["capacity"] = to_amounts(fields.pop("capacity"))
    if "enforce_node_allocatable" in fields:
        known["enforce_node_allocatable"] = frozenset(
            map(Enforce, fields.pop("enforce_node_allocatable"))
        )
    if "oomd_tiers" in fields:
        known["oomd_tiers"] = frozenset(map(Qos, fields.pop("oomd_tiers")))
    if "eviction_tier" in fields:
        stated = fields.pop("eviction_tier").items()
        known["eviction_tier"] = {Qos(tier): to_threshold(value) for tier, value in stated}
    return Config(**known, **fields)


def to_threshold(text):
    """`100Mi` or `10%`."""
    if text.endswith("%"):
        return Threshold(percent_milli=parse_quantity(text[:-1]).milli)
    return Threshold(amount=parse_quantity(text).milli)


def of_threshold(threshold):
    """`100Mi` or `10%`."""
    if threshold.amount is not None:
        return format_amount("memory", threshold.amount)
    return f"{format_amount('cpu', threshold.percent_milli)}%".replace("000m%", "%")


def to_eviction_threshold(fields):
    """`{ signal, value, reclaim, grace_sec }`; one with a grace period is a soft one."""
    reclaim = fields.get("reclaim")
    return EvictionThreshold(
        signal=fields["signal"],
        value=to_threshold(fields.get("value", "1")),
        minimum_reclaim=to_threshold(reclaim) if reclaim else None,
        grace_usec=fields.get("grace_sec", 0) * 10**6,
        is_hard="grace_sec" not in fields,
    )


def of_eviction_threshold(threshold):
    """`hard memory.available<150Mi, reclaim 0`, `soft memory.available<300Mi for 30 s`."""
    kind = "hard" if threshold.is_hard else "soft"
    text = f"{kind} {threshold.signal}<{of_threshold(threshold.value)}"
    if not threshold.is_hard:
        text += f" for {threshold.grace_usec / 10**6:g} s"
    if threshold.minimum_reclaim is not None:
        text += f", reclaim {of_threshold(threshold.minimum_reclaim)}"
    return text


def to_observation(text):
    """`500Mi` or `500Mi of 1000Mi`."""
    available, _, capacity = text.partition(" of ")
    return SignalObservation(
        available=parse_quantity(available).milli, capacity=parse_quantity(capacity or "0").milli
    )


def to_usage(text):
    """`memory=500Mi`, `storage=1Gi,inodes=1000,pids=5`."""
    return PodUsage(**to_amounts(text))


def check_row(run, row):
    """Compare what a function gives for a row with what the row expects."""
    if "error" in row:
        with pytest.raises(ValueError, match=row["error"]):
            run(row)
        return
    found = run(row)
    messages = found.pop("messages", [])
    expected = {name: canonical(name, row[name]) for name in found if name in row}
    assert expected, "the row expects nothing"
    assert {name: found[name] for name in expected} == expected
    for pattern in row.get("messages", []):
        assert any(re.search(pattern, message) for message in messages), messages


def canonical(name, value):
    """An expectation in the form in which the functions above give it."""
    if name == "requests_of":
        return [normal(text) for text in value]
    return normal(value) if name in AMOUNTS else value
