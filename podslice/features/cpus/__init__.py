"""Exclusive CPUs of pods: the CPU manager and the topology manager."""

from __future__ import annotations

from podslice.model.feature import Feature

FEATURE = Feature(
    cpu_stage="podslice.features.cpus.manager:assign",
    node_section="podslice.features.cpus.view:node_section",
    keys={"node": {"cpus": "podslice.features.cpus.view:CpusEntry"}},
)
