"""Projects of docker compose and podman-compose as pods."""

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
)
