"""The linters, and further checks of the sources; a linter that is not installed is skipped."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from podslice import __version__
from podslice.model.properties import MANAGED
from tests import house, prose

ROOT = Path(__file__).resolve().parents[1]


def run_tool(module, *arguments):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    result = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        pytest.fail(result.stdout + result.stderr, pytrace=False)


def test_ruff_finds_nothing():
    run_tool("ruff", "check", "podslice", "tests", "packaging", "examples")


def test_ruff_would_format_nothing():
    run_tool("ruff", "format", "--check", "podslice", "tests", "packaging", "examples")


def test_mypy_finds_nothing():
    run_tool("mypy")


KERNEL_FILES = re.compile(r"(^|/)(proc|sys)/")


def calls_of_methods(source):
    """Yield the calls of a module that are of the form `x.name(…)`, with the name."""
    for node in source.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr, node


def separator_of(call):
    """Return the separator that a call of `split` or `strip` states."""
    stated = [*call.args[:1], *(each.value for each in call.keywords if each.arg == "sep")]
    return stated[0].value if stated and isinstance(stated[0], ast.Constant) else stated or None


def reads_the_kernel(source):
    """Return whether a module names a file in /proc or /sys, or imports the parser of their text."""
    return any(
        (isinstance(node, ast.ImportFrom) and node.module == "podslice.kernel.text")
        or (isinstance(node, ast.Constant) and KERNEL_FILES.search(str(node.value)))
        for node in source.nodes
    )


def test_text_is_split_only_where_lines_and_fields_end():
    """Users choose names in /proc; podslice/kernel/text.py describes the consequences."""
    wrong = [
        f"{source.path.relative_to(ROOT)}:{call.lineno}: {name}"
        for source in house.read_sources()
        for name, call in calls_of_methods(source)
        if name == "splitlines" or (name in {"split", "rsplit"} and separator_of(call) is None)
    ]
    assert not wrong


def test_text_of_the_kernel_is_read_and_stripped_by_one_helper():
    """`Path.read_text` turns carriage returns into ends of lines and fails where UTF-8 does."""
    wrong = [
        f"{source.path.relative_to(ROOT)}:{call.lineno}: {name}"
        for source in house.read_sources()
        if reads_the_kernel(source)
        for name, call in calls_of_methods(source)
        if name == "read_text"
        or (name in {"strip", "lstrip", "rstrip"} and separator_of(call) is None)
    ]
    assert not wrong


def test_no_module_works_around_the_interpreter():
    assert not list(house.find_tricks(house.read_sources()))


def test_properties_are_named_by_the_constants_of_their_table():
    names = {name for names in MANAGED.values() for name in names}
    assert not house.find_property_literals(house.read_sources(), names)


# What is not plain technical English, and what to write instead. Each pattern is precise: it also
# matches in a name, with spaces for underscores, and over the ends of lines.
IDIOMS = {
    r"told|tells?|telling": "reported, logged, notified; shows",
    r"says|said": "reports, states; reported, stated",
    r"(some|no|any|every)body": "the subject: the client, another program, other users",
    r"whoever|(?<!kill-)whom(ever)?": "the subject: the client, the caller",
    r"anew": "again",
    r"name spaces?": "namespace",
    r"in sight": "reachable, visible",
    r"(is|are|was|were|be|it|them) passed over": "ignored",
    r"(has|have|had) to be": "must be",
    r"(?<!there )(is|are|was|were) no (?!longer|more than|less than)\w+": "is not a …; unknown …",
    r"at hand": "available",
    r"for want of": "for lack of",
    r"of (its|their) own accord": "by itself",
    r"stands (twice|in(?! for)|at|below|beside)": "is, is stated",
    r"any ?more|(is|are|was|were|so|and) no more(?! than)": "no longer",
    r"what runs in": "the processes of",
    r"(is|are) able": "can, supports",
    r"had better": "should",
    r"another's": "of another …",
    r"uncordon(s|ed)?": "readmit",
    r"seed 0\d\d": "the name of the document, as in podslice-policy(7)",
}
HELD = [
    *("CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "README.md", "SECURITY.md", "pyproject.toml"),
    *("examples", "packaging", "podslice", "tests", "units"),
]
# (file, words): why these words stay
QUOTED = {
    ("podslice/cli/suggestions.py", "uncordon"): "the verb of kubectl",
    ("tests/unit/cli/mistakes.toml", "uncordon"): "the verb of kubectl",
    ("tests/cases/config.toml", "has to be set to"): "the words of the proposal",
    ("tests/host/test_placement.py", "--uid=nobody"): "the user",
    ("tests/test_static.py", ""): "the table itself",
}


def test_unit_tests_run_without_hypothesis():
    """Debian's package is tested with them, in a machine that does not have it."""
    found = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests/unit").rglob("test_*.py"))
        if re.search(
            r"(?m)^(from|import) (hypothesis|tests.unit.properties.strategies)\b",
            text := path.read_text(),
        )
        and 'pytest.importorskip("hypothesis")' not in text
    ]
    assert found == []


def replacement(found):
    """What to write in place of an idiom."""
    return next(
        instead
        for pattern, instead in IDIOMS.items()
        if re.fullmatch(pattern, found, re.IGNORECASE)
    )


def test_prose_has_no_idioms():
    """Documentation, comments, strings and names are in the words of systemd and Kubernetes."""
    idiom = re.compile(rf"\b(?:{'|'.join(IDIOMS)})\b", re.IGNORECASE)
    found = {
        f"{name}:{line}: {match[0]!r}; write: {replacement(match[0])}"
        for path in prose.files([ROOT / each for each in HELD])
        for name in [str(path.relative_to(ROOT))]
        for line, text in prose.read(path)
        for match in idiom.finditer(text)
        if not any(file == name and words in text for file, words in QUOTED)
    }
    assert not found, "\n".join(sorted(found))


def test_the_changelog_begins_with_the_version():
    headings = [
        line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")
    ]
    assert __version__ in headings[0]
