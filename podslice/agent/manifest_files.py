"""What the manifest directories ask for. Nothing that is wrong in one file touches another's pods."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from podslice.errors import Problem, Severity, bounded, printable
from podslice.files import TooLargeError
from podslice.inputs.budget import LIMITS, Budget, BudgetItem, Exhausted
from podslice.inputs.limits import FILES_MAX
from podslice.inputs.manifest.load import LoadedPods, load_text
from podslice.inputs.source import list_manifests, read_manifest, worded
from podslice.model.pod import Pod
from podslice.pausable import Steps, paced
from podslice.store.atomic import Stamp, stamp

_FILES_PER_STEP = 100
_PODS_PER_STEP = 500
"""What is looked at between two pauses: a millisecond or two."""
_REFUSALS_MAX = 8
"""Files that one look reads in vain; each may cost as much as all files that are taken."""
_LATER = f"is not read yet: {_REFUSALS_MAX} other manifests exceeded the limits first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A pod that a manifest asks for."""

    pod: Pod
    source: str
    """The path of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What one look at the directories shows."""

    pods: tuple[Wish, ...] = ()
    """The pods that nothing is wrong with, by key."""
    problems: tuple[Problem, ...] = ()
    """Everything that is wrong, with warnings."""
    broken: frozenset[str] = frozenset()
    """The files that have any error: nobody knows what else they ask for."""
    unread: frozenset[str] = frozenset()
    """The directories that can't be read."""
    sources: dict[str, str] = field(default_factory=dict)
    """The file of each wish, by the uid of its pod."""
    is_partial: bool = False
    """Whether files are left that only another look reads."""

    def has_lost(self, pod: Pod, source: str) -> bool:
        """Whether a pod that came from a file is asked for no more.

        The file is gone, or was read without an error and does not have the pod. As long as it is
        broken, or its directory can't be read, the pod stays; so it does when another file has it.
        """
        if pod.uid in self.sources or source in self.broken:
            return False
        return str(Path(source).parent) not in self.unread


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file as it was read."""

    stamp: Stamp | None
    """None where it could not be read."""
    loaded: LoadedPods
    used: Mapping[BudgetItem, int] = field(default_factory=dict)
    """What it takes of the budget."""
    lacked: tuple[BudgetItem, int] | None = None
    """Where it was refused: what the budget did not suffice for, and what was left of that."""


class Manifests:
    """The manifests of some directories; a file that has not changed is not read again.

    All of them have one budget. Files that were taken before keep their part; of the others the
    smaller ones come first. A file that does not fit is refused as a whole, and read again once
    there is more room. After some that do not fit the rest is left to the next look, so that no
    number of them makes one look long.
    """

    def __init__(
        self, directories: Iterable[str], limits: Mapping[BudgetItem, int] = LIMITS
    ) -> None:
        self._directories = tuple(dict.fromkeys(map(_plain, directories)))
        self._limits = limits
        self._read: dict[str, _File] = {}

    def read(self, owners: Mapping[str, str] | None = None) -> Steps[Wishes]:
        """Return what the directories ask for now.

        A pod that several files have, by its name or its uid, belongs to the file that it was
        applied from, as long as that file has it. Otherwise it belongs to the first of them, in the
        order of the directories and then of the files' names. A pod is the same object as long as
        its file does not change.

        Args:
            owners: the files that applied pods came from, by the pods' names and uids.
        """
        unread: dict[str, Problem] = {}
        paths: list[str] = []
        for directory in self._directories:
            paths += yield from _files(directory, unread)
        kept: dict[str, _File] = {}
        new: list[tuple[int, str]] = []
        for path in paced(paths, _FILES_PER_STEP):
            if path is None:
                yield
                continue
            size, known = self._known(path)
            if known is None:
                new.append((size, path))
            else:
                kept[path] = known
        budget = Budget(limits=self._limits)
        for file in kept.values():
            budget.add(file.used)
        later = yield from self._take_all([path for _, path in sorted(new)], budget, kept)
        self._read = {path: kept[path] for path in paths if path in kept}
        files = {path: file.loaded for path, file in self._read.items()}
        files |= {path: _wrong(path, _LATER) for path in later}
        wishes = yield from _join(files, unread, owners or {})
        return replace(wishes, is_partial=bool(later))

    def _take_all(
        self, paths: Iterable[str], budget: Budget, kept: dict[str, _File]
    ) -> Steps[list[str]]:
        """Read files into `kept`; return those that are left to the next look."""
        refusals, later = 0, list[str]()
        for path in paths:
            taken = self._still_refused(path, budget)
            if taken is None and refusals == _REFUSALS_MAX:
                later.append(path)
                continue
            if taken is None:
                taken = yield from self._take(path, budget)
                refusals += taken is not None and taken.lacked is not None
            if taken is not None:
                kept[path] = taken
        return later

    def _known(self, path: str) -> tuple[int, _File | None]:
        """Return a file's size, and the file as it was read, if it was and is the same."""
        try:
            status = os.stat(path)  # noqa: PTH116 - hundreds of times in each round
        except OSError:
            return 0, None  # reading it tells why
        known = self._read.get(path)
        is_same = known is not None and known.stamp == stamp(status) and known.lacked is None
        return status.st_size, known if is_same else None

    def _take(self, path: str, budget: Budget) -> Steps[_File | None]:
        """Read a file, and take what it needs of the budget; None where it is gone."""
        name, part = printable(path), budget.part()
        status: os.stat_result | None = None
        try:
            data, status = read_manifest(path, budget.left(BudgetItem.BYTES))
            part.charge(BudgetItem.BYTES, len(data))
            loaded = yield from load_text(data, name, part)
        except FileNotFoundError:
            is_link = Path(path).is_symlink()
            return _File(stamp=None, loaded=_wrong(path, "is a broken link")) if is_link else None
        except TooLargeError:
            problem = budget.exhausted(BudgetItem.BYTES).at(name)
            return _File(stamp=None, loaded=LoadedPods(problems=(problem,)))
        except (OSError, ValueError) as error:
            return _File(stamp=None, loaded=_wrong(path, worded(error)))
        except Exhausted as error:
            return _File(
                stamp=None if status is None else stamp(status),
                loaded=LoadedPods(problems=(error.at(name),)),
                lacked=(error.kind, budget.left(error.kind)),
            )
        used = {kind: part.used[kind] - budget.used.get(kind, 0) for kind in part.used}
        budget.take(part)
        return _File(stamp=stamp(status), loaded=loaded, used=used)

    def _still_refused(self, path: str, budget: Budget) -> _File | None:
        """Return a file that was refused and is the same, while there is no more room for it."""
        known = self._read.get(path)
        if known is None or known.lacked is None:
            return None
        kind, left = known.lacked
        if budget.left(kind) > left:
            return None
        try:
            return known if known.stamp == stamp(os.stat(path)) else None  # noqa: PTH116
        except OSError:
            return None


def _wrong(path: str, message: str) -> LoadedPods:
    return LoadedPods(problems=(Problem(where=printable(path), message=message),))


def _plain(directory: str) -> str:
    return str(Path(directory))


def _files(directory: str, unread: dict[str, Problem]) -> Steps[list[str]]:
    """Return the manifests of a directory; one that is not there has none."""
    try:
        names = yield from list_manifests(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        message = worded(error)
    else:
        if len(names) <= FILES_MAX:
            return [f"{directory}/{name}" for name in names]
        message = f"the directory has more than {FILES_MAX} manifests"
    hint = "the pods that came from it stay as they are"
    unread[directory] = Problem(where=printable(directory), message=message, hint=hint)
    return []


def _join(
    files: Mapping[str, LoadedPods], unread: Mapping[str, Problem], owners: Mapping[str, str]
) -> Steps[Wishes]:
    """Return the pods of all files; no two have the same name or uid."""
    problems = [*unread.values()]
    broken: set[str] = set()
    wishes: dict[str, Wish] = {}
    claims = _Claims(files, unread, owners)
    for path, loaded in files.items():
        found = [*loaded.all_problems]
        for pod in paced(loaded.pods, _PODS_PER_STEP):
            if pod is None:
                yield
            elif (clash := claims.claim(pod, path)) is not None:
                found.append(clash)
            elif pod.is_valid:
                wishes[pod.key] = Wish(pod=pod, source=path)
        if any(problem.severity is Severity.ERROR for problem in found):
            broken.add(path)
        problems += found
        yield
    pods = tuple(wishes[key] for key in sorted(wishes))
    return Wishes(
        pods=pods,
        problems=bounded(tuple(dict.fromkeys(problems))),
        broken=frozenset(broken),
        unread=frozenset(unread),
        sources={wish.pod.uid: wish.source for wish in pods},
    )


class _Claims:
    """The names and uids of pods, each with the file that it belongs to."""

    def __init__(
        self,
        files: Mapping[str, LoadedPods],
        unread: Mapping[str, Problem],
        owners: Mapping[str, str],
    ) -> None:
        self._files, self._unread, self._owners = files, unread, owners
        self._first: dict[str, str] = {}
        self._names = cache(self._read_names)

    def claim(self, pod: Pod, path: str) -> Problem | None:
        """Claim the name and the uid of a pod for its file; return why that is impossible."""
        if not pod.name:
            return None
        for what, name in (("name", pod.key), ("uid", pod.uid)):
            holder = self._applied_from(name, path) or self._first.setdefault(name, path)
            if holder != path:
                return Problem(
                    where=pod.where,
                    message=f"the {what} {name} is taken by a pod of {printable(holder)}",
                    hint="remove one of the two",
                )
        return None

    def _applied_from(self, name: str, path: str) -> str | None:
        """Return another file that an applied pod of this name came from and may still be in."""
        owner = self._owners.get(name, path)
        return owner if owner != path and self._may_have(owner, name) else None

    def _may_have(self, path: str, name: str) -> bool:
        """Return whether a file has a pod of this name or uid, or cannot be read in full."""
        names = self._names(path)
        if names is None:
            return str(Path(path).parent) in self._unread
        return name in names

    def _read_names(self, path: str) -> Container[str] | None:
        """Return the names and uids that a file may have; None where there is no such file."""
        loaded = self._files.get(path)
        if loaded is None:
            return None
        if any(problem.severity is Severity.ERROR for problem in loaded.all_problems):
            return _EVERYTHING
        return {name for pod in loaded.pods for name in (pod.key, pod.uid)}


class _Everything:
    """Contains whatever is asked for."""

    def __contains__(self, _: object) -> bool:
        return True


_EVERYTHING = _Everything()
