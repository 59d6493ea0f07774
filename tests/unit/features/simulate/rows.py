"""Rows about what pods use while all are busy: CPU time in thousandths of a CPU, and memory."""

from podslice.features.simulate.sharing import CpuGroup, share_cpu, share_memory
from podslice.model.node import parse_cpus
from podslice.model.pod import InitProgress
from podslice.model.quantity import format_bytes
from podslice.policy.decide import decide
from podslice.policy.desire import desire
from tests.cases.rows import to_config, to_node, to_pod


def to_cpu_group(fields):
    """A control group with those `below` it; `cpus` is a list as `0-1,3`."""
    return CpuGroup(
        name=fields["name"],
        weight=fields.get("weight", 100),
        quota_milli=fields.get("quota"),
        threads=fields.get("threads"),
        cpus=frozenset(parse_cpus(fields["cpus"])) if "cpus" in fields else None,
        children=tuple(map(to_cpu_group, fields.get("below", []))),
    )


def run_cpu_sharing(row):
    """The CPU time of each group in thousandths of a CPU."""
    used = share_cpu([to_cpu_group(each) for each in row["groups"]], row["cpus"])
    return {"expect": {name: round(1000 * cpus) for name, cpus in used.items()}}


def run_memory_sharing(row):
    """Each pod as `name: limit, protection, OOM score, place of eviction or 0`, in order."""
    config, node = to_config(row), to_node(row)
    pods = [decide(to_pod(each), node, config) for each in row["pods"]]
    uids = {pod.pod.uid: InitProgress(over=True) for pod in pods}
    found = share_memory(desire(pods, node, config, progress=uids), node.swap_bytes)
    texts = [
        f"{each.pod.pod.name}: {format_bytes(each.limit_bytes)},"
        f" {format_bytes(each.protected_bytes)}, {each.oom_score}, {each.eviction_rank or 0}"
        for each in found.pods
    ]
    sums = (found.limit_bytes, found.available_bytes, found.overcommitted_bytes)
    return {
        "expect": texts,
        "reclaimable": [format_bytes(each.reclaimable_bytes) for each in found.pods],
        "unlimited": [each.pod.pod.name for each in found.pods if not each.is_limited],
        "sums": "{} of {}: {}".format(*map(format_bytes, sums)),
    }


KINDS = {"cpu_sharing": run_cpu_sharing, "memory_sharing": run_memory_sharing}
