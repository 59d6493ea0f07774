"""Fuzz targets: projects."""

from __future__ import annotations

from pathlib import Path

import yaml

from podslice.errors import InputError, Severity
from podslice.features.compose.manifest import PodDraft, format_yaml, make_override, unsupported_by
from podslice.features.compose.project import Settings, read_project
from podslice.features.compose.tools import ComposeTool, parse_resolved
from podslice.inputs.manifest.load import read_manifest
from podslice.model.config import Config
from podslice.policy.decide import decide
from tests.fuzz.target import HOSTILE, NODE, QUANTITIES, YAML, Target, check_problems

CORPUS = Path(__file__).parent / "corpus"
_COMPOSE = (b"deploy: ", b"resources: ", b"1.5gb", b"cpu_shares: ", b"scale: ", b"x-podslice: ")


def run_compose(data: bytes) -> None:
    """Read a resolved project, and write its pod and its override file."""
    try:
        project = read_project(parse_resolved(data, "a.yaml"))
    except InputError as error:
        check_problems(error.problems)
        return
    draft = PodDraft(project, Settings())
    loaded = read_manifest(draft.document, "")
    (pod,) = loaded.pods
    decision = decide(pod, NODE, Config())
    problems = draft.problems((*loaded.problems, *decision.problems))
    check_problems((*problems, *unsupported_by(ComposeTool.PODMAN_COMPOSE, project)))
    if all(each.severity is not Severity.ERROR for each in problems):
        assert yaml.safe_load("\n".join(draft.lines())) == draft.document
        override = make_override(project, decision, has_oom_scores=False)
        assert override.keys() == {"services"}
        assert list(format_yaml(override))


TARGETS = (
    Target(
        home=CORPUS,
        name="compose",
        run=run_compose,
        seeds=("tests/unit/features/compose/cases/*/project.yaml",),
        tokens=(*YAML, *QUANTITIES, *HOSTILE, *_COMPOSE),
        calls=2000,
    ),
)
