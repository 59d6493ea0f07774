"""Every row of every TOML file here: one function for each kind, one test for each row.

To add a case, add a row. To add a kind, add a file and a function to KINDS.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from podslice.errors import InputError
from podslice.inputs.budget import Budget
from podslice.inputs.manifest.load import format_manifest, load_text, parse_manifest
from podslice.model import grammar
from podslice.model.config import Config, Rules, Threshold, WeightMapping
from podslice.model.naming import Tree, scope_name, slice_of_cgroup
from podslice.model.node import Node
from podslice.model.node_state import Condition
from podslice.model.pod import InitProgress, Qos, default_uid
from podslice.model.properties import PROPERTIES
from podslice.model.quantity import format_bytes, parse_quantity
from podslice.model.resources import memory_bytes
from podslice.model.unit import (
    Caps,
    Observed,
    ObservedUnit,
    UnitName,
    control_group_of,
    parent_slice,
    slice_name,
)
from podslice.plan.make import make_plan
from podslice.policy.admit import admit, hold_back
from podslice.policy.aggregate import aggregate, classify, default_pod, effective
from podslice.policy.allocatable import allocate, validate_node
from podslice.policy.convert import quota_from_milli, shares_from_milli, weight_from_shares
from podslice.policy.decide import compare_rules, decide
from podslice.policy.desire import desire, finish, is_initializing, pending, tier_properties
from podslice.policy.eviction import (
    Pressures,
    by_urgency,
    choose,
    eviction_thresholds,
    judge,
    next_poll_usec,
    past_grace,
    pod_grace_sec,
    rank,
    thresholds_met,
)
from podslice.policy.unit_properties import oom_score_adj
from podslice.policy.validate import validate
from tests.cases.rows import (
    check_row,
    load_rows,
    of_amounts,
    of_eviction_threshold,
    of_threshold,
    to_amounts,
    to_config,
    to_eviction_threshold,
    to_node,
    to_observation,
    to_pod,
    to_usage,
)
from tests.configuration import load_config

UNSET = {row.name: row.unset for row in PROPERTIES.values() if row.managed}


def run_quantity(row):
    quantity = parse_quantity(row["input"])
    return {"expect": str(quantity), "milli": quantity.milli}


def run_shares(row):
    return {"expect": shares_from_milli(row["milli"])}


def run_weight(row):
    """By mapping the weights of a slice, and as `mapping (container)` those of a container."""
    shares = row["shares"]
    return {
        **{each.value: weight_from_shares(shares, each) for each in WeightMapping},
        **{
            f"{each.value} (container)": weight_from_shares(shares, each, container=True)
            for each in WeightMapping
        },
    }


def run_quota(row):
    period_usec = row["period_usec"]
    quota = quota_from_milli(row["milli"], period_usec=period_usec)
    return {"expect": quota.per_sec_usec}


def run_qos(row):
    """By both rules, `kubernetes` at 1.36, and by those of 1.37."""
    configs = {
        **{rules.value: Config(rules=rules) for rules in Rules},
        "kubernetes_1_37": Config(rules=Rules.KUBERNETES, kubernetes_version="1.37"),
    }
    pod, node = to_pod(row), Node(capacity={"memory": 2**40})
    return {name: decide(pod, node, config).qos.value for name, config in configs.items()}


def run_aggregate(row):
    return _both(aggregate(to_pod(row)))


def run_effective(row):
    return _both(effective(to_pod(row)))


def run_defaulting(row):
    pod = default_pod(to_pod(row), with_limits=row.get("with_limits", False))
    return {
        "requests_of": [of_amounts(container.resources.requests) for container in pod.containers],
        "requests": of_amounts(pod.resources.requests),
        "limits": of_amounts(pod.resources.limits),
    }


def run_oom(row):
    rules = Rules(row.get("rules", "proposal"))
    pod = default_pod(to_pod(row))
    qos = classify(pod, rules)
    node = Node(capacity={"memory": row["memory_bytes"] * 1000})
    helpers = decide(pod, node, Config(rules=rules)).overhead
    return {
        "expect": [oom_score_adj(pod, c, qos, row["memory_bytes"]) for c in pod.containers],
        "helpers": helpers.oom_score_adj if helpers else "none",
    }


def run_allocatable(row):
    node, config = to_node(row), to_config(row)
    allocation = allocate(node, config)
    return {
        "allocatable": of_amounts(allocation.allocatable),
        "enforced": of_amounts(allocation.enforced),
        "eviction": of_amounts(allocation.eviction),
        "hugepages": of_amounts(allocation.hugepages),
        "kube_reserved": of_amounts(allocation.kube_reserved),
        "valid": not validate_node(node, config),
    }


def run_properties(row):
    config, node = to_config(row), to_node(row)
    decision = decide(to_pod(row), node, config)
    found = {"expect": {s.name: s.value for s in decision.properties}}
    for container in decision.containers:
        found[container.name] = {s.name: s.value for s in container.properties}
    if decision.overhead:
        found["helpers"] = {s.name: s.value for s in decision.overhead.properties}
    return found


def run_swap(row):
    """MemorySwapMax of each container, or none, in their order, and of the pod's helpers."""
    decision = decide(to_pod(row), to_node(row), to_config(row))
    limits = {
        scope.name: next((s for s in scope.properties if s.name == "MemorySwapMax"), None)
        for scope in decision.scopes
    }
    values = [limit.value if limit else "none" for limit in limits.values()]
    return {
        "expect": values[: len(decision.containers)],
        "helpers": values[-1],
        "messages": [limit.why for limit in limits.values() if limit],
    }


def run_throttling(row):
    """MemoryHigh of each container, or none, in their order."""
    config = replace(to_config(row), memory_throttling_factor_milli=row.get("factor"))
    containers = decide(to_pod(row), to_node(row), config).containers
    found = [[s for s in each.properties if s.name == "MemoryHigh"] for each in containers]
    return {
        "expect": [limit.value if limit else "none" for limit, *_ in (f or [None] for f in found)],
        "messages": [limit.why for limits in found for limit in limits],
    }


def run_annotations(row):
    """What annotations change: properties of the pod and its containers, notes and problems."""
    stated = ", ".join(
        f"podslice.io/{name}: {json.dumps(text)}" for name, text in row["stated"].items()
    )
    metadata = f"{{name: web, annotations: {{{stated}}}}}"
    text = f"{{apiVersion: v1, kind: Pod, metadata: {metadata}, spec: {row['spec']}}}"
    (pod,) = load_text(text.encode(), "web.yaml", Budget()).pods
    assert parse_manifest(format_manifest(pod), "web.yaml").properties == pod.properties
    decision = decide(pod, to_node(row), to_config(row))
    problems = [
        f"{each.severity.value} {each.where.removeprefix('web.yaml: metadata.annotations')}"
        for each in decision.problems
    ]
    return {
        "expect": {s.name: s.value for s in decision.properties},
        "init": {s.name: s.value for s in decision.init_properties or ()},
        **{c.name: {s.name: s.value for s in c.properties} for c in decision.containers},
        "problems": problems,
        "messages": [
            *map(str, decision.problems),
            *decision.notes,
            *(f"{s.name}: {s.why}" for s in decision.properties),
            *(f"{c.name} {s.name}: {s.why}" for c in decision.containers for s in c.properties),
        ],
    }


def run_volumes(row):
    """Each volume's size, or none, by its name."""
    decision = decide(to_pod(row), to_node(row), to_config(row))
    sizes = {v.name: v.size_bytes for v in decision.volumes}
    return {
        "expect": {name: format_bytes(n) if n is not None else "none" for name, n in sizes.items()},
        "messages": [volume.why for volume in decision.volumes],
    }


def run_phase(row):
    """The init phase by the rules; what is pending, and the progress after each container's end."""
    pod, progress = to_pod(row), InitProgress(done=frozenset(row.get("done", [])))
    for name in row.get("ends", []):
        progress = finish(pod, progress, name)
    return {
        **{rules.value: is_initializing(pod, progress, rules) for rules in Rules},
        "pending": list(pending(pod, progress)),
        "over": progress.over,
    }


def run_tiers(row):
    config, node = to_config(row), to_node(row)
    pods = tuple(decide(to_pod(each), node, config) for each in row["pods"])
    used = row.get("used_bytes", {})
    available = memory_bytes(allocate(node, config).enforced) or 0
    return {
        qos.value.lower(): {
            property_.name: property_.value
            for property_ in tier_properties(
                qos, pods, available, config, page_size=4096, used_bytes=used.get(qos.value.lower())
            )
        }
        for qos in (Qos.BURSTABLE, Qos.BESTEFFORT)
    }


def run_admit(row):
    config, node = to_config(row), to_node(row)
    there = [decide(to_pod(each), node, config) for each in row.get("there", [])]
    candidates = [decide(to_pod(each), node, config) for each in row["candidates"]]
    accepted, refused = admit(candidates, there, to_amounts(row["allocatable"]))
    return {
        "accepted": [each.pod.name for each in accepted],
        "refused": [f"{each.pod.removeprefix('default/')}: {each.reason}" for each in refused],
        "messages": [each.message for each in refused],
    }


def run_validate(row):
    found, messages = {}, []
    for rules in Rules:
        pod = to_pod(row)
        config = replace(to_config(row), rules=rules)
        problems = validate(default_pod(pod), pod, config, page_size=4096, capacity={})
        found[rules.value] = sorted(f"{each.severity.value} {each.where}" for each in problems)
        messages += map(str, problems)
    return {**found, "messages": messages}


def run_problems(row):
    """Everything that is wrong with a manifest, read and decided."""
    text = f"{{apiVersion: v1, kind: Pod, metadata: {{name: web}}, spec: {row['spec']}}}"
    (pod,) = load_text(text.encode(), "web.yaml", Budget()).pods
    found, messages = {}, []
    for rules in Rules:
        problems = decide(pod, to_node(row), replace(to_config(row), rules=rules)).problems
        found[rules.value] = sorted(
            f"{each.severity.value} {each.where.removeprefix('web.yaml: ')}: {each.message}"
            for each in problems
        )
        messages += map(str, problems)
    return {**found, "messages": messages}


def run_names(row):
    if "components" in row:
        name = slice_name(tuple(row["components"]))
    elif "cgroup" in row:
        name = slice_of_cgroup(row["cgroup"])
    elif "container" in row:
        return {"expect": scope_name(row["uid"], row["container"])}
    elif "uid_of" in row:
        return {"expect": default_uid(*row["uid_of"].split("/"))}
    else:
        tree = Tree(cgroup_root=row.get("cgroup_root", "/"))
        name = tree.pod(row["uid"], Qos(row["qos"])) if "uid" in row else tree.tier(Qos(row["qos"]))
    return {"expect": name, "control_group": control_group_of(name), "parent": parent_slice(name)}


def run_grammars(row):
    """The texts that a grammar accepts, and rejects."""
    matches = getattr(grammar, row["grammar"].upper()).matches
    return {
        "valid": [each for each in row["valid"] if matches(each)],
        "invalid": [each for each in row["invalid"] if not matches(each)],
    }


def run_images(row):
    """The reference that a runtime of Kubernetes makes of one, which it leaves as it is then."""
    full = grammar.full_image(row["reference"])
    assert grammar.full_image(full) == full
    assert grammar.IMAGE.matches(full)
    return {"expect": full}


def run_config(row):
    """Flags of the command line: whether they are right, and the fields that come of them."""
    try:
        config = load_config(row["flags"], root=Path("/nonexistent"))
    except InputError as error:
        return {"valid": False, "messages": [str(problem) for problem in error.problems]}
    stated = row.get("expect", {})
    return {"valid": True, "expect": {name: plain(getattr(config, name)) for name in stated}}


def run_thresholds(row):
    config = load_config({"eviction-hard": "", **row["flags"]}, root=Path("/nonexistent"))
    return {"expect": [of_eviction_threshold(each) for each in eviction_thresholds(config)]}


def run_thresholds_met(row):
    """Thresholds by their place in the row."""
    thresholds = [to_eviction_threshold(each) for each in row["thresholds"]]
    met = thresholds_met(
        thresholds,
        {signal: to_observation(text) for signal, text in row["observations"].items()},
        before=[thresholds[place] for place in row.get("before", [])],
    )
    return {"expect": [thresholds.index(each) for each in met]}


def run_past_grace(row):
    thresholds = [to_eviction_threshold(each) for each in row["thresholds"]]
    since = {thresholds[int(key)]: sec * 10**6 for key, sec in row["first_met_sec"].items()}
    over = past_grace(thresholds, since, row["now_sec"] * 10**6)
    return {"expect": [thresholds.index(each) for each in over]}


def run_most_urgent(row):
    urgent = next(iter(by_urgency(map(to_eviction_threshold, row["thresholds"]))), None)
    return {"expect": of_eviction_threshold(urgent).partition("<")[0] if urgent else "none"}


def run_pressure(row):
    """The observations one after the other, each with the pressures of the one before."""
    thresholds = [to_eviction_threshold(each) for each in row["thresholds"]]
    before, found = Pressures(), []
    for each in row["observations"]:
        signals = {
            key: to_observation(each[key]) for key in each if key not in ("at_sec", "expect")
        }
        verdict = judge(
            thresholds, signals, before, each["at_sec"] * 10**6, row["transition_sec"] * 10**6
        )
        text = " ".join(sorted(verdict.conditions)) or "nothing"
        if verdict.due:
            text += f", evict for {' '.join(str(thresholds.index(due)) for due in verdict.due)}"
        found.append({**each, "expect": text})
        before = verdict.pressures
    return {"observations": found}


def run_choose(row):
    chosen = choose(row["signal"], *_pods_and_usage(row))
    return {"expect": chosen.decision.pod.name if chosen else "none"}


def run_hold_back(row):
    config, node = to_config(row), to_node(row)
    candidates = [decide(to_pod(each), node, config) for each in row["candidates"]]
    there = {f"default/{name}" for name in row.get("there", [])}
    allowed, refused = hold_back(candidates, there, [Condition(each) for each in row["conditions"]])
    return {
        "allowed": [each.pod.name for each in allowed],
        "refused": [f"{each.pod.removeprefix('default/')}: {each.reason}" for each in refused],
        "messages": [each.message for each in refused],
    }


def run_next_poll(row):
    observations = {signal: to_observation(text) for signal, text in row["observations"].items()}
    return {"expect": next_poll_usec(map(to_eviction_threshold, row["thresholds"]), observations)}


def run_grace(row):
    config = Config(eviction_max_pod_grace_period_sec=row["longest_sec"])
    pod = replace(to_pod(row), grace_period_sec=row["pod_sec"])
    kinds = {"hard": {}, "soft": {"grace_sec": 60}}
    return {
        "expect": {
            name: pod_grace_sec(
                pod, to_eviction_threshold({"signal": "memory.available", **fields}), config
            )
            for name, fields in kinds.items()
        }
    }


def _pods_and_usage(row):
    config, node = to_config(row), to_node(row)
    pods = [decide(to_pod(each), node, config) for each in row["pods"]]
    usage = {f"default/{e['pod_name']}": to_usage(e["used"]) for e in row["pods"] if "used" in e}
    return pods, usage


def run_rank(row):
    ranked = rank(row["signal"], *_pods_and_usage(row))
    return {
        "expect": [each.decision.pod.name for each in ranked],
        "messages": [f"{each.decision.pod.name}: {each.reason}" for each in ranked],
    }


def run_hugepages(row):
    """Limits by the size of the page: of the pod (`expect`), and by the rules of the containers."""
    found = {}
    for rules in Rules:
        decision = decide(to_pod(row), to_node(row), replace(to_config(row), rules=rules))
        found["expect"] = sizes(decision.hugepages)
        found[rules.value] = {each.name: sizes(each.hugepages) for each in decision.containers}
        found["messages"] = list(decision.notes)
    return found


def run_compare(row):
    """What differs, without the slice, which goes with the class."""
    differences = compare_rules(to_pod(row), to_node(row), to_config(row))
    return {
        "expect": [
            [each.what, each.proposal, each.kubernetes]
            for each in differences
            if each.what != "slice"
        ]
    }


def run_root(row):
    """What `kubepods.slice` gets under either rules."""
    found = {}
    for rules in Rules:
        config, node = replace(to_config(row), rules=rules), to_node(row)
        pods = [decide(to_pod(each), node, config) for each in row.get("pods", [])]
        units = {unit.name: unit for unit in desire(pods, node, config).units}
        found[rules.value] = units["kubepods.slice"].values
    return found


def run_reserved(row):
    """The reserved slices: what they should get, what is done, and what is left out."""
    config, node = to_config(row), to_node(row)
    desired = desire((), node, config)
    there = [
        ObservedUnit(
            name=UnitName(name),
            transient=False,
            properties={**UNSET, **fields.get("set", {})},
            memory_bytes=fields.get("used_bytes"),
        )
        for name, fields in row.get("there", {}).items()
    ]
    caps = Caps(systemd_version=row.get("systemd_version", 257))
    observed = Observed(caps=caps, units={unit.name: unit for unit in there})
    plan = make_plan(desired, observed, force=row.get("force", False))
    return {
        "expect": {unit.name: unit.values for unit in desired.units if not unit.owned},
        "changes": {
            step.name: {change.name: change.new for change in step.changes}
            for step in plan.steps
            if not step.unit.owned
        },
        "left_out": [f"{each.unit} {each.name}" for each in plan.skipped],
        "blocked": plan.is_blocked,
        "messages": [each.why for each in plan.skipped],
    }


def plain(value):
    """The value of a field as TOML can state it."""
    if isinstance(value, Threshold):
        return of_threshold(value)
    if value is None:
        return "none"
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return value


def sizes(hugepages):
    return {format_bytes(size): format_bytes(limit) for size, limit in hugepages.items()}


def _both(resources):
    return {"requests": of_amounts(resources.requests), "limits": of_amounts(resources.limits)}


KINDS = {
    "quantity": run_quantity,
    "shares": run_shares,
    "weight": run_weight,
    "quota": run_quota,
    "qos": run_qos,
    "aggregate": run_aggregate,
    "effective": run_effective,
    "defaulting": run_defaulting,
    "properties": run_properties,
    "swap": run_swap,
    "throttling": run_throttling,
    "annotations": run_annotations,
    "volumes": run_volumes,
    "phase": run_phase,
    "oom": run_oom,
    "allocatable": run_allocatable,
    "tiers": run_tiers,
    "admit": run_admit,
    "validate": run_validate,
    "problems": run_problems,
    "names": run_names,
    "grammars": run_grammars,
    "images": run_images,
    "config": run_config,
    "thresholds": run_thresholds,
    "thresholds_met": run_thresholds_met,
    "past_grace": run_past_grace,
    "most_urgent": run_most_urgent,
    "rank": run_rank,
    "pressure": run_pressure,
    "choose": run_choose,
    "hold_back": run_hold_back,
    "next_poll": run_next_poll,
    "grace": run_grace,
    "hugepages": run_hugepages,
    "compare": run_compare,
    "root": run_root,
    "reserved": run_reserved,
}
"""A function gives everything that rows of its kind may expect, by the name of the field."""


@pytest.mark.parametrize(("kind", "row"), [row for kind in KINDS for row in load_rows(kind)])
def test_row(kind, row):
    check_row(KINDS[kind], row)
