"""The decision about a manifest that is only a draft."""

from __future__ import annotations

from podslice.cli.host import load_node
from podslice.cli.output import note
from podslice.errors import Problem
from podslice.features.importing.new_manifest import NewPod, make_document
from podslice.features.importing.present_settings import PresentUse
from podslice.inputs.manifest.load import read_manifest
from podslice.model.config import Config
from podslice.model.desired import PodDecision
from podslice.policy.decide import decide

_YOUNG_SEC = 600
"""Before that the use of a program is not yet typical."""


def decide_draft(pod: NewPod, config: Config) -> tuple[list[PodDecision], list[Problem]]:
    """Return the decision about a pod as the manifest would have it, and all problems."""
    loaded = read_manifest(make_document(pod), "")
    node = load_node(config, lenient=True)
    decisions = [decide(each, node, config) for each in loaded.pods]
    of_pods = (found for each in decisions for found in each.problems)
    return decisions, list(dict.fromkeys((*loaded.problems, *of_pods)))


def note_if_young(use: PresentUse) -> None:
    """Report a program whose use is not yet typical."""
    if use.age_sec < _YOUNG_SEC:
        note(f"{use.what} has run for {use.age_sec} s only: the proposed values may be too low")
