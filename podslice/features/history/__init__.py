"""Recorded usage, and what it recommends."""

from __future__ import annotations

from podslice.model.feature import Feature, VerbGroup, VerbRow

FEATURE = Feature(
    verbs={
        "recommend": VerbRow(
            group=VerbGroup.HOST,
            rank=40,
            function="podslice.features.history.verb:recommend",
            summary="Recommend requests and limits from recorded usage.",
            report="podslice.features.history.verb:RecommendReport",
        ),
        "node recommend": VerbRow(
            group=VerbGroup.HOST,
            rank=12,
            function="podslice.features.history.reservations:recommend",
            summary="Recommend reservations from recorded usage.",
            report="podslice.features.history.reservations:ReservationsReport",
        ),
    },
    agent_parts=("podslice.features.history.recorder:make_recorder",),
    recorded_usage="podslice.features.history.files:RecordedUsage",
)
