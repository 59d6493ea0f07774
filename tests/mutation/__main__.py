"""`python -m tests.mutation [FILE]...`: mutate the pure core, and list the mutants that no test detects.

FILE is a module below `podslice/`; without one, all modules of `tests/pure.py`. Mutants that behave as
the original are listed in `tests/mutation/equivalent.toml` with the reason, and are not counted. The
exit code is 1 if fewer than 97 % of the others are killed, or if an entry of that list no longer
applies.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.mutation.runner import Outcome, Result, Session
from tests.pure import pure_modules

ROOT = Path(__file__).resolve().parents[2]
TESTS = (
    *("tests/unit/model", "tests/unit/policy", "tests/unit/plan"),
    *(
        "tests/unit/reconcile/test_reserved.py",
        "tests/unit/reconcile/test_rollback.py",
        "tests/cases",
        "--ignore=tests/cases/test_hostile.py",
    ),
)
"""The tests of the core; tests of other packages detect more mutants, but take longer.

A feature is tested by its own tests, too.
"""
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
AIM = 0.97


def main() -> int:
    """Test the mutants on all processors, and print the survivors."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("file", nargs="*", type=Path)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    plugin = Session(paths=asked.file or pure_modules(), workers=asked.workers)
    options = (
        "-o",
        "addopts=--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:terminal",
    )
    code = pytest.main([*options, *TESTS, *_feature_tests(plugin.paths)], plugins=[plugin])
    return int(code) or _judge(plugin.results, is_whole=not asked.file)


def _feature_tests(paths: Iterable[Path]) -> Iterator[str]:
    for name in sorted({path.parent.name for path in paths if "features" in path.parts}):
        yield f"tests/unit/features/{name}"


def _judge(results: Sequence[Result], *, is_whole: bool) -> int:
    """Print the survivors and the share of mutants that were killed."""
    entries = tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])
    equivalent = {
        (each["file"], each["function"], each["change"], each["code"]) for each in entries
    }
    lines = {path: Path(path).read_text().split("\n") for path in {each.path for each in results}}

    def identify(result: Result) -> tuple[str, str, str, str]:
        code = lines[result.path][result.line - 1].strip()
        return result.path, result.function, result.change, code

    survived = [each for each in results if each.outcome is not Outcome.KILLED]
    left = [each for each in survived if identify(each) not in equivalent]
    stale = sorted(equivalent - {identify(each) for each in survived}) if is_whole else []
    for result in sorted(left, key=str):
        sys.stdout.write(f"{result.outcome}: {result}\n    {identify(result)[3]}\n")
    for entry in stale:
        sys.stdout.write(f"listed as equivalent, but killed or gone: {' '.join(entry)}\n")
    counted = len(results) - (len(survived) - len(left))
    share = 1 - len(left) / counted if counted else 1.0
    sys.stdout.write(
        f"{len(results)} mutants, {len(survived) - len(left)} of them equivalent,"
        f" {len(left)} survivors: {share:.1%} of the others killed\n"
    )
    return int(share < AIM or bool(stale))


if __name__ == "__main__":
    sys.exit(main())
