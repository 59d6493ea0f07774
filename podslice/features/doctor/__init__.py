"""Findings about the host."""

from __future__ import annotations

from podslice.model.feature import Feature, VerbGroup, VerbRow

FEATURE = Feature(
    verbs={
        "doctor": VerbRow(
            group=VerbGroup.HOST,
            rank=20,
            function="podslice.features.doctor.verb:doctor",
            summary="Check whether this host meets the requirements.",
            report="podslice.features.doctor.verb:DoctorReport",
        ),
    },
)
