"""The files of records, and the fields of pods that they keep."""

from podslice.errors import Problem, Severity
from podslice.model.desired import ReservedValue, ReservedValues, Trial
from podslice.model.node_state import AgentState, Condition, Eviction, PendingPod, StuckPod
from podslice.model.pod import InitProgress

HALF = InitProgress(done=frozenset({"first"}))
STATE = AgentState(
    pid=812,
    started_ticks=4711,
    conditions=(Condition.MEMORY, Condition.PID),
    terminating=("default/web", "shop/api"),
    problems=(
        Problem(where="a.yaml", message="is broken", hint="fix it"),
        Problem(where="", message="odd", severity=Severity.WARNING),
    ),
    failures=(Problem(where="", message="no bus"),),
    pending=(
        PendingPod(pod="default/big", reason="OutOfcpu", message="too much", hint="less"),
        PendingPod(
            pod="shop/web",
            reason="MemoryPressure",
            message="short",
            qos="BestEffort",
            source="/etc/podslice/manifests/web.yaml",
            is_applied=True,
        ),
    ),
    stuck=(StuckPod(pod="default/old", why="a process is left", hint="try again"),),
)
TRIED = ReservedValues(
    until_usec=5_000_000,
    cgroup_root="/podslice",
    units={
        "system.slice": {
            "MemoryMax": ReservedValue(
                before=2**64 - 1, ours=(2**30,), trial=Trial(old=2**29, new=2**30)
            ),
            "ManagedOOMSwap": ReservedValue(before="auto", ours=("kill", "auto")),
            "TasksMax": ReservedValue(before=5, ours=(7,), trial=Trial(old=5, new=None)),
        }
    },
)


def eviction(name="web", **fields):
    return Eviction(
        **{
            "pod": f"default/{name}",
            "uid": name,
            "digest": "12ab",
            "signal": "memory.available",
            "message": "50Mi of 32Gi are available; uses 1Gi — « viel »",
            "at_usec": 1_700_000_000_000_000,
            **fields,
        }
    )


def record(store, name):
    return store.root / "pods" / f"{name}.json"


def plain(each):
    """Return the fields of a pod without the places in its manifest."""
    return (
        each.key,
        each.uid,
        each.priority,
        each.resources,
        dict(each.overhead),
        each.grace_period_sec,
        [(one.name, one.kind, one.resources) for one in each.containers],
        [(one.name, one.size_bytes) for one in each.volumes],
    )
