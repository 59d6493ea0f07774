"""What the verbs of the core take from the features."""

from __future__ import annotations

from collections.abc import Callable

from podslice.features import FEATURES
from podslice.model.feature import load
from podslice.model.resources import UsedAmounts
from podslice.reconcile.world import LiveWorld


def extended(name: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator of a verb, which adds the options of features."""

    def extend(verb: Callable[..., int]) -> Callable[..., int]:
        for feature in FEATURES:
            if name in feature.extends:
                verb = load(feature.extends[name])(verb)
        return verb

    return extend


def recorded_usage(world: LiveWorld) -> Callable[[str], UsedAmounts | None]:
    """Return a function that reads the recorded usage of a pod by its key, None without any."""
    for feature in FEATURES:
        if feature.recorded_usage:
            read: Callable[[str], UsedAmounts | None] = load(feature.recorded_usage)(world).read
            return read
    return lambda _: None
