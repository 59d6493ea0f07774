"""What the options of `simulate` assume about pods and slices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from podslice.cli.arguments import key_of, nearest_pod
from podslice.errors import InputError, Problem
from podslice.model.cpu_list import parse_cpus
from podslice.policy.cpu_tree import Assumptions

_NAME = "NAME is a pod, or a slice outside of the pods"
_THREADS_MAX = 100_000
_THREADS = (f"is not NAME=NUMBER with a number from 1 to {_THREADS_MAX}", "as web=2")
_SHOWN = 64
"""Characters of a wrong value."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumptionOptions:
    """The values of the options, as they are on the command line."""

    idle: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    """`NAME=NUMBER`."""
    cpus: tuple[str, ...] = ()
    """`NAME=LIST`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the options can name, and the CPUs that there are."""

    pods: Collection[str]
    slices: Collection[str]
    namespace: str | None
    cpu_count: int


def read_assumptions(stated: AssumptionOptions, known: Known) -> Assumptions:
    """Return what the options assume, by pod (`namespace/name`) or slice.

    Raises:
        InputError: options are wrong; it has every problem.
    """
    problems: list[Problem] = []
    last = known.cpu_count - 1
    cpus = (f"is not NAME=LIST with CPUs from 0 to {last}", f"as web=0-{last}")

    def parse_present(text: str) -> frozenset[int]:
        numbers = parse_cpus(text)
        if not numbers or max(numbers) > last:
            raise ValueError(text)
        return frozenset(numbers)

    found = Assumptions(
        idle=frozenset(_find("--idle", stated.idle, known, problems)),
        threads=dict(
            _pairs("--threads", stated.threads, _parse_threads, _THREADS, known, problems)
        ),
        cpus=dict(_pairs("--allowed-cpus", stated.cpus, parse_present, cpus, known, problems)),
    )
    if problems:
        raise InputError(problems)
    return found


def _parse_threads(text: str) -> int:
    """Parse a number of threads.

    Raises:
        ValueError: it is not a number in the range.
    """
    number = int(text) if len(text) <= len(str(_THREADS_MAX)) else 0
    if not 0 < number <= _THREADS_MAX:
        raise ValueError(text)
    return number


def _pairs(
    option: str,
    texts: Iterable[str],
    parse: Callable[[str], T],
    wrong: tuple[str, str],
    known: Known,
    problems: list[Problem],
) -> Iterator[tuple[str, T]]:
    """Yield the names with their values; `wrong` is the message and the hint for others."""
    for text in texts:
        name, _, value = text.partition("=")
        try:
            parsed = parse(value)
        except ValueError:
            message, hint = wrong
            problems.append(
                Problem(where=option, message=f"{text[:_SHOWN]!r} {message}", hint=hint)
            )
        else:
            for key in _find(option, (name,), known, problems):
                yield key, parsed


def _find(
    option: str, names: Iterable[str], known: Known, problems: list[Problem]
) -> Iterator[str]:
    """Yield the keys of pods and the slices that are known; the others are problems."""
    for name in names:
        if name in known.slices:
            yield name
        elif (key := key_of(name, known.namespace)) in known.pods:
            yield key
        else:
            slices = f"slices: {', '.join(known.slices)}" if known.slices else ""
            hint = nearest_pod(key, known.pods) or slices or _NAME
            problems.append(Problem(where=option, message=f"{name!r} is unknown", hint=hint))
