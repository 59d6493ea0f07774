"""Compose projects: one folder for each case, with the manifest and the override file.

    project.yaml    the project as its tool has resolved it
    options.toml    budget, name and reserve (as on the command line), tool, and rules; none where there
                    is no such file
    problems.txt    everything that is reported; none where nothing is
    pod.yaml        the manifest; none where the project is refused
    override.yaml   the override file; none where the project is refused

--update-cases rewrites the last three.
"""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

import pytest
import yaml

from podslice.cli.views.problem_lines import problem_line
from podslice.cli.views.runtime_options import CONTAINER_LABEL, POD_LABEL
from podslice.errors import Severity
from podslice.features.compose.manifest import PodDraft, format_yaml, make_override, unsupported_by
from podslice.features.compose.project import Settings, parse_budget, read_project
from podslice.features.compose.tools import ComposeTool, parse_resolved
from podslice.inputs.manifest.load import read_manifest
from podslice.model.config import Config, Rules
from podslice.model.node import Node
from podslice.policy.decide import decide

PROJECTS = Path(__file__).parent / "cases"
CASES = sorted(path.name for path in PROJECTS.iterdir() if path.is_dir())
NODE = Node(capacity={"cpu": 8_000, "memory": 2**35 * 1000})


@dataclasses.dataclass(kw_only=True)
class Result:
    """What becomes of a project."""

    project: object
    document: dict
    manifest: str
    override: dict
    problems: list
    pod: object

    @property
    def is_refused(self):
        return any(each.severity is Severity.ERROR for each in self.problems)


def convert(data, options):
    """Convert a resolved project as the verb does."""
    project = read_project(parse_resolved(data, "project.yaml"))
    found = unsupported_by(ComposeTool(options.get("tool", "docker")), project)
    project = project._replace(problems=(*project.problems, *found))
    budget = parse_budget(options["budget"], "--budget") if "budget" in options else {}
    reserve = options.get("reserve", False)
    draft = PodDraft(project, Settings(name=options.get("name"), budget=budget, reserve=reserve))
    loaded = read_manifest(draft.document, "")
    (pod,) = loaded.pods
    decided = decide(pod, NODE, Config(rules=Rules(options.get("rules", "proposal"))))
    problems = draft.problems((*loaded.problems, *decided.problems))
    return Result(
        project=project,
        document=draft.document,
        manifest="".join(f"{line}\n" for line in draft.lines()),
        override=make_override(project, decided, has_oom_scores=reserve),
        problems=problems,
        pod=decided,
    )


@pytest.fixture(params=CASES)
def path(request):
    return PROJECTS / request.param


@pytest.fixture
def result(path):
    options = path / "options.toml"
    stated = tomllib.loads(options.read_text()) if options.exists() else {}
    return convert((path / "project.yaml").read_bytes(), stated)


def check(path, text, *, update):
    """Compare a text with a file, which does not exist where the text is empty."""
    if update and text:
        path.write_text(text)
    elif update:
        path.unlink(missing_ok=True)
    assert text == (path.read_text() if path.exists() else "")


def test_a_project_becomes_this(path, result, update_cases):
    problems = "".join(f"{problem_line(each)}\n" for each in result.problems)
    override = "".join(f"{line}\n" for line in format_yaml(result.override))
    check(path / "problems.txt", problems, update=update_cases)
    is_made = not result.is_refused
    check(path / "pod.yaml", result.manifest if is_made else "", update=update_cases)
    check(path / "override.yaml", override if is_made else "", update=update_cases)


def test_the_texts_have_the_values(result):
    assert yaml.safe_load(result.manifest) == result.document
    assert yaml.safe_load("\n".join(format_yaml(result.override))) == result.override


def test_the_override_adds_only(path, result):
    """It states nothing that the project states, but the slice."""
    stated = yaml.safe_load((path / "project.yaml").read_text())["services"]
    for name, added in result.override["services"].items():
        assert added.keys() & stated[name].keys() <= {"cgroup_parent", "labels"}
        assert not added.keys() & {"deploy", "mem_limit", "mem_reservation", "cpus", "cpu_quota"}


def test_every_service_of_the_override_is_in_the_pod(result):
    names = {each["name"] for each in result.document["spec"]["containers"]}
    for added in result.override["services"].values():
        assert added["cgroup_parent"] == result.pod.slice
        assert added["labels"][POD_LABEL] == result.pod.pod.key
        assert added["labels"].get(CONTAINER_LABEL, next(iter(names))) in names
