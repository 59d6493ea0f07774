"""The containers of pods, as services of podman."""

from __future__ import annotations

from podslice.model.feature import Feature, VerbGroup, VerbRow

FEATURE = Feature(
    verbs={
        "__containers": VerbRow(
            group=VerbGroup.HIDDEN,
            rank=1,
            function="podslice.features.quadlet.containers:containers",
        ),
    },
    programs={
        "__probe": "podslice.features.quadlet.prober:probe",
        "__commands": "podslice.features.quadlet.prober:run_commands",
        "__join": "podslice.features.quadlet.prober:join",
    },
    agent_parts=("podslice.features.quadlet.keeper:ContainerKeeper",),
)
