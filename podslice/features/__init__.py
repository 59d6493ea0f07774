"""The features, each a package of its own that the core does not import."""

from __future__ import annotations

from podslice.features import (
    compose,
    cpus,
    doctor,
    history,
    importing,
    kubelet,
    node,
    quadlet,
    run,
    simulate,
)

FEATURES = (
    compose.FEATURE,
    cpus.FEATURE,
    doctor.FEATURE,
    history.FEATURE,
    importing.FEATURE,
    kubelet.FEATURE,
    node.FEATURE,
    quadlet.FEATURE,
    run.FEATURE,
    simulate.FEATURE,
)
"""Read where the command line and the agent are assembled; without its line a feature is absent."""
