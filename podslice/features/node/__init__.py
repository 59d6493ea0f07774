"""The configuration files of a node."""

from __future__ import annotations

from podslice.model.feature import Feature, VerbGroup, VerbRow

FEATURE = Feature(
    verbs={
        "node init": VerbRow(
            group=VerbGroup.NODE,
            rank=11,
            function="podslice.features.node.verb:init",
        ),
        "node reset": VerbRow(
            group=VerbGroup.NODE,
            rank=13,
            function="podslice.features.node.verb:reset",
        ),
    },
)
