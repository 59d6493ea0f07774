"""A fuzz target: a reader of text or bytes from other programs.

A target takes bytes and raises nothing unless the reader is at fault: an error that its docstring
does not name, a value of another type than it promises, or a value that does not survive being
written and read again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from podslice.cli.views.problem_lines import problem_line
from podslice.errors import Problem
from podslice.model.node import Node

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
CORPUS = HERE / "corpus"
NODE = Node(capacity={"cpu": 8_000, "memory": 2**35 * 1000, "hugepages-2Mi": 2**30 * 1000})
SEED_BYTES_MAX = 8 * 1024
PODS_MAX = 20
"""Pods of one input that are decided; the others differ only in their names."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One reader."""

    name: str
    run: Callable[[bytes], None]
    seeds: tuple[str, ...] = ()
    """Globs below `tests` and `examples` for inputs besides the corpus."""
    texts: tuple[bytes, ...] = ()
    """Further inputs."""
    tokens: tuple[bytes, ...] = ()
    """Tokens that mutations insert, besides random bytes."""
    calls: int
    """Calls of functions that each byte of input may cost."""
    home: Path = CORPUS
    """The directory of the corpora, each with the name of a target."""

    @property
    def corpus(self) -> Path:
        """Return the directory of its seeds and findings."""
        return self.home / self.name

    def inputs(self) -> list[bytes]:
        """Return the corpus and the other seeds, sorted by name."""
        paths = [path for glob in self.seeds for path in sorted(TESTS.parent.glob(glob))]
        corpus = [path.read_bytes() for path in sorted(self.corpus.glob("*"))]
        contents = [*corpus, *self.texts, *(path.read_bytes() for path in paths)]
        return [content for content in contents if len(content) <= SEED_BYTES_MAX]


@cache
def scratch() -> Path:
    """Return a directory for readers of files; it is removed when the process exits."""
    directory = tempfile.TemporaryDirectory(prefix="podslice-fuzz-")
    SCRATCH.append(directory)
    return Path(directory.name)


SCRATCH: list[tempfile.TemporaryDirectory[str]] = []


def check_problems(problems: tuple[Problem, ...]) -> None:
    """Check that problems are printable: each on one line, and shorter than the input."""
    for problem in problems:
        shown = problem_line(problem)
        assert shown.isprintable()
        assert len(shown) < 4096


QUANTITIES = (b"1e3", b"0.1", b"-1", b"9223372036854775808", b"1Ei", b"100u", b"0x1F", b"1_0")
YAML = (
    b"&a ",
    b"*a",
    b"<<: ",
    b"? ",
    b"- ",
    b": ",
    b"\n  ",
    b"!!str ",
    b"---\n",
    b"|\n",
    b"%TAG ",
)
HOSTILE = (b"\x00", b"\xff", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0c", b"\x1b[31m", b"\xed\xa0\x80")
JSON = (b"{", b"[", b"null", b"1e400", b'"\\ud800"', b'""', b"]", b"}", b",", b"true", b"-0.0")
FIELDS = (b"replicas", b"limits", b"hugepages-2Mi", b"initContainers", b"List", b"items", b"uid")
