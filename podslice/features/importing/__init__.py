"""Manifests for what runs already, and for new pods."""

from __future__ import annotations

from podslice.model.feature import Feature, VerbGroup, VerbRow

FEATURE = Feature(
    verbs={
        "new": VerbRow(
            group=VerbGroup.INSPECT,
            rank=10,
            function="podslice.features.importing.new:new",
            summary="Write the manifest of a new pod, with a comment on each field.",
        ),
        "import": VerbRow(
            group=VerbGroup.INSPECT,
            rank=30,
            function="podslice.features.importing.verb:import_",
            summary="Write the manifest of existing units or containers.",
        ),
    },
)
