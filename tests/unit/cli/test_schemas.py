"""The schemas of JSON documents in docs/json, and the document of a verb that fails."""

import json
import sys
from pathlib import Path

import pytest

from podslice.cli.report import ProblemsReport, schema
from tests.unit.builders import manifest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "packaging"))
import generate  # noqa: E402 - after the path

DIRECTORY = ROOT / "docs/json"


def test_the_schemas_are_those_of_the_reports(update_cases):
    if "description" not in schema(ProblemsReport, ""):
        pytest.skip("this version of pydantic writes no descriptions")
    made = generate.schema_files()
    if update_cases:
        for name, text in made.items():
            (DIRECTORY / name).write_text(text)
    assert {path.name: path.read_text() for path in DIRECTORY.iterdir()} == made, (
        "run packaging/generate.py --schemas docs/json"
    )


@pytest.mark.parametrize("format_", [["-o", "json"], ["-ojson"], ["--output", "json"]])
def test_a_verb_that_fails_prints_its_problems(podslice, files, format_):
    files({"web.json": manifest("web", {"cpu": "1"})})
    ended = podslice("plan", "-f", "web.json", "-n", "Wrong", *format_)
    assert ended.code == 2
    [problem] = json.loads(ended.out)["problems"]
    assert problem["severity"] == "error"
    assert problem["where"].startswith("--namespace")
    assert ended.err == f"error: {problem['where']}: {problem['message']}" + (
        f"; {problem['hint']}\n" if problem["hint"] else "\n"
    )


def test_a_wrong_command_line_is_a_problem(podslice):
    ended = podslice("plan", "--output=json", "--unknown")
    assert ended.code == 2
    assert json.loads(ended.out)["problems"][0]["message"] == "no such option: --unknown"


def test_another_error_is_a_problem(podslice, no_systemd):
    ended = podslice("delete", "web", "-o", "json")
    assert ended.code == 1
    assert "no such file" in json.loads(ended.out)["problems"][0]["message"]


def test_the_format_of_a_command_is_its_own(podslice):
    ended = podslice("run", "web", "-n", "Wrong_", "--", "echo", "-o", "json")
    assert (ended.code, ended.out) == (2, "")
