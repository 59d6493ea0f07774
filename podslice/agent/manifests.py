"""What the manifest directories want: their pods, compared with the applied pods.

An error in one file does not affect pods of other files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from podslice.errors import Problem, Severity, bounded, printable
from podslice.inputs.budget import FILES_MAX, LIMITS, Budget, BudgetItem, Exhausted
from podslice.inputs.manifest.load import LoadedPods, load_text
from podslice.inputs.source import describe_error, list_manifests, read_manifest
from podslice.kernel.files import TooLargeError
from podslice.model.config import Validate
from podslice.model.desired import PodDecision, Refusal
from podslice.model.node_state import Eviction
from podslice.model.pod import Pod
from podslice.policy.admit import NAME_IN_USE
from podslice.policy.allocatable import validate_node
from podslice.policy.decide import decide_each
from podslice.reconcile.assess import is_evicted
from podslice.reconcile.world import World
from podslice.store.adopted_services import by_pod, read_adopted
from podslice.store.files import Stamp, stamp
from podslice.store.store import Records

REFUSALS_MAX = 8
"""Files above the limits that one call reads; each may cost as much as all accepted files."""
_LATER = f"is not read yet: {REFUSALS_MAX} other manifests exceeded the limits first"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestContents:
    """The contents of the directories."""

    pods: tuple[Pod, ...] = ()
    """The valid pods, by key."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The paths of the files of the pods, by uid."""
    problems: tuple[Problem, ...] = ()
    """All errors and warnings."""
    broken: frozenset[str] = frozenset()
    """The files with an error: they may contain pods that were not read."""
    unread: frozenset[str] = frozenset()
    """The directories that cannot be read."""
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


class _ReadFile(NamedTuple):
    """A file as it was read."""

    stamp: Stamp | None
    """None if it could not be read."""
    loaded: LoadedPods
    used: Mapping[BudgetItem, int] = MappingProxyType({})
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
        self._used: dict[BudgetItem, int] = {}
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
        paths = [path for each in self._directories for path in _list_files(each, unread)]
        kept: dict[str, _ReadFile] = {}
        new: list[tuple[int, str, Stamp | None]] = []
        for path in paths:
            try:
                status = os.stat(path)  # noqa: PTH116 - hundreds of times in each round
                size, now = status.st_size, stamp(status)
            except OSError:
                size, now = 0, None  # reading it reports the reason
            known = self._read.get(path)
            if known is not None and now and known.stamp == now and not known.lacked:
                kept[path] = known
            else:
                new.append((size, path, now))
        budget = Budget(limits=self._limits, used=dict(self._used))
        # what changed or removed files had is free first, so that a file may replace another
        for path in self._read.keys() - kept.keys():
            budget.release(self._read[path].used)
        # by size: one huge manifest must not keep many small ones out
        later = self._take_all(sorted(new, key=lambda each: each[:2]), budget, kept)
        self._read = {path: kept[path] for path in paths if path in kept}
        self._used = budget.used
        files = {path: file.loaded for path, file in self._read.items()}
        files |= {path: _unreadable(path, _LATER) for path in later}
        return replace(_join(files, unread, owners or {}), is_partial=bool(later))

    def _take_all(
        self,
        files: Iterable[tuple[int, str, Stamp | None]],
        budget: Budget,
        kept: dict[str, _ReadFile],
    ) -> list[str]:
        """Read files into `kept`; return those that are left to the next call."""
        refusals, later = 0, list[str]()
        for _, path, now in files:
            known = self._read.get(path)
            if known is not None and known.lacked is not None and known.stamp == now:
                item, left = known.lacked
                if budget.left(item) <= left:
                    kept[path] = known  # it would be refused again
                    continue
            if refusals == REFUSALS_MAX:
                later.append(path)
                continue
            taken = self._take(path, budget)
            if taken is not None:
                kept[path] = taken
                refusals += taken.lacked is not None
        return later

    def _take(self, path: str, budget: Budget) -> _ReadFile | None:
        """Read a file and charge the budget; return None if it does not exist."""
        name, part = printable(path), budget.part()
        status: os.stat_result | None = None
        try:
            data, status = read_manifest(path, budget.left(BudgetItem.BYTES))
            part.charge(BudgetItem.BYTES, len(data))
            loaded = load_text(data, name, part, validate=self._validate)
        except FileNotFoundError:
            is_link = Path(path).is_symlink()
            return _ReadFile(None, _unreadable(path, "is a broken link")) if is_link else None
        except TooLargeError:
            problem = budget.exhausted(BudgetItem.BYTES).at(name)
            return _ReadFile(None, LoadedPods(problems=(problem,)))
        except (OSError, ValueError) as error:
            return _ReadFile(None, _unreadable(path, describe_error(error)))
        except Exhausted as error:
            return _ReadFile(
                None if status is None else stamp(status),
                LoadedPods(problems=(error.at(name),)),
                lacked=(error.item, budget.left(error.item)),
            )
        used = {item: amount - budget.used.get(item, 0) for item, amount in part.used.items()}
        budget.take(part)
        return _ReadFile(stamp(status), loaded, used)


def _unreadable(path: str, message: str) -> LoadedPods:
    return LoadedPods(problems=(Problem(where=printable(path), message=message),))


def _list_files(directory: str, unread: dict[str, Problem]) -> list[str]:
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


def _has_error(loaded: LoadedPods) -> bool:
    return any(problem.severity is Severity.ERROR for problem in loaded.all_problems)


def _join(
    files: Mapping[str, LoadedPods], unread: Mapping[str, Problem], owners: Mapping[str, str]
) -> ManifestContents:
    """Return the contents of all files; no two pods share a name or a uid."""
    problems = [*unread.values()]
    broken: set[str] = set()
    found: dict[str, tuple[Pod, str]] = {}
    claims = _Claims(files, unread, owners)
    for path, loaded in files.items():
        clashes = []
        for pod in loaded.pods:
            if (clash := claims.claim(pod, path)) is not None:
                clashes.append(clash)
            elif not pod.problems or pod.is_valid:
                found[pod.key] = (pod, path)
        if clashes or _has_error(loaded):
            broken.add(path)
        problems += (*loaded.all_problems, *clashes)
    return ManifestContents(
        pods=tuple(found[key][0] for key in sorted(found)),
        sources={pod.uid: path for pod, path in found.values()},
        problems=bounded(tuple(dict.fromkeys(problems))),
        broken=frozenset(broken),
        unread=frozenset(unread),
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
        self._names: dict[str, set[str] | None] = {}
        """The names and uids in files that were looked up; None for a file with an error."""

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
        loaded = self._files.get(path)
        if loaded is None:
            return str(Path(path).parent) in self._unread
        if path not in self._names:
            names = {each for pod in loaded.pods for each in (pod.key, pod.uid)}
            self._names[path] = None if _has_error(loaded) else names
        found = self._names[path]
        return found is None or name in found


class WantedPods(NamedTuple):
    """The pods to apply and to stop."""

    contents: ManifestContents
    candidates: tuple[PodDecision, ...]
    """The valid pods that are new or changed."""
    digests: Mapping[str, str]
    """The digests of the pods of manifests, by uid."""
    waiting: tuple[Refusal, ...]
    """The pods that wait for the end of another pod with their name or uid."""
    problems: tuple[Problem, ...]
    """All problems of pods in readable files, and of the node."""
    is_unwanted: Callable[[Pod], bool]
    """Whether an applied pod is to be stopped, and is not terminating yet."""
    held: tuple[Problem, ...]
    """The problems among them of pods that stay as they are, because services start in them."""
    errors: Mapping[str, tuple[Problem, ...]]
    """The errors of pods in readable files, by file."""
    is_incomplete: bool
    """Whether another round is needed: a pod has to wait until another one with its name or uid,
    which is not terminating yet, is removed, or manifests are not read yet."""
    unrecorded: tuple[Pod, ...]
    """The pods without a record, known from their slices only."""
    records: Records
    """The records that this is based on."""


class _CheckedPod(NamedTuple):
    """A pod of a manifest, with its problems."""

    pod: Pod
    digest: str
    problems: tuple[Problem, ...]


class WantedPodsReader:
    """Compares manifests with records; an unchanged pod is checked once."""

    def __init__(
        self,
        world: World,
        manifests: ManifestDirectories,
        *,
        terminating: Collection[str] = (),
        unwritten: Mapping[str, Eviction] = MappingProxyType({}),
    ) -> None:
        """Read nothing yet. An agent does not apply some pods for now; these arguments may change.

        Args:
            world: the records, and the node and the configuration that decide.
            manifests: the manifests.
            terminating: the uids of terminating pods.
            unwritten: the marks of evicted pods that could not be written, by the pods' uids.
        """
        self._world = world
        self._manifests = manifests
        self._terminating = terminating
        self._unwritten = unwritten
        self._checked: dict[str, _CheckedPod] = {}

    def read(self, unrecorded: Iterable[Pod] = ()) -> WantedPods:
        """Compare manifests with records now.

        Args:
            unrecorded: pods whose records are lost, and that may conflict with pods of manifests.

        Raises:
            HostError: the records cannot be read.
        """
        world = self._world
        records = world.store.load()
        owners = {
            name: source
            for pod in records.pods
            if (source := records.sources.get(pod.uid)) is not None
            for name in (pod.key, pod.uid)
        }
        contents = self._manifests.read(owners)
        unrecorded = tuple(pod for pod in unrecorded if pod.uid not in records.digests)
        self._checked = self._check_all(contents.pods)
        comparison = _Comparison(
            world, contents, records, unrecorded, self._terminating, self._unwritten
        )
        for checked in self._checked.values():
            comparison.add(checked)
        comparison.add_kept()
        # only new and changed pods: those that are applied are decided by the assessment
        candidates = [
            decision
            for decision in decide_each(comparison.new, world.node, world.config)
            if not comparison.holds_class(decision)
        ]
        of_node = validate_node(world.node, world.config)
        problems = dict.fromkeys((*of_node, *comparison.problems, *comparison.held))
        return WantedPods(
            contents=contents,
            candidates=tuple(candidates),
            digests={uid: each.digest for uid, each in self._checked.items()},
            waiting=tuple(comparison.waiting),
            problems=bounded(tuple(problems)),
            held=tuple(comparison.held),
            is_unwanted=comparison.is_unwanted,
            errors={path: bounded(tuple(found)) for path, found in comparison.errors.items()},
            is_incomplete=contents.is_partial or comparison.is_waiting,
            unrecorded=unrecorded,
            records=records,
        )

    def read_again(self, wanted: WantedPods) -> WantedPods:
        """Return the same, unless the records have changed.

        Raises:
            HostError: as `read`.
        """
        is_same = self._world.store.load() == wanted.records
        return wanted if is_same else self.read(wanted.unrecorded)

    def _check_all(self, pods: Sequence[Pod]) -> dict[str, _CheckedPod]:
        """Return each pod with its problems, by its uid; unchanged pods are not checked again."""
        world, known = self._world, self._checked
        checked = {
            pod.uid: before
            for pod in pods
            if (before := known.get(pod.uid)) is not None and before.pod is pod
        }
        new = [pod for pod in pods if pod.uid not in checked]
        for decision in decide_each(new, world.node, world.config):
            pod = decision.pod
            checked[pod.uid] = _CheckedPod(pod, world.store.digest(pod), decision.problems)
        return {pod.uid: checked[pod.uid] for pod in pods}


class _Comparison:
    """Compares pods of manifests with applied pods, one by one."""

    def __init__(
        self,
        world: World,
        contents: ManifestContents,
        records: Records,
        unrecorded: Iterable[Pod],
        terminating: Collection[str],
        unwritten: Mapping[str, Eviction],
    ) -> None:
        self._flag, self._digest = world.manager.flag, world.store.digest
        self._contents, self._records = contents, records
        self._adopted = by_pod(read_adopted(world.manager))
        # This runs in a thread while pods terminate: the comparison needs one state, and
        # `is_unwanted`, which is called later, the present one.
        self._terminating_now, self._terminating = terminating, frozenset(terminating)
        self._unwritten = unwritten
        self._marked = {mark.uid for mark in records.evicted}
        self._uids = {pod.key: pod.uid for pod in contents.pods}
        self._keys = {pod.uid: pod.key for pod in contents.pods}
        self._applied: dict[str, tuple[Pod, ...]] = {}
        for pod in (*records.pods, *unrecorded):
            alone = (pod,)
            for name in (pod.key, pod.uid):
                others = self._applied.get(name)
                self._applied[name] = alone if others is None else (*others, pod)
        self.new: list[Pod] = []
        self.problems: dict[Problem, None] = {}
        self.errors: dict[str, dict[Problem, None]] = {}
        self.held: list[Problem] = []
        self.waiting: list[Refusal] = []
        self.is_waiting = False

    def add(self, checked: _CheckedPod) -> None:
        """Compare a pod."""
        pod, source = checked.pod, self._contents.sources[checked.pod.uid]
        others = self._conflicting(pod)
        found = (*checked.problems, *self._conflicts(pod, others))
        self.problems |= dict.fromkeys(found)
        if errors := [each for each in found if each.severity is Severity.ERROR]:
            self.errors.setdefault(source, {}).update(dict.fromkeys(errors))
        elif others:
            # the end of a terminating pod requests a round
            self.is_waiting |= any(
                other.uid not in self._terminating and other.key not in self._adopted
                for other in others
            )
            names = " and ".join(f"{other.key}, uid {other.uid}" for other in others)
            message = f"waits until pod {names} is removed: it has the name or the uid of this pod"
            self.waiting.append(Refusal(pod=pod.key, reason=NAME_IN_USE, message=message))
        elif not self._is_applied(checked, source) and not (
            pod.uid in self._terminating or self._is_evicted_unwritten(pod)
        ):
            self.new.append(pod)

    def add_kept(self) -> None:
        """Add a problem for each pod that remains without a manifest, because of its services."""
        for pod in self._records.pods if self._adopted else ():
            services = self._adopted.get(pod.key)
            if services and self._is_lost(pod) and pod.uid not in self._terminating:
                listed = ", ".join(each.unit for each in services)
                message = f"pod {pod.key} is no longer in it, but services start in the pod:"
                self.held.append(
                    Problem(
                        where=self._records.sources[pod.uid],
                        message=f"{message} {listed}",
                        hint=f"to remove it: podslice delete{self._flag} {pod.key} --restart",
                    )
                )

    def holds_class(self, decision: PodDecision) -> bool:
        """Return whether a pod stays in its slice, because services start there; add a problem.

        Only a verb can write their drop-ins again.
        """
        pod = decision.pod
        services = self._adopted.get(pod.key, ())
        stale = [each.unit for each in services if each.slice != decision.slice]
        if not stale or pod.uid not in self._records.digests:
            return False
        units, flag = " ".join(stale), self._flag
        message = f"pod {pod.key} would be {decision.qos}, but services start in its present slice:"
        self.held.append(
            Problem(
                where=pod.where,
                message=f"{message} {', '.join(stale)}",
                hint=f"systemctl{flag} stop {units} && podslice apply{flag} && systemctl{flag} start"
                f" {units}",
            )
        )
        return True

    def is_unwanted(self, pod: Pod) -> bool:
        """Return whether an applied pod is to be stopped, and is not terminating yet."""
        if pod.uid in self._terminating_now:
            return False
        # an evicted pod may be stopped already, so that only its record is left to remove
        if self._is_evicted_unwritten(pod) or is_evicted(pod, self._records):
            return True
        return self._is_lost(pod) and pod.key not in self._adopted

    def _is_applied(self, checked: _CheckedPod, source: str) -> bool:
        """Return whether a pod is applied from this manifest, and not evicted."""
        uid, records = checked.pod.uid, self._records
        return (
            records.digests.get(uid) == checked.digest
            and records.sources.get(uid) == source
            and uid not in self._marked
        )

    def _is_lost(self, pod: Pod) -> bool:
        """Return whether the manifest that an applied pod came from no longer has it."""
        source = self._records.sources.get(pod.uid)
        if source is None:
            return False
        is_replaced = (
            self._uids.get(pod.key, pod.uid) != pod.uid
            or self._keys.get(pod.uid, pod.key) != pod.key
        )
        return is_replaced or self._contents.has_lost(pod, source)

    def _conflicting(self, pod: Pod) -> list[Pod]:
        """Return the applied pods that share either the name or the uid of a pod."""
        by_key, by_uid = self._applied.get(pod.key, ()), self._applied.get(pod.uid, ())
        if by_key is by_uid:  # one pod or none, for almost all pods of each round
            return []
        others = (*by_key, *by_uid)
        return [each for each in others if (each.key == pod.key) != (each.uid == pod.uid)]

    def _conflicts(self, pod: Pod, others: Iterable[Pod]) -> Iterator[Problem]:
        """Yield the conflicts with pods that were not applied from a manifest directory."""
        for other in others:
            if self._records.sources.get(other.uid) is None:
                delete = f"podslice delete{self._flag} -n {other.namespace} {other.name}"
                what = f"pod {other.key}, uid {other.uid}"
                yield Problem(
                    where=pod.where,
                    message=f"conflicts with {what}, which was applied by hand",
                    hint=f"delete that pod first: {delete}",
                )

    def _is_evicted_unwritten(self, pod: Pod) -> bool:
        """Return whether a pod was evicted with this manifest, and its mark is not written."""
        mark = self._unwritten.get(pod.uid)
        return mark is not None and mark.digest == self._digest(pod)
