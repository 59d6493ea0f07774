"""What the agent has recorded, in the output of `status` and `tree`; see transcripts/readmit.txt."""

import json
import os

from podslice.errors import Problem, Severity
from podslice.model.node_state import Condition
from podslice.store.store import Store
from tests.unit.cli.pods import run_agent


def test_status_shows_the_conditions_and_problems_of_the_agent(podslice, here, memory):
    problems = (
        Problem(where="a.yaml", message="is \x1b[31mbroken", hint="fix it"),
        Problem(where="", message="odd", severity=Severity.WARNING),
    )
    run_agent(
        Store(here / "run-False"),
        conditions=(Condition.MEMORY,),
        terminating=("default/web",),
        problems=problems,
        failures=(Problem(where="", message="cannot reconcile"),),
        pending=(),
    )
    ended = podslice("status")
    assert (ended.code, ended.out.splitlines()) == (
        3,
        [
            "no pods",
            "",
            "PROBLEMS",
            "podslice-agent: cannot reconcile",
            "  → see: podslice events",
            (
                "MemoryPressure: the node is short of memory: the agent evicts pods, and admits no"
                " new BestEffort pods"
            ),
            "  → to see what uses it: podslice top",
            "a.yaml: is \\x1b[31mbroken",
            "  → fix it",
            "",
            "3 problems",
        ],
    )
    assert ended.err.splitlines() == [
        "pod default/web is terminating (within its grace period)",
        "warning: odd",
    ]
    document = json.loads(podslice("status", "-o", "json").out)
    assert (document["agent_pid"], document["conditions"]) == (os.getpid(), ["MemoryPressure"])
    assert document["terminating"] == ["default/web"]
    (invalid,) = (each for each in document["problems"] if each["kind"] == "invalid-manifest")
    assert (invalid["object"], invalid["hint"], invalid["command"]) == ("a.yaml", "fix it", None)
    assert document["warnings"] == [{"where": "", "message": "odd", "hint": ""}]
    tree = podslice("tree")
    assert (tree.code, tree.err) == (0, ended.err)
    assert f"{tree.out}\n3 problems\n" == ended.out
