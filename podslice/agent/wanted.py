"""What the manifests ask for beyond what is recorded, and which pods have to go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from podslice.agent.board import Board
from podslice.agent.manifest_files import Manifests, Wishes
from podslice.errors import Problem, Severity, bounded
from podslice.model.desired import PodDecision
from podslice.model.pod import Pod
from podslice.pausable import Steps, paced
from podslice.policy.allocatable import validate_node
from podslice.policy.replicas import decide_each
from podslice.reconcile.readmission import is_evicted
from podslice.store import Records

_PODS_PER_STEP = 100
"""Pods that are compared between two pauses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked for at this moment."""

    wishes: Wishes
    candidates: tuple[PodDecision, ...]
    """The pods that are new, or others than before; nothing is wrong with them."""
    goes: Callable[[Pod], bool]
    """Whether an applied pod has to go, and is not on its way."""
    wrong: Mapping[str, tuple[Problem, ...]]
    """The errors of pods that can be read, by the file that each is in."""
    is_waiting: bool
    """Whether another look is due: a pod can come only once another one of its name, or its uid, has
    gone that is not on its way, or manifests are not read yet."""
    unrecorded: tuple[Pod, ...]
    """The pods that only their slices tell of."""
    records: Records
    """What was applied when this was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """What was found of a pod that a manifest asks for."""

    pod: Pod
    digest: str
    problems: tuple[Problem, ...]


class Asking:
    """Compares manifests with records; a pod that has not changed is judged once."""

    def __init__(self, board: Board, manifests: Manifests) -> None:
        self._board = board
        self._manifests = manifests
        self._judged: dict[str, _Judged] = {}

    def read(self, unrecorded: Iterable[Pod] = ()) -> Steps[Asked]:
        """Return what is asked for now.

        Args:
            unrecorded: pods whose records are lost; nothing else tells that they are in the way.

        Raises:
            HostError: the records can't be read.
        """
        world = self._board.world
        records = yield from world.store.loading()
        wishes = yield from self._manifests.read(_owners(records))
        unrecorded = tuple(pod for pod in unrecorded if pod.uid not in records.digests)
        self._judged = yield from self._judge_all(wishes)
        applied: dict[str, list[Pod]] = {}
        for other in (*records.pods, *unrecorded):
            for name in (other.key, other.uid):
                applied.setdefault(name, []).append(other)
        marked = {mark.uid for mark in records.evicted}
        problems = dict.fromkeys(validate_node(world.node, world.config))
        wrong: dict[str, dict[Problem, None]] = {}
        new: list[Pod] = []
        is_waiting = wishes.is_partial
        under_way = frozenset(self._board.terminating.in_progress)
        for judged in paced(self._judged.values(), _PODS_PER_STEP):
            if judged is None:
                yield
                continue
            pod, source = judged.pod, wishes.sources[judged.pod.uid]
            others = [
                other
                for other in (*applied.get(pod.key, ()), *applied.get(pod.uid, ()))
                if (other.key == pod.key) != (other.uid == pod.uid)
            ]
            found = (*judged.problems, *_in_the_way(pod, others, records.sources))
            problems |= dict.fromkeys(found)
            errors = tuple(each for each in found if each.severity is Severity.ERROR)
            is_there = (
                records.digests.get(pod.uid) == judged.digest
                and records.sources.get(pod.uid) == source
                and pod.uid not in marked
            )
            if errors:
                wrong.setdefault(source, {}).update(dict.fromkeys(errors))
            elif others:
                # the end of one that is under way is told of
                is_waiting |= not under_way.issuperset(other.uid for other in others)
            elif not is_there and not self._is_kept_away(pod) and pod.uid not in under_way:
                new.append(pod)
        candidates: list[PodDecision] = []
        for decision in decide_each(new, world.node, world.config):
            candidates.append(decision)
            yield
        self._board.set_problems("pods", bounded(tuple(problems)))
        return Asked(
            wishes=wishes,
            candidates=tuple(candidates),
            goes=self._who_goes(wishes, records),
            wrong={source: bounded(tuple(errors)) for source, errors in wrong.items()},
            is_waiting=is_waiting,
            unrecorded=unrecorded,
            records=records,
        )

    def read_again(self, asked: Asked) -> Steps[Asked]:
        """Return the same, unless other pods are applied by now.

        Raises:
            HostError: as `read`.
        """
        records = yield from self._board.world.store.loading()
        if records == asked.records:
            return asked
        return (yield from self.read(asked.unrecorded))

    def _judge_all(self, wishes: Wishes) -> Steps[dict[str, _Judged]]:
        """Return what was found of each pod, by its uid; one that has not changed keeps that."""
        world, known = self._board.world, self._judged
        pods = [wish.pod for wish in wishes.pods]
        judged = {pod.uid: known[pod.uid] for pod in pods if _is_judged(pod, known)}
        yield
        new = [pod for pod in pods if pod.uid not in judged]
        for decision in decide_each(new, world.node, world.config):
            pod = decision.pod
            digest = world.store.digest(pod)
            judged[pod.uid] = _Judged(pod=pod, digest=digest, problems=decision.problems)
            yield
        return {pod.uid: judged[pod.uid] for pod in pods}

    def _who_goes(self, wishes: Wishes, records: Records) -> Callable[[Pod], bool]:
        under_way = self._board.terminating.in_progress
        uids = {wish.pod.key: wish.pod.uid for wish in wishes.pods}
        keys = {wish.pod.uid: wish.pod.key for wish in wishes.pods}

        def goes(pod: Pod) -> bool:
            if pod.uid in under_way:
                return False
            # what was evicted may be stopped already, with nothing left to do but its record
            if self._is_kept_away(pod) or is_evicted(pod, records):
                return True
            source = records.sources.get(pod.uid)
            if source is None:
                return False
            is_another = (
                uids.get(pod.key, pod.uid) != pod.uid or keys.get(pod.uid, pod.key) != pod.key
            )
            return is_another or wishes.has_lost(pod, source)

        return goes

    def _is_kept_away(self, pod: Pod) -> bool:
        """Whether it was evicted as it is, and that could not be written."""
        mark = self._board.unwritten.get(pod.uid)
        return mark is not None and mark.digest == self._board.world.store.digest(pod)


def _owners(records: Records) -> dict[str, str]:
    """Return the files that applied pods came from, by the pods' names and uids."""
    return {
        name: source
        for pod in records.pods
        if (source := records.sources.get(pod.uid)) is not None
        for name in (pod.key, pod.uid)
    }


def _is_judged(pod: Pod, known: Mapping[str, _Judged]) -> bool:
    before = known.get(pod.uid)
    return before is not None and before.pod is pod


def _in_the_way(pod: Pod, others: Iterable[Pod], sources: Mapping[str, str]) -> list[Problem]:
    """Pods that somebody has applied by hand, and that have this one's name or uid."""
    return [
        Problem(
            where=pod.where,
            message=f"pod {other.key} is there with uid {other.uid}, applied by hand",
            hint=f"delete it first: podslice delete -n {other.namespace} {other.name}",
        )
        for other in others
        if sources.get(other.uid) is None
    ]
