"""The CPU and memory of each pod when all are busy."""

from __future__ import annotations

from podslice.model.feature import Feature, VerbGroup, VerbRow

FEATURE = Feature(
    verbs={
        "simulate": VerbRow(
            group=VerbGroup.INSPECT,
            rank=70,
            function="podslice.features.simulate.verb:simulate",
            summary="Show the CPU and memory of each pod when all are busy.",
        ),
    },
)
