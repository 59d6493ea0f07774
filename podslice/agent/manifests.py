"""What the manifest directories ask for. Nothing that is wrong in one file touches another's pods."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
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

    def read(self) -> Wishes:
        """What the directories ask for now.

        A pod that several files have, by its name or its uid, is the first one's, in the order of
        the directories and then of the files' names. A pod is the same object as long as its file
        does not change.
        """
        unread: dict[str, Problem] = {}
        paths = [path for directory in self._directories for path in _files(directory, unread)]
        found = ((path, self._look_at(path)) for path in paths)
        self._read = {path: read for path, read in found if read is not None}
        return _join({path: loaded for path, (_, loaded) in self._read.items()}, unread)

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


def _join(files: dict[str, Loaded], unread: dict[str, Problem]) -> Wishes:
    """The pods of all files, where no two are the same."""
    problems = [*unread.values()]
    broken: set[str] = set()
    wishes: dict[str, Wish] = {}
    first: dict[str, str] = {}
    for path, loaded in files.items():
        found = [*loaded.all_problems]
        for pod in loaded.pods:
            clash = _find_clash(pod, path, first)
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


def _find_clash(pod: Pod, path: str, first: dict[str, str]) -> Problem | None:
    """What is wrong with a pod that another file has already; otherwise it is this one's."""
    for what, key in (("name", pod.key), ("uid", pod.uid)):
        other = first.setdefault(key, path) if pod.name else path
        if other != path:
            return Problem(
                where=pod.where,
                message=f"the {what} {key} is the one of a pod in {printable(other)} already",
                hint="remove one of the two",
            )
    return None
