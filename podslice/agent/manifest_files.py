"""The pods of manifest directories. An error in one file does not affect pods of other files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from podslice.errors import Problem, Severity, bounded, printable
from podslice.inputs.budget import LIMITS, Budget, BudgetItem, Exhausted
from podslice.inputs.limits import FILES_MAX
from podslice.inputs.manifest.load import LoadedPods, load_text
from podslice.inputs.source import describe_error, list_manifests, read_manifest
from podslice.kernel.files import TooLargeError
from podslice.model.config import Validate
from podslice.model.pod import Pod
from podslice.store.files import Stamp, stamp

REFUSALS_MAX = 8
"""Files above the limits that one call reads; each may cost as much as all accepted files."""
_LATER = f"is not read yet: {REFUSALS_MAX} other manifests exceeded the limits first"


class ManifestPod(NamedTuple):
    """A pod of a manifest."""

    pod: Pod
    source: str
    """The path of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestContents:
    """The contents of the directories."""

    pods: tuple[ManifestPod, ...] = ()
    """The valid pods, by key."""
    problems: tuple[Problem, ...] = ()
    """All errors and warnings."""
    broken: frozenset[str] = frozenset()
    """The files with an error: they may contain pods that were not read."""
    unread: frozenset[str] = frozenset()
    """The directories that cannot be read."""
    sources: dict[str, str] = field(default_factory=dict)
    """The files of the pods, by uid."""
    is_partial: bool = False
    """Whether another call is needed to read all files."""

    def has_lost(self, pod: Pod, source: str) -> bool:
        """Return whether a pod that came from a file is not in any file now.

        The file was removed, or was read without an error and does not contain the pod. As long as
        the file is broken, its directory is unreadable, or another file contains the pod, it stays.
        """
        if pod.uid in self.sources or source in self.broken:
            return False
        return str(Path(source).parent) not in self.unread


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadFile:
    """A file as it was read."""

    stamp: Stamp | None
    """None if it could not be read."""
    loaded: LoadedPods
    used: Mapping[BudgetItem, int] = field(default_factory=dict)
    """Its share of the budget."""
    lacked: tuple[BudgetItem, int] | None = None
    """If it was refused: the exhausted budget item, and how much was left of it."""


class ManifestDirectories:
    """The manifests of directories; an unchanged file is not read again.

    All files share one budget. Accepted files keep their share; of the others the smaller ones are
    read first. A file that does not fit is refused as a whole, and read again once more is left.
    After several refused files the rest is left to the next call, so that one call is never long.
    """

    def __init__(
        self,
        directories: Iterable[str],
        limits: Mapping[BudgetItem, int] = LIMITS,
        *,
        validate: Validate = Validate.STRICT,
    ) -> None:
        """Read nothing yet; `validate` states what an unknown field is."""
        self._validate = validate
        self._directories = tuple(dict.fromkeys(str(Path(each)) for each in directories))
        self._limits = limits
        self._read: dict[str, _ReadFile] = {}
        self._used: Mapping[BudgetItem, int] = {}
        """The share of all of these files in the budget."""

    def read(self, owners: Mapping[str, str] | None = None) -> ManifestContents:
        """Return the present contents of the directories.

        A pod whose name or uid is in several files belongs to the file that it was applied from, as
        long as that file contains it; otherwise to the first file, ordered by directory, then by
        name. A pod is the same object as long as its file does not change.

        Args:
            owners: the files that applied pods came from, by the pods' names and uids.
        """
        unread: dict[str, Problem] = {}
        paths: list[str] = []
        for directory in self._directories:
            paths += _files(directory, unread)
        kept: dict[str, _ReadFile] = {}
        new: list[tuple[int, str]] = []
        for path in paths:
            size, known = self._known(path)
            if known is None:
                new.append((size, path))
            else:
                kept[path] = known
        budget = Budget(limits=self._limits, used=dict(self._used))
        for path in self._read.keys() - kept.keys():
            budget.release(self._read[path].used)
        later = self._take_all([path for _, path in sorted(new)], budget, kept)
        self._read = {path: kept[path] for path in paths if path in kept}
        self._used = budget.used
        files = {path: file.loaded for path, file in self._read.items()}
        files |= {path: _unreadable(path, _LATER) for path in later}
        contents = _join(files, unread, owners or {})
        return replace(contents, is_partial=bool(later))

    def _take_all(
        self, paths: Iterable[str], budget: Budget, kept: dict[str, _ReadFile]
    ) -> list[str]:
        """Read files into `kept`; return those that are left to the next call."""
        refusals, later = 0, list[str]()
        for path in paths:
            taken = self._still_refused(path, budget)
            if taken is None and refusals == REFUSALS_MAX:
                later.append(path)
                continue
            if taken is None:
                taken = self._take(path, budget)
                refusals += taken is not None and taken.lacked is not None
            if taken is not None:
                kept[path] = taken
        return later

    def _known(self, path: str) -> tuple[int, _ReadFile | None]:
        """Return a file's size, and the file as it was read if it is unchanged."""
        try:
            status = os.stat(path)  # noqa: PTH116 - hundreds of times in each round
        except OSError:
            return 0, None  # reading it reports the reason
        known = self._read.get(path)
        is_same = known is not None and known.stamp == stamp(status) and known.lacked is None
        return status.st_size, known if is_same else None

    def _take(self, path: str, budget: Budget) -> _ReadFile | None:
        """Read a file and charge the budget; return None if it does not exist."""
        name, part = printable(path), budget.part()
        status: os.stat_result | None = None
        try:
            data, status = read_manifest(path, budget.left(BudgetItem.BYTES))
            part.charge(BudgetItem.BYTES, len(data))
            loaded = load_text(data, name, part, validate=self._validate)
        except FileNotFoundError:
            if not Path(path).is_symlink():
                return None
            return _ReadFile(stamp=None, loaded=_unreadable(path, "is a broken link"))
        except TooLargeError:
            problem = budget.exhausted(BudgetItem.BYTES).at(name)
            return _ReadFile(stamp=None, loaded=LoadedPods(problems=(problem,)))
        except (OSError, ValueError) as error:
            return _ReadFile(stamp=None, loaded=_unreadable(path, describe_error(error)))
        except Exhausted as error:
            return _ReadFile(
                stamp=None if status is None else stamp(status),
                loaded=LoadedPods(problems=(error.at(name),)),
                lacked=(error.item, budget.left(error.item)),
            )
        used = {kind: part.used[kind] - budget.used.get(kind, 0) for kind in part.used}
        budget.take(part)
        return _ReadFile(stamp=stamp(status), loaded=loaded, used=used)

    def _still_refused(self, path: str, budget: Budget) -> _ReadFile | None:
        """Return a refused file if it is unchanged and the budget has not grown."""
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


def _unreadable(path: str, message: str) -> LoadedPods:
    return LoadedPods(problems=(Problem(where=printable(path), message=message),))


def _files(directory: str, unread: dict[str, Problem]) -> list[str]:
    """Return the manifests of a directory; a missing directory has none."""
    try:
        names = list_manifests(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        message = describe_error(error)
    else:
        if len(names) <= FILES_MAX:
            return [f"{directory}/{name}" for name in names]
        message = f"the directory has more than {FILES_MAX} manifests"
    hint = "pods applied from it remain unchanged"
    unread[directory] = Problem(where=printable(directory), message=message, hint=hint)
    return []


def _join(
    files: Mapping[str, LoadedPods], unread: Mapping[str, Problem], owners: Mapping[str, str]
) -> ManifestContents:
    """Return the contents of all files; no two pods share a name or a uid."""
    problems = [*unread.values()]
    broken: set[str] = set()
    found_pods: dict[str, ManifestPod] = {}
    claims = _Claims(files, unread, owners)
    for path, loaded in files.items():
        found = [*loaded.all_problems]
        for pod in loaded.pods:
            if (clash := claims.claim(pod, path)) is not None:
                found.append(clash)
            elif not pod.problems or pod.is_valid:
                found_pods[pod.key] = ManifestPod(pod=pod, source=path)
        if found and any(problem.severity is Severity.ERROR for problem in found):
            broken.add(path)
        problems += found
    pods = tuple(found_pods[key] for key in sorted(found_pods))
    return ManifestContents(
        pods=pods,
        problems=bounded(tuple(dict.fromkeys(problems))),
        broken=frozenset(broken),
        unread=frozenset(unread),
        sources={each.pod.uid: each.source for each in pods},
    )


class _Claims:
    """The names and uids of pods, with the files that they belong to."""

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
        """Claim the name and the uid of a pod for its file; return the conflict if there is one."""
        if not pod.name:
            return None
        for what, name in (("name", pod.key), ("uid", pod.uid)):
            owner = self._owners.get(name, path)
            # another file that an applied pod came from, and may still be in
            is_other = owner != path and self._may_have(owner, name)
            holder = owner if is_other else self._first.setdefault(name, path)
            if holder != path:
                return Problem(
                    where=pod.where,
                    message=f"the {what} {name} is used by a pod of {printable(holder)}",
                    hint="remove one of the two",
                )
        return None

    def _may_have(self, path: str, name: str) -> bool:
        """Return whether a file contains a pod of this name or uid, or cannot be read in full."""
        if path not in self._files:
            return str(Path(path).parent) in self._unread
        names = self._names(path)
        return names is None or name in names

    def _read_names(self, path: str) -> set[str] | None:
        """Return the names and uids that a file contains; None if it has an error."""
        loaded = self._files[path]
        if any(problem.severity is Severity.ERROR for problem in loaded.all_problems):
            return None
        return {name for pod in loaded.pods for name in (pod.key, pod.uid)}
