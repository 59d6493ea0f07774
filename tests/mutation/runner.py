"""Run the tests against mutants, in a process of its own for each.

The tests are imported and collected once. A first pass, in which each function records its call,
shows which tests enter which function. Each mutant then gets a fork of that process, in which the
code of one function is replaced, and the tests that enter it run until one fails. This takes a
fraction of a second where a tool that starts pytest for each mutant takes several.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import importlib
import itertools
import os
import pickle
import resource
import signal
import sys
import time
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.operators import Mutant, mutate, probed

MEMORY_BYTES = 4 * 2**30
LEAST_SEC, FACTOR = 20, 4
"""The time limit of a mutant: these seconds, and this many times the time of its tests without a mutation."""
WALL_FACTOR = 3
"""Beside the other workers, tests take up to this many times as long as alone."""
_PROBE = "entered in "
"""The beginning of the name of the builtin that functions of a file call in the first pass."""

_SURVIVED, _KILLED, _NOT_INSTALLED = 0, 1, 2
"""Exit codes of a fork."""

Key = tuple[str, str]
"""The file and the qualified name of a function."""


class Outcome(StrEnum):
    """The result of the tests of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNTESTED = "untested"
    """No test enters its function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A mutant and its outcome."""

    path: str
    line: int
    function: str
    change: str
    outcome: Outcome

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function}: {self.change}"


@dataclass(slots=True)
class Session:
    """A plugin of pytest that tests mutants in place of running the tests once."""

    paths: Sequence[Path]
    workers: int
    chosen: Mapping[Path, frozenset[int]] | None = None
    """The numbers of the mutants of each module that are tested; without it, all are."""
    results: list[Result] = field(default_factory=list)
    _items: dict[Key, list[pytest.Item]] = field(default_factory=dict)
    """The tests that enter a function, the fastest first."""
    _cpu_sec: dict[Key, int] = field(default_factory=dict)
    """The limit of processor time for the tests of a mutant; an endless loop exceeds it."""
    _wall_sec: dict[Key, int] = field(default_factory=dict)
    """The time limit for the tests of a mutant; waiting for what never comes exceeds it."""
    _functions: dict[Key, list[types.FunctionType]] = field(default_factory=dict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Record what each test enters, then test the mutants on all workers."""
        gc.unfreeze()  # what tests/conftest.py has frozen is not listed
        for path in self.paths:
            importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
        self._functions = functions_of({str(path.resolve()) for path in self.paths})
        self._record(session.items)
        gc.freeze()  # a fork shares what the collector of cycles does not touch
        pipes = [self._start(number) for number in range(self.workers)]
        for pipe in pipes:
            with os.fdopen(pipe, "rb") as stream:
                self.results += pickle.load(stream)  # noqa: S301 - from a fork of this process
            os.wait()
        return True

    def _start(self, number: int) -> int:
        """Start a worker, which tests every nth mutant; return the descriptor of its results."""
        reading, writing = os.pipe()
        if os.fork():
            os.close(writing)
            return reading
        code = 1
        try:
            with os.fdopen(writing, "wb") as stream:
                pickle.dump([*self._work(number)], stream)
            code = 0
        except Exception:  # noqa: BLE001 - the process ends here: nothing else would print it
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)

    def _work(self, number: int) -> Iterator[Result]:
        for path, mutant in itertools.islice(self._mutants(), number, None, self.workers):
            outcome = self._test((str(path.resolve()), mutant.function), mutant)
            if outcome is not Outcome.KILLED:
                sys.__stderr__.write(f"{outcome}: {path}:{mutant.line} {mutant.change}\n")
            yield Result(
                path=str(path),
                line=mutant.line,
                function=mutant.function,
                change=mutant.change,
                outcome=outcome,
            )

    def _mutants(self) -> Iterator[tuple[Path, Mutant]]:
        for path in self.paths:
            chosen = None if self.chosen is None else self.chosen.get(path, ())
            for mutant in mutate(path.read_text(), chosen):
                yield path, mutant

    def _test(self, key: Key, mutant: Mutant) -> Outcome:
        tests = self._items.get(key, [])
        return self._fork(key, mutant, tests) if tests else Outcome.UNTESTED

    def _record(self, items: Sequence[pytest.Item]) -> None:
        originals = {each: each.__code__ for found in self._functions.values() for each in found}
        seen: set[Key] = set()
        for path in self.paths:
            self._probe(path, seen)
        entered: dict[Key, list[tuple[float, float, int]]] = {}
        for number, item in enumerate(items):
            _clear_caches()
            seen.clear()
            following = items[number + 1] if number + 1 < len(items) else None
            cpu, wall = time.process_time(), time.monotonic()
            if not _passes(item, following):
                message = f"{item.nodeid} fails without any mutation"
                sys.__stderr__.write(f"{message}\n")  # with `-p no:terminal`, pytest prints nothing
                pytest.exit(message, returncode=2)
            took = time.process_time() - cpu, time.monotonic() - wall
            for key in seen:
                entered.setdefault(key, []).append((*took, number))
        for function, code in originals.items():
            function.__code__ = code
        for key, tests in entered.items():
            self._items[key] = [items[number] for *_, number in sorted(tests)]
            self._cpu_sec[key] = LEAST_SEC + FACTOR * int(sum(cpu for cpu, *_ in tests))
            wall = LEAST_SEC + FACTOR * int(sum(wall for _, wall, _ in tests))
            self._wall_sec[key] = WALL_FACTOR * wall

    def _probe(self, path: Path, seen: set[Key]) -> None:
        """Let each function of a module record its call."""
        file = str(path.resolve())
        name = f"{_PROBE}{file}"
        setattr(builtins, name, lambda function: seen.add((file, function)))
        compiled = compile(probed(path.read_text(), name), file, "exec", dont_inherit=True)
        codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compiled)}
        for key, functions in self._functions.items():
            for each in functions if key[0] == file else ():
                each.__code__ = codes[each.__code__.co_qualname, each.__code__.co_firstlineno]

    def _fork(self, key: Key, mutant: Mutant, tests: Sequence[pytest.Item]) -> Outcome:
        """Run the tests against a mutant until one fails; the tests must not outlive this."""
        child = os.fork()
        if child == 0:
            code = _NOT_INSTALLED
            try:
                os.setpgid(0, 0)
                signal.alarm(self._wall_sec[key])  # it ends the process
                resource.setrlimit(resource.RLIMIT_CPU, (self._cpu_sec[key],) * 2)
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
                silent = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silent, 1)
                os.dup2(silent, 2)
                self._install(key, mutant)
                _clear_caches()
                code = _KILLED  # also where a test ends in an error of the runner
                code = _SURVIVED if _all_pass(tests) else _KILLED
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests have started
        if os.waitstatus_to_exitcode(status) == _NOT_INSTALLED:
            raise RuntimeError(f"{key[0]}:{mutant.line}: {mutant.change}: it cannot be compiled")
        return Outcome.SURVIVED if status == _SURVIVED else Outcome.KILLED

    def _install(self, key: Key, mutant: Mutant) -> None:
        """Give the function its mutated code, wherever a reference to it is."""
        compiled = compile(mutant.tree, key[0], "exec", dont_inherit=True)
        for function in self._functions[key]:
            function.__code__ = next(
                code
                for code in _codes(compiled)
                if code.co_qualname == key[1]
                and code.co_firstlineno == function.__code__.co_firstlineno
            )


def functions_of(files: set[str]) -> dict[Key, list[types.FunctionType]]:
    """Return the functions of files: decorated ones, those of classes and copies by slots too.

    Lambdas are left out: they are not mutated, and two in one line cannot be distinguished.
    """
    found: dict[Key, list[types.FunctionType]] = {}
    for each in gc.get_objects():
        if not isinstance(each, types.FunctionType) or each.__code__.co_name == "<lambda>":
            continue
        code = each.__code__
        if code.co_filename in files:
            found.setdefault((code.co_filename, code.co_qualname), []).append(each)
    return found


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _clear_caches() -> None:
    for cached in _caches():
        cached.cache_clear()


@functools.cache
def _caches() -> tuple[functools._lru_cache_wrapper[object], ...]:
    own = _caches
    # those of tests too: some keep what a function returned before it was mutated
    return tuple(
        each
        for each in gc.get_objects()
        if isinstance(each, functools._lru_cache_wrapper)
        and each is not own
        and each.__module__.startswith(("podslice", "tests"))
    )


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    reports = runtestprotocol(item, log=False, nextitem=following)
    return all(report.outcome != "failed" for report in reports)


def _all_pass(items: Sequence[pytest.Item]) -> bool:
    following = [*items[1:], None]
    if all(_passes(item, after) for item, after in zip(items, following, strict=True)):
        return True
    items[0].session._setupstate.teardown_exact(None)  # as pytest does after `-x`
    return False
