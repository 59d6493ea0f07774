"""`python -m tests.mutation [FILE]...`: mutate the pure core, and list the mutants that no test detects.

FILE is a module below `podslice/`; without one, all modules of `tests/pure.py`. Mutants that behave as
the original are listed in `tests/mutation/equivalent.toml` with the reason, and are not counted. The
exit code is 1 if fewer than 97 % of the others are killed, or if an entry of that list no longer
applies.

With `--rooms SEED`, the modules with effects are mutated instead: of each kind of change one in each
room, chosen at random, which the tests without a virtual machine must detect in 85 % of the cases:
unit tests, cases, and those on the bus of a systemd in namespaces.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.mutation.operators import kinds
from tests.mutation.runner import Outcome, Result, Session
from tests.pure import pure_modules

ROOT = Path(__file__).resolve().parents[2]
TESTS = (
    *("tests/unit/model", "tests/unit/policy", "tests/unit/plan"),
    *(
        "tests/unit/reconcile/test_reserved.py",
        "tests/unit/reconcile/test_rollback.py",
        "tests/unit/cli/test_property_row.py",  # makes the tables of properties again
        "tests/cases",
        "--ignore=tests/cases/test_hostile.py",
    ),
)
"""The tests of the core; tests of other packages detect more mutants, but take longer.

A feature is tested by its own tests, too.
"""
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
AIM = 0.97

ROOMS = {
    "reconcile": ("reconcile",),
    "systemd": ("systemd",),
    "agent": ("agent",),
    "quadlet": ("features/quadlet",),
    "features": tuple(
        f"features/{path.name}"
        for path in sorted((ROOT / "podslice/features").iterdir())
        if path.is_dir() and path.name not in ("quadlet", "__pycache__")
    ),
}
"""Rooms with effects → their packages."""
ROOM_TESTS = (
    *(f"tests/unit/{name}" for name in ("reconcile", "systemd", "agent", "store", "features")),
    *("tests/unit/cli", "tests/cases", "--ignore=tests/cases/test_hostile.py"),
    *("tests/bus", "--ignore=tests/bus/test_lab_namespace.py"),
)
ROOM_AIM = 0.85


def main() -> int:
    """Test the mutants on all processors, and print the survivors."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("file", nargs="*", type=Path)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rooms", type=int, metavar="SEED")
    asked = parser.parse_args()
    if asked.rooms is not None:
        chosen = _choose(random.Random(asked.rooms))
        plugin = Session([*chosen], asked.workers, chosen)
        code = _run(plugin, ROOM_TESTS)
        return code or _judge(plugin.results, aim=ROOM_AIM, is_whole=False)
    plugin = Session(asked.file or pure_modules(), asked.workers)
    code = _run(plugin, (*TESTS, *_feature_tests(plugin.paths)))
    return code or _judge(plugin.results, aim=AIM, is_whole=not asked.file)


def _run(plugin: Session, tests: Iterable[str]) -> int:
    options = (
        "-o",
        "addopts=--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:terminal",
    )
    return int(pytest.main([*options, *tests], plugins=[plugin]))


def _feature_tests(paths: Iterable[Path]) -> Iterator[str]:
    for name in sorted({path.parent.name for path in paths if "features" in path.parts}):
        yield f"tests/unit/features/{name}"


def _choose(chance: random.Random) -> dict[Path, frozenset[int]]:
    """Choose one mutant of each kind in each room: the numbers of those of each module."""
    chosen: dict[Path, set[int]] = defaultdict(set)
    for packages in ROOMS.values():
        places: dict[str, list[tuple[Path, int]]] = defaultdict(list)
        for package in packages:
            for path in sorted(Path("podslice", package).rglob("*.py")):
                if path not in pure_modules():
                    for number, kind in enumerate(kinds(path.read_text())):
                        places[kind].append((path, number))
        for _, found in sorted(places.items()):
            path, number = chance.choice(found)
            chosen[path].add(number)
    return {path: frozenset(numbers) for path, numbers in chosen.items()}


def _judge(results: Sequence[Result], *, aim: float, is_whole: bool) -> int:
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
    return int(share < aim or bool(stale))


if __name__ == "__main__":
    sys.exit(main())
