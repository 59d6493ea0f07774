"""Projects of docker compose and podman-compose as pods."""

from __future__ import annotations

from podslice.model.feature import Feature, VerbGroup, VerbRow

FEATURE = Feature(
    verbs={
        "compose": VerbRow(
            group=VerbGroup.INSPECT,
            rank=20,
            function="podslice.features.compose.verb:compose",
            summary="Write the pod and the override file of a compose project.",
        ),
    },
)
