"""Mutates the corpus, runs targets within a budget of work, and shrinks the findings.

hypothesis draws the mutations, so that it can also undo those that a find does not need. Work is
counted as calls of functions, which depends on the input alone and not on the machine.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.target import Target

LEAST_CALLS = 100_000
"""Calls that any input may cost, however short: imports and tables created once."""
_EDITS_MAX = 8


class TooMuchWorkError(AssertionError):
    """An input costs more calls than its length allows."""


@dataclass(frozen=True, kw_only=True)
class Find:
    """A minimised input and its error."""

    data: bytes
    error: BaseException


@contextmanager
def counted(calls: int) -> Iterator[None]:
    """Limit the calls made inside.

    Raises:
        TooMuchWorkError: there are more.
    """
    left = calls

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal left
        if event in ("call", "c_call"):
            left -= 1
            if left == 0:
                raise TooMuchWorkError(f"more than {calls} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)


def execute(target: Target, data: bytes) -> None:
    """Run a target on an input, within its budget."""
    with counted(LEAST_CALLS + target.calls * len(data)):
        target.run(data)


def mutations(inputs: list[bytes], tokens: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """Draw an input; cut, repeat, replace and insert parts of it."""
    pieces = st.one_of(
        st.binary(max_size=8),
        *([st.sampled_from(tokens)] if tokens else []),
        st.sampled_from(inputs),
    )

    @st.composite
    def mutated(draw: st.DrawFn) -> bytes:
        data = draw(st.sampled_from(inputs))
        for _ in range(draw(st.integers(0, _EDITS_MAX))):
            start = draw(st.integers(0, len(data)))
            end = draw(st.integers(start, min(len(data), start + 16)))
            part = draw(pieces)
            times = draw(st.sampled_from((1, 1, 1, 2, 100)))
            data = data[:start] + part[:2048] * (times if len(part) <= 16 else 1) + data[end:]
        return data

    return mutated()


def search(target: Target, *, examples: int, number: int | None = None) -> Find | None:
    """Try mutations of a target's corpus; the first finding, minimised, or None.

    Args:
        target: what is fuzzed.
        examples: how many mutations.
        number: chooses them; the same number gives the same ones.
    """
    last: list[Find] = []

    def attempt(data: bytes) -> None:
        try:
            execute(target, data)
        except BaseException as error:
            last[:] = [Find(data=data, error=error)]
            raise

    test = given(mutations(target.inputs() or [b""], target.tokens))(attempt)
    test = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=number is None,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )(test)
    if number is not None:
        test = seed(number)(test)
    try:
        test()
    except Exception:  # noqa: BLE001 - any error is a finding
        return last[0]
    return None


def save(target: Target, find: Find) -> Path:
    """Save a finding in the corpus, where every later round tries it first."""
    path = target.corpus / f"found-{hashlib.sha256(find.data).hexdigest()[:12]}"
    target.corpus.mkdir(parents=True, exist_ok=True)
    path.write_bytes(find.data)
    return path
