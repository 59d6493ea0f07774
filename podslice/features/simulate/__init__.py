"""The CPU and memory of each pod when all are busy."""

from __future__ import annotations

from podslice.model.feature import Feature, VerbGroup, VerbRow

FEATURE = Feature(
    verbs={
        "simulate": VerbRow(
            group=VerbGroup.AHEAD,
            rank=50,
            function="podslice.features.simulate.verb:simulate",
            summary="Show what each pod gets when all are busy.",
            report="podslice.features.simulate.view:SimulationReport",
        ),
    },
)
