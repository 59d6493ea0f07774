"""Processes and services in pods: run, adopt, release."""

from __future__ import annotations

from podslice.model.feature import Feature, VerbGroup, VerbRow

FEATURE = Feature(
    verbs={
        "run": VerbRow(
            group=VerbGroup.PROCESSES,
            rank=10,
            function="podslice.features.run.run:run",
            summary="Run a command in a pod.",
            report="podslice.features.run.run:RunReport",
        ),
        "adopt": VerbRow(
            group=VerbGroup.PROCESSES,
            rank=20,
            function="podslice.features.run.adopt:adopt",
            summary="Put running processes, or services for good, into a pod.",
            report="podslice.features.run.adopt:AdoptReport",
        ),
        "release": VerbRow(
            group=VerbGroup.PROCESSES,
            rank=30,
            function="podslice.features.run.adopt:release",
            summary="Remove adopted services from their pods.",
            report="podslice.features.run.adopt:ServicesReport",
        ),
        "cgroup-parent": VerbRow(
            group=VerbGroup.PROCESSES,
            rank=40,
            function="podslice.features.run.cgroup_parent:cgroup_parent",
            summary="Print a pod's slice, or a runtime's options for it.",
            report="podslice.features.run.cgroup_parent:ParentReport",
        ),
        "phase": VerbRow(
            group=VerbGroup.PROCESSES,
            rank=50,
            is_hidden=True,
            function="podslice.features.run.phase:phase",
            summary="Show or set the init phase of a pod.",
            report="podslice.features.run.phase:AnyReport",
        ),
        "__init_done": VerbRow(
            group=VerbGroup.INTERNAL,
            rank=2,
            function="podslice.features.run.phase:init_done",
        ),
    },
    changes="podslice.features.run.drop_ins:ServiceChanges",
    keys={
        "plan": {"services": "podslice.features.run.drop_ins:ServiceEntries"},
        "apply": {"services": "podslice.features.run.drop_ins:ServiceResults"},
        "delete": {"services": "podslice.features.run.drop_ins:ServiceResults"},
    },
    health="podslice.features.run.drop_ins:find_health",
)
