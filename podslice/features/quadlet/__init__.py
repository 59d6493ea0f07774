"""The containers of pods, as services of podman."""

from __future__ import annotations

from podslice.model.feature import Feature, VerbGroup, VerbRow

FEATURE = Feature(
    verbs={
        "__containers": VerbRow(
            group=VerbGroup.INTERNAL,
            rank=1,
            function="podslice.features.quadlet.containers:containers",
        ),
        "__evict": VerbRow(
            group=VerbGroup.INTERNAL,
            rank=2,
            function="podslice.features.quadlet.evict:evict",
        ),
    },
    extends={
        "apply": "podslice.features.quadlet.verbs:with_start",
        "plan": "podslice.features.quadlet.verbs:with_start",
        "render": "podslice.features.quadlet.verbs:with_quadlets",
    },
    changes="podslice.features.quadlet.services:QuadletChanges",
    keys={
        verb: {"quadlets": "podslice.plan:PodStepEntries"} for verb in ("plan", "apply", "delete")
    },
    run_pods="podslice.features.quadlet.files:pods_with_quadlets",
    jobs="podslice.features.quadlet.status:find_jobs",
    health="podslice.features.quadlet.status:find_health",
    programs={
        "__probe": "podslice.features.quadlet.prober:probe",
        "__commands": "podslice.features.quadlet.prober:run_commands",
        "__join": "podslice.features.quadlet.prober:join",
    },
    agent_parts=("podslice.features.quadlet.keeper:ContainerKeeper",),
)
