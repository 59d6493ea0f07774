"""Work in steps: pure code yields where it can pause, and its caller decides whether to.

A command runs all steps at once. The agent returns to its event loop between them, so that a large
manifest delays neither an eviction nor an answer of `/healthz`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that yields after each bounded part of it, and returns its result."""


def finish(steps: Steps[T]) -> T:
    """Run all steps; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def at_once(work: Callable[P, Steps[T]]) -> Callable[P, T]:
    """Return a function that runs all steps of the work."""

    @wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return finish(work(*args, **kwargs))

    return run


def paced(items: Iterable[T], every: int) -> Iterator[T | None]:
    """Yield the items, and None as a pause after each `every` of them."""
    for number, item in enumerate(items, 1):
        yield item
        if number % every == 0:
            yield None
