"""The prose of a file: the text itself, or comments, strings and names of a Python module."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TEXT = (".md", ".service", ".slice", ".socket", ".conf", ".preset", ".catalog", ".rules", ".spec")
TEXT += (".toml", ".yaml", ".yml", ".txt", ".c", ".sh", ".postrm", ".prerm", ".Debian", ".mk", "")
GENERATED = {"copyright", "requirements.txt", "requirements-dev.txt", "uv.txt", "LICENSE"}

DATA = {"corpus", "plots", "__pycache__"}


def files(paths: list[Path]) -> Iterator[Path]:
    """Yield the files with prose among the given files and below the given directories."""
    for path in paths:
        for each in [path] if path.is_file() else sorted(path.rglob("*")):
            is_prose = each.suffix in (".py", *TEXT) and each.name not in GENERATED
            if is_prose and each.is_file() and not DATA.intersection(each.parts):
                yield each


def read(path: Path) -> Iterator[tuple[int, str]]:
    """Yield paragraphs with the line in which each begins; white space is one space each."""
    text = path.read_text(errors="replace")  # some cases are not UTF-8
    blocks = _python(text) if path.suffix == ".py" else _paragraphs(text)
    yield from ((line, " ".join(block.split())) for line, block in blocks)


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Split a text at empty lines; drop the marks of comments at the beginnings of lines."""
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        words = line.strip().removeprefix("#").removeprefix("//")
        if words:
            block.append(words)
        elif block:
            yield number - len(block), "\n".join(block)
            block = []


def _python(text: str) -> Iterator[tuple[int, str]]:
    yield from _comments(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            parts = [each.value if isinstance(each, ast.Constant) else "{}" for each in node.values]
            yield node.lineno, "".join(str(each) for each in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name.replace("_", " ")


_COMMENT = re.compile(r"(?:^|  ) *#(.*)$")
"""The formatter puts two spaces before a comment that follows code."""


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield comments; those of adjacent lines are one.

    A line of a string may look like one. Its text is read twice then, which does no harm, and a
    search for lines is much faster than `tokenize`.
    """
    block: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        if comment := _COMMENT.search(line):
            block.append(comment[1].lstrip("# "))
        elif block:
            yield number - len(block), "\n".join(block)
            block = []
