"""`python -m tests.house [--path]`: print the size and the shape of the sources beside their goals.

A package of the core is a directory or module directly below `podslice/`; each feature is a package of
its own. An arrow is a pair of packages of which one imports the other. Lines are all lines of a file;
modules of three lines or less, which only mark a package, do not count as modules.

The path of a memory limit is traced: the tests of `tests/unit/cli/test_memory_limit.py` run with the
systemd in memory, and each call is examined. A module is on the path if one of its functions receives
or returns a value whose `repr` contains the limit. A module that hands the value on inside an object
without a `repr` is not found. The functions executed at all are a second figure. `--path` lists
the modules on the path in the order in which the limit reaches them.

The figures that are rules are tests: `tests/test_layers.py` and `tests/test_static.py`.
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import re
import statistics
import sys
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest

from podslice.model.properties import MANAGED

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "podslice"
TABLE = PACKAGE / "model/properties.py"
PATH_TESTS = ROOT / "tests/unit/cli/test_memory_limit.py"
APPLY, STATUS = "test_apply_sets_it", "test_status_shows_it"
LIMIT_TEXTS = ("73924608", "72192Ki")
"""The limit of these tests in bytes, which its thousandths contain, and as it is printed."""
TRICKS = ("sys.modules", "__mro__")

Arrow = tuple[str, str]


class Source(NamedTuple):
    """A file of the package."""

    path: Path
    text: str
    nodes: tuple[ast.AST, ...]
    """The nodes of the syntax tree, in the order of `ast.walk`, which takes long."""

    @property
    def module(self) -> str:
        """Return its name as it is imported."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts).removesuffix(".__init__")

    @property
    def line_count(self) -> int:
        """Return the number of its lines."""
        return self.text.count("\n")


@functools.cache
def read_sources() -> tuple[Source, ...]:
    """Read the package, once in a process."""
    texts = {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    return tuple(
        Source(path=path, text=text, nodes=tuple(ast.walk(ast.parse(text))))
        for path, text in texts.items()
    )


def package_of(module: str) -> str:
    """Return the package of a module: `policy`, or `features.quadlet`."""
    parts = module.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] == ["features"] else 1])


def is_feature(package: str) -> bool:
    """Return whether a package is a feature, and not of the core."""
    return package.startswith("features.")


def is_core(package: str) -> bool:
    """Return whether a package is of the core; `features` itself lists the features."""
    return package.split(".", maxsplit=1)[0] != "features"


def read_imports(source: Source, known: Iterable[str]) -> set[str]:
    """Return the modules of the package that one of them imports, anywhere in it."""
    found: set[str] = set()
    for node in source.nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}.intersection(known)
            found |= submodules or {node.module}
    return {name for name in found if name.split(".")[0] == "podslice"}


def read_importers(sources: Iterable[Source]) -> dict[str, set[str]]:
    """Return, of each imported module, the modules that import it."""
    sources = list(sources)
    known = {source.module for source in sources}
    importers: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        for name in read_imports(source, known):
            importers[name].add(source.module)
    return importers


def read_arrows(importers: Mapping[str, Iterable[str]]) -> set[Arrow]:
    """Return the arrows: (the package that imports, the package that is imported)."""
    arrows = {
        (package_of(importer), package_of(module))
        for module, names in importers.items()
        for importer in names
    }
    return {(one, other) for one, other in arrows if one and other and one != other}


def core_arrows(arrows: Iterable[Arrow]) -> set[Arrow]:
    """Return the arrows between two packages of the core."""
    return {each for each in arrows if all(map(is_core, each))}


def feature_arrows(arrows: Iterable[Arrow]) -> Counter[str]:
    """Return, of each feature, the number of packages of the core that it imports."""
    return Counter(one for one, other in arrows if is_feature(one) and is_core(other))


def find_cycle(arrows: Iterable[Arrow]) -> set[str]:
    """Return the packages that are on a cycle of imports, or lead to one."""
    left = set(arrows)
    while ended := {other for _, other in left} - {one for one, _ in left}:
        left = {(one, other) for one, other in left if other not in ended}
    return {one for one, _ in left}


def find_tricks(sources: Iterable[Source]) -> list[str]:
    """Return the lines that work around the interpreter or the privacy of a library."""
    return [
        f"{source.path.relative_to(PACKAGE)}: {line.strip()}"
        for source in sources
        for line in source.text.split("\n")
        if any(trick in line for trick in TRICKS)
    ]


def find_property_literals(sources: Iterable[Source], names: Iterable[str]) -> list[str]:
    """Return the names of properties that are written as text outside their table."""
    pattern = re.compile(rf'"({"|".join(names)})"')
    return [
        f"{source.path.relative_to(PACKAGE)}: {match[1]}"
        for source in sources
        if source.path != TABLE
        for match in pattern.finditer(source.text)
    ]


def _comment_lines(source: Source) -> int:
    """Count the lines that hold only a comment."""
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
    comments = (each for each in tokens if each.type == tokenize.COMMENT)
    return sum(each.line.strip().startswith("#") for each in comments)


def _import_lines(source: Source) -> int:
    nodes = (each for each in source.nodes if isinstance(each, ast.Import | ast.ImportFrom))
    return sum((each.end_lineno or each.lineno) - each.lineno + 1 for each in nodes)


def _dataclasses(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and any(
            "dataclass" in ast.dump(each) for each in node.decorator_list
        ):
            yield node.name


def _calls(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func).rpartition(".")[2]


class PathTrace:
    """A plugin of pytest that records the modules through which the limit of a test passes."""

    def __init__(self) -> None:
        self.crossed: dict[str, dict[str, None]] = {}
        """Test → modules, in the order in which the limit reaches them."""
        self.executed: dict[str, set[str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Iterator[None]:
        """Trace the body of a test, without its fixtures."""
        crossed = self.crossed.setdefault(pyfuncitem.name, {})
        executed = self.executed.setdefault(pyfuncitem.name, set())

        def examine(frame: FrameType, event: str, value: object) -> None:
            module = str(frame.f_globals.get("__name__"))
            is_ours = module.startswith("podslice.") and frame.f_code.co_name != "<module>"
            if not is_ours or event not in ("call", "return"):
                return
            executed.add(module)
            if module not in crossed:
                values = frame.f_locals.values() if event == "call" else (value,)
                if any(map(_has_limit, values)):
                    crossed[module] = None

        threading.setprofile(examine)
        sys.setprofile(examine)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def _has_limit(value: object) -> bool:
    with suppress(Exception):  # an object that is being built may have no `repr` yet
        text = repr(value)
        return any(each in text for each in LIMIT_TEXTS)
    return False


def trace_path() -> PathTrace:
    """Trace a memory limit through an apply, and through an apply and `status`."""
    trace = PathTrace()
    with redirect_stdout(io.StringIO()) as output:
        code = pytest.main(["-q", "-p", "no:cacheprovider", str(PATH_TESTS)], plugins=[trace])
    if code:
        raise SystemExit(output.getvalue())
    return trace


class Row(NamedTuple):
    """A figure with its goal."""

    name: str
    value: float
    goal: float | None = None
    is_least: bool = False

    def __str__(self) -> str:
        text = f"{self.name:46}{self.value:>8,}"
        if self.goal is None:
            return text
        is_met = self.value >= self.goal if self.is_least else self.value <= self.goal
        sign = "≥" if self.is_least else "≤"
        return f"{text}  {sign} {self.goal:,}{'' if is_met else '  MISSED'}"


def measure_size(sources: Sequence[Source], importers: Mapping[str, set[str]]) -> Iterator[Row]:
    """Measure lines, modules and values."""
    real = [each for each in sources if each.line_count > 3]
    core = [each for each in sources if is_core(package_of(each.module))]
    lines = sum(each.line_count for each in sources)
    yield Row("lines", lines, 50_500)
    yield Row("lines of the core", sum(each.line_count for each in core), 29_000)
    yield Row("modules", len(real), 210)
    yield Row("modules of the core", sum(each in core for each in real), 125)
    median = statistics.median(each.line_count for each in real)
    yield Row("lines of the median module", median, 180, is_least=True)
    yield Row("import lines, %", round(100 * sum(map(_import_lines, sources)) / lines, 1), 5)
    single = [each for each in real if len(importers.get(each.module, ())) == 1]
    yield Row("modules with one importer", len(single), 20)

    dataclasses = [name for source in sources for name in _dataclasses(source)]
    built = Counter(name for source in sources for name in _calls(source))
    yield Row("dataclasses", len(dataclasses), 220)
    yield Row("dataclasses built in one place", sum(built[each] == 1 for each in dataclasses), 110)
    comments = sum(map(_comment_lines, sources))
    yield Row("comment lines in 100", round(100 * comments / lines, 1), 2, is_least=True)
    tests = sum(path.read_text().count("\n") for path in (ROOT / "tests").rglob("*.py"))
    yield Row("lines of tests", tests, 60_000)
    yield Row("lines of tests for each line", round(tests / lines, 2), 1.3)


def measure_shape(sources: Sequence[Source], importers: Mapping[str, set[str]]) -> Iterator[Row]:
    """Measure arrows and exceptions to rules."""
    arrows = read_arrows(importers)
    outward = feature_arrows(arrows)
    upward = [each for each in arrows if is_feature(each[1]) and is_core(each[0])]
    yield Row("features", len(outward), 9, is_least=True)
    yield Row("arrows between packages of the core", len(core_arrows(arrows)), 55)
    yield Row("packages of the core on a cycle", len(find_cycle(core_arrows(arrows))), 0)
    yield Row("packages of the core that a feature imports", max(outward.values()), 7)
    yield Row("arrows from the core to a feature", len(upward), 0)
    yield Row("arrows between features", sum(all(map(is_feature, each)) for each in arrows), 3)
    properties = {name for names in MANAGED.values() for name in names}
    yield Row("lines with a trick", len(find_tricks(sources)), 0)
    yield Row("literals of properties", len(find_property_literals(sources, properties)), 5)


def measure_path(trace: PathTrace) -> Iterator[Row]:
    """Measure the way of a memory limit."""
    yield Row("modules that a memory limit crosses", len(trace.crossed[STATUS]), 45)
    yield Row("modules that it crosses in `apply`", len(trace.crossed[APPLY]), 20)
    yield Row("modules executed", len(trace.executed[STATUS]))
    yield Row("modules executed in `apply`", len(trace.executed[APPLY]))


def main() -> None:
    """Print the figures, or the path of a memory limit."""
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("--path", action="store_true")
    if parser.parse_args().path:
        trace = trace_path()
        for name in (APPLY, STATUS):
            modules = trace.crossed[name]
            sys.stdout.write("\n".join((f"{name}: {len(modules)} modules", *modules, "")))
        return
    sources = read_sources()
    importers = read_importers(sources)
    for row in chain(
        measure_size(sources, importers),
        measure_shape(sources, importers),
        measure_path(trace_path()),
    ):
        sys.stdout.write(f"{row}\n")


if __name__ == "__main__":
    main()
