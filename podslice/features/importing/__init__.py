"""Manifests for what runs already, and for new pods."""

from __future__ import annotations

from podslice.model.feature import Feature, VerbGroup, VerbRow

FEATURE = Feature(
    verbs={
        "new": VerbRow(
            group=VerbGroup.WRITE,
            rank=10,
            function="podslice.features.importing.new:new",
            report="podslice.features.importing.new:Report",
            summary="Write the manifest of a new pod, with comments.",
        ),
        "import": VerbRow(
            group=VerbGroup.WRITE,
            rank=20,
            function="podslice.features.importing.verb:import_",
            summary="Write the manifest of units or containers that exist.",
            report="podslice.features.importing.verb:ImportReport",
        ),
    },
)
