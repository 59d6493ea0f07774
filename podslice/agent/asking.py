"""What the manifests ask for beyond what is recorded, and which pods have to go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from podslice.agent.board import Board
from podslice.agent.manifests import Manifests, Wishes
from podslice.errors import Problem, Severity
from podslice.model.desired import PodDecision
from podslice.model.pod import Pod
from podslice.policy.allocatable import validate_node
from podslice.policy.decide import decide
from podslice.reconcile.cordon import is_evicted
from podslice.steps import finish
from podslice.store import Records


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
    """Whether a pod can come only once another one of its name, or its uid, has gone that is not on
    its way."""
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

    def read(self, unrecorded: Iterable[Pod] = ()) -> Asked:
        """What is asked for now.

        Args:
            unrecorded: pods whose records are lost; nothing else tells that they are in the way.

        Raises:
            HostError: the records can't be read.
        """
        world = self._board.world
        records = world.store.load()
        wishes = finish(self._manifests.read(_owners(records)))
        unrecorded = tuple(pod for pod in unrecorded if pod.uid not in records.digests)
        self._judged = {wish.pod.uid: self._judge(wish.pod) for wish in wishes.pods}
        applied: dict[str, list[Pod]] = {}
        for other in (*records.pods, *unrecorded):
            for name in (other.key, other.uid):
                applied.setdefault(name, []).append(other)
        marked = {mark.uid for mark in records.evicted}
        problems = list(validate_node(world.node, world.config))
        wrong: dict[str, tuple[Problem, ...]] = {}
        candidates, is_waiting = [], False
        under_way = frozenset(world.ends.under_way)
        for judged in self._judged.values():
            pod, source = judged.pod, wishes.sources[judged.pod.uid]
            others = [
                other
                for other in (*applied.get(pod.key, ()), *applied.get(pod.uid, ()))
                if (other.key == pod.key) != (other.uid == pod.uid)
            ]
            found = (*judged.problems, *_in_the_way(pod, others, records.sources))
            problems += found
            errors = tuple(each for each in found if each.severity is Severity.ERROR)
            is_there = (
                records.digests.get(pod.uid) == judged.digest
                and records.sources.get(pod.uid) == source
                and pod.uid not in marked
            )
            if errors:
                wrong[source] = (*wrong.get(source, ()), *errors)
            elif others:
                # the end of one that is under way is told of
                is_waiting |= not under_way.issuperset(other.uid for other in others)
            elif not is_there and not self._is_kept_away(pod) and pod.uid not in under_way:
                candidates.append(decide(pod, world.node, world.config))
        self._board.set_problems("pods", problems)
        return Asked(
            wishes=wishes,
            candidates=tuple(candidates),
            goes=self._who_goes(wishes, records),
            wrong=wrong,
            is_waiting=is_waiting,
            unrecorded=unrecorded,
            records=records,
        )

    def read_again(self, asked: Asked) -> Asked:
        """The same, unless other pods are applied by now.

        Raises:
            HostError: as `read`.
        """
        if self._board.world.store.load() == asked.records:
            return asked
        return self.read(asked.unrecorded)

    def _judge(self, pod: Pod) -> _Judged:
        before = self._judged.get(pod.uid)
        if before is not None and before.pod is pod:
            return before
        world = self._board.world
        return _Judged(
            pod=pod,
            digest=world.store.digest(pod),
            problems=decide(pod, world.node, world.config).problems,
        )

    def _who_goes(self, wishes: Wishes, records: Records) -> Callable[[Pod], bool]:
        under_way = self._board.world.ends.under_way
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
