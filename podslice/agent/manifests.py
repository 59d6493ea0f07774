"""What the manifest directories ask for. Nothing that is wrong in one file touches another's pods."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from podslice.errors import InputError, Problem, Severity, printable
from podslice.inputs.limits import BYTES_MAX, FILES_MAX
from podslice.inputs.manifests import Loaded, load_text
from podslice.inputs.source import list_manifests, read_bytes
from podslice.model.pod import Pod
from podslice.store.files import Stamp, stamp


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

    def has_lost(self, pod: Pod, source: str) -> bool:
        """Whether a pod that came from a file is asked for no more.

        The file is gone, or was read without an error and does not have the pod. As long as it is
        broken, or its directory can't be read, the pod stays; so it does when another file has it.
        """
        if pod.uid in self.sources or source in self.broken:
            return False
        return str(Path(source).parent) not in self.unread


class Manifests:
    """The manifests of some directories; a file that has not changed is not read again."""

    def __init__(self, directories: Iterable[str]) -> None:
        self._directories = tuple(dict.fromkeys(map(_plain, directories)))
        self._read: dict[str, tuple[Stamp | None, Loaded]] = {}

    def read(self, owners: Mapping[str, str] | None = None) -> Wishes:
        """Return what the directories ask for now.

        A pod that several files have, by its name or its uid, belongs to the file that it was
        applied from, as long as that file has it. Otherwise it belongs to the first of them, in the
        order of the directories and then of the files' names. A pod is the same object as long as
        its file does not change.

        Args:
            owners: the files that applied pods came from, by the pods' names and uids.
        """
        unread: dict[str, Problem] = {}
        paths = [path for directory in self._directories for path in _files(directory, unread)]
        found = ((path, self._look_at(path)) for path in paths)
        self._read = {path: read for path, read in found if read is not None}
        files = {path: loaded for path, (_, loaded) in self._read.items()}
        return _join(files, unread, owners or {})

    def _look_at(self, path: str) -> tuple[Stamp | None, Loaded] | None:
        """What a file holds, with its stamp where it could be read; None where it is gone."""
        try:
            status = os.stat(path)  # noqa: PTH116 - hundreds of times in each round
            known = self._read.get(path)
            if known is not None and known[0] == stamp(status):
                return known
            if not stat.S_ISREG(status.st_mode):
                return None, _wrong(path, "is not a regular file")  # others might never end
            return stamp(status), load_text(
                read_bytes(Path(path), limit_bytes=BYTES_MAX), printable(path)
            )
        except FileNotFoundError:
            return (None, _wrong(path, "is a broken link")) if Path(path).is_symlink() else None
        except OSError as error:
            return None, _wrong(path, _worded(error))
        except InputError as error:
            return None, Loaded(problems=error.problems)


def _wrong(path: str, message: str) -> Loaded:
    return Loaded(problems=(Problem(where=printable(path), message=message),))


def _worded(error: OSError) -> str:
    message = error.strerror or str(error)
    return message[:1].lower() + message[1:]


def _plain(directory: str) -> str:
    return str(Path(directory))


def _files(directory: str, unread: dict[str, Problem]) -> Iterator[str]:
    """The manifests of a directory; one that is not there has none."""
    try:
        names = list_manifests(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        message = _worded(error)
    else:
        if len(names) <= FILES_MAX:
            yield from (f"{directory}/{name}" for name in names)
            return
        message = f"the directory has more than {FILES_MAX} manifests"
    hint = "the pods that came from it stay as they are"
    unread[directory] = Problem(where=printable(directory), message=message, hint=hint)


def _join(
    files: Mapping[str, Loaded], unread: Mapping[str, Problem], owners: Mapping[str, str]
) -> Wishes:
    """Return the pods of all files; no two have the same name or uid."""
    problems = [*unread.values()]
    broken: set[str] = set()
    wishes: dict[str, Wish] = {}
    claims = _Claims(files, unread, owners)
    for path, loaded in files.items():
        found = [*loaded.all_problems]
        for pod in loaded.pods:
            clash = claims.claim(pod, path)
            if clash is not None:
                found.append(clash)
            elif pod.is_valid:
                wishes[pod.key] = Wish(pod=pod, source=path)
        if any(problem.severity is Severity.ERROR for problem in found):
            broken.add(path)
        problems += found
    pods = tuple(wishes[key] for key in sorted(wishes))
    return Wishes(
        pods=pods,
        problems=tuple(dict.fromkeys(problems)),
        broken=frozenset(broken),
        unread=frozenset(unread),
        sources={wish.pod.uid: wish.source for wish in pods},
    )


class _Claims:
    """The names and uids of pods, each with the file that it belongs to."""

    def __init__(
        self, files: Mapping[str, Loaded], unread: Mapping[str, Problem], owners: Mapping[str, str]
    ) -> None:
        self._files, self._unread, self._owners = files, unread, owners
        self._first: dict[str, str] = {}

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
        loaded = self._files.get(path)
        if loaded is None:
            return str(Path(path).parent) in self._unread
        return any(name in (pod.key, pod.uid) for pod in loaded.pods) or any(
            problem.severity is Severity.ERROR for problem in loaded.all_problems
        )
