"""Projects of docker compose and podman-compose as pods, and the end of their containers."""

from __future__ import annotations

from podslice.model.feature import Feature, VerbGroup, VerbRow

FEATURE = Feature(
    verbs={
        "compose": VerbRow(
            group=VerbGroup.WRITE,
            rank=30,
            function="podslice.features.compose.verb:compose",
            report="podslice.features.compose.verb:Report",
            summary="Write the pod of a compose project, and its override.",
        ),
    },
    changes="podslice.features.compose.containers:ContainerStops",
    keys={
        verb: {"containers": "podslice.plan:PodStepEntries"} for verb in ("plan", "apply", "delete")
    },
)
