"""The configuration files of a node."""

from __future__ import annotations

from podslice.model.feature import Feature, VerbGroup, VerbRow

FEATURE = Feature(
    verbs={
        "node init": VerbRow(
            group=VerbGroup.HOST,
            rank=11,
            function="podslice.features.node.verb:init",
            summary="Write the configuration of this node.",
            report="podslice.features.node.verb:InitReport",
        ),
        "node reset": VerbRow(
            group=VerbGroup.HOST,
            rank=13,
            function="podslice.features.node.verb:reset",
            summary="Remove what node init has written.",
            report="podslice.features.node.verb:FilesReport",
        ),
    },
)
