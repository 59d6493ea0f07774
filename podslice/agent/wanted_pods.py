"""The pods of manifests that are not applied yet, and the applied pods that are unwanted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from podslice.agent.manifest_files import ManifestContents, ManifestDirectories
from podslice.errors import Problem, Severity, bounded
from podslice.model.desired import PodDecision, Refusal
from podslice.model.node_state import Eviction
from podslice.model.pod import Pod
from podslice.policy.admit import NAME_IN_USE
from podslice.policy.allocatable import validate_node
from podslice.policy.decide import decide_each
from podslice.reconcile.readmission import is_evicted
from podslice.reconcile.world import World
from podslice.store.adopted_services import by_pod, read_adopted
from podslice.store.store import Records


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


class HeldPods(NamedTuple):
    """The pods that an agent does not apply for now; what it refers to may change."""

    terminating: Collection[str] = ()
    """The uids of terminating pods."""
    get_unwritten: Callable[[str], Eviction | None] = lambda _: None
    """Returns the mark of an evicted pod, by uid, that could not be written."""


class _CheckedPod(NamedTuple):
    """A pod of a manifest, with its problems."""

    pod: Pod
    digest: str
    problems: tuple[Problem, ...]


class WantedPodsReader:
    """Compares manifests with records; an unchanged pod is checked once."""

    def __init__(
        self,
        world: Callable[[], World],
        manifests: ManifestDirectories,
        held: Callable[[], HeldPods] = HeldPods,
    ) -> None:
        """`world` and `held` return what applies when a comparison begins."""
        self._world = world
        self._manifests = manifests
        self._held = held
        self._checked: dict[str, _CheckedPod] = {}

    def read(self, unrecorded: Iterable[Pod] = ()) -> WantedPods:
        """Compare manifests with records now.

        Args:
            unrecorded: pods whose records are lost, and that may conflict with pods of manifests.

        Raises:
            HostError: the records cannot be read.
        """
        world = self._world()
        records = world.store.load()
        owners = {
            name: source
            for pod in records.pods
            if (source := records.sources.get(pod.uid)) is not None
            for name in (pod.key, pod.uid)
        }
        contents = self._manifests.read(owners)
        unrecorded = tuple(pod for pod in unrecorded if pod.uid not in records.digests)
        self._checked = self._check_all(contents)
        comparison = _Comparison(world, contents, records, unrecorded, held=self._held())
        for checked in self._checked.values():
            comparison.add(checked)
        comparison.add_kept()
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
        records = self._world().store.load()
        if records == wanted.records:
            return wanted
        return self.read(wanted.unrecorded)

    def _check_all(self, contents: ManifestContents) -> dict[str, _CheckedPod]:
        """Return each pod with its problems, by its uid; reuse those of unchanged pods."""
        world, known = self._world(), self._checked
        pods = [each.pod for each in contents.pods]
        checked = {
            pod.uid: before
            for pod in pods
            if (before := known.get(pod.uid)) is not None and before.pod is pod
        }
        new = [pod for pod in pods if pod.uid not in checked]
        for decision in decide_each(new, world.node, world.config):
            pod = decision.pod
            digest = world.store.digest(pod)
            checked[pod.uid] = _CheckedPod(pod=pod, digest=digest, problems=decision.problems)
        return {pod.uid: checked[pod.uid] for pod in pods}


class _Comparison:
    """Compares pods of manifests with applied pods, one by one."""

    def __init__(
        self,
        world: World,
        contents: ManifestContents,
        records: Records,
        unrecorded: Iterable[Pod],
        *,
        held: HeldPods,
    ) -> None:
        self._flag = world.manager.flag
        self._contents = contents
        self._adopted = by_pod(read_adopted(world.manager))
        self._records = records
        self._held = held
        self._digest = world.store.digest
        self._terminating = frozenset(held.terminating)
        self._marked = {mark.uid for mark in records.evicted}
        self._uids = {each.pod.key: each.pod.uid for each in contents.pods}
        self._keys = {each.pod.uid: each.pod.key for each in contents.pods}
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
        if not others and not checked.problems:
            self._add_new(checked, source)
            return
        found = (*checked.problems, *_conflicts(pod, others, self._records.sources, self._flag))
        self.problems |= dict.fromkeys(found)
        errors = [each for each in found if each.severity is Severity.ERROR]
        if errors:
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
        else:
            self._add_new(checked, source)

    def _add_new(self, checked: _CheckedPod, source: str) -> None:
        """Add a pod that is not applied from this manifest, and not held back."""
        pod, records = checked.pod, self._records
        is_applied = (
            records.digests.get(pod.uid) == checked.digest
            and records.sources.get(pod.uid) == source
            and pod.uid not in self._marked
        )
        is_held_back = pod.uid in self._terminating or self._is_evicted_unwritten(pod)
        if not is_applied and not is_held_back:
            self.new.append(pod)

    def is_unwanted(self, pod: Pod) -> bool:
        """Return whether an applied pod is to be stopped, and is not terminating yet."""
        if pod.uid in self._held.terminating:
            return False
        # an evicted pod may be stopped already, so that only its record is left to remove
        if self._is_evicted_unwritten(pod) or is_evicted(pod, self._records):
            return True
        return self._is_lost(pod) and pod.key not in self._adopted

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
        stale = [
            each.unit for each in self._adopted.get(pod.key, ()) if each.slice != decision.slice
        ]
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
        return [
            other
            for other in (*by_key, *by_uid)
            if (other.key == pod.key) != (other.uid == pod.uid)
        ]

    def _is_evicted_unwritten(self, pod: Pod) -> bool:
        """Return whether a pod was evicted with this manifest, and its mark is not written."""
        mark = self._held.get_unwritten(pod.uid)
        return mark is not None and mark.digest == self._digest(pod)


def _conflicts(
    pod: Pod, others: Iterable[Pod], sources: Mapping[str, str], flag: str
) -> list[Problem]:
    """Return the conflicts with pods that were not applied from a manifest directory."""
    return [
        Problem(
            where=pod.where,
            message=f"conflicts with pod {other.key}, uid {other.uid}, which was applied by hand",
            hint=f"delete that pod first: podslice delete{flag} -n {other.namespace} {other.name}",
        )
        for other in others
        if sources.get(other.uid) is None
    ]
